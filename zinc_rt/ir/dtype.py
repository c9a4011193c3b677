"""Element types of buffers."""

from __future__ import annotations

import enum

from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf.types import GGMLType


class DType(enum.StrEnum):
    """Element types: every format of `zinc_rt.formats.table`, and i32. The quantised ones hold blocks of a row."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I32 = "i32"

    # The quantised formats, as members of this class.
    _ignore_ = "_members _name"
    _members = vars()
    for _name in FORMATS:
        if _name not in _members:
            _members[_name] = _name.lower()

    @classmethod
    def of(cls, ggml: GGMLType) -> DType:
        """The element type of a tensor in a file. Raises ValueError for one that graphs do not have."""
        return cls(ggml.name.lower())

    @property
    def ggml(self) -> GGMLType:
        """The same type by its number in a GGUF file."""
        return GGMLType[self.name]

    @property
    def block_size(self) -> int:
        """Elements of one block; 1 for the plain types."""
        return self.ggml.block_size

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.ggml.block_bytes

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of `n` elements. Raises GGUFError when `n` is no whole number of blocks."""
        return self.ggml.row_bytes(n)


BLOCKS = DType("q8_0")
"""The blocks in which a KV cache may be kept."""

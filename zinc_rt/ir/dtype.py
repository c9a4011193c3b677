"""Element types of buffers."""

from __future__ import annotations

import enum

from zinc_rt.gguf.types import GGMLType


class DType(enum.StrEnum):
    """Element types: those of GGUF that can be computed with, and i32. The `q*` ones hold blocks of a row."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I32 = "i32"
    Q4_0 = "q4_0"
    Q4_1 = "q4_1"
    Q5_0 = "q5_0"
    Q5_1 = "q5_1"
    Q8_0 = "q8_0"
    Q4_K = "q4_k"
    Q5_K = "q5_k"
    Q6_K = "q6_k"

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

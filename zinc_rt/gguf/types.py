"""The numbers of the format: tensor element types with their block sizes, and metadata value types.

Sources: the GGUF specification (ggml repository, `docs/how/gguf.md`) for value types, `ggml.h` and
`ggml-common.h` for type ids and block sizes. Ids that ggml has retired keep their last name and size.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf.errors import GGUFError, UnsupportedTensorType
from zinc_rt.utils.checks import show


class GGMLType(IntEnum):
    """Element type of a tensor. `supported` says whether its values can be computed with here."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q4_2 = 4
    Q4_3 = 5
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    Q4_0_4_4 = 31
    Q4_0_4_8 = 32
    Q4_0_8_8 = 33
    TQ1_0 = 34
    TQ2_0 = 35
    IQ4_NL_4_4 = 36
    IQ4_NL_4_8 = 37
    IQ4_NL_8_8 = 38
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42

    @property
    def block_size(self) -> int:
        """Elements per block; 1 for plain numbers."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes per block."""
        return _BLOCKS[self][1]

    @property
    def supported(self) -> bool:
        """True when `blocks.dequantize` reads this type."""
        return self in SUPPORTED

    @property
    def readable(self) -> bool:
        """Whether something reads tensors of this type: kernels, or an architecture, for tables of integers."""
        return self.supported or self is GGMLType.I32

    @property
    def quantized(self) -> bool:
        """True when elements come in blocks that share a scale."""
        return self.block_size > 1

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of `n` elements. Raises GGUFError when `n` is not a whole number of blocks."""
        size, nbytes = _BLOCKS[self]
        if n < 0 or n % size:
            raise GGUFError(f"a row of {n} elements is no multiple of the {size} of a {self.name} block")
        return n // size * nbytes


# (elements, bytes) of one block of the types whose values are not read here; a record of FORMATS says it of the others.
_UNREAD: Final[dict[GGMLType, tuple[int, int]]] = {
    GGMLType.Q4_2: (16, 10),
    GGMLType.Q4_3: (16, 12),
    GGMLType.Q8_1: (32, 40),
    GGMLType.Q8_K: (256, 292),
    GGMLType.I8: (1, 1),
    GGMLType.I16: (1, 2),
    GGMLType.I32: (1, 4),
    GGMLType.I64: (1, 8),
    GGMLType.F64: (1, 8),
    GGMLType.Q4_0_4_4: (32, 18),
    GGMLType.Q4_0_4_8: (32, 18),
    GGMLType.Q4_0_8_8: (32, 18),
    GGMLType.IQ4_NL_4_4: (32, 18),
    GGMLType.IQ4_NL_4_8: (32, 18),
    GGMLType.IQ4_NL_8_8: (32, 18),
}
SUPPORTED: Final[tuple[GGMLType, ...]] = tuple(GGMLType[name] for name in FORMATS)
_BLOCKS: Final = _UNREAD | {GGMLType[f.name]: (f.block, f.block_bytes) for f in FORMATS.values()}


def unsupported(type: GGMLType, *, name: str | None = None, path: str | None = None) -> UnsupportedTensorType:
    """The error for a type whose values cannot be computed with; `name` is the tensor, when there is one."""
    what = f"tensor {show(name)} has type {type.name}, which" if name else f"tensor type {type.name}"
    return UnsupportedTensorType(
        f"{what} is not supported yet",
        path=path,
        hint=f"supported: {' '.join(t.name for t in SUPPORTED)}",
    )


class ValueType(IntEnum):
    """Type of a metadata value."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# NumPy dtype of each value type of fixed size; a bool is stored as one byte, 0 or 1.
SCALAR_DTYPES: Final[dict[ValueType, str]] = {
    ValueType.UINT8: "<u1",
    ValueType.INT8: "<i1",
    ValueType.UINT16: "<u2",
    ValueType.INT16: "<i2",
    ValueType.UINT32: "<u4",
    ValueType.INT32: "<i4",
    ValueType.FLOAT32: "<f4",
    ValueType.BOOL: "<u1",
    ValueType.UINT64: "<u8",
    ValueType.INT64: "<i8",
    ValueType.FLOAT64: "<f8",
}

# The same as `struct` codes.
SCALAR_CODES: Final[dict[ValueType, str]] = {
    ValueType.UINT8: "<B",
    ValueType.INT8: "<b",
    ValueType.UINT16: "<H",
    ValueType.INT16: "<h",
    ValueType.UINT32: "<I",
    ValueType.INT32: "<i",
    ValueType.FLOAT32: "<f",
    ValueType.BOOL: "<B",
    ValueType.UINT64: "<Q",
    ValueType.INT64: "<q",
    ValueType.FLOAT64: "<d",
}

SCALAR_BYTES: Final[dict[ValueType, int]] = {t: int(code[2]) for t, code in SCALAR_DTYPES.items()}

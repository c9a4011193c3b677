"""Buffer resources of gfx12, four dwords in scalar registers: base, size, and how indices and offsets make addresses.

Fields as Mesa's register headers and its builder of descriptors have them; the range checks are those that it gives
for gfx11 and later.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.operands import wide
from amdgpu_emu.core.state import Array, Group

STRUCTURED_WITH_OFFSET: Final = 0
STRUCTURED: Final = 1
EMPTY: Final = 2
RAW: Final = 3
U64 = np.uint64
_BASE: Final = U64((1 << 48) - 1)


class Descriptor:
    """The buffer resources of a group's waves. base: u64[n]; the others: i64[n]. stride: bytes of a record; swizzle:
    bytes that records of `index_stride` neighbours have side by side, 0 where records are whole; records: of those or,
    raw, bytes; check: which range check; add_lane: whether the lane's number is added to the index.
    """

    def __init__(self, g: Group, register: int) -> None:
        words = [g.s[register + k] for k in range(4)]
        second, third, fourth = (word.astype(np.int64) for word in words[1:])
        self.base: Array = wide(words[0], words[1]) & _BASE
        self.stride = second >> 16 & 0x3FFF
        swizzle = second >> 30 & 3
        self.swizzle: Array = np.where(swizzle > 0, 2 << swizzle, 0)
        self.records = third
        self.index_stride = 8 << (fourth >> 21 & 3)
        self.add_lane = fourth >> 23 & 1
        self.check = fourth >> 28 & 3
        wrong = fourth >> 30 != 0
        if wrong.any():
            wave = int(np.argmax(wrong))
            kind = int(fourth[wave]) >> 30
            raise ShaderError(f"s{register} to s{register + 3} hold a resource of type {kind}: no buffer", wave=wave)

    def bytes(self) -> Array:
        """Bytes of the whole buffer, as scalar loads check it, u64[n]."""
        size: Array = np.where(self.stride == 0, self.records, self.records * self.stride).astype(U64)
        return size

    def within(self, waves: Array, index: Array, offset: Array, n: int) -> Array:
        """Which accesses of n bytes lie in the buffer, bool[k]."""
        records, stride, check = self.records[waves], self.stride[waves], self.check[waves]
        fits = offset + n <= stride
        swizzled = (self.swizzle[waves] > 0) & (stride > 0)
        raw = np.where(swizzled, (index < records) & fits, offset + n <= records)
        found: Array = np.select(
            [check == STRUCTURED_WITH_OFFSET, check == STRUCTURED, check == EMPTY],
            [(index < records) & fits, index < records, records != 0],
            raw,
        )
        return found

    def behind(self, waves: Array, index: Array, offset: Array) -> Array:
        """Offsets of accesses from the base in bytes, i64[k]."""
        stride, swizzle = self.stride[waves], self.swizzle[waves]
        piece, neighbours = np.maximum(swizzle, 1), self.index_stride[waves]
        rows = (index // neighbours) * stride + (offset // piece) * piece
        apart = rows * neighbours + (index % neighbours) * piece + offset % piece
        found: Array = np.where(swizzle > 0, apart, index * stride + offset)
        return found

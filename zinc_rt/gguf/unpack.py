"""Quantised rows as integers and scales: what an exact integer dot product needs.

Block layouts follow `ggml-common.h` (ggml repository). A format stores groups of 32 elements, alone (Q4_0 to
Q8_0) or eight to a super-block of 256 (K-quants). Numbers are little endian, `f16` is IEEE half precision,
and "nibbles of n bytes" puts elements 0..n-1 into the low halves and n..2n-1 into the high halves.

| format | block, in order of bytes | value |
|---|---|---|
| Q4_0 | d f16, nibbles of 16 | d * (q - 8) |
| Q4_1 | d f16, m f16, nibbles of 16 | d * q + m |
| Q5_0 | d f16, fifth bits of the 32 elements in 4 bytes, nibbles of 16 | d * (q - 16) |
| Q5_1 | d f16, m f16, fifth bits in 4, nibbles of 16 | d * q + m |
| Q8_0 | d f16, 32 x int8 | d * q |
| Q4_K | d f16, dmin f16, scales in 12, four times nibbles of 32 | d * sc * q - dmin * mn |
| Q5_K | d f16, dmin f16, scales in 12, fifth bits in 32, four times nibbles of 32 | as Q4_K |
| Q6_K | low nibbles in 128, high two bits in 64, 16 x int8 scales, d f16 | d * sc * (q - 32) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf.errors import InvalidBlocks
from zinc_rt.gguf.types import GGMLType, unsupported

GROUP: Final = 32  # elements that share one integer dot product

U8 = NDArray[np.uint8]
I8 = NDArray[np.int8]
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class QuantRows:
    """The integer view of quantised rows, in groups of 32 elements along the row.

    Attributes:
        type: the format.
        ints: int8[n_rows, n_groups, 32], offsets applied (Q4_0 -8, Q5_0 -16, Q6_K -32).
        d: f32[n_rows, n_groups], the scale; that of the super-block, repeated, for K-quants.
        m: f32[n_rows, n_groups], `m` of Q4_1 and Q5_1, `dmin` of Q4_K and Q5_K; else None.
        sc: int32[n_rows, n_groups], integer scale of Q4_K and Q5_K (0..63); int32[n_rows, n_groups, 2] of
            Q6_K, for the first and the last 16 elements of the group (-128..127); else None.
        mn: int32[n_rows, n_groups], integer minimum of Q4_K and Q5_K (0..63); else None.
    """

    type: GGMLType
    ints: I8
    d: F32
    m: F32 | None = None
    sc: I32 | None = None
    mn: I32 | None = None


def check_raw(type: GGMLType, raw: U8) -> int:
    """Blocks in a row of `raw`, uint8[n_rows, row_bytes]. Raises InvalidBlocks, UnsupportedTensorType."""
    if not type.supported:
        raise unsupported(type)
    if raw.dtype != np.uint8 or raw.ndim != 2 or raw.shape[1] % type.block_bytes:
        raise InvalidBlocks(
            f"{type.name} rows must be uint8[n_rows, n * {type.block_bytes}], got {raw.dtype}{list(raw.shape)}"
        )
    return int(raw.shape[1]) // type.block_bytes


def unpack(type: GGMLType, raw: U8) -> QuantRows:
    """The integer view of rows of a quantised type.

    `raw` is uint8[n_rows, row_bytes]; the result shares no memory with it. Raises InvalidBlocks for another
    dtype or row length and for F32, F16, BF16, which have no integers; UnsupportedTensorType for the rest.
    """
    n_blocks = check_raw(type, raw)
    reader = _READERS.get(type)
    if reader is None:
        raise InvalidBlocks(f"{type.name} is not quantised; `dequantize` reads it")
    return reader(type, np.ascontiguousarray(raw).reshape(len(raw), n_blocks, type.block_bytes))


def _half(blocks: U8, at: int) -> F32:
    """The f16 at byte `at` of each block: f32[n_rows, n_blocks]."""
    halves: NDArray[np.float16] = np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0]
    return halves.astype(np.float32)


def _nibbles(packed: U8) -> U8:
    """Low halves then high halves of the last axis: uint8[..., 2 n]."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(packed: U8) -> U8:
    """32 bits from 4 bytes, each as 0 or 16: uint8[..., 32]."""
    return np.unpackbits(packed, axis=-1, bitorder="little") * np.uint8(16)


def _q4_0(type: GGMLType, b: U8) -> QuantRows:
    return QuantRows(type, _nibbles(b[..., 2:]).view(np.int8) - np.int8(8), _half(b, 0))


def _q4_1(type: GGMLType, b: U8) -> QuantRows:
    return QuantRows(type, _nibbles(b[..., 4:]).view(np.int8), _half(b, 0), m=_half(b, 2))


def _q5_0(type: GGMLType, b: U8) -> QuantRows:
    ints = _nibbles(b[..., 6:]) | _fifth_bits(b[..., 2:6])
    return QuantRows(type, ints.view(np.int8) - np.int8(16), _half(b, 0))


def _q5_1(type: GGMLType, b: U8) -> QuantRows:
    ints = _nibbles(b[..., 8:]) | _fifth_bits(b[..., 4:8])
    return QuantRows(type, ints.view(np.int8), _half(b, 0), m=_half(b, 2))


def _q8_0(type: GGMLType, b: U8) -> QuantRows:
    return QuantRows(type, b[..., 2:].view(np.int8).copy(), _half(b, 0))


def _k_scales(packed: U8) -> tuple[I32, I32]:
    """Eight 6-bit scales and eight 6-bit minima from 12 bytes: two int32[n_rows, n_groups].

    Bytes 0-3 and 4-7 hold scales and minima 0..3 in their low six bits. Bytes 8-11 hold the low four bits of
    scales (low nibbles) and minima (high nibbles) 4..7, whose upper two bits are on top of bytes 0-3 and 4-7.
    """
    low_sc, low_mn, rest = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    sc = np.concatenate([low_sc & 63, (rest & 15) | (low_sc >> 6 << 4)], axis=-1)
    mn = np.concatenate([low_mn & 63, (rest >> 4) | (low_mn >> 6 << 4)], axis=-1)
    shape = (len(packed), packed.shape[1] * 8)
    return sc.reshape(shape).astype(np.int32), mn.reshape(shape).astype(np.int32)


def _k_rows(type: GGMLType, b: U8, ints: U8) -> QuantRows:
    sc, mn = _k_scales(b[..., 4:16])
    d, dmin = (np.repeat(_half(b, at), 8, axis=-1) for at in (0, 2))
    return QuantRows(type, _groups(ints).view(np.int8), d, m=dmin, sc=sc, mn=mn)


def _groups(ints: U8) -> U8:
    n_rows, n_blocks = ints.shape[:2]
    return ints.reshape(n_rows, n_blocks * 256 // GROUP, GROUP)


def _q4_k(type: GGMLType, b: U8) -> QuantRows:
    return _k_rows(type, b, _nibbles(b[..., 16:].reshape(*b.shape[:2], 4, 32)))


def _q5_k(type: GGMLType, b: U8) -> QuantRows:
    low = _nibbles(b[..., 48:].reshape(*b.shape[:2], 4, 32)).reshape(*b.shape[:2], 8, 32)
    # Bit g of byte l belongs to group g, element l.
    high = np.unpackbits(b[..., None, 16:48], axis=-2, bitorder="little") * np.uint8(16)
    return _k_rows(type, b, low | high)


def _q6_k(type: GGMLType, b: U8) -> QuantRows:
    """Each half of 128 elements: four groups, whose low nibbles are in 64 bytes and high bits in 32."""
    low = _nibbles(b[..., :128].reshape(*b.shape[:2], 2, 64)).reshape(*b.shape[:2], 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = (b[..., 128:192].reshape(*b.shape[:2], 2, 1, 32) >> shifts & np.uint8(3)) * np.uint8(16)
    sc = b[..., 192:208].view(np.int8).reshape(len(b), b.shape[1] * 8, 2).astype(np.int32)
    ints = _groups(low | high).view(np.int8) - np.int8(32)
    return QuantRows(type, ints, np.repeat(_half(b, 208), 8, axis=-1), sc=sc)


_READERS: Final = {
    GGMLType.Q4_0: _q4_0,
    GGMLType.Q4_1: _q4_1,
    GGMLType.Q5_0: _q5_0,
    GGMLType.Q5_1: _q5_1,
    GGMLType.Q8_0: _q8_0,
    GGMLType.Q4_K: _q4_k,
    GGMLType.Q5_K: _q5_k,
    GGMLType.Q6_K: _q6_k,
}

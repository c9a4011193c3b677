"""Quantised rows as integers and scales: what an exact integer dot product needs.

Where the parts of a block lie is what its record in `zinc_rt.formats.table` says; here is how each kind is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zinc_rt.formats.errors import UnknownFormat
from zinc_rt.formats.kinds import CODEBOOK, GRID_KINDS, ODD_SCALES, CodeLayout, Scale
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import grids
from zinc_rt.gguf.errors import InvalidBlocks
from zinc_rt.gguf.types import GGMLType, unsupported
from zinc_rt.numerics import GROUP

U8 = NDArray[np.uint8]
I8 = NDArray[np.int8]
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


_PAIR_SHIFTS = np.array([0, 2, 4, 6], np.uint8)[:, None]
_POWERS_OF_3 = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


@dataclass(frozen=True, slots=True)
class QuantRows:
    """The integer view of quantised rows, in groups of 32 elements along the row.

    Attributes:
        type: the format.
        ints: int8[n_rows, n_groups, 32], the format's offset applied.
        d: f32[n_rows, n_groups], the scale; that of the super-block, repeated, where there is one.
        m: f32[n_rows, n_groups], what the format adds, or multiplies its integer minima with; else None.
        sc: integer scales, with their offset applied: int32[n_rows, n_groups]; int32[n_rows, n_groups, 2] where
            `Format.scaled_halves`, for the first and the last 16 elements of the group; else None.
        last: f32[n_rows, n_groups], the scale of the last 16 elements where that is a number of its own; d is then that
            of the first 16; else None.
        mn: integer minima of the same shape as sc, for kinds of `WITH_MINIMA`; else None.
    """

    type: GGMLType
    ints: I8
    d: F32
    m: F32 | None = None
    sc: I32 | None = None
    mn: I32 | None = None
    last: F32 | None = None


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
    dtype or row length and for plain numbers, which have no integers; UnsupportedTensorType for a type without a
    record, UnknownFormat for a record of unknown kinds.
    """
    n_blocks = check_raw(type, raw)
    f = FORMATS[type.name]
    if not f.quantized:
        raise InvalidBlocks(f"{type.name} is not quantised; `dequantize` reads it")
    blocks = np.ascontiguousarray(raw).reshape(len(raw), n_blocks, type.block_bytes)
    if f.kind in GRID_KINDS:
        ints = grids.values(f, blocks).reshape(len(raw), n_blocks * f.groups, GROUP)
    else:
        ints = _values(f, _integers(f, blocks).reshape(len(raw), n_blocks * f.groups, GROUP))
    if f.scale == Scale.POWER_OF_TWO:
        return QuantRows(type, ints, powers_of_two(_part(blocks, f.d, 1)[..., 0]))
    if f.scale == Scale.E4M3_HALVES:
        both = half_e4m3(_part(blocks, f.d, 2 * f.groups)).reshape(len(raw), n_blocks * f.groups, 2)
        return QuantRows(type, ints, both[..., 0].copy(), last=both[..., 1].copy())
    if f.scale in ODD_SCALES:
        odd = grids.odd_scales(f, blocks).reshape(len(raw), n_blocks * f.groups, *((2,) if f.scaled_halves else ()))
        d = grids.scattered_d(f, blocks) if f.scale == Scale.ODD_THREES else _halves(f, blocks)[0]
        with np.errstate(invalid="ignore"):  # a NaN is kept
            return QuantRows(type, ints, d * np.float32(f.unit), sc=odd)
    if f.scale == Scale.BLOCK:
        return QuantRows(type, ints, *_halves(f, blocks))
    if f.scale == Scale.SIX_BIT:
        sc, mn = _six_bit_scales(_part(blocks, f.scales, 12))
        d, m = _halves(f, blocks)
        return QuantRows(type, ints, d, m, sc=sc, mn=mn)
    if f.scale == Scale.INT8_HALVES:
        small = _part(blocks, f.scales, 2 * f.groups).view(np.int8)
        sc = small.reshape(len(raw), n_blocks * f.groups, 2).astype(np.int32)
        return QuantRows(type, ints, *_halves(f, blocks), sc=sc)
    if f.scale == Scale.SIX_BIT_SIGNED:
        sc = _six_bit_signed(_part(blocks, f.scales, 6)).reshape(len(raw), n_blocks * f.groups)
        return QuantRows(type, ints, *_halves(f, blocks), sc=sc)
    if f.scale == Scale.SIX_BIT_HALVES:
        sc = _six_bit_halves(_part(blocks, f.scales, 12)).reshape(len(raw), n_blocks * f.groups, 2)
        return QuantRows(type, ints, *_halves(f, blocks), sc=sc)
    if f.scale == Scale.FOUR_BIT_HALVES:
        pairs = _part(blocks, f.scales, 2 * f.groups).reshape(len(raw), n_blocks * f.groups, 2)
        numbers = pairs.astype(np.int32)
        return QuantRows(type, ints, *_halves(f, blocks), sc=numbers & 15, mn=numbers >> 4)
    raise UnknownFormat(f.name, "scales of kind", f.scale, "the reference (zinc_rt/gguf/unpack.py)")


def _part(blocks: U8, at: int | None, n: int) -> U8:
    """n bytes from byte `at` of each block. Raises ValueError where the record names no place."""
    if at is None:
        raise ValueError("the record of the format says nothing of where they lie")
    return blocks[..., at : at + n]


def _halves(f: Format, blocks: U8) -> tuple[F32, F32 | None]:
    """d, and the other float16 where there is one, for each group: f32[n_rows, n_groups]."""

    def each(at: int) -> F32:
        halves: NDArray[np.float16] = np.ascontiguousarray(_part(blocks, at, 2)).view("<f2")[..., 0]
        return np.repeat(halves.astype(np.float32), f.groups, axis=-1)

    return each(f.d), None if f.minimum is None else each(f.minimum)


def _values(f: Format, ints: U8) -> I8:
    """What stored integers stand for."""
    if f.codebook:
        if len(f.codebook) != CODEBOOK or f.low_bits + f.high_bits != 4:
            raise UnknownFormat(f.name, "the codebook", f.codebook, "the reference (zinc_rt/gguf/unpack.py)")
        return np.array(f.codebook, np.int8)[ints]
    return ints.view(np.int8) - np.int8(f.offset)


def _nibbles(packed: U8) -> U8:
    """Low halves then high halves of the last axis: uint8[..., 2 n]."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _integers(f: Format, b: U8) -> U8:
    """The stored integers of blocks, uint8[n_rows, n_blocks, block_bytes]: uint8[n_rows, n_blocks, ...] in order."""
    shape = b.shape[:2]
    known = {CodeLayout.BYTES: (0,), CodeLayout.NIBBLES: (0, 1), CodeLayout.PAIRS: (0, 1), CodeLayout.HALVES: (0, 2)}
    known |= {CodeLayout.QUARTERS: (0, 1), CodeLayout.EIGHTS: (0,), CodeLayout.FOURS: (0,)}
    known |= {CodeLayout.SIGN_BITS: (0,), CodeLayout.TRITS: (0,)}
    if f.kind not in known or f.high_bits not in known[CodeLayout(f.kind)]:
        part = f"{f.high_bits} high bits of integers of kind"
        raise UnknownFormat(f.name, part, f.kind, "the reference (zinc_rt/gguf/unpack.py)")
    if f.kind == CodeLayout.BYTES:
        return _part(b, f.q, f.block)
    if f.kind == CodeLayout.NIBBLES:
        low = _nibbles(_part(b, f.q, f.block // 2).reshape(*shape, f.groups, 16))
        if f.high_bits:
            high = np.unpackbits(_part(b, f.high, 4 * f.groups), axis=-1, bitorder="little")
            low |= high.reshape(low.shape) << 4
        return low
    if f.kind == CodeLayout.EIGHTS:
        return _nibbles(_part(b, f.q, f.block // 2).reshape(*shape, 2 * f.groups, 8))
    if f.kind == CodeLayout.FOURS:
        return np.stack([_part(b, f.q, f.block // 4) >> shift & np.uint8(3) for shift in (0, 2, 4, 6)], axis=-1)
    if f.kind == CodeLayout.SIGN_BITS:
        return np.unpackbits(_part(b, f.q, f.block // 8), axis=-1, bitorder="little") << np.uint8(1)
    if f.kind == CodeLayout.TRITS:
        parts = (_trits(_part(b, f.q + at, n), digits) for at, n, digits in TRIT_PARTS)
        return np.concatenate([part.reshape(*shape, part.shape[2] * part.shape[3]) for part in parts], axis=-1)
    if f.kind == CodeLayout.PAIRS:
        low = _nibbles(_part(b, f.q, f.block // 2).reshape(*shape, f.groups // 2, 32)).reshape(*shape, f.groups, 32)
        if f.high_bits:
            # Bit g of byte e belongs to group g, element e.
            low |= np.unpackbits(_part(b, f.high, 32)[..., None, :], axis=-2, bitorder="little") << 4
        return low
    sides = f.groups // 4
    if f.kind == CodeLayout.QUARTERS:
        packed = _part(b, f.q, f.block // 4).reshape(*shape, sides, 1, 32)
        low = (packed >> _PAIR_SHIFTS & np.uint8(3)).reshape(*shape, f.groups, 32)
        if f.high_bits:
            low |= np.unpackbits(_part(b, f.high, 32)[..., None, :], axis=-2, bitorder="little") << 2
        return low
    low = _nibbles(_part(b, f.q, f.block // 2).reshape(*shape, sides, 64)).reshape(*shape, sides, 4, 32)
    if f.high_bits:
        low |= (_part(b, f.high, 32 * sides).reshape(*shape, sides, 1, 32) >> _PAIR_SHIFTS & np.uint8(3)) << 4
    return low


TRIT_PARTS = ((0, 32, 5), (32, 16, 5), (48, 4, 4))
"""Of `CodeLayout.TRITS`: where bytes begin, how many these are, and their digits."""


def _trits(packed: U8, digits: int) -> U8:
    """The first digits of base 3 of bytes, uint8[..., digits, n]."""
    fractions = (packed[..., None, :] * _POWERS_OF_3[:digits]).astype(np.uint16)  # of 256, as is the byte
    return (fractions * np.uint16(3) >> 8).astype(np.uint8)


def _six_bit_scales(packed: U8) -> tuple[I32, I32]:
    """Eight 6-bit scales and eight 6-bit minima from 12 bytes: two int32[n_rows, n_groups].

    Bytes 0-3 and 4-7 hold scales and minima 0..3 in their low six bits. Bytes 8-11 hold the low four bits of
    scales (low nibbles) and minima (high nibbles) 4..7, whose upper two bits are on top of bytes 0-3 and 4-7.
    """
    low_sc, low_mn, rest = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    sc = np.concatenate([low_sc & 63, (rest & 15) | (low_sc >> 6 << 4)], axis=-1)
    mn = np.concatenate([low_mn & 63, (rest >> 4) | (low_mn >> 6 << 4)], axis=-1)
    shape = (len(packed), packed.shape[1] * 8)
    return sc.reshape(shape).astype(np.int32), mn.reshape(shape).astype(np.int32)


def powers_of_two(e: U8) -> F32:
    """2^(e - 128) of each byte: float32 has the least two as subnormals, and the others as exponents of e - 1."""
    wide = e.astype(np.uint32)
    return np.where(wide < 2, np.uint32(0x00200000) << np.minimum(wide, 1), (wide - 1) << 23).astype("<u4").view("<f4")


def _six_bit_signed(packed: U8) -> I32:
    """Eight scales less 32 from 6 bytes, int32[..., 8]: two upper bits each in the first two bytes, four lower bits
    each in the last four.
    """
    high = np.ascontiguousarray(packed[..., :2]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = np.stack([packed[..., 2:] & 15, packed[..., 2:] >> 4], axis=-1).reshape(*packed.shape[:-1], 8)
    return np.asarray(low | high << 4, np.int32) - 32


def _six_bit_halves(packed: U8) -> I32:
    """Sixteen scales less 32 from 12 bytes, int32[..., 16]: four lower bits of scales j and j + 8 in byte j of the
    first eight, two upper bits of scales j, j + 4, j + 8, j + 12 in byte j of the last four.
    """
    low = np.concatenate([packed[..., :8] & 15, packed[..., :8] >> 4], axis=-1)
    high = np.concatenate([packed[..., 8:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1)
    return np.asarray(low | high << 4, np.int32) - 32


def half_e4m3(s: U8) -> F32:
    """Half the value of floats of 4 bits of exponent and 3 of mantissa; the top bit is ignored, and 0x7F is 0."""
    # The same bits as a float16 are 2^-8 of the value; subnormal ones, too.
    halves = (s.astype("<u2") & 0x7F) << 7
    return np.where(s == 0x7F, np.float32(0), halves.view("<f2").astype(np.float32) * np.float32(128))

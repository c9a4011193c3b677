"""The inverse of `unpack`: integers and scales as the bytes of a format, placed by its record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zinc_rt.formats.errors import UnknownFormat
from zinc_rt.formats.kinds import CodeLayout, Scale
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf.errors import InvalidBlocks
from zinc_rt.gguf.unpack import F32, I8, I32, TRIT_PARTS, U8, QuantRows, half_e4m3

_WHERE = "the writer (zinc_rt/gguf/pack.py)"
_PAIR_SHIFTS = np.array([0, 2, 4, 6], np.uint8)[:, None]
_E4M3 = half_e4m3(np.arange(0x7F, dtype=np.uint8))
_E4M3_EDGES = (_E4M3[1:] + _E4M3[:-1]) / 2
"""Between two neighbours: exact, as numbers of 4 bits have room for one more."""


def pack(rows: QuantRows) -> U8:
    """The stored bytes of quantised rows, uint8[n_rows, row_bytes], such that `unpack` gives the rows back.

    Scales have to be numbers that the format holds: of a float16, of a power of two. Raises InvalidBlocks for a format
    of plain numbers, UnknownFormat for one whose blocks hold indices of vectors.
    """
    f = FORMATS[rows.type.name]
    if not f.quantized:
        raise InvalidBlocks(f"{rows.type.name} is not quantised; `quantize` writes it")
    n_rows, n_groups = rows.d.shape
    n_blocks = n_groups // f.groups
    blocks = np.zeros((n_rows, n_blocks, f.block_bytes), np.uint8)
    _put_integers(f, blocks, _codes(f, rows.ints).reshape(n_rows, n_blocks, f.groups, 32))
    _put_scales(f, blocks, rows)
    return blocks.reshape(n_rows, n_blocks * f.block_bytes)


def _codes(f: Format, ints: I8) -> U8:
    """The stored integers that stand for these values."""
    if not f.codebook:
        return (ints + np.int8(f.offset)).view(np.uint8)
    table = np.zeros(256, np.uint8)
    for code, value in reversed(list(enumerate(f.codebook))):  # the first of two codes for one value
        table[value & 255] = code
    return table[ints.view(np.uint8)]


def _put(blocks: U8, at: int | None, part: U8) -> None:
    """Bytes from byte `at` of each block. Raises ValueError where the record names no place."""
    if at is None:
        raise ValueError("the record of the format says nothing of where they lie")
    flat = part.reshape(*blocks.shape[:2], part.size // max(1, blocks.shape[0] * blocks.shape[1]))
    blocks[..., at : at + flat.shape[2]] = flat


def _halves_of_bytes(low: U8, high: U8) -> U8:
    return np.asarray(low & np.uint8(15) | high << np.uint8(4), np.uint8)


def _put_integers(f: Format, blocks: U8, codes: U8) -> None:
    """codes: uint8[n_rows, n_blocks, n_groups, 32]."""
    shape, g = blocks.shape[:2], f.groups
    if f.kind == CodeLayout.BYTES:
        _put(blocks, f.q, codes)
    elif f.kind == CodeLayout.NIBBLES:
        _put(blocks, f.q, _halves_of_bytes(codes[..., :16], codes[..., 16:]))
        if f.high_bits:
            _put(blocks, f.high, np.packbits(codes >> 4, axis=-1, bitorder="little"))
    elif f.kind == CodeLayout.EIGHTS:
        eights = codes.reshape(*shape, 2 * g, 16)
        _put(blocks, f.q, _halves_of_bytes(eights[..., :8], eights[..., 8:]))
    elif f.kind == CodeLayout.PAIRS:
        _put(blocks, f.q, _halves_of_bytes(codes[..., 0::2, :], codes[..., 1::2, :]))
        if f.high_bits:
            _put(blocks, f.high, np.packbits(codes >> 4, axis=-2, bitorder="little"))
    elif f.kind == CodeLayout.HALVES:
        sides = codes.reshape(*shape, g // 4, 4, 32)
        _put(blocks, f.q, _halves_of_bytes(sides[..., :2, :], sides[..., 2:, :]))
        if f.high_bits:
            _put(blocks, f.high, _quarters(sides >> np.uint8(4)))
    elif f.kind == CodeLayout.QUARTERS:
        _put(blocks, f.q, _quarters(codes.reshape(*shape, g // 4, 4, 32) & np.uint8(3)))
        if f.high_bits:
            _put(blocks, f.high, np.packbits(codes >> 2, axis=-2, bitorder="little"))
    elif f.kind == CodeLayout.FOURS:
        _put(blocks, f.q, _quarters(np.moveaxis(codes.reshape(*shape, f.block // 4, 4), -1, -2)))
    elif f.kind == CodeLayout.SIGN_BITS:
        _put(blocks, f.q, np.packbits(codes >> 1, axis=-1, bitorder="little"))
    elif f.kind == CodeLayout.TRITS:
        whole, start = codes.reshape(*shape, f.block), 0
        for at, n, digits in TRIT_PARTS:
            _put(blocks, f.q + at, _trits(whole[..., start : start + n * digits].reshape(*shape, digits, n)))
            start += n * digits
    else:
        raise UnknownFormat(f.name, "integers of kind", f.kind, _WHERE)


def _trits(digits: U8) -> U8:
    """Digits of base 3 as bytes: uint8[..., digits, n] to [..., n]."""
    powers = np.array([81, 27, 9, 3, 1], np.uint16)[: digits.shape[-2], None]
    numbers: NDArray[np.uint16] = (digits * powers).sum(axis=-2, dtype=np.uint16)
    # A fraction of 243 as one of 256, rounded up.
    return ((numbers * np.uint16(256) + np.uint16(242)) // np.uint16(243)).astype(np.uint8)


def _quarters(two_bits: U8) -> U8:
    """Two bits of four groups in each byte: uint8[..., 4, n] to [..., n]."""
    return np.asarray(np.bitwise_or.reduce(two_bits << _PAIR_SHIFTS, axis=-2), np.uint8)


def _put_scales(f: Format, blocks: U8, rows: QuantRows) -> None:
    shape = blocks.shape[:2]
    if f.scale == Scale.POWER_OF_TWO:
        _put(blocks, f.d, exponents(rows.d))
        return
    if f.scale == Scale.E4M3_HALVES:
        if rows.last is None:
            raise InvalidBlocks(f"rows of {f.name} have two scales for each group")
        _put(blocks, f.d, e4m3(np.stack([rows.d, rows.last], axis=-1)))
        return
    for at, scale in zip(f.halves, (rows.d, rows.m), strict=False):
        if scale is None:
            raise InvalidBlocks(f"rows of {f.name} have a minimum")
        with np.errstate(over="ignore", invalid="ignore"):
            _put(blocks, at, scale[:, :: f.groups].astype("<f2").reshape(-1, 1).view(np.uint8))
    if f.scale == Scale.BLOCK:
        return
    if rows.sc is None or (f.minimum is not None and rows.mn is None):
        raise InvalidBlocks(f"rows of {f.name} have small scales")
    sc = rows.sc.reshape(*shape, f.groups * (2 if f.scaled_halves else 1))
    _put(blocks, f.scales, _small_scales(f, sc, None if rows.mn is None else rows.mn.reshape(sc.shape)))


def _small_scales(f: Format, sc: I32, mn: I32 | None) -> U8:
    """The packed scales of blocks: uint8[n_rows, n_blocks, n]. sc, mn: int32[n_rows, n_blocks, scales of a block]."""
    if f.scale == Scale.INT8_HALVES:
        return sc.astype(np.int8).view(np.uint8)
    if f.scale == Scale.SIX_BIT and mn is not None:
        s, m = sc.astype(np.uint8), mn.astype(np.uint8)
        tops = [part[..., :4] | part[..., 4:] >> 4 << 6 for part in (s, m)]
        return np.concatenate([*tops, s[..., 4:] & 15 | m[..., 4:] << 4], axis=-1)
    if f.scale == Scale.SIX_BIT_SIGNED:
        s = (sc + 32).astype(np.uint8)
        upper: NDArray[np.uint16] = (s >> 4).astype(np.uint16) << np.arange(0, 16, 2, dtype=np.uint16)
        high = np.bitwise_or.reduce(upper, axis=-1, keepdims=True).astype("<u2").view(np.uint8)
        return np.concatenate([high, _halves_of_bytes(s[..., 0::2], s[..., 1::2])], axis=-1)
    if f.scale == Scale.SIX_BIT_HALVES:
        s = (sc + 32).astype(np.uint8)
        high = _quarters((s >> np.uint8(4)).reshape(*s.shape[:-1], 4, 4))
        return np.concatenate([_halves_of_bytes(s[..., :8], s[..., 8:]), high], axis=-1)
    if f.scale == Scale.FOUR_BIT_HALVES and mn is not None:
        return _halves_of_bytes(sc.astype(np.uint8), mn.astype(np.uint8))
    raise UnknownFormat(f.name, "scales of kind", f.scale, _WHERE)


def exponents(d: F32) -> U8:
    """The byte e of each power of two 2^(e - 128), of other numbers that of the next smaller one: uint8, same shape."""
    bits = np.ascontiguousarray(d, np.float32).view(np.uint32)
    return np.where(bits < 0x00800000, bits >= 0x00400000, (bits >> 23) + 1).astype(np.uint8)


def e4m3(halved: F32) -> U8:
    """The byte of each number that is half a float of 4 bits of exponent and 3 of mantissa, rounded to the nearest one:
    uint8 of the same shape. What is too large becomes the largest, 448 / 2.
    """
    return np.searchsorted(_E4M3_EDGES, np.asarray(halved, np.float32)).astype(np.uint8)

"""Reading the scales of blocks in kernels; see decode.py."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of, half
from zinc_rt.formats.decode_grids import d_bits, odd_bits
from zinc_rt.formats.kinds import ODD_SCALES, WITH_MINIMA, Scale
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, cast, lanes, load, select, static_assert
from zinc_rt.lang.types import f16, f32, i8, i32, ptr, u8, u16, u32, vec


@inline
def first_six(byte):
    """A scale or minimum of sub-blocks 0 to 3 of `Scale.SIX_BIT`: the low six bits of byte j, or j + 4."""
    return byte & 63


@inline
def last_six(nibble, byte):
    """One of sub-blocks 4 to 7: the low or high nibble of byte j + 4 under the top two bits of byte j - 4, or j."""
    return nibble | ((byte >> 6) << 4)


@inline
def six_bit_scales(scales: ptr[u8], j: i32):
    """The 6-bit scale and minimum of sub-block j from the 12 bytes of `Scale.SIX_BIT`."""
    sc: u32 = 0
    mn: u32 = 0
    if j < 4:
        sc = first_six(u32(scales[j]))
        mn = first_six(u32(scales[j + 4]))
    else:
        both = u32(scales[j + 4])
        sc = last_six(both & 15, u32(scales[j - 4]))
        mn = last_six(both >> 4, u32(scales[j]))
    return sc, mn


@inline
def half_scale_at(first: int, j: i32, h: int):
    """Where `Scale.INT8_HALVES` keeps the scale of half h of group j; first: where those of a block begin."""
    return first + 8 * (j >> 2) + 2 * (j & 3) + h


@inline
def pair_at(p: ptr[u8], at):
    """Two bytes at an offset, as a word."""
    return u32(load(cast(p + at, ptr[u16]), align=1))


@inline
def signed_scale(block: ptr[u8], j, FMT: str):
    """The scale of group j by `Scale.SIX_BIT_SIGNED`, i32 from -32 to 31."""
    F = format_of(FMT)
    k = u32(j)
    low = u32(load(block + (F.scales + 2), j >> 1)) >> ((k & 1) * 4)
    return i32((low & 15) | (((pair_at(block, F.scales) >> (k * 2)) & 3) << 4)) - 32


@inline
def half_scales(block: ptr[u8], j, FMT: str):
    """Scales of the first and the last 16 elements of group j, and their minima or None: i32.

    Of kinds that keep them as bits: see gguf/unpack.py for where.
    """
    F = format_of(FMT)
    k = u32(j)
    if F.scale == Scale.FOUR_BIT_HALVES:
        both = pair_at(block, F.scales + 2 * j)
        nibbles = tuple(i32((both >> (4 * i)) & 15) for i in range(4))
        return nibbles[0], nibbles[2], nibbles[1], nibbles[3]
    static_assert(
        F.scale == Scale.SIX_BIT_HALVES, f"format {FMT}: half_scales does not know scales of kind {F.scale!s}"
    )
    low = (pair_at(block, F.scales + 2 * (j & 3)) >> ((k >> 2) * 4)) & 0x0F0F
    high = (pair_at(block, F.scales + 8 + 2 * (j & 1)) >> ((k >> 1) * 2)) & 0x0303
    both = low | (high << 4)
    return i32(both & 255) - 32, i32(both >> 8) - 32, None, None


@inline
def power_of_two(e):
    """2^(e - 128) of bytes as u32: the least two are subnormal, others have an exponent of e - 1."""
    return bitcast(select(e < 2, (e << 21) + 0x00200000, (e << 23) - 0x00800000), vec[f32, lanes(e)])


@inline
def half_e4m3(s):
    """Half the value of bytes as u16: floats of 4 and 3 bits without a sign, the top bit ignored, 0x7F zero.

    The same bits as a float16 are 2^-8 of the value; subnormal ones, too.
    """
    value = f32(bitcast((s & 0x7F) << 7, vec[f16, lanes(s)])) * 128.0
    return select(s == 0x7F, 0.0, value)


@inline
def group_scale(block: ptr[u8], j: i32, h: int, FMT: str):
    """What multiplies half h of a group, and what is then added or taken away: (scale, addend or None)."""
    F = format_of(FMT)
    if F.scale == Scale.INT8_HALVES:
        scale = f32(i32(load(cast(block + F.scales, ptr[i8]), half_scale_at(0, j, h))))
        return half(block, F.d) * scale, None
    if F.scale == Scale.SIX_BIT:
        sc, mn = six_bit_scales(block + F.scales, j)
        return half(block, F.d) * f32(i32(sc)), half(block, F.minimum) * f32(i32(mn))
    if F.scale == Scale.SIX_BIT_SIGNED:
        return half(block, F.d) * f32(signed_scale(block, j, FMT)), None
    if F.scale == Scale.SIX_BIT_HALVES:
        return half(block, F.d) * f32(half_scales(block, j, FMT)[h]), None
    if F.scale == Scale.FOUR_BIT_HALVES:
        numbers = half_scales(block, j, FMT)
        return half(block, F.d) * f32(numbers[h]), half(block, F.minimum) * f32(numbers[2 + h])
    if F.scale == Scale.POWER_OF_TWO:
        return power_of_two(u32(block[F.d])), None
    if F.scale == Scale.E4M3_HALVES:
        return half_e4m3(u16(load(block + (F.d + h), 2 * j))), None
    if F.scale in ODD_SCALES:
        bits = odd_bits(block, j, FMT)
        s = (bits >> (4 * h)) & 15 if F.scaled_halves else bits
        return (f32(bitcast(d_bits(block, FMT), f16)) * F.unit) * f32(i32(2 * s + 1)), None
    static_assert(F.scale == Scale.BLOCK, f"format {FMT}: group_scale does not know scales of kind {F.scale!s}")
    if F.minimum is None:
        return half(block, F.d), None
    return half(block, F.d), half(block, F.minimum)


@inline
def scaled(number, scale, addend, FMT: str):
    """The element that an integer stands for. scale, addend: of `group_scale`."""
    F = format_of(FMT)
    if F.scale in WITH_MINIMA:
        return number * scale - addend
    if F.scale == Scale.BLOCK and F.minimum is not None:
        return number * scale + addend
    static_assert(
        F.scale in (Scale.BLOCK, Scale.POWER_OF_TWO, Scale.SIX_BIT_SIGNED) or F.scaled_halves or F.scale in ODD_SCALES,
        f"format {FMT}: scaled does not know scales of kind {F.scale!s}",
    )
    return number * scale

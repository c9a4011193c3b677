"""Reading blocks in kernels: a decoder for each kind of integers and scales, used by the CPU and the GPU alike.

Each takes a format by name and looks its record up when the kernel is compiled. What a record says and a decoder does
not know ends in `static_assert`: an error that names the format and the calls that led there. A kernel with a layout of
its own (tiles, lanes that share bytes) takes at least places and bit patterns from here.
"""

from __future__ import annotations

from zinc_rt.formats.table import CODEBOOK, FORMATS, NIBBLE_KINDS, WITH_MINIMA, Kind, Scale
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, cast, lanes, load, lookup16, select, static_assert
from zinc_rt.lang.types import f16, f32, i8, i32, ptr, u8, u16, u32, vec

LOW_NIBBLES = 0x0F0F0F0F
LOW_BITS = 0x01010101
LOW_PAIRS = 0x03030303
HIGH_MASKS = (0, LOW_BITS, LOW_PAIRS)
"""The high bits of four elements, by their number."""


@inline
def format_of(FMT: str):
    """The record of a format."""
    static_assert(FMT in FORMATS, f"format {FMT} has no record in zinc_rt/formats/table.py")
    return FORMATS[FMT]


@inline
def plain_integers(FMT: str):
    """The record of a format whose integers are their own values."""
    F = format_of(FMT)
    static_assert(F.codebook == (), f"format {FMT}: its integers are indices of a codebook, which this kernel lacks")
    return F


@inline
def integers_of(FMT: str):
    """The record of a format whose integers are numbers, or indices of a codebook that one lookup reads."""
    F = format_of(FMT)
    static_assert(
        F.codebook == () or (F.kind in NIBBLE_KINDS and F.high_bits == 0 and len(F.codebook) == CODEBOOK),
        f"format {FMT}: kernels know codebooks of {CODEBOOK} entries by indices of four bits, not of"
        f" {len(F.codebook)} by {F.high_bits} high bits of kind {F.kind!s}",
    )
    return F


@inline
def half_at(p: ptr[u8], at: int):
    """A float16 at a byte offset, as bits."""
    return load(cast(p + at, ptr[u16]), align=1)


@inline
def half(p: ptr[u8], at: int):
    """A float16 at a byte offset, as f32."""
    return f32(load(cast(p + at, ptr[f16]), align=1))


@inline
def word_at(p: ptr[u8], at):
    """Four bytes at an offset."""
    return load(cast(p + at, ptr[u32]), align=1)


# -- integers ---------------------------------------------------------------------------------------------------------


@inline
def spread(bits):
    """Four bits over four bytes, each at bit 0."""
    return ((bits & 15) * 0x00204081) & LOW_BITS


@inline
def low_at(j, FMT: str):
    """Where the low bits of group j of a super-block begin: 32 bytes."""
    F = integers_of(FMT)
    if F.kind == Kind.PAIRS:
        return F.q + (j >> 1) * 32
    if F.kind == Kind.QUARTERS:
        return F.q + (j >> 2) * 32
    static_assert(F.kind == Kind.HALVES, f"format {FMT}: low_at does not know integers of kind {F.kind!s}")
    return F.q + ((j >> 2) * 64 + (j & 1) * 32)


@inline
def low_shift(j, FMT: str):
    """How far up in their bytes these bits are."""
    F = integers_of(FMT)
    if F.kind == Kind.PAIRS:
        return u32((j & 1) * 4)
    if F.kind == Kind.QUARTERS:
        return u32((j & 3) * 2)
    static_assert(F.kind == Kind.HALVES, f"format {FMT}: low_shift does not know integers of kind {F.kind!s}")
    return u32(((j & 3) >> 1) * 4)


@inline
def low_mask(FMT: str):
    """These bits of four elements."""
    F = integers_of(FMT)
    if F.kind == Kind.QUARTERS:
        return LOW_PAIRS
    static_assert(F.kind in NIBBLE_KINDS, f"format {FMT}: low_mask does not know integers of kind {F.kind!s}")
    return LOW_NIBBLES


@inline
def high_at(j, FMT: str):
    """Where the bits above them begin: 32 bytes."""
    F = integers_of(FMT)
    if F.kind in (Kind.PAIRS, Kind.QUARTERS) and F.high_bits == 1:
        return F.high
    static_assert(
        F.kind == Kind.HALVES and F.high_bits == 2,
        f"format {FMT}: high_at does not know {F.high_bits} high bits of kind {F.kind!s}",
    )
    return F.high + (j >> 2) * 32


@inline
def high_shift(j, FMT: str):
    """How far up in their bytes these bits are."""
    F = integers_of(FMT)
    if F.kind in (Kind.PAIRS, Kind.QUARTERS) and F.high_bits == 1:
        return u32(j)
    static_assert(
        F.kind == Kind.HALVES and F.high_bits == 2,
        f"format {FMT}: high_shift does not know {F.high_bits} high bits of kind {F.kind!s}",
    )
    return u32(2 * (j & 3))


@inline
def words_at(p: ptr[u8], at, N: int):
    """N words of four bytes, as a tuple; loads of four words at a time."""
    parts = tuple(load(cast(p + (at + 4 * i), ptr[u32]), lanes=4, align=1) for i in range(0, N, 4))
    return tuple(parts[i // 4][i % 4] for i in range(N))


@inline
def group_words(block: ptr[u8], j, FMT: str):
    """The 32 integers of a group as bytes in 8 words of 4 consecutive columns: unsigned, without their offset; signed
    numbers where the file holds those (BYTES), or indices of a codebook.

    j: the group's number within a block. A tuple of u32.
    """
    F = integers_of(FMT)
    static_assert(
        F.groups == 1 or F.kind != Kind.BYTES,
        f"format {FMT}: group_words knows integers of kind {F.kind!s} in blocks of 32 alone, not of {F.block}",
    )
    if F.kind == Kind.BYTES:
        return words_at(block, F.q, 8)
    if F.kind == Kind.NIBBLES:
        q = words_at(block, F.q if F.groups == 1 else F.q + 16 * j, 4)
        words = tuple((q[i % 4] >> (4 * (i // 4))) & LOW_NIBBLES for i in range(8))
        if F.codebook != ():
            return tuple(looked_up(word, FMT) for word in words)
        if F.high_bits == 0:
            return words
        static_assert(
            F.high_bits == 1 and F.groups == 1,
            f"format {FMT}: group_words does not know {F.high_bits} high bits of nibbles in blocks of {F.block}",
        )
        high = word_at(block, F.high)
        return tuple(words[i] | (spread(high >> (4 * i)) << 4) for i in range(8))
    static_assert(
        F.kind in (Kind.PAIRS, Kind.HALVES, Kind.QUARTERS),
        f"format {FMT}: group_words does not know integers of kind {F.kind!s}",
    )
    low = words_at(block, low_at(j, FMT), 8)
    shift = low_shift(j, FMT)
    words = tuple((low[i] >> shift) & low_mask(FMT) for i in range(8))
    if F.codebook != ():
        return tuple(looked_up(word, FMT) for word in words)
    if F.high_bits == 0:
        return words
    high = words_at(block, high_at(j, FMT), 8)
    shift_of_high = high_shift(j, FMT)
    MASK = HIGH_MASKS[F.high_bits]
    return tuple(words[i] | (((high[i] >> shift_of_high) & MASK) << F.low_bits) for i in range(8))


@inline
def looked_up(word: u32, FMT: str):
    """Four indices of a codebook as its signed bytes."""
    return bitcast(lookup16(i8, integers_of(FMT).codebook, bitcast(word, vec[u8, 4])), u32)


@inline
def integer(bits, FMT: str):
    """The integer in the low byte of a word of `group_words`, as f32, with the format's offset applied."""
    F = integers_of(FMT)
    if F.codebook != ():
        return f32(i32(i8(bits)))
    if F.kind == Kind.BYTES:
        static_assert(F.offset == 0, f"format {FMT}: signed bytes have no offset here, got {F.offset}")
        return f32(i32(i8(bits)))
    static_assert(
        F.kind in NIBBLE_KINDS or F.kind == Kind.QUARTERS,
        f"format {FMT}: integer does not know integers of kind {F.kind!s}",
    )
    return f32(i32(bits & 255) - F.offset)


# -- scales -----------------------------------------------------------------------------------------------------------


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
        F.scale in (Scale.BLOCK, Scale.INT8_HALVES, Scale.POWER_OF_TWO, Scale.SIX_BIT_SIGNED, Scale.SIX_BIT_HALVES),
        f"format {FMT}: scaled does not know scales of kind {F.scale!s}",
    )
    return number * scale


# -- plain numbers ----------------------------------------------------------------------------------------------------


@inline
def float_element(row: ptr[u8], i: i32, FMT: str):
    """Element i of a row of floats."""
    F = format_of(FMT)
    if F.kind == Kind.F32:
        return load(cast(row, ptr[f32]), i, align=1)
    if F.kind == Kind.F16:
        return f32(load(cast(row, ptr[f16]), i, align=1))
    static_assert(F.kind == Kind.BF16, f"format {FMT}: float_element does not know numbers of kind {F.kind!s}")
    return bitcast(u32(load(cast(row, ptr[u16]), i, align=1)) << 16, f32)

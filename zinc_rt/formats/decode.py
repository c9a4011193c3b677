"""Reading blocks in kernels: a decoder for each kind of integers and scales, used by the CPU and the GPU alike.

Each takes a format by name and looks its record up when the kernel is compiled. What a record says and a decoder does
not know ends in `static_assert`: an error that names the format and the calls that led there. A kernel with a layout of
its own (tiles, lanes that share bytes) takes at least places and bit patterns from here.
"""

from __future__ import annotations

from zinc_rt.formats.decode_grids import grid_bytes, grid_sizes, grid_words, shifted_words
from zinc_rt.formats.kinds import CODEBOOK, CODED_KINDS, GRID_KINDS, NIBBLE_KINDS, OFFSET_KINDS, CodeLayout
from zinc_rt.formats.table import FORMATS
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, cast, load, lookup16, select, static_assert
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
        F.codebook == () or (F.kind in CODED_KINDS and F.high_bits == 0 and len(F.codebook) == CODEBOOK),
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
def spread_pairs(byte):
    """Four times two bits over four bytes."""
    halves = (byte | (byte << 12)) & 0x000F000F
    return (halves | (halves << 6)) & LOW_PAIRS


@inline
def trit_bytes(q: ptr[u8], j):
    """Kind TRITS: eight words that hold the digits of group j, for `trit_words`. q: where a block's begin."""
    first = u32(j) < 5
    low = words_at(q, select(first, zero(), zero() + 32), 4)
    # The last word is that of four digits.
    return low, words_at(q, select(first, zero() + 16, zero() + 36), 4)


@inline
def trit_words(loaded, j):
    """The digits of a group. loaded: of `trit_bytes`."""
    low, high = loaded
    k = u32(j)
    rest = tuple(select(k < 5, high[i], select(k < 7, low[i], high[3])) for i in range(4))
    return tuple(trits(low[i] if i < 4 else rest[i - 4], i, j) for i in range(8))


@inline
def zero():
    """0 as u32."""
    number: u32 = 0
    return number


@inline
def trits(word, i: int, j):
    """The digits of base 3 of four bytes that become word i of group j."""
    k = u32(j)
    digit = select(k < 5, k, 2 * k - 10) if i < 4 else select(k < 5, k, select(k < 7, 2 * k - 9, zero() + (i - 4)))
    power = select(digit < 4, (zero() + 0x1B090301) >> ((8 * digit) & 31), zero() + 81) & 255
    # Bytes are fractions of 256, as are their products; three times these is the digit, and a fraction.
    fractions = tuple((((word >> (8 * h)) & 0x00FF00FF) * power & 0x00FF00FF) * 3 for h in range(2))
    return ((fractions[0] >> 8) & 0x00030003) | (fractions[1] & 0x03000300)


@inline
def low_at(j, FMT: str):
    """Where the low bits of group j of a super-block begin: 32 bytes."""
    F = integers_of(FMT)
    if F.kind == CodeLayout.PAIRS:
        return F.q + (j >> 1) * 32
    if F.kind == CodeLayout.QUARTERS:
        return F.q + (j >> 2) * 32
    static_assert(F.kind == CodeLayout.HALVES, f"format {FMT}: low_at does not know integers of kind {F.kind!s}")
    return F.q + ((j >> 2) * 64 + (j & 1) * 32)


@inline
def low_shift(j, FMT: str):
    """How far up in their bytes these bits are."""
    F = integers_of(FMT)
    if F.kind == CodeLayout.PAIRS:
        return u32((j & 1) * 4)
    if F.kind == CodeLayout.QUARTERS:
        return u32((j & 3) * 2)
    static_assert(F.kind == CodeLayout.HALVES, f"format {FMT}: low_shift does not know integers of kind {F.kind!s}")
    return u32(((j & 3) >> 1) * 4)


@inline
def low_mask(FMT: str):
    """These bits of four elements."""
    F = integers_of(FMT)
    if F.kind == CodeLayout.QUARTERS:
        return LOW_PAIRS
    static_assert(F.kind in NIBBLE_KINDS, f"format {FMT}: low_mask does not know integers of kind {F.kind!s}")
    return LOW_NIBBLES


@inline
def high_at(j, FMT: str):
    """Where the bits above them begin: 32 bytes."""
    F = integers_of(FMT)
    if F.kind in (CodeLayout.PAIRS, CodeLayout.QUARTERS) and F.high_bits == 1:
        return F.high
    static_assert(
        F.kind == CodeLayout.HALVES and F.high_bits == 2,
        f"format {FMT}: high_at does not know {F.high_bits} high bits of kind {F.kind!s}",
    )
    return F.high + (j >> 2) * 32


@inline
def high_shift(j, FMT: str):
    """How far up in their bytes these bits are."""
    F = integers_of(FMT)
    if F.kind in (CodeLayout.PAIRS, CodeLayout.QUARTERS) and F.high_bits == 1:
        return u32(j)
    static_assert(
        F.kind == CodeLayout.HALVES and F.high_bits == 2,
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
    return words_of(looked_up_bytes(group_bytes(block, j, FMT), FMT), j, FMT)


@inline
def group_bytes(block: ptr[u8], j, FMT: str):
    """The loads of `group_words`, but for those from tables: words that hold the integers, and those of their upper
    bits or None.
    """
    F = integers_of(FMT)
    static_assert(
        F.groups == 1 or F.kind != CodeLayout.BYTES,
        f"format {FMT}: group_words knows integers of kind {F.kind!s} in blocks of 32 alone, not of {F.block}",
    )
    if F.kind in GRID_KINDS:
        return grid_bytes(block, j, FMT)
    if F.kind == CodeLayout.BYTES:
        return words_at(block, F.q, 8), None
    if F.kind == CodeLayout.FOURS:
        return tuple(word_at(block, F.q + 8 * j + 4 * i) for i in range(2)), None
    if F.kind == CodeLayout.SIGN_BITS:
        return (word_at(block, F.q + 4 * j),), None
    if F.kind == CodeLayout.TRITS:
        return trit_bytes(block + F.q, j), None
    if F.kind == CodeLayout.EIGHTS:
        return words_at(block, F.q + 16 * j, 4), None
    if F.kind == CodeLayout.NIBBLES:
        q = words_at(block, F.q if F.groups == 1 else F.q + 16 * j, 4)
        return q, word_at(block, F.high) if F.codebook == () and F.high_bits > 0 else None
    static_assert(
        F.kind in (CodeLayout.PAIRS, CodeLayout.HALVES, CodeLayout.QUARTERS),
        f"format {FMT}: group_words does not know integers of kind {F.kind!s}",
    )
    low = words_at(block, low_at(j, FMT), 8)
    return low, words_at(block, high_at(j, FMT), 8) if F.codebook == () and F.high_bits > 0 else None


@inline
def looks_up(FMT: str):
    """Whether blocks hold indices of a table in memory, static."""
    return format_of(FMT).kind in GRID_KINDS


@inline
def looked_up_bytes(loaded, FMT: str):
    """What `group_bytes` has loaded; where that are indices, what a table in memory holds for them."""
    return grid_sizes(loaded, FMT) if looks_up(FMT) else loaded


@inline
def words_of(loaded, j, FMT: str):
    """`group_words` of `looked_up_bytes`."""
    F = integers_of(FMT)
    q, high = loaded
    if F.kind == CodeLayout.GRID:
        return grid_words(q, high)
    if F.kind == CodeLayout.SHIFTED_GRID:
        return shifted_words(q, high)
    if F.kind == CodeLayout.BYTES:
        return q
    if F.kind == CodeLayout.FOURS:
        return tuple(spread_pairs((q[i // 4] >> (8 * (i % 4))) & 255) for i in range(8))
    if F.kind == CodeLayout.SIGN_BITS:
        return tuple(spread(q[0] >> (4 * i)) << 1 for i in range(8))
    if F.kind == CodeLayout.TRITS:
        return trit_words(q, j)
    if F.kind == CodeLayout.EIGHTS:
        return tuple(looked_up(word, FMT) for word in eights(q))
    if F.kind == CodeLayout.NIBBLES:
        words = tuple((q[i % 4] >> (4 * (i // 4))) & LOW_NIBBLES for i in range(8))
        if F.codebook != ():
            return tuple(looked_up(word, FMT) for word in words)
        if F.high_bits == 0:
            return words
        static_assert(
            F.high_bits == 1 and F.groups == 1,
            f"format {FMT}: group_words does not know {F.high_bits} high bits of nibbles in blocks of {F.block}",
        )
        return tuple(words[i] | (spread(high >> (4 * i)) << 4) for i in range(8))
    shift = low_shift(j, FMT)
    words = tuple((q[i] >> shift) & low_mask(FMT) for i in range(8))
    if F.codebook != ():
        return tuple(looked_up(word, FMT) for word in words)
    if F.high_bits == 0:
        return words
    shift_of_high = high_shift(j, FMT)
    MASK = HIGH_MASKS[F.high_bits]
    return tuple(words[i] | (((high[i] >> shift_of_high) & MASK) << F.low_bits) for i in range(8))


@inline
def eights(packed):
    """Kind EIGHTS: eight words of indices from four."""
    halves = tuple((word & LOW_NIBBLES, (word >> 4) & LOW_NIBBLES) for word in packed)
    return tuple(halves[2 * (i // 4) + i % 2][i % 4 // 2] for i in range(8))


@inline
def looked_up(word: u32, FMT: str):
    """Four indices of a codebook as its signed bytes."""
    return bitcast(lookup16(i8, integers_of(FMT).codebook, bitcast(word, vec[u8, 4])), u32)


@inline
def integer(bits, FMT: str):
    """The integer in the low byte of a word of `group_words`, as f32, with the format's offset applied."""
    F = integers_of(FMT)
    if F.codebook != () or F.kind == CodeLayout.GRID:
        return f32(i32(i8(bits)))
    if F.kind == CodeLayout.BYTES:
        static_assert(F.offset == 0, f"format {FMT}: signed bytes have no offset here, got {F.offset}")
        return f32(i32(i8(bits)))
    static_assert(
        F.kind in OFFSET_KINDS,
        f"format {FMT}: integer does not know integers of kind {F.kind!s}",
    )
    return f32(i32(bits & 255) - F.offset)


# -- plain numbers ----------------------------------------------------------------------------------------------------


@inline
def float_element(row: ptr[u8], i: i32, FMT: str):
    """Element i of a row of floats."""
    F = format_of(FMT)
    if F.kind == CodeLayout.F32:
        return load(cast(row, ptr[f32]), i, align=1)
    if F.kind == CodeLayout.F16:
        return f32(load(cast(row, ptr[f16]), i, align=1))
    static_assert(F.kind == CodeLayout.BF16, f"format {FMT}: float_element does not know numbers of kind {F.kind!s}")
    return bitcast(u32(load(cast(row, ptr[u16]), i, align=1)) << 16, f32)

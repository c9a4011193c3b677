"""Reading blocks of indices of vectors in kernels (`CodeLayout.GRID`); see decode.py."""

from __future__ import annotations

from zinc_rt.formats.kinds import Scale, Signs
from zinc_rt.formats.table import FORMATS
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import cast, gather, load, popcount, static_assert, table
from zinc_rt.lang.types import ptr, u8, u16, u32

LOW_BYTES = 0x00FF00FF
LOW_BITS = 0x01010101
SHIFTS = (Signs.SHIFT_OF_GROUP, Signs.SHIFT_OF_EIGHTS)


@inline
def grid_of(FMT: str):
    """Where a format has indices and signs."""
    F = FORMATS[FMT]
    static_assert(F.grid is not None, f"format {FMT}: its integers are no indices of vectors")
    return F.grid


@inline
def word_at(p: ptr[u8], at):
    """Four bytes at an offset."""
    return load(cast(p + at, ptr[u32]), align=1)


@inline
def grid_bytes(block: ptr[u8], j, FMT: str):
    """The words that hold a group's indices, those of their upper bits and of the signs, or None where the first ones
    hold them, too.
    """
    G = grid_of(FMT)
    at = FORMATS[FMT].q + G.step * j
    if G.signs == Signs.IN_INDEX:
        return tuple(word_at(block, at + 4 * i) for i in range(2)), None, None
    if G.signs in SHIFTS:
        return (word_at(block, at),), high_word(block, j, FMT), None
    static_assert(
        G.signs in (Signs.BYTES, Signs.WORDS), f"format {FMT}: grid_bytes does not know signs of kind {G.signs!s}"
    )
    static_assert(G.index_bits == 0 or G.high is not None, f"format {FMT}: its indices have no more than eight bits")
    high = None if G.index_bits == 0 else u32(load(block + G.high, j))
    signs = word_at(block, G.sign_place + G.sign_step * j)
    return tuple(word_at(block, at + 4 * i) for i in range(G.lines)), high, signs


@inline
def high_word(block: ptr[u8], j, FMT: str):
    """The 16 bits of group j of a shifted grid."""
    return u32(load(cast(block + (grid_of(FMT).high + 2 * j), ptr[u16]), align=1))


@inline
def added_bits(high, FMT: str):
    """A bit for each of a group's four vectors: whether an eighth is added to it. high: of `high_word`."""
    G = grid_of(FMT)
    if G.signs == Signs.SHIFT_OF_GROUP:
        return ((high >> 15) ^ 1) * 15
    static_assert(G.signs == Signs.SHIFT_OF_EIGHTS, f"format {FMT}: added_bits does not know signs of kind {G.signs!s}")
    bits = ((high ^ 0x8888) >> 3) & 0x1111
    return ((bits | (bits >> 3)) | ((bits >> 6) | (bits >> 9))) & 15


@inline
def index_words(words, FMT: str):
    """The low bytes of a group's indices: a word for each four, as a tuple."""
    if grid_of(FMT).signs == Signs.IN_INDEX:
        both = tuple(word & LOW_BYTES for word in words)
        # Bytes 0 and 2 of each.
        pairs = tuple((b | (b >> 8)) & 0xFFFF for b in both)
        return (pairs[0] | (pairs[1] << 16),)
    return words


@inline
def index_high(words, high, FMT: str):
    """The bits above them, `index_bits` for each index from the lowest on."""
    if grid_of(FMT).signs == Signs.IN_INDEX:
        both = tuple((word >> 8) & 0x00010001 for word in words)
        pairs = tuple((b | (b >> 15)) & 3 for b in both)
        return pairs[0] | (pairs[1] << 2)
    return high


@inline
def even(seven):
    """Seven bits, and an eighth that makes the number of ones even."""
    return seven | ((popcount(seven) & 1) << 7)


@inline
def sign_bits(words, signs, FMT: str):
    """A bit for each of a group's elements."""
    G = grid_of(FMT)
    if G.signs == Signs.BYTES:
        return signs
    if G.signs == Signs.IN_INDEX:
        eights = tuple(even((words[i // 2] >> (16 * (i % 2) + 9)) & 127) for i in range(4))
    else:
        eights = tuple(even((signs >> (7 * i)) & 127) for i in range(4))
    return (eights[0] | (eights[1] << 8)) | ((eights[2] << 16) | (eights[3] << 24))


@inline
def odd_bits(block: ptr[u8], j, FMT: str):
    """What the scales of a group are made of: s in the low four bits; that of the last 16 elements above them."""
    F = FORMATS[FMT]
    if F.scale == Scale.ODD_WORD:
        G = grid_of(FMT)
        return word_at(block, G.sign_place + G.sign_step * j) >> 28
    if F.scale == Scale.ODD_NIBBLES:
        return (u32(load(block + F.scales, j >> 1)) >> ((u32(j) & 1) * 4)) & 15
    if F.scale == Scale.ODD_TOP:
        return (high_word(block, j, FMT) >> 12) & 7
    if F.scale == Scale.ODD_THREES:
        word = u32(load(cast(block + (F.scales + 2 * (j >> 1)), ptr[u16]), align=1)) >> ((u32(j) & 1) * 6)
        return (word & 7) | ((word & 0x38) << 1)
    static_assert(F.scale == Scale.ODD_HALVES, f"format {FMT}: odd_bits does not know scales of kind {F.scale!s}")
    return u32(load(block + F.scales, j))


@inline
def d_bits(block: ptr[u8], FMT: str):
    """The float16 that all scales of a block are multiplied with, as bits."""
    F = FORMATS[FMT]
    if F.scale == Scale.ODD_THREES:
        words = tuple(word_at(block, F.scales + 4 * i) for i in range(2))
        low = ((words[0] >> 12) & 0x000F) | ((words[0] >> 24) & 0x00F0)
        return u16(low | ((words[1] >> 4) & 0x0F00) | ((words[1] >> 16) & 0xF000))
    static_assert(F.halves != (), f"format {FMT}: d_bits does not know scales of kind {F.scale!s}")
    return load(cast(block + F.d, ptr[u16]), align=1)


@inline
def grid_place(low, high, i: int, FMT: str):
    """Where the table has word i of a group's sizes. low: the word of indices that holds its index; high: or None."""
    G = grid_of(FMT)
    PER = G.width // 4  # words of a vector
    K = i // PER
    index = (low >> (8 * (K % 4))) & 255
    if G.index_bits != 0:
        index = index | (((high >> (G.high_step * K)) & ((1 << G.index_bits) - 1)) << 8)
    return index * PER + i % PER


@inline
def line_of_index(i: int, FMT: str):
    """Which of the words of indices holds that of word i of a group."""
    return i // (grid_of(FMT).width // 4) // 4


@inline
def grid_sizes(loaded, FMT: str):
    """The loads of a group's eight words from the table, and a bit for the sign of each element, or for the shift of
    each vector. loaded: of `grid_bytes`.
    """
    G = grid_of(FMT)
    words, upper, sign_words = loaded
    sizes = table(u32, G.words)
    low = index_words(words, FMT)
    high = index_high(words, upper, FMT) if G.index_bits != 0 else None
    places = tuple(grid_place(low[line_of_index(i, FMT)], high, i, FMT) for i in range(8))
    bits = added_bits(upper, FMT) if G.signs in SHIFTS else sign_bits(words, sign_words, FMT)
    return tuple(gather(sizes, place) for place in places), bits


@inline
def grid_words(sizes, signs):
    """The 32 integers of a group as signed bytes in 8 words of 4 consecutive columns, as a tuple; see `grid_sizes`."""
    return tuple(negated(sizes[i], signs >> (4 * i)) for i in range(8))


@inline
def shifted_words(numbers, added):
    """The same for a shifted grid, unsigned."""
    return tuple((numbers[i] << 3) | (((added >> (i // 2)) & 1) * 0x02020202) for i in range(8))


@inline
def negated(word, bits):
    """Four bytes; a byte is negated if its bit is set: of the low four bits. No byte is zero."""
    mask = (((bits & 15) * 0x00204081) & LOW_BITS) * 255
    return (word ^ mask) + (mask & LOW_BITS)

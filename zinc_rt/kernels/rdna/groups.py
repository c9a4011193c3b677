"""v_g of docs/numerics.md for a lane's group of 32, straight from the file's blocks (docs/gguf.md).

Every byte of a block is loaded by one lane and the widest loads that its place allows; where two groups share bytes
(the K formats), two lanes take half of them each, work for both groups, and exchange what they found. All lanes of a
wave must be active. x: an `Activations` tuple (q, d, s) of one row.
"""

from __future__ import annotations

from zinc_rt.formats.decode import (
    LOW_BITS,
    LOW_NIBBLES,
    LOW_PAIRS,
    plain_integers,
    spread,
)
from zinc_rt.formats.decode_scales import first_six, last_six
from zinc_rt.formats.kinds import Kind, Scale
from zinc_rt.kernels.rdna.whole_groups import takes_whole_groups, whole_value, whole_weights
from zinc_rt.kernels.rdna.words import dot, quants, sums_of
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, cast, load, select, static_assert, unroll, wave_shuffle_xor
from zinc_rt.lang.types import f16, f32, i8, i16, i32, ptr, u8, u16, u32
from zinc_rt.numerics import GROUP

PLAIN = (Kind.BYTES, Kind.NIBBLES)
"""Kinds whose groups share no bytes."""


@inline
def half(bits):
    """The float16 in the low half of a word, widened."""
    return f32(bitcast(u16(bits), f16))


@inline
def words_at(p: ptr[u8], at, n: int, align: int):
    """n words from a byte offset."""
    return load(cast(p + at, ptr[u32]), lanes=n, align=align)


@inline
def plain_weights(row: ptr[u8], group: u32, FMT: str):
    """A block of 32: eight words of weights without their offset, d, and m or None."""
    F = plain_integers(FMT)
    static_assert(
        F.scale == Scale.BLOCK and F.groups == 1 and F.high_bits <= 1,
        f"format {FMT}: plain_weights does not know {F.high_bits} high bits, scales of kind {F.scale!s} in {F.block}",
    )
    block = row + group * F.block_bytes
    if F.kind == Kind.BYTES and F.minimum is None:
        d = f32(load(cast(block + F.d, ptr[f16])))
        q = (words_at(block, F.q, 4, 2), words_at(block, F.q + 16, 4, 2))
        return tuple(q[i // 4][i % 4] for i in range(8)), d, None
    static_assert(F.kind == Kind.NIBBLES, f"format {FMT}: plain_weights does not know integers of kind {F.kind!s}")
    if F.minimum is None:
        d = f32(load(cast(block + F.d, ptr[f16])))
        if F.high_bits == 0:
            q = words_at(block, F.q, 4, 2)
            return tuple((q[i % 4] >> (4 * (i // 4))) & LOW_NIBBLES for i in range(8)), d, None
        high = load(cast(block + F.high, ptr[u32]), align=2)
        q = words_at(block, F.q, 4, 2)
        words = tuple(((q[i % 4] >> (4 * (i // 4))) & LOW_NIBBLES) | (spread(high >> (4 * i)) << 4) for i in range(8))
        return words, d, None
    static_assert(
        (F.d, F.minimum, F.block_bytes % 4) == (0, 2, 0) and (F.high_bits == 0 or F.high == 4),
        f"format {FMT}: plain_weights loads d, m and fifth bits as words at the block's beginning",
    )
    if F.high_bits == 0:
        both = load(cast(block, ptr[u32]))
        q = words_at(block, F.q, 4, 4)
        return tuple((q[i % 4] >> (4 * (i // 4))) & LOW_NIBBLES for i in range(8)), half(both), half(both >> 16)
    head = words_at(block, 0, 2, 4)
    q = words_at(block, F.q, 4, 4)
    words = tuple(((q[i % 4] >> (4 * (i // 4))) & LOW_NIBBLES) | (spread(head[1] >> (4 * i)) << 4) for i in range(8))
    return words, half(head[0]), half(head[0] >> 16)


@inline
def plain_value(weights, x, group: u32, FMT: str):
    """v_g of a block of 32."""
    F = plain_integers(FMT)
    words, d, m = weights
    q = quants(x[0], group, 0, 8)
    isum: i32 = 0
    for i in unroll(8):
        isum = dot(isum, words[i], q[i], F.kind == Kind.BYTES)
    dx = load(x[1], group)
    if F.offset == 0 and F.minimum is None:
        return (d * dx) * f32(isum)
    first, last = sums_of(x[2], group)
    if F.minimum is None:
        return (d * dx) * f32(isum - F.offset * (first + last))
    static_assert(F.offset == 0, f"format {FMT}: rdna/groups.py knows no offset {F.offset} beside a minimum")
    return ((d * dx) * f32(isum)) + ((m * dx) * f32(first + last))


@inline
def k_weights(row: ptr[u8], group: u32, FMT: str):
    """Half of the bytes that this group shares with its neighbour: the even group's four words and the odd one's of
    elements 16h … 16h+15, h the group's low bit; then d, dmin, and this group's scale and minimum.
    """
    F = plain_integers(FMT)
    static_assert(
        F.kind == Kind.PAIRS and F.scale == Scale.SIX_BIT and F.groups == 8 and F.high_bits <= 1,
        f"format {FMT}: k_weights does not know {F.high_bits} high bits and scales of kind {F.scale!s} in {F.block}",
    )
    static_assert(F.offset == 0, f"format {FMT}: k_weights knows no offset {F.offset} beside minima")
    static_assert(
        (F.d, F.minimum, F.scales, F.block_bytes % 16) == (0, 2, 4, 0),
        f"format {FMT}: rdna/groups.py loads d, dmin and the scales of kind {F.scale!s} as four words",
    )
    block = row + (group >> 3) * F.block_bytes
    head = words_at(block, F.d, 4, 16)
    j = group & 7
    pair = (j >> 1) * 32 + (j & 1) * 16
    q = words_at(block + pair, F.q, 4, 16)
    low = tuple(q[i] & LOW_NIBBLES for i in range(4))
    high = tuple((q[i] >> 4) & LOW_NIBBLES for i in range(4))
    if F.high_bits == 1:
        fifth = words_at(block + (j & 1) * 16, F.high, 4, 16)
        bit = j & 6
        low = tuple(low[i] | (((fifth[i] >> bit) & LOW_BITS) << 4) for i in range(4))
        high = tuple(high[i] | (((fifth[i] >> (bit + 1)) & LOW_BITS) << 4) for i in range(4))
    k = (j & 3) * 8
    a = (head[1] >> k) & 255
    b = (head[2] >> k) & 255
    c = (head[3] >> k) & 255
    first = j < 4
    sc = select(first, first_six(a), last_six(c & 15, a))
    mn = select(first, first_six(b), last_six(c >> 4, b))
    return low, high, half(head[0]), half(head[0] >> 16), sc, mn


@inline
def k_value(weights, x, group: u32):
    """v_g where groups have scales and minima of six bits."""
    low, high, d, dmin, sc, mn = weights
    odd = group & 1
    even_q = load(cast(x[0] + (group - odd) * GROUP + odd * 16, ptr[u32]), lanes=4, align=16)
    odd_q = load(cast(x[0] + (group | 1) * GROUP + odd * 16, ptr[u32]), lanes=4, align=16)
    even_sum: i32 = 0
    odd_sum: i32 = 0
    for i in unroll(4):
        even_sum = dot(even_sum, low[i], even_q[i], False)
        odd_sum = dot(odd_sum, high[i], odd_q[i], False)
    own = select(odd == 1, odd_sum, even_sum)
    isum = own + wave_shuffle_xor(select(odd == 1, even_sum, odd_sum), 1)
    dx = load(x[1], group)
    first, last = sums_of(x[2], group)
    # Products of these integers are below 2^24: exact in float32.
    scaled = f32(sc) * f32(isum)
    least = f32(mn) * f32(first + last)
    return ((d * dx) * scaled) - ((dmin * dx) * least)


@inline
def halves_weights(row: ptr[u8], group: u32, FMT: str):
    """Half of the bytes that groups k and k + 2 of a half block share: four words of the lower group and four of the
    upper one, elements 16h … 16h+15, h: whether this is the upper one; d, and their two scales of these elements.
    """
    F = plain_integers(FMT)
    static_assert(
        F.kind == Kind.HALVES and F.scale == Scale.INT8_HALVES and F.groups == 8 and F.high_bits == 2,
        f"format {FMT}: halves_weights does not know {F.high_bits} high bits, scales of kind {F.scale!s} in {F.block}",
    )
    block = row + (group >> 3) * F.block_bytes
    j = group & 7
    side, k, h = j >> 2, j & 1, (j >> 1) & 1
    q = words_at(block + side * 64 + k * 32 + h * 16, F.q, 4, 2)
    top = words_at(block + side * 32 + h * 16, F.high, 4, 2)
    bit = k * 2
    low = tuple((q[i] & LOW_NIBBLES) | (((top[i] >> bit) & LOW_PAIRS) << 4) for i in range(4))
    high = tuple(((q[i] >> 4) & LOW_NIBBLES) | (((top[i] >> (bit + 4)) & LOW_PAIRS) << 4) for i in range(4))
    scales = cast(block + side * 8 + k * 2 + h, ptr[i8])
    d = f32(load(cast(block + F.d, ptr[f16])))
    return low, high, d, f32(i32(load(scales, F.scales))), f32(i32(load(scales, F.scales + 4)))


@inline
def halves_value(weights, x, group: u32, FMT: str):
    """v_g where each 16 elements have a scale."""
    OFFSET = plain_integers(FMT).offset
    low, high, d, low_scale, high_scale = weights
    h = (group >> 1) & 1
    below, above = group & 0xFFFFFFFD, group | 2
    low_q = load(cast(x[0] + below * GROUP + h * 16, ptr[u32]), lanes=4, align=16)
    high_q = load(cast(x[0] + above * GROUP + h * 16, ptr[u32]), lanes=4, align=16)
    low_sum = half_sum(x[2], below, h) * -OFFSET
    high_sum = half_sum(x[2], above, h) * -OFFSET
    for i in unroll(4):
        low_sum = dot(low_sum, low[i], low_q[i], False)
        high_sum = dot(high_sum, high[i], high_q[i], False)
    # |scale * sum| < 2^23 and the sum of two < 2^24: exact in float32.
    low_part = low_scale * f32(low_sum)
    high_part = high_scale * f32(high_sum)
    own = select(h == 1, high_part, low_part)
    total = own + wave_shuffle_xor(select(h == 1, low_part, high_part), 2)
    return (d * load(x[1], group)) * total


@inline
def half_sum(s: ptr[u32], group: u32, h: u32):
    """The sum of a group's first or last 16 activations."""
    return i32(load(cast(s, ptr[i16]), group * 2 + h))


@inline
def group_weights(row: ptr[u8], group: u32, FMT: str):
    """A lane's weights, for `group_value`."""
    if takes_whole_groups(FMT):
        return whole_weights(row, group, FMT)
    F = plain_integers(FMT)
    if F.kind == Kind.HALVES:
        return halves_weights(row, group, FMT)
    if F.kind == Kind.PAIRS:
        return k_weights(row, group, FMT)
    static_assert(F.kind in PLAIN, f"format {FMT}: group_weights does not know integers of kind {F.kind!s}")
    return plain_weights(row, group, FMT)


@inline
def group_value(weights, x, group: u32, FMT: str):
    """v_g of a lane's group against one row of activations."""
    if takes_whole_groups(FMT):
        return whole_value(weights, x, group, FMT)
    F = plain_integers(FMT)
    if F.kind == Kind.HALVES:
        return halves_value(weights, x, group, FMT)
    if F.kind == Kind.PAIRS:
        return k_value(weights, x, group)
    static_assert(F.kind in PLAIN, f"format {FMT}: group_value does not know integers of kind {F.kind!s}")
    return plain_value(weights, x, group, FMT)

"""v_g of docs/how/numerics.md for a lane's group of 32, straight from the file's blocks (docs/how/gguf.md).

`group_loads` and `group_activations` ask for what a lane needs, and use nothing of it: whatever a kernel works on at
once is asked for before it waits; then `group_lookups` for what tables hold. `group_weights` unpacks weights,
`group_values` computes.

Every byte of a block is loaded by one lane and the widest loads that its place allows; where two groups share bytes
(the K formats), two lanes take half of them each, work for both groups, and exchange what they found. All lanes of a
wave must be active. x: an `Activations` tuple (q, d, s) of one row.
"""

from __future__ import annotations

from zinc_rt.formats.decode import (
    LOW_BITS,
    LOW_NIBBLES,
    LOW_PAIRS,
    integers_of,
    looks_up,
    plain_integers,
    spread,
)
from zinc_rt.formats.decode_scales import first_six, last_six
from zinc_rt.formats.kinds import CodeLayout, Scale
from zinc_rt.kernels.gpu.dequant_dot_wide import (
    takes_whole_groups,
    whole_loads,
    whole_lookups,
    whole_value,
    whole_weights,
)
from zinc_rt.kernels.gpu.dot import dot, quants, scale_at, sums_at, sums_of
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, cast, load, regs, reversed_bits, select, static_assert, unroll, wave_shuffle_xor
from zinc_rt.lang.types import f16, f32, i8, i16, i32, ptr, u8, u16, u32
from zinc_rt.numerics import GROUP

PLAIN = (CodeLayout.BYTES, CodeLayout.NIBBLES)
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
def plain_loads(row: ptr[u8], skip: u32, group: u32, FMT: str):
    """A block of 32: d with what lies beside it, the fifth bits or None, and the integers by 16 bytes."""
    F = plain_integers(FMT)
    static_assert(
        F.scale == Scale.BLOCK and F.groups == 1 and F.high_bits <= 1,
        f"format {FMT}: plain_loads does not know {F.high_bits} high bits, scales of kind {F.scale!s} in {F.block}",
    )
    block = row + (skip + group * F.block_bytes)
    if F.minimum is None:
        d = load(cast(block + F.d, ptr[u16]))
        high = load(cast(block + F.high, ptr[u32]), align=2) if F.high_bits == 1 else None
        n = 32 if F.kind == CodeLayout.BYTES else 16
        return d, high, tuple(words_at(block, F.q + i, 4, 2) for i in range(0, n, 16))
    static_assert(
        F.kind == CodeLayout.NIBBLES
        and (F.d, F.minimum, F.block_bytes % 4) == (0, 2, 0)
        and (F.high_bits == 0 or F.high == 4),
        f"format {FMT}: plain_loads loads d, m and fifth bits as words at the block's beginning",
    )
    if F.high_bits == 0:
        return load(cast(block, ptr[u32])), None, (words_at(block, F.q, 4, 4),)
    head = words_at(block, 0, 2, 4)
    return head[0], head[1], (words_at(block, F.q, 4, 4),)


@inline
def plain_weights(loaded, FMT: str):
    """Eight words of weights without their offset, d, and m or None."""
    F = plain_integers(FMT)
    both, high, q = loaded
    m = None if F.minimum is None else half(both >> 16)
    if F.kind == CodeLayout.BYTES:
        return tuple(q[i // 4][i % 4] for i in range(8)), half(both), m
    static_assert(
        F.kind == CodeLayout.NIBBLES, f"format {FMT}: plain_weights does not know integers of kind {F.kind!s}"
    )
    words = tuple((q[0][i % 4] >> (4 * (i // 4))) & LOW_NIBBLES for i in range(8))
    if F.high_bits == 1:
        words = tuple(words[i] | (spread(high >> (4 * i)) << 4) for i in range(8))
    return words, half(both), m


@inline
def whole_activations(x, at: u32, FMT: str):
    """A group's eight words, their scale, and where the format wants them their sums."""
    F = integers_of(FMT)
    sums = None if F.offset == 0 and F.minimum is None else sums_at(x[2], at)
    return quants(x[0], at, 0, 8), scale_at(x[1], at), sums


@inline
def plain_values(weights, rows, FMT: str):
    """v_g of a block of 32 for each of several rows."""
    F = plain_integers(FMT)
    words, d, m = weights
    N = len(rows)
    isums = regs(i32, N)
    # One row after the other, so that no instruction needs the result of the one before.
    for i in unroll(8):
        for r in unroll(N):
            isums[r] = dot(isums[r], words[i], rows[r][0][i], F.kind == CodeLayout.BYTES)
    return tuple(plain_value(isums[r], d, m, rows[r], FMT) for r in range(N))


@inline
def plain_value(isum: i32, d, m, x, FMT: str):
    """v_g of a block by its sum of products."""
    F = plain_integers(FMT)
    if F.offset == 0 and F.minimum is None:
        return (d * x[1]) * f32(isum)
    first, last = sums_of(x[2])
    if F.minimum is None:
        return (d * x[1]) * f32(isum - F.offset * (first + last))
    static_assert(F.offset == 0, f"format {FMT}: gpu/dequant_dot.py knows no offset {F.offset} beside a minimum")
    return ((d * x[1]) * f32(isum)) + ((m * x[1]) * f32(first + last))


@inline
def k_loads(row: ptr[u8], skip: u32, group: u32, FMT: str):
    """d, dmin and the scales as four words, 16 of the 32 bytes that this group shares with its neighbour, and of the
    fifth bits those for the same elements.
    """
    F = plain_integers(FMT)
    static_assert(
        F.kind == CodeLayout.PAIRS and F.scale == Scale.SIX_BIT and F.groups == 8 and F.high_bits <= 1,
        f"format {FMT}: k_loads does not know {F.high_bits} high bits and scales of kind {F.scale!s} in {F.block}",
    )
    static_assert(
        (F.d, F.minimum, F.scales, F.block_bytes % 16) == (0, 2, 4, 0),
        f"format {FMT}: gpu/dequant_dot.py loads d, dmin and the scales of kind {F.scale!s} as four words",
    )
    block = (group >> 3) * F.block_bytes
    j = group & 7
    half_of = (j & 1) * 16
    head = words_at(row + (skip + block), F.d, 4, 16)
    q = words_at(row + (skip + (block + (j >> 1) * 32 + half_of)), F.q, 4, 16)
    return head, q, words_at(row + (skip + (block + half_of)), F.high, 4, 16) if F.high_bits == 1 else None


@inline
def k_weights(loaded, group: u32, FMT: str):
    """Four words of this group and four of its neighbour, both of elements 16h … 16h+15, h the group's low bit; then d,
    dmin, and this group's scale and minimum.
    """
    F = plain_integers(FMT)
    static_assert(F.offset == 0, f"format {FMT}: k_weights knows no offset {F.offset} beside minima")
    head, q, fifth = loaded
    j = group & 7
    shift = (j & 1) * 4
    own = tuple((q[i] >> shift) & LOW_NIBBLES for i in range(4))
    other = tuple((q[i] >> (shift ^ 4)) & LOW_NIBBLES for i in range(4))
    if F.high_bits == 1:
        own = tuple(own[i] | (((fifth[i] >> j) & LOW_BITS) << 4) for i in range(4))
        other = tuple(other[i] | (((fifth[i] >> (j ^ 1)) & LOW_BITS) << 4) for i in range(4))
    d, dmin, sc, mn = scales_of_head(head, j)
    return own, other, d, dmin, sc, mn


@inline
def scales_of_head(head, j: u32):
    """d, dmin, scale and minimum of group j from the first 16 bytes of a block of `Scale.SIX_BIT`, four words."""
    k = (j & 3) * 8
    a = (head[1] >> k) & 255
    b = (head[2] >> k) & 255
    c = (head[3] >> k) & 255
    first = j < 4
    sc = select(first, first_six(a), last_six(c & 15, a))
    mn = select(first, first_six(b), last_six(c >> 4, b))
    return half(head[0]), half(head[0] >> 16), f32(sc), f32(mn)


@inline
def both_halves(q: ptr[i8], first: u32, own: u32, other: u32, h: u32):
    """Half h of two groups' activations, four words each; they are behind `first` groups."""
    return tuple(
        load(cast(q + (first * GROUP + (g * GROUP + h * 16)), ptr[u32]), lanes=4, align=16) for g in (own, other)
    )


@inline
def k_activations(x, first: u32, group: u32):
    """A lane's half of its group and of its neighbour, the group's scale and sums."""
    at = first + group
    return both_halves(x[0], first, group, group ^ 1, group & 1), scale_at(x[1], at), sums_at(x[2], at)


@inline
def half_dots(own, other, rows, starts):
    """Sums of products of four words of two groups for each of several rows, behind what they start with."""
    N = len(rows)
    sums = regs(i32, 2 * N)
    for r in unroll(2 * N):
        sums[r] = starts[r]
    for i in unroll(4):
        for r in unroll(N):
            sums[r] = dot(sums[r], own[i], rows[r][0][0][i], False)
            sums[N + r] = dot(sums[N + r], other[i], rows[r][0][1][i], False)
    return tuple(sums[r] for r in range(2 * N))


@inline
def k_values(weights, rows):
    """v_g where groups have scales and minima of six bits, for each of several rows."""
    own, other, d, dmin, sc, mn = weights
    N = len(rows)
    zero: i32 = 0
    sums = half_dots(own, other, rows, tuple(zero for _ in range(2 * N)))
    return tuple(k_value(sums[r], sums[N + r], d, dmin, sc, mn, rows[r]) for r in range(N))


@inline
def k_value(own_sum: i32, other_sum: i32, d, dmin, sc, mn, x):
    """v_g by this lane's sum for its group, and that for its neighbour."""
    isum = own_sum + wave_shuffle_xor(other_sum, 1)
    first, last = sums_of(x[2])
    # Products of these integers are below 2^24: exact in float32.
    scaled = sc * f32(isum)
    least = mn * f32(first + last)
    return ((d * x[1]) * scaled) - ((dmin * x[1]) * least)


@inline
def halves_loads(row: ptr[u8], skip: u32, group: u32, FMT: str):
    """16 of the 32 bytes that groups k and k + 2 of a half block share, elements 16h … 16h+15, h: whether this is the
    upper one; their upper bits, d, and the scales of these elements in this group and in the other one.
    """
    F = plain_integers(FMT)
    static_assert(
        F.kind == CodeLayout.HALVES and F.scale == Scale.INT8_HALVES and F.groups == 8 and F.high_bits == 2,
        f"format {FMT}: halves_loads does not know {F.high_bits} high bits, scales of kind {F.scale!s} in {F.block}",
    )
    block = (group >> 3) * F.block_bytes
    j = group & 7
    side, h = j >> 2, (j >> 1) & 1
    quarter = reversed_bits(j, 2)
    q = words_at(row + (skip + (block + side * 64 + quarter * 16)), F.q, 4, 2)
    top = words_at(row + (skip + (block + side * 32 + h * 16)), F.high, 4, 2)
    place = block + side * 8 + quarter
    own = load(cast(row + (skip + (place + h * 4)), ptr[i8]), F.scales)
    other = load(cast(row + (skip + (place + (h ^ 1) * 4)), ptr[i8]), F.scales)
    return q, top, load(cast(row + (skip + block) + F.d, ptr[u16])), own, other


@inline
def halves_weights(loaded, group: u32):
    """Four words of this group and four of the other one, d, and their two scales."""
    q, top, d, own_scale, other_scale = loaded
    k, h = group & 1, (group >> 1) & 1
    shift = h * 4
    # The upper bits of both groups begin at bit 2k; those of the upper group are four further.
    bits = tuple(top[i] >> (k * 2) for i in range(4))
    own = tuple(((q[i] >> shift) & LOW_NIBBLES) | (((bits[i] >> shift) & LOW_PAIRS) << 4) for i in range(4))
    shift = shift ^ 4
    other = tuple(((q[i] >> shift) & LOW_NIBBLES) | (((bits[i] >> shift) & LOW_PAIRS) << 4) for i in range(4))
    return own, other, half(d), f32(i32(own_scale)), f32(i32(other_scale))


@inline
def halves_activations(x, first: u32, group: u32):
    """A lane's half of its group and of the other one, the group's scale, and the sums of these halves."""
    h = (group >> 1) & 1
    s = cast(x[2], ptr[u8])
    sums = tuple(i32(load(cast(s + (first * 4 + (g * 4 + h * 2)), ptr[i16]))) for g in (group, group ^ 2))
    return both_halves(x[0], first, group, group ^ 2, h), scale_at(x[1], first + group), sums


@inline
def halves_values(weights, rows, FMT: str):
    """v_g where each 16 elements have a scale, for each of several rows."""
    OFFSET = plain_integers(FMT).offset
    own, other, d, own_scale, other_scale = weights
    N = len(rows)
    starts = tuple(rows[r % N][2][r // N] * -OFFSET for r in range(2 * N))
    sums = half_dots(own, other, rows, starts)
    # |scale * sum| < 2^23 and the sum of two < 2^24: exact in float32.
    others = tuple(wave_shuffle_xor(other_scale * f32(sums[N + r]), 2) for r in range(N))
    return tuple((d * rows[r][1]) * (own_scale * f32(sums[r]) + others[r]) for r in range(N))


@inline
def group_loads(row: ptr[u8], skip: u32, group: u32, FMT: str):
    """What a lane loads of its weights, for `group_weights`; its group is the one `group` behind `skip` bytes."""
    if takes_whole_groups(FMT):
        return whole_loads(row + skip, group, FMT)
    F = plain_integers(FMT)
    if F.kind == CodeLayout.HALVES:
        return halves_loads(row, skip, group, FMT)
    if F.kind == CodeLayout.PAIRS:
        return k_loads(row, skip, group, FMT)
    static_assert(F.kind in PLAIN, f"format {FMT}: group_loads does not know integers of kind {F.kind!s}")
    return plain_loads(row, skip, group, FMT)


@inline
def group_lookups(loaded, FMT: str):
    """What a lane loads from that table."""
    return whole_lookups(loaded, FMT) if looks_up(FMT) else loaded


@inline
def group_weights(loaded, group: u32, FMT: str):
    """A lane's weights, for `group_values`. loaded: of `group_lookups`."""
    if takes_whole_groups(FMT):
        return whole_weights(loaded, group, FMT)
    F = plain_integers(FMT)
    if F.kind == CodeLayout.HALVES:
        return halves_weights(loaded, group)
    if F.kind == CodeLayout.PAIRS:
        return k_weights(loaded, group, FMT)
    static_assert(F.kind in PLAIN, f"format {FMT}: group_weights does not know integers of kind {F.kind!s}")
    return plain_weights(loaded, FMT)


@inline
def group_activations(x, first: u32, group: u32, FMT: str):
    """What a lane loads of a row of activations, for `group_values`; its group is the one `group` behind `first`."""
    if takes_whole_groups(FMT):
        return whole_activations(x, first + group, FMT)
    F = plain_integers(FMT)
    if F.kind == CodeLayout.HALVES:
        return halves_activations(x, first, group)
    if F.kind == CodeLayout.PAIRS:
        return k_activations(x, first, group)
    static_assert(F.kind in PLAIN, f"format {FMT}: group_activations does not know integers of kind {F.kind!s}")
    return whole_activations(x, first + group, FMT)


@inline
def group_values(weights, rows, FMT: str):
    """v_g of a lane's group against each of several rows of activations."""
    if takes_whole_groups(FMT):
        return tuple(whole_value(weights, x, FMT) for x in rows)
    F = plain_integers(FMT)
    if F.kind == CodeLayout.HALVES:
        return halves_values(weights, rows, FMT)
    if F.kind == CodeLayout.PAIRS:
        return k_values(weights, rows)
    static_assert(F.kind in PLAIN, f"format {FMT}: group_values does not know integers of kind {F.kind!s}")
    return plain_values(weights, rows, FMT)

"""v_g of docs/numerics.md for a lane's group of 32, straight from the file's blocks (docs/gguf.md).

Every byte of a block is loaded by one lane and the widest loads that its place allows; where two groups share bytes
(the K formats), two lanes take half of them each, work for both groups, and exchange what they found. All lanes of a
wave must be active. x: an `Activations` tuple (q, d, s) of one row.
"""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, cast, dot4, load, select, unroll, wave_shuffle_xor
from zinc_rt.lang.types import f16, f32, i8, i16, i32, ptr, u8, u16, u32, vec

BLOCK_BYTES = {
    "Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210,
    "F32": 128, "F16": 64, "BF16": 64,
}  # fmt: skip
"""Bytes of a block; of 32 elements for floats."""
SUPER = ("Q4_K", "Q5_K", "Q6_K")
"""Formats with eight groups to a block."""
NIBBLES = 0x0F0F0F0F


@inline
def half(bits):
    """The float16 in the low half of a word, widened."""
    return f32(bitcast(u16(bits), f16))


@inline
def words_at(p: ptr[u8], at, n: int, align: int):
    """n words from a byte offset."""
    return load(cast(p + at, ptr[u32]), lanes=n, align=align)


@inline
def quants(x: ptr[i8], group: u32, first: int, n: int):
    """n words of a group's activations from word `first` on: by 16 bytes at a time, as a tuple."""
    parts = tuple(load(cast(x + group * 32, ptr[u32]), first + i, lanes=4, align=16) for i in range(0, n, 4))
    return tuple(parts[i // 4][i % 4] for i in range(n))


@inline
def dot(acc, a, b, SIGNED: bool):
    """acc plus the products of four bytes of weights and four activations."""
    if SIGNED:
        return dot4(acc, bitcast(a, vec[i8, 4]), bitcast(b, vec[i8, 4]))
    return dot4(acc, bitcast(a, vec[u8, 4]), bitcast(b, vec[i8, 4]))


@inline
def fifth_bits(high, i: int):
    """Bits 4i … 4i+3 as bit 4 of four bytes."""
    return ((((high >> (4 * i)) & 15) * 0x00204081) & 0x01010101) << 4


@inline
def sums_of(s: ptr[u32], group: u32):
    """The sums of a group's first and last 16 activations."""
    both = i32(s[group])
    return (both << 16) >> 16, both >> 16


@inline
def plain_weights(row: ptr[u8], group: u32, FMT: str):
    """A block of 32: eight words of weights without their offset, d, and m or None."""
    block = row + group * BLOCK_BYTES[FMT]
    if FMT == "Q8_0":
        d = f32(load(cast(block, ptr[f16])))
        q = (words_at(block, 2, 4, 2), words_at(block, 18, 4, 2))
        return tuple(q[i // 4][i % 4] for i in range(8)), d, None
    if FMT == "Q4_0":
        d = f32(load(cast(block, ptr[f16])))
        q = words_at(block, 2, 4, 2)
        return tuple((q[i % 4] >> (4 * (i // 4))) & NIBBLES for i in range(8)), d, None
    if FMT == "Q5_0":
        d = f32(load(cast(block, ptr[f16])))
        high = load(cast(block + 2, ptr[u32]), align=2)
        q = words_at(block, 6, 4, 2)
        return tuple(((q[i % 4] >> (4 * (i // 4))) & NIBBLES) | fifth_bits(high, i) for i in range(8)), d, None
    if FMT == "Q4_1":
        both = load(cast(block, ptr[u32]))
        q = words_at(block, 4, 4, 4)
        return tuple((q[i % 4] >> (4 * (i // 4))) & NIBBLES for i in range(8)), half(both), half(both >> 16)
    head = words_at(block, 0, 2, 4)
    q = words_at(block, 8, 4, 4)
    high = head[1]
    words = tuple(((q[i % 4] >> (4 * (i // 4))) & NIBBLES) | fifth_bits(high, i) for i in range(8))
    return words, half(head[0]), half(head[0] >> 16)


@inline
def plain_value(weights, x, group: u32, FMT: str):
    """v_g of a block of 32."""
    words, d, m = weights
    q = quants(x[0], group, 0, 8)
    isum: i32 = 0
    for i in unroll(8):
        isum = dot(isum, words[i], q[i], FMT == "Q8_0")
    dx = load(x[1], group)
    if FMT == "Q8_0":
        return (d * dx) * f32(isum)
    first, last = sums_of(x[2], group)
    if FMT == "Q4_0":
        return (d * dx) * f32(isum - 8 * (first + last))
    if FMT == "Q5_0":
        return (d * dx) * f32(isum - 16 * (first + last))
    return ((d * dx) * f32(isum)) + ((m * dx) * f32(first + last))


@inline
def k_weights(row: ptr[u8], group: u32, FMT: str):
    """Half of the bytes that this group shares with its neighbour: the even group's four words and the odd one's of
    elements 16h … 16h+15, h the group's low bit; then d, dmin, and this group's scale and minimum.
    """
    block = row + (group >> 3) * BLOCK_BYTES[FMT]
    head = words_at(block, 0, 4, 16)
    j = group & 7
    pair = (j >> 1) * 32 + (j & 1) * 16
    q = words_at(block + pair, 48 if FMT == "Q5_K" else 16, 4, 16)
    low = tuple(q[i] & NIBBLES for i in range(4))
    high = tuple((q[i] >> 4) & NIBBLES for i in range(4))
    if FMT == "Q5_K":
        fifth = words_at(block + (j & 1) * 16, 16, 4, 16)
        bit = j & 6
        low = tuple(low[i] | (((fifth[i] >> bit) & 0x01010101) << 4) for i in range(4))
        high = tuple(high[i] | (((fifth[i] >> (bit + 1)) & 0x01010101) << 4) for i in range(4))
    k = (j & 3) * 8
    a = (head[1] >> k) & 255
    b = (head[2] >> k) & 255
    c = (head[3] >> k) & 255
    first = j < 4
    sc = select(first, a & 63, (c & 15) | ((a >> 6) << 4))
    mn = select(first, b & 63, (c >> 4) | ((b >> 6) << 4))
    return low, high, half(head[0]), half(head[0] >> 16), sc, mn


@inline
def k_value(weights, x, group: u32):
    """v_g of Q4_K and Q5_K."""
    low, high, d, dmin, sc, mn = weights
    odd = group & 1
    even_q = load(cast(x[0] + (group - odd) * 32 + odd * 16, ptr[u32]), lanes=4, align=16)
    odd_q = load(cast(x[0] + (group | 1) * 32 + odd * 16, ptr[u32]), lanes=4, align=16)
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
def q6_weights(row: ptr[u8], group: u32):
    """Half of the bytes that groups k and k + 2 of a half block share: four words of the lower group and four of the
    upper one, elements 16h … 16h+15, h: whether this is the upper one; d, and their two scales of these elements.
    """
    block = row + (group >> 3) * BLOCK_BYTES["Q6_K"]
    j = group & 7
    side, k, h = j >> 2, j & 1, (j >> 1) & 1
    q = words_at(block + side * 64 + k * 32 + h * 16, 0, 4, 2)
    top = words_at(block + side * 32 + h * 16, 128, 4, 2)
    bit = k * 2
    low = tuple((q[i] & NIBBLES) | (((top[i] >> bit) & 0x03030303) << 4) for i in range(4))
    high = tuple(((q[i] >> 4) & NIBBLES) | (((top[i] >> (bit + 4)) & 0x03030303) << 4) for i in range(4))
    scales = cast(block + side * 8 + k * 2 + h, ptr[i8])
    d = f32(load(cast(block + 208, ptr[f16])))
    return low, high, d, f32(i32(load(scales, 192))), f32(i32(load(scales, 196)))


@inline
def q6_value(weights, x, group: u32):
    """v_g of Q6_K."""
    low, high, d, low_scale, high_scale = weights
    h = (group >> 1) & 1
    below, above = group & 0xFFFFFFFD, group | 2
    low_q = load(cast(x[0] + below * 32 + h * 16, ptr[u32]), lanes=4, align=16)
    high_q = load(cast(x[0] + above * 32 + h * 16, ptr[u32]), lanes=4, align=16)
    low_sum = half_sum(x[2], below, h) * -32
    high_sum = half_sum(x[2], above, h) * -32
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
    if FMT == "Q6_K":
        return q6_weights(row, group)
    if FMT in SUPER:
        return k_weights(row, group, FMT)
    return plain_weights(row, group, FMT)


@inline
def group_value(weights, x, group: u32, FMT: str):
    """v_g of a lane's group against one row of activations."""
    if FMT == "Q6_K":
        return q6_value(weights, x, group)
    if FMT in SUPER:
        return k_value(weights, x, group)
    return plain_value(weights, x, group, FMT)

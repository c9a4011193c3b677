"""v_g of docs/how/numerics.md for 16 x 16 elements of a wave; and what it takes of a group of weights.

A matrix instruction adds to an integer accumulator, which begins with the bits of the float MAGIC: a float's last place
is 1 there, so the bits of MAGIC plus isum are those of the float MAGIC + isum, and no conversion is needed. A group's
sum is far below the 2^22 on either side that keep this true (docs/how/numerics.md). What is fused below is exact in
float32, so that it may be fused: an integer below 2^24.
"""

from __future__ import annotations

from zinc_rt.formats.decode import group_words, half, integers_of, words_at
from zinc_rt.formats.decode_grids import d_bits, odd_bits
from zinc_rt.formats.decode_scales import (
    half_e4m3,
    half_scale_at,
    half_scales,
    pair_at,
    power_of_two,
    signed_scale,
)
from zinc_rt.formats.kinds import OFFSET_KINDS, CodeLayout, Scale
from zinc_rt.kernels.gpu.dequant_dot import scales_of_head
from zinc_rt.kernels.gpu.fragments import activation_rows, multiplied, weight_rows
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, fma, static_assert, unroll
from zinc_rt.lang.types import f16, f32, i32, ptr, u8, u16, u32

MAGIC = 12582912.0
"""1.5 * 2^23."""
MAGIC_BITS = 0x4B400000
ONE_SCALE = (Scale.SIX_BIT_SIGNED, Scale.ODD_WORD, Scale.ODD_NIBBLES, Scale.ODD_TOP)
"""An integer scale of the group, without minima."""
TWO_SCALES = (Scale.INT8_HALVES, Scale.SIX_BIT_HALVES, Scale.ODD_HALVES, Scale.ODD_THREES)
"""One of each half."""
_OTHERS = Scale.BLOCK, Scale.POWER_OF_TWO, Scale.SIX_BIT, Scale.FOUR_BIT_HALVES, Scale.E4M3_HALVES
KNOWN = (*_OTHERS, *ONE_SCALE, *TWO_SCALES)
TOP_BITS = 0x80808080


@inline
def reads_sums(FMT: str):
    """Whether v_g takes the sum of the group's activations (1 or 0)."""
    return int(integers_of(FMT).minimum is not None)


@inline
def reads_halves(FMT: str):
    """Whether it takes that of the first 16, too."""
    return int(integers_of(FMT).scale == Scale.FOUR_BIT_HALVES)


@inline
def factor_count(FMT: str):
    """Numbers of `tile_factors`."""
    F = integers_of(FMT)
    if F.scale == Scale.SIX_BIT:
        return 5
    if F.scale in ONE_SCALE:
        return 3
    if F.scale in TWO_SCALES:
        return 4
    if F.scale == Scale.FOUR_BIT_HALVES:
        return 7
    if F.scale == Scale.E4M3_HALVES:
        return 2
    static_assert(
        F.scale in (Scale.BLOCK, Scale.POWER_OF_TWO), f"format {FMT}: factor_count does not know scales {F.scale!s}"
    )
    return 1 if F.minimum is None else 2


@inline
def tile_factors(block: ptr[u8], j, FMT: str):
    """What the sums of group j are multiplied with, as `tile_value` takes it; scales behind the first sum's with what
    cancels MAGIC.
    """
    F = integers_of(FMT)
    if F.scale == Scale.SIX_BIT:
        static_assert(
            (F.d, F.minimum, F.scales) == (0, 2, 4), f"format {FMT}: tile_factors loads d, dmin and the scales at once"
        )
        d, dmin, scale, least = scales_of_head(words_at(block, F.d, 4), j)
        return d, scale, scale * -MAGIC, dmin, least
    if F.scale == Scale.INT8_HALVES:
        both = i32(pair_at(block, half_scale_at(F.scales, i32(j), 0)))
        last = f32((both << 16) >> 24)
        return half(block, F.d), f32((both << 24) >> 24), last, last * -MAGIC
    if F.scale == Scale.POWER_OF_TWO:
        return (power_of_two(u32(block[F.d])),)
    if F.scale == Scale.E4M3_HALVES:
        both = pair_at(block, F.d + 2 * j)
        return half_e4m3(u16(both & 255)), half_e4m3(u16(both >> 8))
    d = f32(bitcast(d_bits(block, FMT), f16)) * F.unit
    if F.scale in ONE_SCALE:
        s = signed_scale(block, j, FMT) if F.scale == Scale.SIX_BIT_SIGNED else i32(2 * odd_bits(block, j, FMT) + 1)
        return d, f32(s), f32(s) * -MAGIC
    if F.scale in (Scale.ODD_HALVES, Scale.ODD_THREES):
        bits = odd_bits(block, j, FMT)
        last = f32(i32(2 * (bits >> 4) + 1))
        return d, f32(i32(2 * (bits & 15) + 1)), last, last * -MAGIC
    if F.scale in (Scale.SIX_BIT_HALVES, Scale.FOUR_BIT_HALVES):
        s = half_scales(block, j, FMT)
        scales = (d, f32(s[0]), f32(s[1]), f32(s[1]) * -MAGIC)
        if F.minimum is None:
            return scales
        return scales[0], scales[1], scales[2], scales[3], half(block, F.minimum), f32(s[2]), f32(s[3])
    static_assert(F.scale == Scale.BLOCK, f"format {FMT}: tile_factors does not know scales of kind {F.scale!s}")
    if F.minimum is not None:
        return d, half(block, F.minimum)
    return (d,)


@inline
def signed_words(block: ptr[u8], j, FMT: str):
    """The 32 integers of a group as signed bytes, with their offset applied, in 8 words."""
    F = integers_of(FMT)
    words = group_words(block, j, FMT)
    if F.offset == 0 or F.kind in (CodeLayout.BYTES, CodeLayout.GRID):
        return words
    static_assert(
        F.kind in OFFSET_KINDS,
        f"format {FMT}: signed_words knows no offset of kind {F.kind!s}",
    )
    # No byte borrows of its neighbour: all are below 128.
    OFFSETS = F.offset * 0x01010101
    return tuple(((word | TOP_BITS) - OFFSETS) ^ TOP_BITS for word in words)


@inline
def outer(f, numbers, pairs):
    """For each pair the products of factor pair[0] of the weights and number pair[1] of the activations, by element.

    Neighbours have different factors: such products find registers to be issued two at a time (VOPD).
    """
    N, X = len(pairs), activation_rows()[1]
    E = X * len(f)
    every = tuple(
        tuple(f[i // X][pairs[k][0]] * numbers[pairs[k][1]][i % X ^ k & 1] for k in range(N)) for i in range(E)
    )
    return tuple(tuple(every[i ^ k & 1][k] for i in range(E)) for k in range(N))


@inline
def outer_products(FMT: str):
    """The pairs that v_g takes: (of `tile_factors`, of scales and sums)."""
    F = integers_of(FMT)
    static_assert(F.scale in KNOWN, f"format {FMT}: outer_products does not know scales of kind {F.scale!s}")
    if F.scale == Scale.SIX_BIT:
        return ((0, 0), (3, 0), (4, 1))
    if F.scale == Scale.FOUR_BIT_HALVES:
        return ((0, 0), (4, 0))
    if F.scale == Scale.E4M3_HALVES or F.minimum is not None:
        return ((0, 0), (1, 0))
    return ((0, 0),)


@inline
def add_values(sums, FIRST: int, start, x, w, numbers, f, FMT: str):
    """sums[FIRST + X t + r] += v_g of row r of this lane's X rows of activations and row t of its weights. start:
    MAGIC's bits; x, w[t]: fragments; numbers: scales and sums of the rows, each vec[f32, X]; f[t]: `tile_factors` of
    the weights.
    """
    F = integers_of(FMT)
    static_assert(F.scale in KNOWN, f"format {FMT}: add_values does not know scales of kind {F.scale!s}")
    R, X = weight_rows(), activation_rows()[1]
    E = R * X * len(w)
    found = tuple(multiplied(start, x, w[t], F.scaled_halves) for t in range(len(w)))
    one = tuple(found[i // (R * X)][0][i // X % R][i % X] for i in range(E))
    two = ()
    if F.scaled_halves:
        two = tuple(found[i // (R * X)][1][i // X % R][i % X] for i in range(E))
    o = outer(f, numbers, outer_products(FMT))
    if F.scale == Scale.E4M3_HALVES:
        first = tuple(o[0][i] * (one[i] - MAGIC) for i in range(E))
        last = tuple(o[1][i] * (two[i] - MAGIC) for i in range(E))
        v = tuple(first[i] + last[i] for i in range(E))
    else:
        total = scaled_sums(one, two, f, FMT)
        products = tuple(o[0][i] * total[i] for i in range(E))
        v = products
        if F.scale == Scale.SIX_BIT:
            least = tuple(o[1][i] * o[2][i] for i in range(E))
            v = tuple(products[i] - least[i] for i in range(E))
        elif F.scale == Scale.FOUR_BIT_HALVES:
            least = tuple(
                o[1][i] * fma(f[i // X][5], numbers[2][i % X], f[i // X][6] * (numbers[1][i % X] - numbers[2][i % X]))
                for i in range(E)
            )
            v = tuple(products[i] - least[i] for i in range(E))
        elif F.minimum is not None:
            least = tuple(o[1][i] * numbers[1][i % X] for i in range(E))
            v = tuple(products[i] + least[i] for i in range(E))
    for i in unroll(E):
        sums[FIRST + i] = sums[FIRST + i] + v[i]


@inline
def scaled_sums(one, two, f, FMT: str):
    """The integer sums, of a group or of its halves, times their integer scales, by element."""
    F = integers_of(FMT)
    static_assert(F.scale in KNOWN, f"format {FMT}: scaled_sums does not know scales of kind {F.scale!s}")
    E, X = len(one), activation_rows()[1]
    if F.scale in TWO_SCALES or F.scale == Scale.FOUR_BIT_HALVES:
        last = tuple(fma(two[i], f[i // X][2], f[i // X][3]) for i in range(E))
        return tuple(fma(one[i] - MAGIC, f[i // X][1], last[i]) for i in range(E))
    if F.scale == Scale.SIX_BIT or F.scale in ONE_SCALE:
        return tuple(fma(one[i], f[i // X][1], f[i // X][2]) for i in range(E))
    return tuple(x - MAGIC for x in one)

"""v_g of docs/how/numerics.md for groups that a lane reads by itself: codebooks, indices of vectors, 1 to 3 bits.

Lanes whose groups share bytes ask for them in the same instruction, so that memory is read once. See dequant_dot.py for
what a lane is handed.
"""

from __future__ import annotations

from zinc_rt.formats.decode import group_bytes, half_at, integers_of, looked_up_bytes, words_of
from zinc_rt.formats.decode_grids import d_bits, odd_bits
from zinc_rt.formats.decode_scales import half_e4m3, half_scales, pair_at, power_of_two, signed_scale
from zinc_rt.formats.kinds import GRID_KINDS, ODD_SCALES, PAIR_KINDS, CodeLayout, Scale
from zinc_rt.kernels.gpu.dot import dot, sums_of
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, static_assert, unroll
from zinc_rt.lang.types import f16, f32, i32, ptr, u8, u16, u32

WHOLE_KINDS = (*PAIR_KINDS, *GRID_KINDS, CodeLayout.SIGN_BITS)


@inline
def takes_whole_groups(FMT: str):
    """Whether the functions of this module read a format's groups."""
    F = integers_of(FMT)
    return F.codebook != () or F.kind in WHOLE_KINDS


@inline
def whole_loads(row: ptr[u8], group: u32, FMT: str):
    """What `whole_weights` makes weights of, and what `whole_value` multiplies their sums with."""
    F = integers_of(FMT)
    block = row + (group >> F.group_shift) * F.block_bytes
    j = group & (F.groups - 1)
    return group_bytes(block, j, FMT), factor_bytes(block, j, FMT)


@inline
def whole_lookups(loaded, FMT: str):
    """The loads that need what `whole_loads` has loaded."""
    return looked_up_bytes(loaded[0], FMT), loaded[1]


@inline
def whole_weights(loaded, group: u32, FMT: str):
    """Eight words of weights, and those factors."""
    return words_of(loaded[0], group & (integers_of(FMT).groups - 1), FMT), factors(loaded[1], FMT)


@inline
def factor_bytes(block: ptr[u8], j: u32, FMT: str):
    """Scales and minima of a group: bits of floats, and integers."""
    F = integers_of(FMT)
    if F.scale == Scale.POWER_OF_TWO:
        return (block[F.d],)
    if F.scale == Scale.E4M3_HALVES:
        return (pair_at(block, F.d + 2 * j),)
    d = d_bits(block, FMT)
    if F.scale == Scale.SIX_BIT_SIGNED:
        return d, signed_scale(block, j, FMT)
    if F.scale == Scale.SIX_BIT_HALVES:
        return d, half_scales(block, j, FMT)
    if F.scale == Scale.FOUR_BIT_HALVES:
        return d, half_scales(block, j, FMT), half_at(block, F.minimum)
    if F.scale in ODD_SCALES:
        return d, odd_bits(block, j, FMT)
    static_assert(
        F.scale == Scale.BLOCK and F.minimum is None,
        f"format {FMT}: factor_bytes does not know scales of kind {F.scale!s} with a minimum at {F.minimum}",
    )
    return (d,)


@inline
def factors(loaded, FMT: str):
    """Scales and minima of a group, as f32."""
    F = integers_of(FMT)
    if F.scale == Scale.POWER_OF_TWO:
        return (power_of_two(u32(loaded[0])),)
    if F.scale == Scale.E4M3_HALVES:
        return half_e4m3(u16(loaded[0] & 255)), half_e4m3(u16(loaded[0] >> 8))
    d = f32(bitcast(loaded[0], f16))
    if F.scale == Scale.SIX_BIT_SIGNED:
        return d, f32(loaded[1])
    if F.scale == Scale.SIX_BIT_HALVES:
        return d, f32(loaded[1][0]), f32(loaded[1][1])
    if F.scale == Scale.FOUR_BIT_HALVES:
        f = tuple(f32(n) for n in loaded[1])
        return d, f[0], f[1], f32(bitcast(loaded[2], f16)), f[2], f[3]
    if F.scale in ODD_SCALES:
        d = d * F.unit
        bits = loaded[1]
        if F.scaled_halves:
            return d, f32(i32(2 * (bits & 15) + 1)), f32(i32(2 * (bits >> 4) + 1))
        return d, f32(i32(2 * bits + 1))
    static_assert(F.scale == Scale.BLOCK, f"format {FMT}: factors does not know scales of kind {F.scale!s}")
    return (d,)


@inline
def whole_value(weights, x, FMT: str):
    """v_g of a group."""
    F = integers_of(FMT)
    SIGNED = F.codebook != () or F.kind == CodeLayout.GRID
    words, f = weights
    q, dx, sums = x
    isum: i32 = 0
    second: i32 = 0
    for i in unroll(4):
        isum = dot(isum, words[i], q[i], SIGNED)
    if F.scaled_halves:
        for i in unroll(4, 8):
            second = dot(second, words[i], q[i], SIGNED)
    else:
        for i in unroll(4, 8):
            isum = dot(isum, words[i], q[i], SIGNED)
    scale = f[0] * dx
    if F.scale == Scale.E4M3_HALVES:
        return (scale * f32(isum)) + ((f[1] * dx) * f32(second))
    if F.offset == 0 and F.minimum is None:
        return scale * scaled_sum(f, isum, second, FMT)
    first, last = sums_of(sums)
    if F.scaled_halves:
        value = scaled_sum(f, isum - F.offset * first, second - F.offset * last, FMT)
    else:
        value = scaled_sum(f, isum - F.offset * (first + last), second, FMT)
    if F.minimum is None:
        return scale * value
    static_assert(
        F.scale == Scale.FOUR_BIT_HALVES, f"format {FMT}: whole_value does not know minima of kind {F.scale!s}"
    )
    return (scale * value) - ((f[3] * dx) * (f[4] * f32(first) + f[5] * f32(last)))


@inline
def scaled_sum(f, isum: i32, second: i32, FMT: str):
    """The integer sums times their integer scales: below 2^24, so every step is exact in float32."""
    F = integers_of(FMT)
    if F.scaled_halves:
        return f[1] * f32(isum) + f[2] * f32(second)
    if F.scale == Scale.SIX_BIT_SIGNED or F.scale in ODD_SCALES:
        return f[1] * f32(isum)
    static_assert(
        F.scale in (Scale.BLOCK, Scale.POWER_OF_TWO),
        f"format {FMT}: scaled_sum does not know scales of kind {F.scale!s}",
    )
    return f32(isum)

"""RMS norm: a workgroup of 256 lanes a row."""

from __future__ import annotations

from zinc_rt.kernels.rdna.quantize import quantize_four
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    cast,
    first_lane,
    fma,
    lane_id,
    load,
    select,
    shared,
    splat,
    sqrt,
    store,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f32, i8, ptr, struct, u32, u64
from zinc_rt.numerics import GROUP_SHIFT, NORM_LANES

AHEAD = 8
"""Elements that a lane loads before it works on them."""
FOURS = 2
"""Times four elements, the same."""


@inline
def sum_of_lanes(part, acc):
    """The sum of 256 lanes pairwise at distance 128 … 1, in every lane. part: LDS, f32[257].

    Distances 128, 64 and 32 are between waves, so the first wave adds the others' lanes in that order.
    """
    at = workitem_id()
    part[at] = acc
    barrier()
    if first_lane(at >> 5) == 0:
        p = (part[at] + part[at + 128]) + (part[at + 64] + part[at + 192])
        q = (part[at + 32] + part[at + 160]) + (part[at + 96] + part[at + 224])
        total = wave_reduce_add(p + q)
        if lane_id() == 0:
            part[NORM_LANES] = total
    barrier()
    return part[NORM_LANES]


@inline
def element(x: ptr[f32], residual: ptr[f32], i, scales, RESIDUAL: bool):
    """An element of the row: x[i], or the sum x[i] + residual[i]. scales: factors of the residual and of the sum, or
    an empty tuple.
    """
    if RESIDUAL and len(scales) == 2:
        return (x[i] + residual[i] * scales[0]) * scales[1]
    elif RESIDUAL:
        return x[i] + residual[i]
    return x[i]


@inline
def sum_of_squares(x: ptr[f32], residual: ptr[f32], total: ptr[f32], n: u32, scales, RESIDUAL: bool):
    """The chain over a lane's elements, every 256th; with RESIDUAL the sums go to total."""
    acc: f32 = 0.0
    for base in range(workitem_id(), n, NORM_LANES * AHEAD):
        at = tuple(base + k * NORM_LANES for k in range(AHEAD))
        # What comes from memory is asked for before the first of it is needed; beyond the end the last element again.
        values = tuple(element(x, residual, select(i < n, i, n - 1), scales, RESIDUAL) for i in at)
        for k in unroll(AHEAD):
            acc = select(at[k] < n, fma(values[k], values[k], acc), acc)
            if RESIDUAL:
                if at[k] < n:
                    total[at[k]] = values[k]
    return acc


@inline
def scale_of(part, acc, n: u32, eps: f32):
    """What the row is multiplied by, from its lanes' sums of squares."""
    one: f32 = 1.0
    return one / sqrt(sum_of_lanes(part, acc) / f32(n) + eps)


@inline
def norm_row(x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], y: ptr[f32], n: u32, eps: f32, scales,
             RESIDUAL: bool, WEIGHT: bool):  # fmt: skip
    """One row. WEIGHT: whether the norm has one."""
    part = shared(f32, NORM_LANES + 1)
    scale = scale_of(part, sum_of_squares(x, residual, total, n, scales, RESIDUAL), n, eps)
    for base in range(workitem_id(), n, NORM_LANES * AHEAD // 2):
        at = tuple(base + k * NORM_LANES for k in range(AHEAD // 2))
        here = tuple(select(i < n, i, n - 1) for i in at)
        values = tuple(element(x, residual, i, scales, RESIDUAL) for i in here)
        weights = tuple(weight_at(w, values[k], here[k], WEIGHT) for k in range(AHEAD // 2))
        for k in unroll(AHEAD // 2):
            if at[k] < n:
                y[at[k]] = weighted(values[k] * scale, weights[k], WEIGHT)


@inline
def weight_at(w: ptr[f32], value, i, WEIGHT: bool):
    """A weight, or anything where there is none."""
    if WEIGHT:
        return w[i]
    return value


@inline
def weighted(v, weight, WEIGHT: bool):
    """What a norm's weight makes of it."""
    if WEIGHT:
        return v * weight
    return v


@kernel(workgroup=256)
def rms_norm(x: ptr[f32], w: ptr[f32], y: ptr[f32], n: u32, eps: f32, WEIGHT: bool):
    """y[row] = norm of x[row] of n elements; a workgroup a row. WEIGHT: whether by weights w."""
    row = u64(workgroup_id(0)) * u64(n)
    norm_row(x + row, x + row, w, y + row, y + row, n, eps, (), False, WEIGHT)


@kernel(workgroup=256)
def residual_rms_norm(x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], y: ptr[f32], n: u32, eps: f32):
    """total[row] = x[row] + residual[row], y[row] = its norm; a workgroup a row. total is neither x nor residual."""
    row = u64(workgroup_id(0)) * u64(n)
    norm_row(x + row, residual + row, w, total + row, y + row, n, eps, (), True, True)


@inline
def norm_row_quantized(
    x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], q: ptr[u32], d: ptr[f32], s: ptr[u32], n: u32,
    eps: f32, scales, RESIDUAL: bool, WEIGHT: bool, plain: ptr[f32], BOTH: bool,
):  # fmt: skip
    """One row, stored as int8; with BOTH as floats, too, at plain."""
    part = shared(f32, NORM_LANES + 1)
    scale = scale_of(part, sum_of_squares(x, residual, total, n, scales, RESIDUAL), n, eps)
    fours = n >> 2
    for base in range(u32(0), fours, NORM_LANES * FOURS):
        at = tuple(base + k * NORM_LANES + workitem_id() for k in range(FOURS))
        here = tuple(select(i < fours, i, i - i) * 4 for i in at)
        # The sums once more: what other lanes have stored is not to be seen yet.
        values = tuple(four_of(x, residual, i, scales, RESIDUAL) for i in here)
        weights = tuple(four_weights(w, values[k], here[k], WEIGHT) for k in range(FOURS))
        for k in unroll(FOURS):
            y = weighted(values[k] * splat(scale, 4), weights[k], WEIGHT)
            if BOTH:
                if at[k] < fours:
                    store(plain, y, at[k] * 4)
            quantize_four(y, q, d, s, at[k], at[k] < fours)


@kernel(workgroup=256)
def norm_quantized(x: ptr[f32], w: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32, eps: f32, WEIGHT: bool):
    """The norm of each row as `quantize` stores it; n is a multiple of 32; a workgroup a row. WEIGHT: whether by w."""
    row = u64(workgroup_id(0)) * u64(n)
    quants, group = cast(q + row, ptr[u32]), row >> GROUP_SHIFT
    norm_row_quantized(
        x + row, x + row, w, x + row, quants, d + group, s + group, n, eps, (), False, WEIGHT, x, False
    )  # fmt: skip


@kernel(workgroup=256)
def residual_norm_quantized(
    x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32,
    eps: f32,
):  # fmt: skip
    """As `norm_quantized` for x + residual, which goes to total, neither x nor residual."""
    row = u64(workgroup_id(0)) * u64(n)
    quants, group = cast(q + row, ptr[u32]), row >> GROUP_SHIFT
    norm_row_quantized(
        x + row, residual + row, w, total + row, quants, d + group, s + group, n, eps, (), True, True, x, False
    )  # fmt: skip


@kernel(workgroup=256)
def norm_both(x: ptr[f32], w: ptr[f32], y: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32, eps: f32):
    """As `norm_quantized`, and as floats at y."""
    row = u64(workgroup_id(0)) * u64(n)
    quants, group = cast(q + row, ptr[u32]), row >> GROUP_SHIFT
    norm_row_quantized(
        x + row, x + row, w, x + row, quants, d + group, s + group, n, eps, (), False, True, y + row, True
    )  # fmt: skip


@kernel(workgroup=256)
def residual_norm_both(
    x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], y: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32],
    n: u32, eps: f32,
):  # fmt: skip
    """As `residual_norm_quantized`, and as floats at y."""
    row = u64(workgroup_id(0)) * u64(n)
    quants, group = cast(q + row, ptr[u32]), row >> GROUP_SHIFT
    norm_row_quantized(
        x + row, residual + row, w, total + row, quants, d + group, s + group, n, eps, (), True, True, y + row, True
    )  # fmt: skip


@struct
class GpuSumNormArgs:
    """total = (x + residual * residual_scale) * total_scale; y, or q, d and s as `quantize` stores it: its norm."""

    x: ptr[f32]
    residual: ptr[f32]
    w: ptr[f32]
    total: ptr[f32]
    y: ptr[f32]
    q: ptr[i8]
    d: ptr[f32]
    s: ptr[u32]
    n: u32
    eps: f32
    residual_scale: f32
    total_scale: f32


@kernel(workgroup=256)
def sum_norm(a: ptr[GpuSumNormArgs, Space.CONSTANT], WEIGHT: bool, QUANTIZED: bool):
    """As `residual_rms_norm` or `residual_norm_quantized` with factors; a workgroup a row."""
    n = a.n
    row = u64(workgroup_id(0)) * u64(n)
    scales = (a.residual_scale, a.total_scale)
    x, residual, total = a.x + row, a.residual + row, a.total + row
    if QUANTIZED:
        quants, group = cast(a.q + row, ptr[u32]), row >> GROUP_SHIFT
        norm_row_quantized(
            x, residual, a.w, total, quants, a.d + group, a.s + group, n, a.eps, scales, True, WEIGHT, x, False
        )  # fmt: skip
    else:
        norm_row(x, residual, a.w, total, a.y + row, n, a.eps, scales, True, WEIGHT)


@inline
def four_weights(w: ptr[f32], values, i: u32, WEIGHT: bool):
    """Four weights, or anything where there are none."""
    if WEIGHT:
        return load(w, i, lanes=4)
    return values


@inline
def four_of(x: ptr[f32], residual: ptr[f32], i: u32, scales, RESIDUAL: bool):
    """Four elements of the row from one on; see `element`."""
    if RESIDUAL and len(scales) == 2:
        part = load(residual, i, lanes=4) * splat(scales[0], 4)
        return (load(x, i, lanes=4) + part) * splat(scales[1], 4)
    elif RESIDUAL:
        return load(x, i, lanes=4) + load(residual, i, lanes=4)
    return load(x, i, lanes=4)

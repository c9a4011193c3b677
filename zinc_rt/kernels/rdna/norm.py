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
from zinc_rt.lang.types import f32, i8, ptr, u32, u64
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
def element(x: ptr[f32], residual: ptr[f32], i, RESIDUAL: bool):
    """An element of the row: x[i], or the sum x[i] + residual[i]."""
    if RESIDUAL:
        return x[i] + residual[i]
    return x[i]


@inline
def sum_of_squares(x: ptr[f32], residual: ptr[f32], total: ptr[f32], n: u32, RESIDUAL: bool):
    """The chain over a lane's elements, every 256th; with RESIDUAL the sums go to total."""
    acc: f32 = 0.0
    for base in range(workitem_id(), n, NORM_LANES * AHEAD):
        at = tuple(base + k * NORM_LANES for k in range(AHEAD))
        # What comes from memory is asked for before the first of it is needed; beyond the end the last element again.
        values = tuple(element(x, residual, select(i < n, i, n - 1), RESIDUAL) for i in at)
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
def norm_row(x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], y: ptr[f32], n: u32, eps: f32,
             RESIDUAL: bool):  # fmt: skip
    """One row."""
    part = shared(f32, NORM_LANES + 1)
    scale = scale_of(part, sum_of_squares(x, residual, total, n, RESIDUAL), n, eps)
    for base in range(workitem_id(), n, NORM_LANES * AHEAD // 2):
        at = tuple(base + k * NORM_LANES for k in range(AHEAD // 2))
        here = tuple(select(i < n, i, n - 1) for i in at)
        values = tuple(element(x, residual, i, RESIDUAL) for i in here)
        weights = tuple(w[i] for i in here)
        for k in unroll(AHEAD // 2):
            if at[k] < n:
                y[at[k]] = (values[k] * scale) * weights[k]


@kernel(workgroup=256)
def rms_norm(x: ptr[f32], w: ptr[f32], y: ptr[f32], n: u32, eps: f32):
    """y[row] = norm of x[row] of n elements; a workgroup a row."""
    row = u64(workgroup_id(0)) * u64(n)
    norm_row(x + row, x + row, w, y + row, y + row, n, eps, False)


@kernel(workgroup=256)
def residual_rms_norm(x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], y: ptr[f32], n: u32, eps: f32):
    """total[row] = x[row] + residual[row], y[row] = its norm; a workgroup a row. total is neither x nor residual."""
    row = u64(workgroup_id(0)) * u64(n)
    norm_row(x + row, residual + row, w, total + row, y + row, n, eps, True)


@inline
def norm_row_quantized(
    x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], q: ptr[u32], d: ptr[f32], s: ptr[u32], n: u32,
    eps: f32, plain: ptr[f32], RESIDUAL: bool, BOTH: bool = False,
):  # fmt: skip
    """One row, stored as int8; with BOTH as floats, too, at plain."""
    part = shared(f32, NORM_LANES + 1)
    scale = scale_of(part, sum_of_squares(x, residual, total, n, RESIDUAL), n, eps)
    fours = n >> 2
    for base in range(u32(0), fours, NORM_LANES * FOURS):
        at = tuple(base + k * NORM_LANES + workitem_id() for k in range(FOURS))
        here = tuple(select(i < fours, i, i - i) * 4 for i in at)
        # The sums once more: what other lanes have stored is not to be seen yet.
        values = tuple(four_of(x, residual, i, RESIDUAL) for i in here)
        weights = tuple(load(w, i, lanes=4) for i in here)
        for k in unroll(FOURS):
            y = (values[k] * splat(scale, 4)) * weights[k]
            if BOTH:
                if at[k] < fours:
                    store(plain, y, at[k] * 4)
            quantize_four(y, q, d, s, at[k], at[k] < fours)


@kernel(workgroup=256)
def norm_quantized(x: ptr[f32], w: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32, eps: f32):
    """The norm of each row as `quantize` stores it; n is a multiple of 32; a workgroup a row."""
    row = u64(workgroup_id(0)) * u64(n)
    quants, group = cast(q + row, ptr[u32]), row >> GROUP_SHIFT
    norm_row_quantized(x + row, x + row, w, x + row, quants, d + group, s + group, n, eps, x, False)


@kernel(workgroup=256)
def residual_norm_quantized(
    x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32,
    eps: f32,
):  # fmt: skip
    """As `norm_quantized` for x + residual, which goes to total, neither x nor residual."""
    row = u64(workgroup_id(0)) * u64(n)
    quants, group = cast(q + row, ptr[u32]), row >> GROUP_SHIFT
    norm_row_quantized(
        x + row, residual + row, w, total + row, quants, d + group, s + group, n, eps, x, True
    )  # fmt: skip


@kernel(workgroup=256)
def norm_both(x: ptr[f32], w: ptr[f32], y: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32, eps: f32):
    """As `norm_quantized`, and as floats at y."""
    row = u64(workgroup_id(0)) * u64(n)
    quants, group = cast(q + row, ptr[u32]), row >> GROUP_SHIFT
    norm_row_quantized(
        x + row, x + row, w, x + row, quants, d + group, s + group, n, eps, y + row, False, BOTH=True
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
        x + row, residual + row, w, total + row, quants, d + group, s + group, n, eps, y + row, True, BOTH=True
    )  # fmt: skip


@inline
def four_of(x: ptr[f32], residual: ptr[f32], i: u32, RESIDUAL: bool):
    """Four elements of the row from one on."""
    if RESIDUAL:
        return load(x, i, lanes=4) + load(residual, i, lanes=4)
    return load(x, i, lanes=4)

"""RMS norm: a workgroup of 256 lanes a row."""

from __future__ import annotations

from zinc_rt.kernels.gpu.quantize import quantize_four
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
def some_of(p: ptr[f32], i, LANES: int):
    """LANES numbers from one on."""
    if LANES == 1:
        return p[i]
    return load(p, i, lanes=LANES)


@inline
def times(v, number, LANES: int):
    """LANES numbers times one."""
    if LANES == 1:
        return v * number
    return v * splat(number, LANES)


@inline
def element(row, i, LANES: int):
    """LANES elements of a row from one on. row: x; the norms behind it; what is added, and the factors of both and of
    the sum.

    A norm is what is added before it, its scale and its weights. What is added is a tuple of one pointer, or empty;
    factors are three numbers, or an empty tuple.
    """
    x, norms, added, factors = row
    v = some_of(x, i, LANES)
    for before, scale, weight in norms:
        if len(before) > 0:
            v = v + some_of(before[0], i, LANES)
        v = times(v, scale, LANES) * some_of(weight, i, LANES)
    if len(added) > 0:
        other = some_of(added[0], i, LANES)
        if len(factors) > 0:
            v = times(times(v, factors[0], LANES) + times(other, factors[1], LANES), factors[2], LANES)
        else:
            v = v + other
    return v


@inline
def sum_of_squares(row, total: ptr[f32], n: u32, STORE: bool):
    """The chain over a lane's elements, every 256th; with STORE they go to total."""
    acc: f32 = 0.0
    for base in range(workitem_id(), n, NORM_LANES * AHEAD):
        at = tuple(base + k * NORM_LANES for k in range(AHEAD))
        # What comes from memory is asked for before the first of it is needed; beyond the end the last element again.
        values = tuple(element(row, select(i < n, i, n - 1), 1) for i in at)
        for k in unroll(AHEAD):
            acc = select(at[k] < n, fma(values[k], values[k], acc), acc)
            if STORE:
                if at[k] < n:
                    total[at[k]] = values[k]
    return acc


@inline
def scale_of(part, row, total: ptr[f32], n: u32, eps: f32, STORE: bool):
    """What a row is multiplied by. part: LDS, f32[257]; total, STORE: see `sum_of_squares`."""
    one: f32 = 1.0
    return one / sqrt(sum_of_lanes(part, sum_of_squares(row, total, n, STORE)) / f32(n) + eps)


@inline
def norm_row(part, row, w: ptr[f32], total: ptr[f32], y: ptr[f32], n: u32, eps: f32, STORE: bool, WEIGHT: bool):
    """The norm of one row; see `element`, `scale_of`. WEIGHT: whether it has weights, w."""
    scale = scale_of(part, row, total, n, eps, STORE)
    for base in range(workitem_id(), n, NORM_LANES * AHEAD // 2):
        at = tuple(base + k * NORM_LANES for k in range(AHEAD // 2))
        here = tuple(select(i < n, i, n - 1) for i in at)
        values = tuple(element(row, i, 1) for i in here)
        weights = tuple(weight_at(w, values[k], here[k], 1, WEIGHT) for k in range(AHEAD // 2))
        for k in unroll(AHEAD // 2):
            if at[k] < n:
                y[at[k]] = weighted(values[k] * scale, weights[k], WEIGHT)


@inline
def weight_at(w: ptr[f32], value, i, LANES: int, WEIGHT: bool):
    """LANES weights, or anything where there are none."""
    if WEIGHT:
        return some_of(w, i, LANES)
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
    at = u64(workgroup_id(0)) * u64(n)
    part = shared(f32, NORM_LANES + 1)
    norm_row(part, (x + at, (), (), ()), w, y + at, y + at, n, eps, False, WEIGHT)


@kernel(workgroup=256)
def residual_rms_norm(x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], y: ptr[f32], n: u32, eps: f32):
    """total[row] = x[row] + residual[row], y[row] = its norm; a workgroup a row. total is neither x nor residual."""
    at = u64(workgroup_id(0)) * u64(n)
    part = shared(f32, NORM_LANES + 1)
    norm_row(part, (x + at, (), (residual + at,), ()), w, total + at, y + at, n, eps, True, True)


@inline
def fours_of(row, w: ptr[f32], base: u32, fours: u32, WEIGHT: bool):
    """What a lane quantises from four elements `base` on: where, elements and weights of each four."""
    at = tuple(base + k * NORM_LANES + workitem_id() for k in range(FOURS))
    here = tuple(select(i < fours, i, i - i) * 4 for i in at)
    values = tuple(element(row, i, 4) for i in here)
    weights = tuple(weight_at(w, values[k], here[k], 4, WEIGHT) for k in range(FOURS))
    return at, values, weights


@inline
def quantize_fours(
    found, scale, q: ptr[u32], d: ptr[f32], s: ptr[u32], fours: u32, plain: ptr[f32], WEIGHT: bool, BOTH: bool
):
    """Store what `fours_of` found, times a scale."""
    at, values, weights = found
    for k in unroll(FOURS):
        y = weighted(values[k] * splat(scale, 4), weights[k], WEIGHT)
        if BOTH:
            if at[k] < fours:
                store(plain, y, at[k] * 4)
        quantize_four(y, q, d, s, at[k], at[k] < fours)


@inline
def norm_row_quantized(
    part, row, w: ptr[f32], total: ptr[f32], q: ptr[u32], d: ptr[f32], s: ptr[u32], n: u32, eps: f32,
    plain: ptr[f32], STORE: bool, WEIGHT: bool, BOTH: bool,
):  # fmt: skip
    """As `norm_row`, stored as int8; with BOTH as floats, too, at plain."""
    fours = n >> 2
    # The elements once more: what other lanes have stored is not to be seen yet. The first are asked for with those of
    # the sum.
    first = fours_of(row, w, u32(0), fours, WEIGHT)
    scale = scale_of(part, row, total, n, eps, STORE)
    quantize_fours(first, scale, q, d, s, fours, plain, WEIGHT, BOTH)
    for base in range(u32(NORM_LANES * FOURS), fours, NORM_LANES * FOURS):
        quantize_fours(fours_of(row, w, base, fours, WEIGHT), scale, q, d, s, fours, plain, WEIGHT, BOTH)


@kernel(workgroup=256)
def norm_quantized(x: ptr[f32], w: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32, eps: f32, WEIGHT: bool):
    """The norm of each row as `quantize` stores it; n is a multiple of 32; a workgroup a row. WEIGHT: whether by w."""
    at = u64(workgroup_id(0)) * u64(n)
    part = shared(f32, NORM_LANES + 1)
    quants, group = cast(q + at, ptr[u32]), at >> GROUP_SHIFT
    norm_row_quantized(
        part, (x + at, (), (), ()), w, x + at, quants, d + group, s + group, n, eps, x, False, WEIGHT, False
    )


@kernel(workgroup=256)
def residual_norm_quantized(
    x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32,
    eps: f32,
):  # fmt: skip
    """As `norm_quantized` for x + residual, which goes to total, neither x nor residual."""
    at = u64(workgroup_id(0)) * u64(n)
    part = shared(f32, NORM_LANES + 1)
    quants, group = cast(q + at, ptr[u32]), at >> GROUP_SHIFT
    norm_row_quantized(
        part, (x + at, (), (residual + at,), ()), w, total + at, quants, d + group, s + group, n, eps, x, True, True,
        False,
    )  # fmt: skip


@kernel(workgroup=256)
def norm_both(x: ptr[f32], w: ptr[f32], y: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32, eps: f32):
    """As `norm_quantized`, and as floats at y."""
    at = u64(workgroup_id(0)) * u64(n)
    part = shared(f32, NORM_LANES + 1)
    quants, group = cast(q + at, ptr[u32]), at >> GROUP_SHIFT
    norm_row_quantized(
        part, (x + at, (), (), ()), w, x + at, quants, d + group, s + group, n, eps, y + at, False, True, True
    )


@struct
class GpuSumNormArgs:
    """total = (x + residual * residual_scale) * total_scale; y, or q, d and s as `quantize` stores it, or all of them:
    its norm.
    """

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
def sum_norm(a: ptr[GpuSumNormArgs, Space.CONSTANT], WEIGHT: bool, QUANTIZED: bool, BOTH: bool = False):
    """As `residual_rms_norm` or `residual_norm_quantized` with factors, with BOTH as both; a workgroup a row."""
    n = a.n
    at = u64(workgroup_id(0)) * u64(n)
    part = shared(f32, NORM_LANES + 1)
    row = (a.x + at, (), (a.residual + at,), (f32(1.0), a.residual_scale, a.total_scale))
    if QUANTIZED:
        quants, group = cast(a.q + at, ptr[u32]), at >> GROUP_SHIFT
        norm_row_quantized(
            part, row, a.w, a.total + at, quants, a.d + group, a.s + group, n, a.eps, a.y + at, True, WEIGHT, BOTH
        )
    else:
        norm_row(part, row, a.w, a.total + at, a.y + at, n, a.eps, True, WEIGHT)


@inline
def sum_row(row, total: ptr[f32], q: ptr[u32], d: ptr[f32], s: ptr[u32], n: u32, PACKED: bool):
    """A row itself, to total; with PACKED as `quantize` stores it, too, where n is a multiple of 32."""
    if PACKED:
        fours = n >> 2
        for base in range(u32(0), fours, NORM_LANES):
            at = base + workitem_id()
            live = at < fours
            v = element(row, select(live, at, at - at) * 4, 4)
            if live:
                store(total, v, at * 4)
            quantize_four(v, q, d, s, at, live)
    else:
        for i in range(workitem_id(), n, NORM_LANES):
            total[i] = element(row, i, 1)

"""RMS norm: a workgroup of 256 lanes a row."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    first_lane,
    fma,
    lane_id,
    shared,
    sqrt,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f32, ptr, u32, u64

LANES = 256


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
            part[LANES] = total
    barrier()
    return part[LANES]


@inline
def norm_row(x: ptr[f32], w: ptr[f32], y: ptr[f32], part, acc, n: u32, eps: f32):
    """y = (x * scale) * w from the lanes' sums of squares."""
    one: f32 = 1.0
    scale = one / sqrt(sum_of_lanes(part, acc) / f32(n) + eps)
    for i in range(workitem_id(), n, LANES):
        y[i] = (x[i] * scale) * w[i]


@kernel(workgroup=256)
def rms_norm(x: ptr[f32], w: ptr[f32], y: ptr[f32], n: u32, eps: f32):
    """y[row] = norm of x[row] of n elements; a workgroup a row."""
    part = shared(f32, LANES + 1)
    row = u64(workgroup_id(0)) * u64(n)
    line = x + row
    acc: f32 = 0.0
    for i in range(workitem_id(), n, LANES):
        v = line[i]
        acc = fma(v, v, acc)
    norm_row(line, w, y + row, part, acc, n, eps)


@kernel(workgroup=256)
def residual_rms_norm(x: ptr[f32], residual: ptr[f32], w: ptr[f32], total: ptr[f32], y: ptr[f32], n: u32, eps: f32):
    """total[row] = x[row] + residual[row], y[row] = its norm; a workgroup a row."""
    part = shared(f32, LANES + 1)
    row = u64(workgroup_id(0)) * u64(n)
    line = total + row
    acc: f32 = 0.0
    for i in range(workitem_id(), n, LANES):
        v = load_sum(x + row, residual + row, i)
        line[i] = v
        acc = fma(v, v, acc)
    # Each lane reads again what it wrote itself.
    norm_row(line, w, y + row, part, acc, n, eps)


@inline
def load_sum(a: ptr[f32], b: ptr[f32], i: u32):
    """a[i] + b[i]."""
    return a[i] + b[i]

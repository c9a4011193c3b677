"""What encoders have: layer norm (a workgroup of 256 lanes a row), GELU, learned positions."""

from __future__ import annotations

from zinc_rt.kernels.gpu.norm import sum_of_lanes
from zinc_rt.kernels.maths import gelu, gelu_quick
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import barrier, fma, shared, sqrt, workgroup_id, workitem_id
from zinc_rt.lang.types import f32, i32, ptr, u32, u64
from zinc_rt.numerics import NORM_LANES


@kernel(workgroup=256)
def layer_norm(x: ptr[f32], w: ptr[f32], b: ptr[f32], y: ptr[f32], n: u32, eps: f32):
    """y = ((x - mean) / sqrt(variance + eps)) * w + b for rows of n elements; a workgroup a row."""
    part = shared(f32, NORM_LANES + 1)
    row = u64(workgroup_id(0)) * u64(n)
    acc: f32 = 0.0
    for i in range(workitem_id(), n, NORM_LANES):
        acc = acc + x[row + u64(i)]
    mean = sum_of_lanes(part, acc) / f32(n)
    barrier()  # every lane has read the sum before the next one takes its place
    squares: f32 = 0.0
    for i in range(workitem_id(), n, NORM_LANES):
        d = x[row + u64(i)] - mean
        squares = fma(d, d, squares)
    one: f32 = 1.0
    scale = one / sqrt(sum_of_lanes(part, squares) / f32(n) + eps)
    for i in range(workitem_id(), n, NORM_LANES):
        d = x[row + u64(i)] - mean
        y[row + u64(i)] = ((d * scale) * w[i]) + b[i]


@kernel(workgroup=256)
def gelu_rows(x: ptr[f32], y: ptr[f32], n: u32, QUICK: bool):
    """y = GELU of x for rows of n elements; ceil(n / 256) workgroups in x, a row each in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        at = u64(workgroup_id(1)) * u64(n) + u64(i)
        if QUICK:
            y[at] = gelu_quick(x[at])
        else:
            y[at] = gelu(x[at])


@kernel(workgroup=256)
def add_position(x: ptr[f32], positions: ptr[i32], table: ptr[f32], y: ptr[f32], n: u32):
    """y[row] = x[row] + table[positions[row]], rows of n elements; ceil(n / 256) workgroups in x, a row each in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    row = workgroup_id(1)
    if i < n:
        at = u64(row) * u64(n) + u64(i)
        y[at] = x[at] + table[u64(positions[row]) * u64(n) + u64(i)]

"""Layer norm (a workgroup of 256 lanes a row), activations without a gate, learned positions."""

from __future__ import annotations

from zinc_rt.kernels.gpu.norm import sum_of_lanes
from zinc_rt.kernels.maths import activated
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import barrier, fma, shared, sqrt, workgroup_id, workitem_id
from zinc_rt.lang.types import f32, i32, ptr, u32, u64
from zinc_rt.numerics import NORM_LANES


@kernel(workgroup=256)
def layer_norm(x: ptr[f32], w: ptr[f32], b: ptr[f32], y: ptr[f32], n: u32, n_heads: u32, eps: f32):
    """y = ((x - mean) / sqrt(variance + eps)) * w + b for heads of n elements, each with its own w and b; a workgroup a
    head in x, a row each in y. Whole rows are one head.
    """
    part = shared(f32, NORM_LANES + 1)
    own = u64(workgroup_id(0)) * u64(n)
    row = u64(workgroup_id(1)) * u64(n_heads) * u64(n) + own
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
        y[row + u64(i)] = ((d * scale) * w[own + u64(i)]) + b[own + u64(i)]


@kernel(workgroup=256)
def activate(x: ptr[f32], y: ptr[f32], n: u32, alpha_p: f32, alpha_n: f32, beta: f32, eps: f32, ACT: str):
    """y = the activation of x for rows of n elements; ceil(n / 256) workgroups in x, a row each in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        at = u64(workgroup_id(1)) * u64(n) + u64(i)
        y[at] = activated(x[at], (alpha_p, alpha_n, beta, eps), ACT)


@kernel(workgroup=256)
def add_position(x: ptr[f32], positions: ptr[i32], table: ptr[f32], y: ptr[f32], n: u32):
    """y[row] = x[row] + table[positions[row]], rows of n elements; ceil(n / 256) workgroups in x, a row each in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    row = workgroup_id(1)
    if i < n:
        at = u64(row) * u64(n) + u64(i)
        y[at] = x[at] + table[u64(positions[row]) * u64(n) + u64(i)]

"""The norm of a row whose length is known when the kernel is compiled: nothing is asked for twice, or in turns.

What the last workgroup of a product does alone keeps the card waiting, so its chain of latencies counts.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.norm import element, some_of, sum_of_lanes
from zinc_rt.kernels.gpu.quantize import quantize_four
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import fma, schedule_barrier, splat, sqrt, store, unroll, workitem_id
from zinc_rt.lang.types import f32, ptr, u32
from zinc_rt.numerics import NORM_LANES

STEP = 4 * NORM_LANES
"""Rows are multiples of this."""
LONGEST = 4 * STEP
"""Elements up to which registers hold a row twice, as lanes sum it and as they quantise it."""


@inline
def norm_whole_row(
    part, row, w: ptr[f32], total: ptr[f32], q: ptr[u32], d: ptr[f32], s: ptr[u32], eps: f32, plain: ptr[f32], N: int,
    STORE: bool, BOTH: bool,
):  # fmt: skip
    """As `norm.norm_row_quantized` for rows of N elements, with weights."""
    at = workitem_id()
    values = tuple(element(row, at + k * NORM_LANES, 1) for k in range(N // NORM_LANES))
    fours = tuple(element(row, (at + k * NORM_LANES) * 4, 4) for k in range(N // STEP))
    weights = tuple(some_of(w, (at + k * NORM_LANES) * 4, 4) for k in range(N // STEP))
    schedule_barrier()
    acc: f32 = 0.0
    for k in unroll(N // NORM_LANES):
        acc = fma(values[k], values[k], acc)
        if STORE:
            total[at + k * NORM_LANES] = values[k]
    one: f32 = 1.0
    scale = one / sqrt(sum_of_lanes(part, acc) / f32(N) + eps)
    for k in unroll(N // STEP):
        y = fours[k] * splat(scale, 4) * weights[k]
        if BOTH:
            store(plain, y, (at + k * NORM_LANES) * 4)
        quantize_four(y, q, d, s, at + k * NORM_LANES, at < NORM_LANES)

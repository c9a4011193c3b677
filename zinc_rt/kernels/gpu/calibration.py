"""Kernels that do little but one thing, to measure how long a GPU takes for it."""

from __future__ import annotations

from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import lane_id, unroll, workgroup_id, workitem_id
from zinc_rt.lang.types import ptr, u32

STREAMS = 8
"""Loads that a lane of `stream` has under way."""


@kernel(workgroup=32)
def chase(x: ptr[u32], y: ptr[u32], n: u32):
    """`n` loads one after the other: x[i] is the index that the next one reads, for each lane from its own on."""
    at = lane_id()
    for _k in range(n):
        at = x[at]
    y[workgroup_id(0) * 32 + lane_id()] = at


@kernel(workgroup=256)
def stream(x: ptr[u32], y: ptr[u32], n: u32, step: u32):
    """The sum of n turns of eight numbers a lane, `step` numbers apart: a workgroup reads on behind the others."""
    total: u32 = 0
    first = workgroup_id(0) * 256 + workitem_id()
    for k in range(n):
        at = tuple(first + (k * STREAMS + i) * step for i in range(STREAMS))
        values = tuple(x[i] for i in at)
        for i in unroll(STREAMS):
            total += values[i]
    y[first] = total

"""Starts the launches of a list one after the other by a driver's own function, without Python in between."""

from __future__ import annotations

from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import call, cast
from zinc_rt.lang.types import i32, ptr, u32, u64

LAUNCH_WORDS = 7
"""Of a launch: the kernel, work-items in x, y and z, and those of a workgroup."""


@kernel
def launch_all(launches: ptr[u64], n: u32, queue: u64, enqueue: u64) -> i32:
    """clEnqueueNDRangeKernel for n launches, u64[n, LAUNCH_WORDS]: 0, or the first error's code."""
    for i in range(n):
        one = launches + i * LAUNCH_WORDS
        nothing = queue - queue
        code = call(
            enqueue, i32, queue, one[0], u32(3), nothing, cast(one + 1, u64), cast(one + 4, u64), u32(0), nothing,
            nothing,
        )  # fmt: skip
        if code != 0:
            return code
    return i32(0)

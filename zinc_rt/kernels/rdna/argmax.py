"""The best of what the lanes of a wave hold."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    first_lane,
    lane_id,
    select,
    shared,
    unroll,
    wave_shuffle_xor,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f32, i32, ptr, u32, u64

NOWHERE = 0xFFFFFFFF
"""The place of a lane that has found nothing; above every real one."""
INFINITY = float("inf")


@inline
def better(x, at, best, where):
    """Whether x at a place goes before the best so far: it is greater, or equal and earlier. A NaN never does.

    −infinity goes before a lane that has found nothing, whose best is −infinity at `NOWHERE`.
    """
    return (x > best) | ((x == best) & (at < where))


@inline
def wave_best(best, where):
    """The best of 32 lanes and its place; every lane gets it."""
    top: f32 = best
    at: u32 = where
    for distance in unroll((16, 8, 4, 2, 1)):
        x = wave_shuffle_xor(top, distance)
        i = wave_shuffle_xor(at, distance)
        take = better(x, i, top, at)
        top = select(take, x, top)
        at = select(take, i, at)
    return top, at


@kernel(workgroup=256)
def argmax(x: ptr[f32], y: ptr[i32], n: u32):
    """y[row] of one workgroup a row. NaN is smaller than every number; ties go to the lowest index; nothing but NaN
    gives 0.
    """
    tops = shared(f32, 8)
    places = shared(u32, 8)
    row = x + u64(workgroup_id(0)) * u64(n)
    best: f32 = -INFINITY
    where: u32 = NOWHERE
    for i in range(workitem_id(), n, 256):
        v = row[i]
        take = better(v, i, best, where)
        best = select(take, v, best)
        where = select(take, i, where)
    top, at = wave_best(best, where)
    wave = workitem_id() >> 5
    if lane_id() == 0:
        tops[wave] = top
        places[wave] = at
    barrier()
    if first_lane(wave) == 0:
        # Eight waves' results, four times over.
        top, at = wave_best(tops[lane_id() & 7], places[lane_id() & 7])
        if lane_id() == 0:
            y[workgroup_id(0)] = select(at == NOWHERE, i32(at - at), i32(at))

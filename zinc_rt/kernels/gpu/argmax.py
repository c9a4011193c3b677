"""The best of what the lanes of a wave hold."""

from __future__ import annotations

from zinc_rt.kernels.gpu.waves import NOWHERE, better, wave_best
from zinc_rt.kernels.maths import INFINITY
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    lane_id,
    select,
    shared,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f32, i32, ptr, u32, u64

PART = 2048
"""Elements of a part of a row."""


@inline
def workgroup_best(best, where):
    """The best of 256 lanes and its place, in the first lane of the first wave."""
    tops = shared(f32, 8)
    places = shared(u32, 8)
    top, at = wave_best(best, where)
    wave = workitem_id() >> 5
    if lane_id() == 0:
        tops[wave] = top
        places[wave] = at
    barrier()
    # Eight waves' results, four times over.
    return wave_best(tops[lane_id() & 7], places[lane_id() & 7])


@inline
def best_from(row: ptr[f32], first: u32, n: u32, best, where):
    """The better of what a lane has and of its elements among the 2048 from `first` on, below n."""
    top: f32 = best
    place: u32 = where
    at = tuple(first + k * 256 + workitem_id() for k in range(PART // 256))
    # What comes from memory is asked for before the first of it is needed; beyond the end the last element again.
    values = tuple(row[select(i < n, i, n - 1)] for i in at)
    for k in unroll(PART // 256):
        take = better(values[k], at[k], top, place) & (at[k] < n)
        top = select(take, values[k], top)
        place = select(take, at[k], place)
    return top, place


@kernel(workgroup=256)
def argmax_parts(x: ptr[f32], tops: ptr[f32], places: ptr[u32], n: u32, parts: u32):
    """The best of every 2048 elements of a row and its place: tops, places[row, part]; workgroups: parts, rows."""
    best: f32 = -INFINITY
    where: u32 = NOWHERE
    best, where = best_from(x + u64(workgroup_id(1)) * u64(n), workgroup_id(0) * PART, n, best, where)
    top, place = workgroup_best(best, where)
    if workitem_id() == 0:
        out = workgroup_id(1) * parts + workgroup_id(0)
        tops[out] = top
        places[out] = place


@kernel(workgroup=256)
def argmax_merge(tops: ptr[f32], places: ptr[u32], y: ptr[i32], parts: u32):
    """y[row] = the place of the best of a row's parts, 0 where nothing but NaN was found; a workgroup a row."""
    first = workgroup_id(0) * parts
    best: f32 = -INFINITY
    where: u32 = NOWHERE
    for i in range(workitem_id(), parts, 256):
        v = tops[first + i]
        place = places[first + i]
        take = better(v, place, best, where)
        best = select(take, v, best)
        where = select(take, place, where)
    _, at = workgroup_best(best, where)
    if workitem_id() == 0:
        y[workgroup_id(0)] = select(at == NOWHERE, i32(at - at), i32(at))


@kernel(workgroup=256)
def argmax(x: ptr[f32], y: ptr[i32], n: u32):
    """y[row] of one workgroup a row. NaN is smaller than every number; ties go to the lowest index; nothing but NaN
    gives 0.
    """
    row = x + u64(workgroup_id(0)) * u64(n)
    best: f32 = -INFINITY
    where: u32 = NOWHERE
    for first in range(u32(0), n, PART):
        best, where = best_from(row, first, n, best, where)
    _, at = workgroup_best(best, where)
    if workitem_id() == 0:
        y[workgroup_id(0)] = select(at == NOWHERE, i32(at - at), i32(at))

"""The order in which products of many rows go through groups, and the tree over their sums (docs/how/numerics.md).

Groups are visited lane by lane of the tree over 32 sums, the j-th lane being j with its five bits reversed, so that
sums merge like a binary counter (the same as under "Row products of the boundary"): the tree needs one sum for each of
its levels and no more. Those of the four lower levels are kept by the lanes; half of the tree goes to the result, to
which the other half is added.
"""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import reversed_bits, target_has, unroll
from zinc_rt.lang.types import f32, ptr, u32, u64
from zinc_rt.numerics import GROUP_SHIFT, TREE_LANES

LANE_BITS = TREE_LANES.bit_length() - 1
KEPT = 4
"""Levels of the tree whose sums are kept."""
HALF = (1 << KEPT) - 1
"""The last lane of a half in the order of visits, and the bits that say so."""


@inline
def chain_length(n_groups: u32):
    """Groups of a lane, where it has as many as any."""
    return (n_groups + (TREE_LANES - 1)) >> GROUP_SHIFT


@inline
def lane_of(j: u32):
    """The j-th lane in the order of visits."""
    return reversed_bits(j, LANE_BITS)


@inline
def links_of(visit: u32, n_groups: u32):
    """Groups of the lane at a place in the order of visits; 0 for one that has none."""
    return (n_groups + (TREE_LANES - 1) - lane_of(visit)) >> GROUP_SHIFT


@inline
def settled(visit: u32, link: u32, n_groups: u32):
    """The place in the order of visits of what would be group `link` of a lane, if the lane had as many, and which one
    of the lane found it is; TREE_LANES beyond the last group. No group is visited that does not exist.
    """
    at: u32 = visit
    left: u32 = link
    while (at < TREE_LANES) & (left >= links_of(at, n_groups)):
        left -= links_of(at, n_groups)
        at += 1
    return at, left


@inline
def near():
    """How many of the KEPT levels stay in registers. Lanes of gfx12 have room for all; elsewhere the others, which half
    as many sums reach with each level, lie in memory of the lane.
    """
    return KEPT if target_has("wmma") else 2


@inline
def merge(sums, kept, far, visit: u32, N: int):
    """The N sums of the visit-th lane are there: add to them those that waited for them, or let them wait. kept, far:
    room for near() * N in registers and (KEPT - near()) * N in memory. When `visit & HALF` is HALF, half of the tree is
    in sums.
    """
    if visit & 1 == 0:
        keep(sums, kept, 0, N)
    else:
        join(sums, kept, 0, N)
        if visit & 2 == 0:
            keep(sums, kept, 1, N)
        else:
            join(sums, kept, 1, N)
            if near() == 2:
                merge_far(sums, far, (visit & HALF) >> 2, N)
            elif visit & 4 == 0:
                keep(sums, kept, 2, N)
            else:
                join(sums, kept, 2, N)
                if visit & 8 == 0:
                    keep(sums, kept, 3, N)
                else:
                    join(sums, kept, 3, N)


@inline
def merge_far(sums, far, visit: u32, N: int):
    """The upper two levels, by the upper bits of the visit: in a loop, so that what is in memory stays there."""
    place = far
    rest: u32 = visit
    while rest & 1 != 0:
        join(sums, place, 0, N)
        place = place + N
        rest >>= 1
    if visit != 3:
        keep(sums, place, 0, N)


@inline
def keep(sums, kept, LEVEL: int, N: int):
    """Sums wait for their neighbours."""
    for i in unroll(N):
        kept[LEVEL * N + i] = sums[i]


@inline
def join(sums, kept, LEVEL: int, N: int):
    """Those that waited, and sums."""
    for i in unroll(N):
        sums[i] = kept[LEVEL * N + i] + sums[i]


@inline
def pair(sums, kept, LEVEL: int, N: int):
    """Behind each of two turns: sums wait for the second, and then both are added."""
    for i in unroll(N):
        both = kept[LEVEL * N + i] + sums[i]
        kept[LEVEL * N + i] = sums[i]
        sums[i] = both


@inline
def clear(sums, N: int):
    """Begin with the next lane."""
    for i in unroll(N):
        sums[i] = 0.0


@inline
def put_column(
    sums, FIRST: int, STEP: int, N: int, y: ptr[f32], bias: ptr[f32], w: u32, row: u32, n_rows: u32, n_x: u32, last,
    BIAS: bool,
):  # fmt: skip
    """Store the sums of N rows of activations from `row` on and row w of the weights, as far as there are such: the
    first half of the tree as it is, and `last` the whole tree, with the bias. sums: from FIRST on, STEP apart.
    """
    if w < n_rows:
        extra: f32 = 0.0
        if BIAS:
            if last:
                extra = bias[w]
        for r in unroll(N):
            if row + r < n_x:
                place = y + (u64(row + r) * u64(n_rows) + u64(w))
                total: f32 = sums[FIRST + r * STEP]
                if last:
                    total = place[0] + total
                    if BIAS:
                        total = total + extra
                place[0] = total

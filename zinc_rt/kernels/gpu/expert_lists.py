"""The rows of a step by the experts that they chose, so that an expert's weights are read once for many of them.

Slots are the pairs of a row and one of its k experts, in the order of experts, of one expert in the order of rows.
Tiles are up to 64 slots of one expert. A tile's number is that of its expert plus the whole tiles of slots before it:
no number is taken twice, and there are `tiles_of` of them, some of which are empty. So each workgroup finds the tiles
of its expert by itself, and what stands where depends on the ids alone.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.fragments import WORDS, one_pair, pair_place
from zinc_rt.kernels.gpu.reduction_order import lane_of, settled
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    cast,
    fma,
    minimum,
    regs,
    select,
    shared,
    store,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f32, i8, i32, ptr, u8, u32, u64
from zinc_rt.numerics import GROUP, TREE_LANES

TILE_ROWS = 64
"""Slots of a tile at the most."""
TILE_SHIFT = 6
TILE_WORDS = 4
"""Of a tile in the list: its expert, its first slot, how many; and one that is not used."""
LANES = 256
"""Work-items of a workgroup; each has a stretch of the pairs."""
AHEAD = 4
"""Ids of a stretch that are loaded together."""
TILE_QUANTS = TILE_ROWS * GROUP
"""Bytes of quants of a tile's slab."""
TILE_SLAB = TILE_QUANTS + 3 * 4 * TILE_ROWS
VISITS = 4
"""Slabs that a workgroup fills, and that products bring into LDS together."""


def tiles_of(n_pairs: int, n_experts: int) -> int:
    """Tiles of so many pairs, the empty ones counted."""
    return n_pairs // TILE_ROWS + n_experts


def slabs_in_tile(n_groups: int) -> int:
    """Slabs of a tile: one for each group, in the order of visits, and up to a whole step of `block_expert_tiles`."""
    return -(-n_groups // VISITS) * VISITS


@inline
def counted(below: u32, own: u32):
    """Of the workgroup: the sum of `below`, the sum of `own` of the work-items before this one, and that of all."""
    lows, owns = shared(u32, LANES), shared(u32, LANES)
    at = workitem_id()
    low_sum: u32 = below
    own_sum: u32 = own
    for distance in unroll(tuple(1 << i for i in range(8))):
        lows[at] = low_sum
        owns[at] = own_sum
        barrier()
        if at >= distance:
            low_sum += lows[at - distance]
            own_sum += owns[at - distance]
        barrier()
    lows[at] = low_sum
    owns[at] = own_sum
    barrier()
    return lows[LANES - 1], own_sum - own, owns[LANES - 1]


@kernel(workgroup=256)
def expert_lists(ids: ptr[u32], rows: ptr[u32], places: ptr[u32], tiles: ptr[u32], n_pairs: u32, k: u32):
    """rows[slot] = the row of a slot; places[pair] = the slot of a pair; tiles: u32[tiles_of(…), 4]. A workgroup an
    expert; ids: u32[rows, k], the chosen experts.
    """
    expert, lane = workgroup_id(0), workitem_id()
    each = (n_pairs + (LANES - 1)) // LANES
    first = minimum(lane * each, n_pairs)
    last = minimum(first + each, n_pairs)
    below: u32 = 0
    own: u32 = 0
    for at in range(first, last, AHEAD):
        found = tuple(ids[minimum(at + i, n_pairs - 1)] for i in range(AHEAD))
        for i in unroll(AHEAD):
            there = at + i < last
            below += u32(there & (found[i] < expert))
            own += u32(there & (found[i] == expert))
    start, before, total = counted(below, own)
    slot: u32 = start + before
    for at in range(first, last, AHEAD):
        found = tuple(ids[minimum(at + i, n_pairs - 1)] for i in range(AHEAD))
        for i in unroll(AHEAD):
            if (at + i < last) & (found[i] == expert):
                rows[slot] = (at + i) // k
                places[at + i] = slot
                slot += 1
    base = (start >> TILE_SHIFT) + expert
    end = ((start + total) >> TILE_SHIFT) + expert + 1
    for tile in range(base + lane, end, LANES):
        done = (tile - base) << TILE_SHIFT
        out = tiles + tile * TILE_WORDS
        out[0] = expert
        out[1] = start + done
        out[2] = select(done < total, minimum(total - done, TILE_ROWS), 0)
        out[3] = 0


@inline
def slabs_length(n_groups: u32):
    """As `slabs_in_tile`."""
    return (n_groups + (VISITS - 1)) // VISITS * VISITS


@inline
def tile_at(tiles: ptr[u32], number: u32):
    """A tile's expert, first slot and how many slots it has."""
    own = unchanged(tiles) + number * TILE_WORDS
    return own[0], own[1], own[2]


@inline
def groups_from(number: u32, n_groups: u32):
    """The groups of VISITS slabs from a number on; beyond the last slab any."""
    found = regs(u32, VISITS)
    visit: u32 = 0
    link: u32 = number
    for i in unroll(VISITS):
        visit, link = settled(visit, link, n_groups)
        found[i] = lane_of(visit) + link * TREE_LANES
        link += 1
    return tuple(found[i] for i in range(VISITS))


@kernel(workgroup=256)
def arrange_experts(
    q: ptr[i8], d: ptr[f32], s: ptr[u32], rows: ptr[u32], tiles: ptr[u32], x: ptr[u8], n_groups: u32, GATHER: bool
):
    """Slabs of tiles, as `tile_layout.arrange` makes those of 128 rows, but only of groups and rows that there are;
    tiles in x, VISITS slabs a workgroup in y. GATHER: of the rows of slots; else the rows of q, d and s are slots.
    """
    tile = workgroup_id(0)
    _, first, count = tile_at(tiles, tile)
    local, part = workitem_id() & (TILE_ROWS - 1), workitem_id() >> TILE_SHIFT
    if local < count:
        slot = first + local
        row = rows[slot] if GATHER else slot
        number = workgroup_id(1) * VISITS
        groups = groups_from(number, n_groups)
        places = tuple(u64(row) * u64(n_groups) + u64(minimum(g, n_groups - 1)) for g in groups)
        quants = tuple(one_pair(cast(q + at * GROUP, ptr[i32]), part) for at in places)
        scales = tuple(d[at] for at in places)
        sums = tuple(i32(s[at]) for at in places)
        place = (local >> 4) * WORDS + pair_place(local & 15, part)
        for i in unroll(VISITS):
            slab = x + u64(tile * slabs_length(n_groups) + number + i) * TILE_SLAB
            store(cast(slab, ptr[i32]), quants[i], place, align=8)
            if part == 0:
                own = cast(slab + TILE_QUANTS, ptr[f32]) + local
                start, end = (sums[i] << 16) >> 16, sums[i] >> 16
                own[0] = scales[i]
                own[TILE_ROWS] = f32(start + end)
                own[2 * TILE_ROWS] = f32(start)


@kernel(workgroup=256)
def sum_experts(x: ptr[f32], places: ptr[u32], weights: ptr[f32], y: ptr[f32], n: u32, K: int):
    """y[row] = the weighted sum of a row's K products, by increasing id of their experts; x: f32[slots, n];
    ceil(n / 256) workgroups in x, rows in y.
    """
    at, row = workgroup_id(0) * LANES + workitem_id(), workgroup_id(1)
    own = unchanged(places) + row * K
    factors = unchanged(weights, f32) + row * K
    if at < n:
        total: f32 = 0.0
        for start in unroll(0, K, 8):
            some = tuple(range(start, min(start + 8, K)))
            found = tuple(x[u64(own[j]) * u64(n) + u64(at)] for j in some)
            for i in unroll(len(some)):
                total = fma(factors[some[i]], found[i], total)
        y[u64(row) * u64(n) + u64(at)] = total

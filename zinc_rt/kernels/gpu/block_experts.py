"""Experts' matrices times the rows that chose them, by matrix instructions.

As `block_tiles`, for tiles of up to 64 slots of one expert (`expert_lists`) and 128 rows of its weights. Tiles have few
rows, so memory is the bound: every work-item decodes weights and copies activations, and asks for both before it waits.
"""

from __future__ import annotations

from zinc_rt.formats.decode import integers_of
from zinc_rt.kernels.gpu.block_tile_values import MAGIC_BITS, factor_count
from zinc_rt.kernels.gpu.block_tiles import SUMS, TILES, add_group, bring_weights, numbers_of, put
from zinc_rt.kernels.gpu.expert_lists import TILE_QUANTS, TILE_ROWS, TILE_SLAB, VISITS, slabs_length, tile_at
from zinc_rt.kernels.gpu.fragments import SUBTILE, first_activation, first_weight, row_of_piece, start_of
from zinc_rt.kernels.gpu.reduction_order import HALF, KEPT, clear, lane_of, links_of, merge, near, settled
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    array,
    barrier,
    cast,
    first_lane,
    load,
    minimum,
    regs,
    schedule_barrier,
    shared,
    store,
    unroll,
    workgroup_id,
    workitem_id,
    zeros,
)
from zinc_rt.lang.types import f32, i32, ptr, u8, u32, u64, vec
from zinc_rt.numerics import GROUP, TREE_LANES

TILE_W = 128
"""Rows of weights of a workgroup."""
STEP = VISITS
"""Groups that are brought into LDS together, of each row of weights one by a work-item."""
WAVES_X = TILE_ROWS // SUBTILE
PIECES = TILE_QUANTS // 16
"""Work-items that copy a slab."""


@inline
def asked_activations(slab: ptr[u8], at: u32, count: u32, FMT: str):
    """What a work-item copies of STEP slabs: 16 bytes of quants, of two of `count` rows; and scale and sums of a row,
    of the last one in place of those that there are not.
    """
    N = numbers_of(FMT)
    own, piece = slab + first_lane(at // PIECES) * TILE_SLAB, at % PIECES
    quants: vec[i32, 4] = zeros(vec[i32, 4])
    if first_lane(piece // TREE_LANES) * SUBTILE + row_of_piece(piece % TREE_LANES) < count:
        quants = load(cast(own, ptr[i32]), piece * 4, lanes=4, align=16)
    row = minimum(piece & (TILE_ROWS - 1), count - 1)
    numbers = cast(own + TILE_QUANTS, ptr[f32]) + row
    return quants, tuple(numbers[n * TILE_ROWS] for n in range(N))


@inline
def put_activations(asked, xq, xs, at: u32, FMT: str):
    """To LDS."""
    N = numbers_of(FMT)
    slot, piece = first_lane(at // PIECES), at % PIECES
    store(xq, asked[0], at * 4, align=16)
    if first_lane(piece) < TILE_ROWS:
        for n in unroll(N):
            xs[(slot * N + n) * TILE_ROWS + piece] = asked[1][n]


@inline
def tile(w: ptr[u8], x: ptr[u8], y: ptr[f32], bias: ptr[f32], own, n_groups: u32, n_rows: u32, FMT: str, BIAS: bool):
    """The work of a tile that is not empty; own: of `tile_at`."""
    F = integers_of(FMT)
    expert, start_slot, count = own
    xq = shared(i32, STEP * TILE_QUANTS // 4)
    xs = shared(f32, STEP * numbers_of(FMT) * TILE_ROWS)
    wq = shared(i32, STEP * TILE_W * GROUP // 4)
    wf = shared(f32, STEP * factor_count(FMT) * TILE_W)
    at = workitem_id()
    slab = x + u64(workgroup_id(0) * slabs_length(n_groups)) * TILE_SLAB
    # What a work-item decodes: a row, and of STEP groups one.
    mine, slot = at & (TILE_W - 1), first_lane(at // TILE_W)
    first = workgroup_id(1) * TILE_W
    row_bytes = u64((n_groups >> F.group_shift) * F.block_bytes)
    line = w + (u64(expert) * u64(n_rows) + u64(minimum(first + mine, n_rows - 1))) * row_bytes
    lane: u32 = 0
    link: u32 = slot  # of the lane at that place in the order of visits
    # And what its wave multiplies.
    wave = first_lane(at >> 5)
    x_row, w_row = wave % WAVES_X * SUBTILE, wave // WAVES_X * (TILES * SUBTILE)
    live = x_row < count
    shape = (start_slot + x_row + first_activation(), first + w_row + first_weight(), start_slot + count, n_rows)
    sums, kept = regs(f32, SUMS), regs(f32, SUMS * near())
    far = array(f32, SUMS * (KEPT - near()) + 1, zero=False)
    # The compiler does not know that 0 is added, and so keeps registers in place of filling them for each group.
    start = start_of(i32(MAGIC_BITS) + i32((n_rows + at) >> 31))
    visit: u32 = 0
    left: u32 = links_of(visit, n_groups)
    for _ in range(slabs_length(n_groups) // STEP):
        lane, link = settled(lane, link, n_groups)
        asked = asked_activations(slab, at, count, FMT)
        schedule_barrier()
        barrier()  # all have read what was brought before
        bring_weights(line, wq, wf, mine, slot, lane_of(lane) + link * TREE_LANES, n_groups, FMT, TILE_W)
        put_activations(asked, xq, xs, at, FMT)
        barrier()
        if live:
            for i in range(u32(STEP)):
                if visit < TREE_LANES:
                    add_group(xq, xs, wq, wf, sums, start, i, x_row, w_row, FMT, TILE_ROWS, TILE_W)
                    left -= 1
                    while (left == 0) & (visit < TREE_LANES):  # lanes without a group have sums, too: 0
                        merge(sums, kept, far, visit, SUMS)
                        if visit & HALF == HALF:
                            put(sums, y, bias + u64(expert) * u64(n_rows), visit > HALF, shape, BIAS)
                        clear(sums, SUMS)
                        visit += 1
                        left = links_of(visit, n_groups)
        link += STEP
        slab = slab + STEP * TILE_SLAB


@kernel(workgroup=512)
def block_expert_tiles(w: ptr[u8], x: ptr[u8], tiles: ptr[u32], y: ptr[f32], n_groups: u32, n_rows: u32, FMT: str):
    """y[slot, row] = row of a slot's expert in w, of n_rows rows each, times the slot's activations, as
    `arrange_experts` lays them out; tiles in x, 128 rows of w in y.
    """
    own = tile_at(tiles, workgroup_id(0))
    if own[2] > 0:
        tile(w, x, y, y, own, n_groups, n_rows, FMT, BIAS=False)


@kernel(workgroup=512)
def block_expert_tiles_bias(
    w: ptr[u8], x: ptr[u8], tiles: ptr[u32], bias: ptr[f32], y: ptr[f32], n_groups: u32, n_rows: u32, FMT: str
):
    """As `block_expert_tiles`, plus bias[expert, row]."""
    own = tile_at(tiles, workgroup_id(0))
    if own[2] > 0:
        tile(w, x, y, bias, own, n_groups, n_rows, FMT, BIAS=True)

"""Matrix times many rows of activations by matrix instructions: prompts, and steps of many sequences.

A workgroup makes 128 rows of activations by 64 rows of weights. WMMA adds up the products of a group of 32 exactly; the
rest of docs/how/numerics.md is done for each element: v_g, the sums of every 32nd group, the tree over 32 of these
(`reduction_order`).

Activations come as `tile_layout.arrange` lays them out; weights are read from the file's blocks, once for 128 rows.
"""

from __future__ import annotations

from zinc_rt.formats.decode import integers_of
from zinc_rt.kernels.amd.wmma_values import (
    MAGIC_BITS,
    add_values,
    factor_count,
    reads_halves,
    reads_sums,
    signed_words,
    tile_factors,
)
from zinc_rt.kernels.gpu.reduction_order import HALF, KEPT, chain_length, clear, lane_of, merge, put_column
from zinc_rt.kernels.gpu.tile_layout import SLAB_BYTES, SLAB_QUANTS, SLAB_ROWS, SUBTILE
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    bitcast,
    cast,
    concat,
    first_lane,
    lane_id,
    load,
    minimum,
    regs,
    select,
    shared,
    splat,
    store,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f32, i32, ptr, u8, u32, u64, vec
from zinc_rt.numerics import GROUP, TREE_LANES

TILE_X = SLAB_ROWS
"""Rows of activations of a workgroup."""
TILE_W = 64
"""Rows of weights of a workgroup."""
STEP = 4
"""Groups that are brought into LDS together: of each row of weights one by a work-item of the first half."""
WORKERS = TILE_W * STEP
"""Work-items that decode weights; as many others bring activations."""
TILES = 2
"""WMMAs side by side of a wave: 16 rows of activations, 32 of weights."""
SUMS = TILES * 8
WAVES_X = TILE_X // SUBTILE
FRAGMENT = SUBTILE * GROUP // 4
"""Words of a group of 16 rows."""


@inline
def numbers_of(FMT: str):
    """Scales and sums of a row of activations that v_g takes."""
    return 1 + reads_sums(FMT) + reads_halves(FMT)


@inline
def bring_weights(line: ptr[u8], wq, wf, row: u32, slot: u32, group: u32, n_groups: u32, FMT: str, ROWS: int = TILE_W):
    """Decode this work-item's group into LDS, where a group has ROWS rows; beyond the last group the factors are 0."""
    F = integers_of(FMT)
    NF = factor_count(FMT)
    there = group < n_groups
    g = select(there, group, n_groups - 1)
    block = line + (g >> F.group_shift) * F.block_bytes
    j = g & (F.groups - 1)
    words = signed_words(block, j, FMT)
    found = tile_factors(block, j, FMT)
    at = (slot * (ROWS // SUBTILE) + (row >> 4)) * FRAGMENT + (row & 15) * 2
    for p in unroll(4):
        pair = bitcast(concat(words[2 * p], words[2 * p + 1]), vec[i32, 2])
        store(wq, pair, at + p * (SUBTILE * 2), align=8)
    for i in unroll(NF):
        wf[(slot * NF + i) * ROWS + row] = select(there, found[i], 0.0)


@inline
def bring_activations(slab: ptr[u8], xq, xs, at: u32, FMT: str):
    """Copy STEP slabs into LDS: quants, and what is read of scales and sums. at: of this work-item."""
    N = numbers_of(FMT)
    quants = tuple(load(cast(slab + i * SLAB_BYTES, ptr[i32]), at * 4, lanes=4, align=16) for i in range(STEP))
    side, row = at >> 7, at & (SLAB_ROWS - 1)
    own = cast(slab + (side * SLAB_BYTES + SLAB_QUANTS), ptr[f32]) + row
    found = tuple(tuple(own[h * (SLAB_BYTES // 2) + n * SLAB_ROWS] for n in range(N)) for h in range(STEP // 2))
    for i in unroll(STEP):
        store(xq, quants[i], i * (SLAB_QUANTS // 4) + at * 4, align=16)
    for h in unroll(STEP // 2):
        for n in unroll(N):
            xs[((side + 2 * h) * N + n) * SLAB_ROWS + row] = found[h][n]


@inline
def fragment(p, at: u32):
    """A lane's bytes of a group of 16 rows: of its first 16 columns, and of its last."""
    return load(p, at, lanes=2, align=8), load(p, at + FRAGMENT // 2, lanes=2, align=8)


@inline
def add_group(
    xq, xs, wq, wf, sums, start, slot: u32, x_row: u32, w_row: u32, FMT: str, X_ROWS: int = TILE_X, W_ROWS: int = TILE_W
):
    """sums[t] += v_g of a wave's 16 x 16 elements, TILES times. x_row, w_row: the wave's first rows in the tile, which
    has X_ROWS and W_ROWS.
    """
    N, NF = numbers_of(FMT), factor_count(FMT)
    column, side = lane_id() & 15, lane_id() >> 4
    x = fragment(xq, (slot * X_ROWS + x_row) // SUBTILE * FRAGMENT + lane_id() * 2)
    w = tuple(fragment(wq, ((slot * W_ROWS + w_row) // SUBTILE + t) * FRAGMENT + lane_id() * 2) for t in range(TILES))
    f = tuple(
        tuple(wf[(slot * NF + i) * W_ROWS + w_row + t * SUBTILE + column] for i in range(NF)) for t in range(TILES)
    )
    numbers = tuple(load(xs, (slot * N + n) * X_ROWS + x_row + side * 8, lanes=8, align=16) for n in range(N))
    add_values(sums, start, x, w, numbers, f, FMT)


@inline
def put(sums, y: ptr[f32], bias: ptr[f32], last, shape, BIAS: bool):
    """Half of the tree to y; last: whether it is the second half, which is added to the first, and then the bias."""
    row, column, n_x, n_rows = shape
    for t in unroll(TILES):
        w = column + t * SUBTILE
        put_column(sums, t * 8, 1, 8, y, bias, w, row, n_rows, n_x, last, BIAS)


@inline
def tile(
    w: ptr[u8], x: ptr[u8], y: ptr[f32], bias: ptr[f32], n_groups: u32, n_rows: u32, n_x: u32, FMT: str, BIAS: bool
):
    """The work of `wmma` and `wmma_bias`."""
    F = integers_of(FMT)
    xq = shared(i32, STEP * SLAB_QUANTS // 4)
    xs = shared(f32, STEP * numbers_of(FMT) * TILE_X)
    wq = shared(i32, STEP * TILE_W * GROUP // 4)
    wf = shared(f32, STEP * factor_count(FMT) * TILE_W)
    at = workitem_id()
    chain = chain_length(n_groups)
    slab = x + u64(workgroup_id(0) * (chain * TREE_LANES)) * SLAB_BYTES
    # What a work-item of the first half decodes: a row, and of STEP groups one.
    mine, slot = at & (TILE_W - 1), first_lane(at >> 6) & (STEP - 1)
    first = workgroup_id(1) * TILE_W
    line = w + u64(minimum(first + mine, n_rows - 1)) * u64((n_groups >> F.group_shift) * F.block_bytes)
    lane: u32 = 0
    link: u32 = slot
    # And what its wave multiplies.
    wave = first_lane(at >> 5)
    x_row, w_row = wave % WAVES_X * SUBTILE, wave // WAVES_X * (TILES * SUBTILE)
    row = workgroup_id(0) * TILE_X + x_row + (lane_id() >> 4) * 8
    live = workgroup_id(0) * TILE_X + x_row < n_x
    shape = (row, first + w_row + (lane_id() & 15), n_x, n_rows)
    sums, kept = regs(f32, SUMS), regs(f32, SUMS * KEPT)
    # The compiler does not know that 0 is added, and so keeps eight registers in place of filling them for each group.
    start = splat(i32(MAGIC_BITS) + i32((n_rows + at) >> 31), 8)
    visit: u32 = 0
    left: u32 = chain
    for _ in range(chain * (TREE_LANES // STEP)):
        while link >= chain:
            link -= chain
            lane += 1
        barrier()  # all have read what was brought before
        if wave < WORKERS // TREE_LANES:
            bring_weights(line, wq, wf, mine, slot, lane_of(lane) + link * TREE_LANES, n_groups, FMT)
        else:
            bring_activations(slab, xq, xs, at - WORKERS, FMT)
        barrier()
        if live:
            for i in range(u32(STEP)):
                add_group(xq, xs, wq, wf, sums, start, i, x_row, w_row, FMT)
                left -= 1
                if left == 0:
                    merge(sums, kept, visit, SUMS)
                    if visit & HALF == HALF:
                        put(sums, y, bias, visit > HALF, shape, BIAS)
                    clear(sums, SUMS)
                    visit += 1
                    left = chain
        link += STEP
        slab = slab + STEP * SLAB_BYTES


@kernel(workgroup=512)
def wmma(w: ptr[u8], x: ptr[u8], y: ptr[f32], n_groups: u32, n_rows: u32, n_x: u32, FMT: str):
    """y[m, row] = W times row m of activations, n_x of them, as `arrange` lays them out; 128 rows of activations a
    workgroup in x, 64 rows of W in y.
    """
    tile(w, x, y, y, n_groups, n_rows, n_x, FMT, BIAS=False)


@kernel(workgroup=512)
def wmma_bias(w: ptr[u8], x: ptr[u8], bias: ptr[f32], y: ptr[f32], n_groups: u32, n_rows: u32, n_x: u32, FMT: str):
    """As `wmma`, plus bias[row]."""
    tile(w, x, y, bias, n_groups, n_rows, n_x, FMT, BIAS=True)

"""Matrix times many rows of activations by matrix instructions: prompts, and steps of many sequences.

A workgroup makes 128 rows of activations by 64 rows of weights. Matrix instructions (`fragments`) add up the products
of a group of 32 exactly; the rest of docs/how/numerics.md is done for each element: v_g, the sums of every 32nd group,
the tree over 32 of these (`reduction_order`).

Activations come as `tile_layout.arrange` lays them out; weights are read from the file's blocks, once for 128 rows.
"""

from __future__ import annotations

from zinc_rt.formats.decode import integers_of
from zinc_rt.kernels.gpu.block_tile_values import (
    MAGIC_BITS,
    add_values,
    factor_count,
    reads_halves,
    reads_sums,
    signed_words,
    tile_factors,
)
from zinc_rt.kernels.gpu.fragments import (
    PAIRS,
    SUBTILE,
    WORDS,
    activation_rows,
    first_activation,
    first_weight,
    fragment,
    of_activations,
    pair_place,
    pairs_of,
    start_of,
    together,
    weight_rows,
)
from zinc_rt.kernels.gpu.reduction_order import HALF, KEPT, chain_length, clear, lane_of, merge, near, put_column
from zinc_rt.kernels.gpu.tile_layout import SLAB_BYTES, SLAB_QUANTS, SLAB_ROWS
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    array,
    barrier,
    cast,
    first_lane,
    load,
    minimum,
    regs,
    select,
    shared,
    store,
    target_has,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f32, i32, ptr, u8, u32, u64
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
"""Products of 16 x 16 elements side by side of a wave: 16 rows of activations, 32 of weights."""
SUMS = TILES * SUBTILE * SUBTILE // 32
WAVES_X = TILE_X // SUBTILE


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
    at, pairs = (slot * (ROWS // SUBTILE) + (row >> 4)) * WORDS, pairs_of(words)
    for p in unroll(PAIRS):
        store(wq, pairs[p], at + pair_place(row & 15, p), align=8)
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
def add_group(
    xq, xs, wq, wf, sums, start, slot: u32, x_row: u32, w_row: u32, FMT: str, X_ROWS: int = TILE_X, W_ROWS: int = TILE_W
):
    """sums[t] += v_g of a wave's 16 x 16 elements, TILES times. x_row, w_row: the wave's first rows in the tile, which
    has X_ROWS and W_ROWS.
    """
    N, NF, ROWS, N_T = numbers_of(FMT), factor_count(FMT), weight_rows(), together()
    x = fragment(xq + (slot * X_ROWS + x_row) // SUBTILE * WORDS)
    w = tuple(fragment(wq + ((slot * W_ROWS + w_row) // SUBTILE + t) * WORDS) for t in range(TILES))
    own = wf + (slot * NF * W_ROWS + w_row + first_weight())
    f = tuple(
        tuple(own[i * W_ROWS + r // ROWS * SUBTILE + r % ROWS * 8] for i in range(NF)) for r in range(TILES * ROWS)
    )
    numbers = tuple(of_activations(xs + (slot * N + n) * X_ROWS + x_row) for n in range(N))
    for t in unroll(0, TILES, N_T):
        own_w, own_f = tuple(w[t + i] for i in range(N_T)), tuple(f[t * ROWS + i] for i in range(N_T * ROWS))
        add_values(sums, t * SUBTILE // 2, start, x, own_w, numbers, own_f, FMT)


@inline
def put(sums, y: ptr[f32], bias: ptr[f32], last, shape, BIAS: bool):
    """Half of the tree to y; last: whether it is the second half, which is added to the first, and then the bias."""
    row, column, n_x, n_rows = shape
    if target_has("mma"):
        # What is asked of another lane is not known before this point, so no address is kept in registers all the way.
        n_x, n_rows = first_lane(n_x), first_lane(n_rows)
    ROWS, (SIDE, X) = weight_rows(), activation_rows()
    for i in unroll(TILES * ROWS):
        w = column + i // ROWS * SUBTILE + i % ROWS * 8
        for r in unroll(0, X, SIDE):
            put_column(sums, i * X + r, 1, SIDE, y, bias, w, row + r // SIDE * 8, n_rows, n_x, last, BIAS)


@inline
def tile(
    w: ptr[u8], x: ptr[u8], y: ptr[f32], bias: ptr[f32], n_groups: u32, n_rows: u32, n_x: u32, FMT: str, BIAS: bool
):
    """The work of `block_tile` and `block_tile_bias`."""
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
    row = workgroup_id(0) * TILE_X + x_row + first_activation()
    live = workgroup_id(0) * TILE_X + x_row < n_x
    shape = (row, first + w_row + first_weight(), n_x, n_rows)
    sums, kept = regs(f32, SUMS), regs(f32, SUMS * near())
    far = array(f32, SUMS * (KEPT - near()) + 1, zero=False)
    # The compiler does not know that 0 is added, and so keeps registers in place of filling them for each group.
    start = start_of(i32(MAGIC_BITS) + i32((n_rows + at) >> 31))
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
                    merge(sums, kept, far, visit, SUMS)
                    if visit & HALF == HALF:
                        put(sums, y, bias, visit > HALF, shape, BIAS)
                    clear(sums, SUMS)
                    visit += 1
                    left = chain
        link += STEP
        slab = slab + STEP * SLAB_BYTES


@kernel(workgroup=512)
def block_tile(w: ptr[u8], x: ptr[u8], y: ptr[f32], n_groups: u32, n_rows: u32, n_x: u32, FMT: str):
    """y[m, row] = W times row m of activations, n_x of them, as `arrange` lays them out; 128 rows of activations a
    workgroup in x, 64 rows of W in y.
    """
    tile(w, x, y, y, n_groups, n_rows, n_x, FMT, BIAS=False)


@kernel(workgroup=512)
def block_tile_bias(
    w: ptr[u8], x: ptr[u8], bias: ptr[f32], y: ptr[f32], n_groups: u32, n_rows: u32, n_x: u32, FMT: str
):
    """As `block_tile`, plus bias[row]."""
    tile(w, x, y, bias, n_groups, n_rows, n_x, FMT, BIAS=True)

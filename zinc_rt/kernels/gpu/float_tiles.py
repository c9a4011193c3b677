"""Matrices of floats times many rows of activations.

Their chains of fma (docs/how/numerics.md) are no work for matrix instructions: those of float16 and bfloat16 add up
several products before they round, and in an order that is not documented. So a work-item makes 8 x 4 elements by
itself, from groups of 32 columns in local memory that 128 rows of weights and 64 rows of activations share, in the
order of `reduction_order`.

Columns beyond a row's end are zeros: they may turn a chain's -0.0 into +0.0, which no sum that began at +0.0 can tell.
"""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.formats.kinds import CodeLayout
from zinc_rt.kernels.gpu.expert_lists import tile_at
from zinc_rt.kernels.gpu.reduction_order import KEPT, chain_length, clear, pair, put_column
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    bitcast,
    cast,
    first_lane,
    fma,
    lanes,
    load,
    minimum,
    regs,
    select,
    shared,
    static_assert,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f16, f32, ptr, u8, u16, u32, u64, vec
from zinc_rt.numerics import GROUP, TREE_LANES

TILE_W = 128
"""Rows of weights of a workgroup."""
TILE_X = 64
"""Rows of activations."""
OWN_W, OWN_X = 8, 4
"""Rows of a work-item."""
SUMS = OWN_W * OWN_X


@inline
def stored_as(FMT: str):
    """The type of a weight in memory."""
    F = format_of(FMT)
    static_assert(
        F.kind in (CodeLayout.F32, CodeLayout.F16, CodeLayout.BF16),
        f"format {FMT}: float_tiles does not know numbers of {F.kind!s}",
    )
    return f32 if F.kind == CodeLayout.F32 else u16


@inline
def widened(w, FMT: str):
    """Weights as floats."""
    F = format_of(FMT)
    if F.kind == CodeLayout.F32:
        return w
    if F.kind == CodeLayout.F16:
        return f32(bitcast(w, vec[f16, lanes(w)]))
    static_assert(F.kind == CodeLayout.BF16, f"format {FMT}: float_tiles does not know numbers of kind {F.kind!s}")
    return bitcast(u32(w) << 16, vec[f32, lanes(w)])


@inline
def bring(out, row, first: u32, n: u32, at: u32, ROWS: int, COUNT: int, FMT: str):
    """COUNT columns of a row from `first` on to LDS as floats, [column][row]; zeros beyond n. at: where in LDS."""
    if first + COUNT <= n:
        parts = tuple(widened(load(row, first + i, lanes=8), FMT) for i in range(0, COUNT, 8))
        for i in unroll(COUNT):
            out[at + i * ROWS] = parts[i // 8][i % 8]
    else:
        for i in unroll(COUNT):
            there = first + i < n
            x = widened(load(row, select(there, first + i, n - 1)), FMT)
            out[at + i * ROWS] = select(there, x, 0.0)


@inline
def add_group(ws, xs, sums, w_own: u32, x_own: u32):
    """sums += the chains over a group's columns, of this work-item's elements."""
    chains = regs(f32, SUMS)
    for k in unroll(GROUP):
        w = load(ws, k * TILE_W + w_own, lanes=OWN_W, align=16)
        x = load(xs, k * TILE_X + x_own, lanes=OWN_X, align=16)
        for i in unroll(SUMS):
            chains[i] = fma(w[i % OWN_W], x[i // OWN_W], chains[i])
    for i in unroll(SUMS):
        sums[i] = sums[i] + chains[i]


@inline
def put(sums, y: ptr[f32], bias: ptr[f32], last, shape, BIAS: bool):
    """Half of the tree to y; last: whether it is the second half, which is added to the first, and then the bias."""
    row, column, n_x, n_rows = shape
    for a in unroll(OWN_W):
        w = column + a
        put_column(sums, a, OWN_W, OWN_X, y, bias, w, row, n_rows, n_x, last, BIAS)


@inline
def tile(
    w: ptr[u8], numbers: ptr[f32], x_first: u32, n_x: u32, y: ptr[f32], bias: ptr[f32], n: u32, n_rows: u32, FMT: str,
    BIAS: bool,
):  # fmt: skip
    """Rows x_first … of y, up to row n_x; numbers: the row of activations that this work-item brings."""
    T = stored_as(FMT)
    ws, xs = shared(f32, GROUP * TILE_W), shared(f32, GROUP * TILE_X)
    at = workitem_id()
    w_first = workgroup_id(1) * TILE_W
    # What this work-item brings: half a group of a row of weights, a quarter of a row of activations.
    w_row, w_part = at % TILE_W, first_lane(at // TILE_W) * (GROUP // 2)
    x_row, x_part = own_row(), first_lane(at // TILE_X) * (GROUP // 4)
    weights = cast(w, ptr[T]) + u64(minimum(w_first + w_row, n_rows - 1)) * u64(n)
    # And what it multiplies: of 16 x 16 work-items one.
    w_own, x_own = at % 16 * OWN_W, at // 16 * OWN_X
    live = x_first + first_lane(at >> 5) * (2 * OWN_X) < n_x
    shape = (x_first + x_own, w_first + w_own, n_x, n_rows)
    sums, kept = regs(f32, SUMS), regs(f32, SUMS * KEPT)
    chain = chain_length((n + (GROUP - 1)) // GROUP)
    # A loop for each level of the tree: behind both of its turns their sums are one.
    for e in range(u32(2)):
        for d in range(u32(2)):
            for c in range(u32(2)):
                for b in range(u32(2)):
                    for a in range(u32(2)):
                        clear(sums, SUMS)
                        lane = (((a * 2 + b) * 2 + c) * 2 + d) * 2 + e
                        for link in range(chain):
                            column = (lane + link * TREE_LANES) * GROUP
                            if column < n:
                                barrier()  # all have read what was brought before
                                bring(ws, weights, column + w_part, n, w_part * TILE_W + w_row, TILE_W, GROUP // 2, FMT)
                                bring(
                                    xs, numbers, column + x_part, n, x_part * TILE_X + x_row, TILE_X, GROUP // 4, "F32"
                                )
                                barrier()
                                if live:
                                    add_group(ws, xs, sums, w_own, x_own)
                        pair(sums, kept, 0, SUMS)
                    pair(sums, kept, 1, SUMS)
                pair(sums, kept, 2, SUMS)
            pair(sums, kept, 3, SUMS)
        put(sums, y, bias, e > 0, shape, BIAS)


@inline
def own_row():
    """Which of a tile's rows of activations this work-item brings."""
    return workitem_id() % TILE_X


@inline
def tile_of_rows(
    w: ptr[u8], x: ptr[f32], y: ptr[f32], bias: ptr[f32], n: u32, n_rows: u32, n_x: u32, FMT: str, BIAS: bool
):
    """The work of `float_tile` and `float_tile_bias`."""
    first = workgroup_id(0) * TILE_X
    numbers = x + u64(minimum(first + own_row(), n_x - 1)) * u64(n)
    tile(w, numbers, first, n_x, y, bias, n, n_rows, FMT, BIAS)


@inline
def tile_of_expert(
    w: ptr[u8], x: ptr[f32], rows: ptr[u32], tiles: ptr[u32], y: ptr[f32], bias: ptr[f32], n: u32, n_rows: u32,
    FMT: str, GATHER: bool, BIAS: bool,
):  # fmt: skip
    """The work of `float_experts` and `float_experts_bias`."""
    expert, first, count = tile_at(tiles, workgroup_id(0))
    if count > 0:
        slot = first + minimum(own_row(), count - 1)
        row = rows[slot] if GATHER else slot
        before = u64(expert) * u64(n_rows)
        own = w + before * u64(n * format_of(FMT).block_bytes)
        tile(own, x + u64(row) * u64(n), first, first + count, y, bias + before, n, n_rows, FMT, BIAS)


@kernel(workgroup=256)
def float_tile(w: ptr[u8], x: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, n_x: u32, FMT: str):
    """y[m, row] = W times row m of n_x rows of n floats; 64 rows of activations a workgroup in x, 128 of W in y."""
    tile_of_rows(w, x, y, y, n, n_rows, n_x, FMT, BIAS=False)


@kernel(workgroup=256)
def float_tile_bias(w: ptr[u8], x: ptr[f32], bias: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, n_x: u32, FMT: str):
    """As `float_tile`, plus bias[row]."""
    tile_of_rows(w, x, y, bias, n, n_rows, n_x, FMT, BIAS=True)


@kernel(workgroup=256)
def float_experts(
    w: ptr[u8], x: ptr[f32], rows: ptr[u32], tiles: ptr[u32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, GATHER: bool
):
    """y[slot, row] = row of a slot's expert in w, of n_rows rows each, times the slot's activations: with GATHER those
    of x[rows[slot]], else x[slot]; tiles of `expert_lists` in x, 128 rows of w in y.
    """
    tile_of_expert(w, x, rows, tiles, y, y, n, n_rows, FMT, GATHER, BIAS=False)


@kernel(workgroup=256)
def float_experts_bias(
    w: ptr[u8], x: ptr[f32], rows: ptr[u32], tiles: ptr[u32], bias: ptr[f32], y: ptr[f32], n: u32, n_rows: u32,
    FMT: str, GATHER: bool,
):  # fmt: skip
    """As `float_experts`, plus bias[expert, row]."""
    tile_of_expert(w, x, rows, tiles, y, bias, n, n_rows, FMT, GATHER, BIAS=True)

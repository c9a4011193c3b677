"""Float weights times rows of float activations: each group is a chain of fused multiply-adds in index order."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.formats.kinds import FLOAT_KINDS, CodeLayout
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, PANEL_ROWS
from zinc_rt.kernels.cpu.structs import MatmulArgs, StepRecord
from zinc_rt.kernels.cpu.tiles import Ahead, ask_for, lane_of, live_rows, merge_lanes, put_aside, put_tile
from zinc_rt.kernels.cpu.weights import tile_of
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, bitcast, cast, fma, load, regs, splat, static_assert, store, unroll
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, u8, u32, vec
from zinc_rt.numerics import GROUP, TREE_LANES

STEPS = 8
"""Columns of weights that a turn of the loop takes."""
TILES_AT_ONCE = {16: (3, 1), 8: (1,), 4: (1,)}
"""By lanes of a vector: tiles whose sums, with the rows of BLOCKS, leave registers free for weights."""


@inline
def weights_at(w: ptr[u8], k: int, at: int, FMT: str, W: int):
    """Weights of column k (and k + 1 where columns lie in pairs) of W rows from row `at`, as f32: a tuple."""
    F = format_of(FMT)
    if F.kind == CodeLayout.F32:
        return (load(cast(w, ptr[f32]), k * 16 + at, lanes=W),)
    if F.kind == CodeLayout.F16:
        return (f32(load(cast(w, ptr[f16]), k * 16 + at, lanes=W)),)
    static_assert(F.kind == CodeLayout.BF16, f"format {FMT}: weights_at does not know numbers of kind {F.kind!s}")
    pairs = load(cast(w, ptr[u32]), (k // 2) * 16 + at, lanes=W)
    return (bitcast(pairs << 16, vec[f32, W]), bitcast(pairs & 0xFFFF0000, vec[f32, W]))


@inline
def add_group(w, x, block, steps: i32, sums, FMT: str, M: int, W: int):
    """sums += the group's chain for M rows; `steps` columns are real. x: f32[32, block] from the first of the rows."""
    H = 16 // W
    COLUMNS = 2 if format_of(FMT).kind == CodeLayout.BF16 else 1
    acc = regs(vec[f32, W], M * H)
    if steps == GROUP:
        xk: ptr[f32] = x
        for k in unroll(0, GROUP, COLUMNS):
            for h in unroll(H):
                columns = weights_at(w, k, h * W, FMT, W)
                for c in unroll(COLUMNS):
                    for m in unroll(M):
                        acc[m * H + h] = fma(columns[c], splat(load(xk + c * i64(block), m), W), acc[m * H + h])
            xk = xk + i64(block) * COLUMNS
    else:
        BYTES = 16 * COLUMNS * format_of(FMT).block_bytes
        xk: ptr[f32] = x
        wk: ptr[u8] = w
        for k in range(0, steps, COLUMNS):
            for h in unroll(H):
                columns = weights_at(wk, 0, h * W, FMT, W)
                for c in unroll(COLUMNS):
                    if k + c < steps:
                        for m in unroll(M):
                            acc[m * H + h] = fma(columns[c], splat(load(xk + c * i64(block), m), W), acc[m * H + h])
            xk = xk + i64(block) * COLUMNS
            wk = wk + BYTES
    for i in unroll(M * H):
        sums[i] = sums[i] + acc[i]


@inline
def float_tile_rows(tile, fresh, first_row, block, groups: i32, n: i32, sums, FMT: str, M: int, W: int, AHEAD: Ahead):
    """The sums of one tile for M rows of a block of `block` rows.

    fresh: whether to ask for weights ahead. first_row: of the rows' activations. n: elements.
    """
    N = M * (16 // W)
    DISTANCE = AHEAD.one if M == 1 else AHEAD.several
    aside = array(f32, 8 * N * W, zero=False)
    w: ptr[u8] = tile
    x: ptr[f32] = first_row
    for q in range(8):
        for half in range(2):
            # Lanes l, l + 16, l + 8, l + 24: the tree adds the first two, the last two, then both.
            for r in unroll(2):
                one = regs(vec[f32, W], N)
                group: i32 = lane_of(q * 4 + half * 2 + r)
                while group < groups:
                    if DISTANCE > 0:
                        if fresh:
                            ask_for(w, DISTANCE, tile_of(FMT).weights, AHEAD, M)
                    steps: i32 = n - group * GROUP
                    if steps > GROUP:
                        steps = GROUP
                    add_group(w, x, block, steps, one, FMT, M, W)
                    group += TREE_LANES
                    w = w + tile_of(FMT).weights
                    x = x + i64(block) * GROUP
                for i in unroll(N):
                    if r == 0:
                        sums[i] = one[i]
                    else:
                        sums[i] = sums[i] + one[i]
            if half == 0:
                put_aside(q, sums, aside, N, W)
        for i in unroll(N):
            sums[i] = load(aside, (q * N + i) * W, lanes=W, align=W * 4) + sums[i]
        put_aside(q, sums, aside, N, W)
    merge_lanes(sums, aside, N, W)


@inline
def widen(w, out, steps: i32, FMT: str, W: int):
    """A group's weights of a tile, as f32[32, 16]."""
    KIND = format_of(FMT).kind
    static_assert(KIND in FLOAT_KINDS, f"format {FMT}: widen does not know numbers of kind {KIND!s}")
    COLUMNS = 2 if KIND == CodeLayout.BF16 else 1
    BYTES = 16 * COLUMNS * format_of(FMT).block_bytes
    for k in range(0, steps, COLUMNS):
        for h in unroll(16 // W):
            columns = weights_at(w + i64(k) * (BYTES // COLUMNS), 0, h * W, FMT, W)
            for c in unroll(COLUMNS):
                store(out, columns[c], (k + c) * 16 + h * W)


@inline
def settle(v, state, done, j: i32, N: int, W: int):
    """Take in the sums of the j-th of four lanes in visiting order; the last one's go to `done`, as a tree of four.

    state: what the lanes before left, f32[2, N * W].
    """
    if j == 0:
        for i in unroll(N):
            store(state, v[i], i * W, align=W * 4)
    elif j == 1:
        for i in unroll(N):
            store(state, load(state, i * W, lanes=W, align=W * 4) + v[i], i * W, align=W * 4)
    elif j == 2:
        for i in unroll(N):
            store(state, v[i], (N + i) * W, align=W * 4)
    else:
        for i in unroll(N):
            late = load(state, (N + i) * W, lanes=W, align=W * 4) + v[i]
            store(done, load(state, i * W, lanes=W, align=W * 4) + late, i * W, align=W * 4)


@inline
def add_column(acc, weights, x, M: int, V: int, W: int):
    """A step of the chains: V vectors of weights of one column and M rows."""
    w = tuple(load(weights, (v * W) // 16 * (GROUP * 16) + (v * W) % 16, lanes=W) for v in range(V))
    for m in unroll(M):
        row = splat(load(x, m), W)
        for v in unroll(V):
            acc[m * V + v] = fma(w[v], row, acc[m * V + v])


@inline
def panel_group(weights, x, block: i32, steps: i32, before, fresh: i32, M: int, T: int, W: int):
    """The group's chain for T tiles f32[T, 32, 16] and M rows f32[32, block], added to `before` or, if fresh, to 0."""
    V = T * (16 // W)
    acc = regs(vec[f32, W], M * V)
    xk: ptr[f32] = x
    wk: ptr[f32] = weights
    whole = steps & -STEPS
    for _ in range(0, whole, STEPS):
        for k in unroll(STEPS):
            add_column(acc, wk + k * 16, xk, M, V, W)
            xk = xk + i64(block)
        wk = wk + STEPS * 16
    for _ in range(whole, steps):
        add_column(acc, wk, xk, M, V, W)
        xk = xk + i64(block)
        wk = wk + 16
    if fresh != 0:
        for i in unroll(M * V):
            acc[i] = acc[i] + 0.0
    else:
        for i in unroll(M * V):
            acc[i] = load(before, i * W, lanes=W, align=W * 4) + acc[i]
    return acc


@inline
def float_panel(
    a, tile: i32, first_row: i32, n_blocks: i32, block: i32, groups: i32, n: i32, FMT: str, M: int, T: int, W: int,
):  # fmt: skip
    """T tiles from `tile` on times n_blocks blocks of M rows, PANEL_ROWS at most. Weights are widened once for all."""
    H = 16 // W
    N = M * T * H
    BLOCK = N * W
    weights = array(f32, T * GROUP * 16, zero=False)
    before = array(f32, (PANEL_ROWS // M) * BLOCK, zero=False)  # of lanes with several groups
    states = array(f32, (PANEL_ROWS // M) * 2 * BLOCK, zero=False)
    aside = array(f32, (PANEL_ROWS // M) * 8 * BLOCK, zero=False)
    bytes = a.tile_bytes
    at: ptr[u8] = a.w + i64(tile) * bytes
    x: ptr[f32] = a.pack.f + i64(first_row) * i64(groups) * GROUP
    stride = i64(groups) * GROUP
    for q in range(8):
        for j in range(4):
            group: i32 = lane_of(q * 4 + j)
            if group >= groups:
                for b in range(n_blocks):
                    done = aside + (i64(b) * (8 * BLOCK) + i64(q) * BLOCK)
                    settle(regs(vec[f32, W], N), states + i64(b) * (2 * BLOCK), done, j, N, W)
            fresh: i32 = 1
            while group < groups:
                steps: i32 = n - group * GROUP
                if steps > GROUP:
                    steps = GROUP
                for t in unroll(T):
                    widen(at + t * bytes, weights + t * (GROUP * 16), steps, FMT, W)
                for b in range(n_blocks):
                    # Blocks of `block` rows lie one after another; some of M rows are in each.
                    row = b * M
                    rows = x + (i64(row & -BLOCK_ROWS) * stride + i64(row & (BLOCK_ROWS - 1)))
                    sum_so_far = before + i64(b) * BLOCK
                    acc = panel_group(weights, rows, block, steps, sum_so_far, fresh, M, T, W)
                    if group + TREE_LANES < groups:
                        for i in unroll(N):
                            store(sum_so_far, acc[i], i * W, align=W * 4)
                    else:
                        done = aside + (i64(b) * (8 * BLOCK) + i64(q) * BLOCK)
                        settle(acc, states + i64(b) * (2 * BLOCK), done, j, N, W)
                fresh = 0
                group += TREE_LANES
                at = at + tile_of(FMT).weights
                x = x + i64(block) * GROUP
    for b in range(n_blocks):
        sums = regs(vec[f32, W], N)
        merge_lanes(sums, aside + i64(b) * (8 * BLOCK), N, W)
        for i in unroll(N):
            store(before, sums[i], i * W, align=W * 4)
        for t in range(T):
            own = regs(vec[f32, W], M * H)
            for m in unroll(M):
                for h in unroll(H):
                    own[m * H + h] = load(before, (m * T + t) * 16 + h * W, lanes=W)
            put_tile(a, own, tile + t, first_row + b * M, M, W)


@kernel
def matmul_float(
    a: ptr[MatmulArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, W: int, BLOCKS: tuple, AHEAD: Ahead,
):  # fmt: skip
    """Units: tiles. BLOCKS: numbers of rows worked on at once, descending to 1."""
    p = a.pack
    groups = p.n_groups
    n = p.n
    rows = live_rows(step, a.by_logit)
    block: i32 = rows
    if block > BLOCK_ROWS:
        block = BLOCK_ROWS
    if rows == 1:
        for t in range(first, last):
            sums = regs(vec[f32, W], 16 // W)
            float_tile_rows(a.w + i64(t) * a.tile_bytes, True, p.f, 1, groups, n, sums, FMT, 1, W, AHEAD)
            put_tile(a, sums, t, 0, 1, W)
        return
    # As in `matmul`: a panel of rows stays in the second-level cache while this call's tiles pass by.
    for panel in range(0, rows, PANEL_ROWS):
        stop: i32 = panel + PANEL_ROWS
        if stop > rows:
            stop = rows
        many: i32 = 0
        if block == BLOCK_ROWS:
            many = i32(u32(stop - panel) // BLOCKS[0])
            at: i32 = first
            for T in unroll(TILES_AT_ONCE[W]):
                while at + T <= last:
                    float_panel(a, at, panel, many, block, groups, n, FMT, BLOCKS[0], T, W)
                    at += T
        for t in range(first, last):
            tile = a.w + i64(t) * a.tile_bytes
            start: i32 = panel + (many * BLOCKS[0] & -BLOCK_ROWS)
            m: i32 = many * BLOCKS[0] & (BLOCK_ROWS - 1)
            while start < stop:
                here: i32 = stop - start
                if here > block:
                    here = block
                for M in unroll(BLOCKS):
                    while m + M <= here:
                        sums = regs(vec[f32, W], M * (16 // W))
                        x = p.f + (i64(start) * i64(groups) * GROUP + i64(m))
                        float_tile_rows(tile, start + m == panel, x, block, groups, n, sums, FMT, M, W, AHEAD)
                        put_tile(a, sums, t, start + m, M, W)
                        m += M
                start += block
                m = 0

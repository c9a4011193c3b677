"""Float weights times rows of float activations: each group is a chain of fused multiply-adds in index order."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.formats.kinds import CodeLayout
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS
from zinc_rt.kernels.cpu.matmul import PANEL_ROWS
from zinc_rt.kernels.cpu.structs import MatmulArgs, StepRecord
from zinc_rt.kernels.cpu.tiles import NEAR, lane_of, live_rows, merge_lanes, put_aside, put_tile
from zinc_rt.kernels.cpu.weights import tile_of
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, bitcast, cast, fma, load, prefetch, regs, splat, static_assert, unroll
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, u8, u32, vec
from zinc_rt.numerics import GROUP, TREE_LANES


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
def float_tile_rows(tile, fresh, first_row, block, groups: i32, n: i32, sums, FMT: str, M: int, W: int, AHEAD: int):
    """The sums of one tile for M rows of a block of `block` rows.

    fresh: whether to ask for weights ahead. first_row: of the rows' activations. n: elements.
    """
    N = M * (16 // W)
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
                    if fresh:
                        for i in unroll(0, tile_of(FMT).weights, 64):
                            if M == 1 and AHEAD >= 2 * NEAR:
                                prefetch(w, NEAR + i)
                            prefetch(w, AHEAD + i)
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


@kernel
def matmul_float(
    a: ptr[MatmulArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, W: int, BLOCKS: tuple, AHEAD: int,
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
        for t in range(first, last):
            tile = a.w + i64(t) * a.tile_bytes
            start: i32 = panel
            while start < stop:
                here: i32 = stop - start
                if here > block:
                    here = block
                m: i32 = 0
                for M in unroll(BLOCKS):
                    while m + M <= here:
                        sums = regs(vec[f32, W], M * (16 // W))
                        x = p.f + (i64(start) * i64(groups) * GROUP + i64(m))
                        float_tile_rows(tile, start + m == panel, x, block, groups, n, sums, FMT, M, W, AHEAD)
                        put_tile(a, sums, t, start + m, M, W)
                        m += M
                start += block

"""Feed-forwards of chosen experts: gate, up and activation; down, weighed and summed in the order of experts.

Rows lie by experts (`routing.route`): a tile of weights is read once for all rows of a panel that chose its expert.
"""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, PANEL_ROWS
from zinc_rt.kernels.cpu.matmul import tile_panel
from zinc_rt.kernels.cpu.matmul_float import float_tile_rows
from zinc_rt.kernels.cpu.matrix import matrix_scratch, tile_shapes
from zinc_rt.kernels.cpu.packs import load_some, not_null, store_group, store_some
from zinc_rt.kernels.cpu.structs import ExpertDownArgs, ExpertGateArgs, Pack, StepRecord
from zinc_rt.kernels.cpu.tiles import Ahead
from zinc_rt.kernels.maths import gated
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, cast, fma, load, regs, splat, store, tile_release, unroll
from zinc_rt.lang.types import f32, i32, i64, ptr, u8, u32, u64, vec
from zinc_rt.numerics import GROUP, GROUP_SHIFT


@inline
def expert_tile(
    tile: ptr[u8], following: ptr[u8], p: ptr[Pack], slot: i32, n: i32, block: i32, out: ptr[f32],
    scratch, FMT: str, W: int, BLOCKS: tuple, AHEAD: Ahead, TILES: str, FEW: int, MANY: int, STRIDE: int,
):  # fmt: skip
    """A tile's sums for n rows from a slot on, blocks of `block` rows: f32[n, STRIDE], 16 of each written to `out`.

    following: see `tile_rows`.
    """
    if format_of(FMT).quantized:
        if TILES != "":
            if n >= BLOCK_ROWS:
                tile_shapes(FMT, TILES)
        tile_panel(
            tile, following, p, slot, n, n, block, out, scratch, FMT, W, BLOCKS, AHEAD, TILES, FEW, MANY, STRIDE,
        )  # fmt: skip
    else:
        for start in range(0, n, BLOCK_ROWS):
            here: i32 = n - start
            if here > block:
                here = block
            x = p.f + i64(slot + start) * i64(p.n_groups) * GROUP
            m: i32 = 0
            for M in unroll(BLOCKS):
                while m + M <= here:
                    sums = regs(vec[f32, W], M * (16 // W))
                    float_tile_rows(tile, start + m == 0, x + m, block, p.n_groups, p.n, sums, FMT, M, W, AHEAD)
                    for r in unroll(M):
                        for h in unroll(16 // W):
                            store(out, sums[r * (16 // W) + h], (start + m + r) * STRIDE + h * W)
                    m += M


@inline
def block_of(count: i32):
    """Slots of a block of an expert that `count` rows chose."""
    block: i32 = count
    if block >= BLOCK_ROWS:
        block = BLOCK_ROWS
    return block


@inline
def put_activations(
    a, slot: i32, panel: i32, n: i32, block: i32, g: i32, gate, up, gate_bias, up_bias, W: int, ACT: str
):
    """32 elements, the g-th of a row, of activation(gate) * up for n rows of a panel. gate, up: f32[n, 32]."""
    n_out = a.n_out
    N = GROUP // W
    alpha = splat(a.alpha, W)
    limit = splat(a.limit, W)
    for r in range(n):
        pair = i64(a.route.pair[slot + panel + r])
        v = regs(vec[f32, W], N)
        for i in unroll(N):
            column = g * GROUP + i * W
            x = load(gate, r * GROUP + i * W, lanes=W)
            y = load(up, r * GROUP + i * W, lanes=W)
            if not_null(a.gate_bias):
                x = x + load_some(gate_bias, column, n_out, W)
            if not_null(a.up_bias):
                y = y + load_some(up_bias, column, n_out, W)
            if not_null(a.gated):
                store_some(a.gated + pair * i64(n_out), x, column, n_out, W)
                store_some(a.upped + pair * i64(n_out), y, column, n_out, W)
            v[i] = gated(x, y, alpha, limit, ACT)
            if not_null(a.y):
                store_some(a.y + pair * i64(n_out), v[i], column, n_out, W)
        if not_null(a.act):
            at = panel + r
            inside = at & (BLOCK_ROWS - 1)
            store_group(a.act, v, slot + (at - inside), inside, block, g, W)


@kernel
def expert_gate_up(
    a: ptr[ExpertGateArgs], step: ptr[StepRecord], first: i32, last: i32, GATE: str, UP: str, W: int, BLOCKS: tuple,
    AHEAD: Ahead, TILES: str, FEW: int, MANY: int, ACT: str,
):  # fmt: skip
    """Units: 32 elements of the activation for a panel of an expert's rows; those without a job do nothing.

    ACT: see `maths.gated`.
    """
    r = a.route
    n_out = a.n_out
    tiles = (n_out + 15) >> 4
    parts = (n_out + (GROUP - 1)) >> GROUP_SHIFT
    rows = step.n_rows
    x: ptr[Pack] = a.slots
    if rows == 1:
        x = a.pack
    gate = array(f32, PANEL_ROWS * GROUP, zero=False)
    up = array(f32, PANEL_ROWS * GROUP, zero=False)
    scratch = matrix_scratch(GATE, TILES)
    other = scratch if GATE == UP else matrix_scratch(UP, TILES)
    one_matrix = cast(a.gate, u64) == cast(a.up, u64)
    job: i32 = i32(u32(first) // u32(parts))
    g: i32 = first - job * parts
    for unit in range(first, last):
        if job < r.used[1]:
            u = r.job[job * 2]
            panel = r.job[job * 2 + 1]
            slot = r.start[u]
            e = r.expert[u]
            block = block_of(r.count[u])
            n: i32 = r.count[u] - panel
            if n > PANEL_ROWS:
                n = PANEL_ROWS
            row_slot: i32 = slot + panel
            if rows == 1:
                row_slot = 0
            # The next unit's first tile, for what is asked for ahead.
            beyond: ptr[u8] = a.gate + (i64(e * tiles + g * 2 + 2) * a.gate_bytes)
            if g + 1 == parts:
                if job + 1 < r.used[1]:
                    beyond = a.gate + i64(r.expert[r.job[job * 2 + 2]] * tiles) * a.gate_bytes
            count: i32 = tiles - g * 2
            if count > 2:
                count = 2
            second: ptr[f32] = up
            if GATE == UP:
                # One body for both matrices: gate's tiles, then up's, unless these are the same (see `RoutedSpec`).
                n_tiles: i32 = 2 * count
                if one_matrix:
                    n_tiles = count
                    second = gate
                for i in range(n_tiles):
                    half: i32 = i
                    source: ptr[u8] = a.gate
                    out: ptr[f32] = gate
                    following: ptr[u8] = a.up + i64(e * tiles + g * 2) * a.up_bytes
                    if i >= count:
                        half = i - count
                        source = a.up
                        out = up
                    if i >= count or one_matrix:
                        following = beyond
                    tile = source + i64(e * tiles + g * 2 + half) * a.gate_bytes
                    if half + 1 < count:
                        following = tile + a.gate_bytes
                    expert_tile(
                        tile, following, x, row_slot, n, block, out + half * 16, scratch, GATE, W,
                        BLOCKS, AHEAD, TILES, FEW, MANY, GROUP,
                    )  # fmt: skip
            else:
                for half in range(count):
                    at = i64(e * tiles + g * 2 + half)
                    first_tile = a.gate + at * a.gate_bytes
                    second_tile = a.up + at * a.up_bytes
                    expert_tile(
                        first_tile, second_tile, x, row_slot, n, block, gate + half * 16,
                        scratch, GATE, W, BLOCKS, AHEAD, TILES, FEW, MANY, GROUP,
                    )  # fmt: skip
                    expert_tile(
                        second_tile, first_tile + a.gate_bytes, x, row_slot, n, block,
                        up + half * 16, other, UP, W, BLOCKS, AHEAD, TILES, FEW, MANY, GROUP,
                    )  # fmt: skip
            # Columns past the width: tiles repeat their last row, a packed group ends with zeros.
            for c in range(n_out - g * GROUP, GROUP):
                for i in range(n):
                    gate[i * GROUP + c] = 0.0
                    up[i * GROUP + c] = 0.0
            bias = i64(e) * i64(n_out)
            put_activations(a, slot, panel, n, block, g, gate, second, a.gate_bias + bias, a.up_bias + bias, W, ACT)
        g += 1
        if g == parts:
            g = 0
            job += 1
    if TILES == "amx":
        if rows >= BLOCK_ROWS:
            tile_release()


@inline
def add_weighed(a, t: i32, pair: i32, e: i32, sums: ptr[f32], W: int):
    """y of a pair's row += weight * (sums + bias), 16 elements of tile t."""
    n_out = a.n_out
    y = a.y + i64(u32(pair) // u32(a.k)) * i64(n_out)
    w = splat(a.weights[pair], W)
    for h in unroll(16 // W):
        at = t * 16 + h * W
        v = load(sums, h * W, lanes=W)
        if not_null(a.bias):
            v = v + load_some(a.bias + i64(e) * i64(n_out), at, n_out, W)
        store_some(y, fma(w, v, load_some(y, at, n_out, W)), at, n_out, W)


@kernel
def expert_down(
    a: ptr[ExpertDownArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, W: int, BLOCKS: tuple, AHEAD: Ahead,
    TILES: str, FEW: int, MANY: int,
):  # fmt: skip
    """Units: tiles, of all experts. A tile's sums go to y at once, so a row's experts are added in their order."""
    r = a.route
    n_out = a.n_out
    tiles = (n_out + 15) >> 4
    rows = step.n_rows
    sums = array(f32, PANEL_ROWS * 16, zero=False)
    scratch = matrix_scratch(FMT, TILES)
    stop: i32 = last * 16
    if stop > n_out:
        stop = n_out
    for row in range(rows):
        y = a.y + i64(row) * i64(n_out)
        nothing: vec[f32, W] = 0.0
        for at in range(first * 16, stop, W):
            store_some(y, nothing, at, stop, W)
    for u in range(r.used[0]):
        e = r.expert[u]
        slot = r.start[u]
        count = r.count[u]
        block = block_of(count)
        for panel in range(0, count, PANEL_ROWS):
            n: i32 = count - panel
            if n > PANEL_ROWS:
                n = PANEL_ROWS
            for t in range(first, last):
                tile = a.w + i64(e * tiles + t) * a.tile_bytes
                following: ptr[u8] = tile + a.tile_bytes
                if t + 1 == last:
                    if u + 1 < r.used[0]:
                        following = a.w + i64(r.expert[u + 1] * tiles + first) * a.tile_bytes
                expert_tile(
                    tile, following, a.act, slot + panel, n, block, sums, scratch, FMT, W, BLOCKS,
                    AHEAD, TILES, FEW, MANY, 16,
                )  # fmt: skip
                for i in range(n):
                    add_weighed(a, t, r.pair[slot + panel + i], e, sums + i * 16, W)
    if TILES == "amx":
        if rows >= BLOCK_ROWS:
            tile_release()

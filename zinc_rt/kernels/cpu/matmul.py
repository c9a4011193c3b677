"""Quantised matrix times rows of int8 activations; the order of docs/how/numerics.md."""

from __future__ import annotations

from zinc_rt.formats.decode import integers_of
from zinc_rt.formats.kinds import CODED_KINDS
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, LEAST_ROWS, PANEL_ROWS
from zinc_rt.kernels.cpu.lookups import TABLE_BYTES, sums_of_fours
from zinc_rt.kernels.cpu.matrix import matrix_blocks, matrix_scratch, tile_shapes
from zinc_rt.kernels.cpu.packs import not_null
from zinc_rt.kernels.cpu.panels import panel_rows
from zinc_rt.kernels.cpu.structs import MatmulArgs, Pack, StepRecord
from zinc_rt.kernels.cpu.tiles import (
    Ahead,
    ask_for,
    four_columns,
    lane_of,
    live_rows,
    merge_lanes,
    put_aside,
    put_tile,
)
from zinc_rt.kernels.cpu.weights import (
    activation_sums,
    bias_of,
    group_factors,
    group_value,
    in_planes,
    line,
    lines_in_words,
    plain_avx2,
    raw_lines,
    raw_shift,
    rows_together,
    signed_bytes,
    stored_lines,
    sums_at,
    sums_of_halves,
    sums_step,
    supers_at,
    tile_of,
    weights_of,
)
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    add_pairs,
    array,
    bitcast,
    cast,
    dot2,
    dot4,
    dot8,
    insert,
    load,
    prefetch,
    regs,
    shuffle,
    splat,
    store,
    target_has,
    tile_release,
    unroll,
    zeros,
)
from zinc_rt.lang.types import f32, i8, i16, i32, i64, ptr, u8, u32, u64, vec
from zinc_rt.numerics import GROUP, TREE_LANES


@inline
def dots_of_bytes(FMT: str):
    """Whether four products of bytes are added up at once; else two, in 16 bits."""
    return integers_of(FMT).wide or target_has("vnni") or target_has("avxvnni") or not target_has("avx2")


@inline
def two_sums(w: ptr[u8], x: ptr[i8], isum, second, FMT: str, M: int, W: int):
    """isum[m * H + h] += the dot products of all lines with M rows, where the format has raw ones: those apart.

    Where halves have sums of their own, raw lines are the second half, and both halves' sums are taken 8 times.
    """
    H = 16 // W
    SHIFT = raw_shift(FMT)
    BYTES = dots_of_bytes(FMT)
    LANES = W if BYTES else 2 * W
    plain = regs(vec[i32 if BYTES else i16, LANES], M * H)
    raw = regs(vec[i32 if BYTES else i16, LANES], M * H)
    if BYTES:
        for n in unroll(M * H):
            plain[n] = isum[n]
    for i in unroll(stored_lines(FMT)):
        RAW = i in raw_lines(FMT)
        lines = tuple(line(w, i, h * 4 * W, FMT, 4 * W, False, RAW) for h in range(H))
        for m in unroll(M):
            q = four_columns(x, m, i, W)
            for h in unroll(H):
                k = m * H + h
                if BYTES and RAW:
                    raw[k] = dot4(raw[k], lines[h], q, a_max=255 if SHIFT == 4 else 63)
                elif BYTES:
                    plain[k] = dot4(plain[k], lines[h], q, a_max=63)
                elif RAW:
                    raw[k] = raw[k] + dot2(lines[h], q)
                else:
                    plain[k] = plain[k] + dot2(lines[h], q)
    for n in unroll(M * H):
        if sums_of_halves(FMT):
            isum[n] = plain[n] << 3 if BYTES else add_pairs(isum[n], plain[n], splat(i16(8), LANES))
            second[n] = raw[n] << 3 - SHIFT if BYTES else add_pairs(second[n], raw[n], splat(i16(8 >> SHIFT), LANES))
        else:
            both = plain[n] + (raw[n] >> SHIFT if SHIFT > 0 else raw[n] << -SHIFT)
            isum[n] = both if BYTES else add_pairs(isum[n], both)


@inline
def isum_dots(w: ptr[u8], x: ptr[i8], isum, FIRST: int, LAST: int, FMT: str, M: int, W: int, SIGNED: bool):
    """isum[m * H + h] += the dot products of lines FIRST … LAST-1 with M rows."""
    F = integers_of(FMT)
    H = 16 // W
    if target_has("i8mm") and M % 2 == 0:
        isum_pairs(w, x, isum, FIRST, LAST, FMT, M, SIGNED)
    elif dots_of_bytes(FMT):
        for i in unroll(FIRST, LAST):
            lines = tuple(line(w, i, h * 4 * W, FMT, 4 * W, SIGNED, False) for h in range(H))
            for m in unroll(M):
                q = four_columns(x, m, i, W)
                for h in unroll(H):
                    isum[m * H + h] = dot4(isum[m * H + h], lines[h], q, a_max=max(63, F.integers[1] + F.bias))
    else:
        LINES = lines_in_words(FMT, False)
        # Nibbles of lines i and i + 4 share their bytes: next to each other, these need not be kept.
        NIBBLES = F.kind in CODED_KINDS and FIRST == 0 and LAST == 8
        ORDER = (0, 4, 1, 5, 2, 6, 3, 7) if NIBBLES else tuple(range(FIRST, LAST))
        for start in unroll(0, LAST - FIRST, LINES):
            words = regs(vec[i16, 2 * W], M * H)
            for i in unroll(tuple(ORDER[j] for j in range(start, min(start + LINES, LAST - FIRST)))):
                lines = tuple(line(w, i, h * 4 * W, FMT, 4 * W, SIGNED, False) for h in range(H))
                for m in unroll(M):
                    q = four_columns(x, m, i, W)
                    for h in unroll(H):
                        words[m * H + h] = words[m * H + h] + dot2(lines[h], q)
            for k in unroll(M * H):
                isum[k] = add_pairs(isum[k], words[k])


@inline
def isum_pairs(w: ptr[u8], x: ptr[i8], isum, FIRST: int, LAST: int, FMT: str, M: int, SIGNED: bool):
    """As `isum_dots` for vectors of 4 lanes: two rows of weights times two of activations, two lines at once."""
    N = M // 2
    pairs = regs(vec[i32, 4], N * 8)
    for i in unroll(FIRST, LAST, 2):
        q = tuple(two_rows(x, 2 * m, i) for m in range(N))
        for h in unroll(4):
            first = bitcast(line(w, i, h * 16, FMT, 16, SIGNED, False), vec[u32, 4])
            second = bitcast(line(w, i + 1, h * 16, FMT, 16, SIGNED, False), vec[u32, 4])
            for part in unroll(2):
                eight = shuffle(first, second, (0, 4, 1, 5) if part == 0 else (2, 6, 3, 7))
                for m in unroll(N):
                    k = (m * 4 + h) * 2 + part
                    pairs[k] = dot8(pairs[k], bitcast(eight, vec[i8 if SIGNED else u8, 16]), q[m])
    for m in unroll(N):
        for h in unroll(4):
            k = (m * 4 + h) * 2
            for row in unroll(2):
                at = (2 * m + row) * 4 + h
                isum[at] = isum[at] + shuffle(pairs[k], pairs[k + 1], (0, 2, 4, 6) if row == 0 else (1, 3, 5, 7))


@inline
def two_rows(x: ptr[i8], m: int, i: int):
    """Eight activations of rows m and m + 1, from line i on."""
    one = load(cast(x + (m * GROUP + i * 4), ptr[u64]))
    other = load(cast(x + ((m + 1) * GROUP + i * 4), ptr[u64]))
    return bitcast(insert(splat(one, 2), 1, other), vec[i8, 16])


@inline
def add_group(w, scales, supers, x, d, s, s_stride, sums, FMT: str, M: int, W: int, SIGNED: bool, TABLES: bool):
    """sums[m * H + h] += v_g of one group for M rows. x, d, s: the group's activations, scales and sums of M rows.

    TABLES: x is the group's tables of the only row.
    """
    H = 16 // W
    isum = regs(vec[i32, W], M * H)
    second = isum
    BIAS = integers_of(FMT).offset if SIGNED else integers_of(FMT).bias
    APART = M * H <= 4 and raw_shift(FMT) != 0
    LEFT = 3 if APART else 0
    for m in unroll(M):
        for h in unroll(H):
            isum[m * H + h] = splat(bias_of(s, m, s_stride, 0, FMT, BIAS), W)
    if TABLES:
        sums_of_fours(w, x, isum)
    elif sums_of_halves(FMT):
        second = regs(vec[i32, W], M * H)
        for m in unroll(M):
            for h in unroll(H):
                second[m * H + h] = splat(bias_of(s, m, s_stride, 1, FMT, BIAS), W)
        if APART:
            two_sums(w, x, isum, second, FMT, M, W)
        else:
            isum_dots(w, x, isum, 0, 4, FMT, M, W, SIGNED)
            isum_dots(w, x, second, 4, 8, FMT, M, W, SIGNED)
    else:
        # Few sums: two chains for each keep the dot products' latency from being what a group takes.
        if APART:
            two_sums(w, x, isum, second, FMT, M, W)
        elif M * H <= 4:
            other = regs(vec[i32, W], M * H)
            isum_dots(w, x, isum, 0, 4, FMT, M, W, SIGNED)
            isum_dots(w, x, other, 4, 8, FMT, M, W, SIGNED)
            for i in unroll(M * H):
                isum[i] = isum[i] + other[i]
        else:
            isum_dots(w, x, isum, 0, 8, FMT, M, W, SIGNED)
    for h in unroll(H):
        factors = group_factors(scales, supers, h * W, FMT, W)
        for m in unroll(M):
            dx = splat(load(d, m), W)
            total = activation_sums(s, m, s_stride, W, FMT)
            k = m * H + h
            sums[k] = sums[k] + group_value(factors, isum[k], second[k], dx, total, FMT, LEFT)


@inline
def tile_rows(
    tile: ptr[u8], following: ptr[u8], fresh, x, d, s, s_stride, block, groups, sums, FMT: str, M: int, W: int,
    AHEAD: Ahead, SIGNED: bool, TABLES: bool,
):  # fmt: skip
    """The sums of one tile for M rows of a block of `block` rows; a constant one makes all strides constants.

    following: the tile that comes next. fresh: whether to ask for weights ahead, up to there; those that other rows
    have just met are in a cache, and a prefetch takes as long as a load. Where AHEAD is 0, each line is asked
    for behind the one before it, so that the processor sees a stream. TABLES: see `add_group`.
    """
    TILE = tile_of(FMT)
    w: ptr[u8] = weights_of(tile, groups, FMT)
    # The last groups ask for the first ones of the next tile.
    DISTANCE = AHEAD.one if M == 1 else AHEAD.several
    AHEAD_GROUPS = max(1, DISTANCE // TILE.group)
    turn: i32 = groups - AHEAD_GROUPS
    if turn < 0:
        turn = 0
    turn_at = w + turn * TILE.group
    next_w = weights_of(following, groups, FMT)
    beyond = i64(cast(next_w, u64)) - i64(cast(turn_at, u64))
    if TILE.super_scales:
        head = following if DISTANCE > 0 else tile  # the line before it was the last tile's last one
        for at in range(i64(0), i64(cast(next_w, u64)) - i64(cast(following, u64)), 64):
            prefetch(head, at)
    N = M * (16 // W)
    aside = array(f32, 8 * N * W, zero=False)
    EACH = TABLE_BYTES if TABLES else GROUP
    xv: ptr[u8 if TABLES else i8] = x
    dv: ptr[f32] = d
    sv: ptr[i32] = s
    for q in range(8):
        # Lanes l, l + 16, l + 8, l + 24: the tree adds the first two, the last two, then both.
        first = lane_of(q * 4)
        for i in unroll(N):
            sums[i] = zeros(vec[f32, W])
        # Short rows leave whole quartets of lanes empty.
        if first < groups:
            for half in range(2):
                for r in unroll(2):
                    one = regs(vec[f32, W], N)
                    group: i32 = lane_of(q * 4 + half * 2 + r)
                    while group < groups:
                        if fresh:
                            if DISTANCE > 0:
                                distance = i64(AHEAD_GROUPS * TILE.group)
                                if cast(w, u64) >= cast(turn_at, u64):
                                    distance = beyond
                                ask_for(w, distance, TILE.group, AHEAD, M)
                            elif in_planes(FMT):
                                ask_for(w, 0, TILE.group, AHEAD, M)
                        supers = tile + supers_at(group, FMT)
                        add_group(w, w + TILE.weights, supers, xv, dv, sv, s_stride, one, FMT, M, W, SIGNED, TABLES)
                        group += TREE_LANES
                        w = w + TILE.group
                        xv = xv + block * EACH
                        dv = dv + block
                        sv = sv + block * sums_step(FMT)
                    for i in unroll(N):
                        if r == 0:
                            sums[i] = one[i]
                        else:
                            sums[i] = sums[i] + one[i]
                # Kept in memory: registers are for the sums of the groups under way.
                if half == 0:
                    put_aside(q, sums, aside, N, W)
            for i in unroll(N):
                sums[i] = load(aside, (q * N + i) * W, lanes=W, align=W * 4) + sums[i]
        put_aside(q, sums, aside, N, W)
    merge_lanes(sums, aside, N, W)


@inline
def one_row(
    tile: ptr[u8], following: ptr[u8], p: ptr[Pack], row: i32, out: ptr[f32], FMT: str, W: int, AHEAD: Ahead,
    TABLES: bool,
):  # fmt: skip
    """A tile's sums for a row of a pack in which it is a block by itself: f32[16] to `out`. TABLES: see `add_group`."""
    # With constant strides, addresses take half of the instructions.
    at = i64(row) * i64(p.n_groups)
    x = p.tables + at * TABLE_BYTES if TABLES else p.q + at * GROUP
    sums = regs(vec[f32, W], 16 // W)
    tile_rows(
        tile, following, True, x, p.d + at, sums_at(p, at, FMT), p.s_stride, 1, p.n_groups, sums, FMT, 1, W, AHEAD,
        signed_bytes(FMT), TABLES,
    )  # fmt: skip
    for h in unroll(16 // W):
        store(out, sums[h], h * W)


@inline
def tile_panel(
    tile: ptr[u8], following: ptr[u8], p: ptr[Pack], first: i32, n: i32, rows: i32, block: i32, out: ptr[f32],
    scratch, FMT: str, W: int, BLOCKS: tuple, AHEAD: Ahead, TILES: str, FEW: int, MANY: int, STRIDE: int,
):  # fmt: skip
    """A tile's sums for n rows of a pack, PANEL_ROWS at most, from row `first` on: f32[n, STRIDE], 16 each, to `out`.

    following: see `tile_rows`. rows: of all panels. block: rows of the pack's blocks. scratch: of `matrix_scratch`.
    TILES: "" for vectors alone; "amx" for matrix registers where 16 rows come together; "emulated" for the same path
    without them. FEW, MANY: see `matrix_blocks`.
    """
    SIGNED = signed_bytes(FMT)
    groups = p.n_groups
    if block == 1:
        if not rows_together(FMT):
            one_row(tile, following, p, first, out, FMT, W, AHEAD, False)
        elif not_null(p.tables):
            one_row(tile, following, p, first, out, FMT, W, AHEAD, True)
        else:
            one_row(tile, following, p, first, out, FMT, W, AHEAD, False)
    # Of a block of rows, and in it of those that are still to be done.
    start: i32 = 0
    if block == 1:
        start = n
    m: i32 = 0
    if plain_avx2():
        if n >= LEAST_ROWS:
            done = n & -4
            panel_rows(p, tile, first, done >> 2, block, out, STRIDE, FMT, 4, W, AHEAD)
            start = done & -BLOCK_ROWS
            m = done & (BLOCK_ROWS - 1)
    while start < n:
        here: i32 = n - start
        if here > block:
            here = block
        at = i64(first + start) * i64(groups)
        if TILES != "":
            if here == BLOCK_ROWS:
                m = matrix_blocks(
                    p, tile, scratch, first + start, n - start, rows, start == 0, out + start * STRIDE, STRIDE, FMT,
                    TILES, FEW, MANY, AHEAD,
                )  # fmt: skip
        for M in unroll(BLOCKS):
            while m + M <= here:
                sums = regs(vec[f32, W], M * (16 // W))
                tile_rows(
                    tile, following, start + m == 0, p.q + (at + i64(m)) * GROUP, p.d + (at + i64(m)),
                    sums_at(p, at + i64(m), FMT), p.s_stride, block, groups, sums, FMT, M, W, AHEAD, SIGNED, False,
                )  # fmt: skip
                for r in unroll(M):
                    for h in unroll(16 // W):
                        store(out, sums[r * (16 // W) + h], (start + m + r) * STRIDE + h * W)
                m += M
        if m > block:
            start += BLOCK_ROWS
        start += block
        m = 0


@kernel
def matmul(
    a: ptr[MatmulArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, W: int, BLOCKS: tuple, AHEAD: Ahead,
    TILES: str, FEW: int, MANY: int,
):  # fmt: skip
    """Units: tiles. BLOCKS: numbers of rows worked on at once, descending to 1. TILES, FEW, MANY: see `tile_panel`."""
    rows = live_rows(step, a.by_logit)
    block: i32 = rows
    if block > BLOCK_ROWS:
        block = BLOCK_ROWS
    scratch = matrix_scratch(FMT, TILES)
    results = array(f32, PANEL_ROWS * 16, zero=False)
    if TILES != "":
        if rows >= BLOCK_ROWS:
            tile_shapes(FMT, TILES)
    # A panel of rows stays in the second-level cache while this call's tiles pass by; they stay there for the next.
    for panel in range(0, rows, PANEL_ROWS):
        n: i32 = rows - panel
        if n > PANEL_ROWS:
            n = PANEL_ROWS
        for t in range(first, last):
            tile = a.w + i64(t) * a.tile_bytes
            tile_panel(
                tile, tile + a.tile_bytes, a.pack, panel, n, rows, block, results, scratch, FMT, W, BLOCKS, AHEAD,
                TILES, FEW, MANY, 16,
            )  # fmt: skip
            for r in range(n):
                sums = regs(vec[f32, W], 16 // W)
                for h in unroll(16 // W):
                    sums[h] = load(results, r * 16 + h * W, lanes=W)
                put_tile(a, sums, t, panel + r, 1, W)
    if TILES == "amx":
        if rows >= BLOCK_ROWS:
            tile_release()

"""Rows of activations times a tile in matrix registers, 16 or 32 rows at once; the same sums as `matmul.tile_rows`.

A product of 16 rows and 16 weight rows over a group of 32 columns is one instruction. Products go through memory to the
float arithmetic, batch after batch: sixteen of them, 16 KiB, are made while those of the batch before are summed up, so
that the two overlap and all of it stays in the first-level cache.

A batch holds whole lanes of the tree of docs/how/numerics.md where that is possible, as many as a power of two, which
are added up in registers four at a time; their sums wait in memory, a place for each level of the tree above. Longer
lanes take several batches. Weights are unpacked to signed bytes a group ahead: products then need no correction for a
bias.

Sums begin with their first value, not with +0.0 plus that: all that may differ is the sign of a zero, and adding +0.0
to the result makes it positive again.
"""

from __future__ import annotations

from zinc_rt.formats.decode import integers_of
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS
from zinc_rt.kernels.cpu.tile_registers import (
    ACCUMULATORS,
    ACTIVATIONS,
    WEIGHTS,
    clear,
    fetch,
    keep,
    multiply,
    register_bank,
    shape_registers,
)
from zinc_rt.kernels.cpu.tiles import Ahead, ask_for, lane_of
from zinc_rt.kernels.cpu.weights import (
    activation_sums,
    group_factors,
    group_value,
    line,
    sums_at,
    sums_of_halves,
    sums_step,
    supers_at,
    tile_of,
    weights_of,
)
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import array, bitcast, load, regs, splat, static_assert, store, unroll, zeros
from zinc_rt.lang.types import f32, i8, i32, i64, ptr, u8, vec
from zinc_rt.numerics import GROUP, TREE_LANES

TURNS = 4
"""Turns in which a batch is summed up and the next one made: four products each, and four rows of each block."""
PRODUCTS = TURNS * ACCUMULATORS
"""Of a batch, 1 KiB each."""
FOUR = 4
"""Lanes whose sums are added up in registers; more would be so much more code."""
LEVELS = TREE_LANES.bit_length()
SUMS = 2 * BLOCK_ROWS * 16
"""Of two blocks of rows, at each level of the tree."""


@inline
def matrix_scratch(FMT: str, TILES: str):
    """Memory for (registers, unpacked lines, products, factors, sums by level, sums of a lane under way)."""
    if TILES == "":
        return ()
    lines = array(i8, 2 * 512, zero=False)
    products = array(i32, 2 * PRODUCTS * 256, zero=False)
    factors = array(f32, 2 * PRODUCTS * 16 * integers_of(FMT).factors, zero=False)
    levels = array(f32, LEVELS * SUMS, zero=False)
    return register_bank(TILES), lines, products, factors, levels, array(f32, SUMS, zero=False)


@inline
def tile_shapes(FMT: str, TILES: str):
    """Make this thread's registers those of a format."""
    shape_registers(TILES, GROUP // 2 if sums_of_halves(FMT) else GROUP)


@inline
def unpack_group(w: ptr[u8], lines: ptr[i8], FMT: str):
    """A group's weights as eight lines of signed bytes."""
    F = integers_of(FMT)
    static_assert(
        F.integers[0] >= -128 and F.integers[1] <= 127,
        f"format {FMT}: matrix registers take integers from -128 to 127, not from {F.integers[0]} to {F.integers[1]}",
    )
    for i in unroll(8):
        store(lines, bitcast(line(w, i, 0, FMT, 64, False, False) - F.bias, vec[i8, 64]), i * 64)


@inline
def begin_products(
    scratch, state, i: i32, n: i32, half, w, x, x_block, tile, groups, fresh, FMT: str, TILES: str, R: int, AHEAD: Ahead
):
    """Four products, of the groups i, i + 1, … of the n of a batch, in registers; their factors in memory.

    state: the next group's place in the tile, its number, its lane's place in visiting order; moved on here. half: of
    the memory for batches. w: the tile's groups; x: the first block's activations, those of the next one x_block on.
    fresh: whether weights are asked for, AHEAD bytes ahead.
    """
    H = 2 if sums_of_halves(FMT) else 1
    COLUMNS = GROUP // H
    TILE = tile_of(FMT)
    F = integers_of(FMT).factors
    bank, lines, factors = scratch[0], scratch[1], scratch[3]
    for j in unroll(ACCUMULATORS // (R * H)):
        if i + j < n:
            place = state[0]
            at = w + i64(place) * TILE.group
            if fresh:
                ask_for(at, AHEAD.several, TILE.group, AHEAD, BLOCK_ROWS)
            for h in unroll(H):
                W = WEIGHTS + (j * H + h) % 2
                fetch(bank, W, lines + (((place & 1) << 9) + h * 256), 64, COLUMNS, TILES)
                for b in unroll(R):
                    X = ACTIVATIONS + ((j * H + h) % 2 if R == 1 else b)
                    T = (j * H + h) * R + b
                    clear(bank, T, TILES)
                    fetch(bank, X, x + (x_block * b + i64(place) * 512 + h * COLUMNS), GROUP, COLUMNS, TILES)
                    multiply(bank, T, X, W, COLUMNS, TILES)
            if place + 1 < groups:
                unpack_group(at + TILE.group, lines + (((place + 1) & 1) << 9), FMT)
            supers = tile + supers_at(state[1], FMT)
            values = group_factors(at + TILE.weights, supers, 0, FMT, 16)
            for k in unroll(F):
                store(factors, values[k], ((half * PRODUCTS + i + j) * F + k) * 16)
            next_group(state, groups)


@inline
def next_group(state, groups):
    """Move on in visiting order; lanes without groups are passed over."""
    state[0] = state[0] + 1
    state[1] = state[1] + TREE_LANES
    while state[1] >= groups and state[2] < TREE_LANES:
        state[2] = state[2] + 1
        state[1] = lane_of(state[2])


@inline
def keep_products(scratch, i: i32, n: i32, half, FMT: str, TILES: str, R: int):
    """What `begin_products` made, to memory."""
    H = 2 if sums_of_halves(FMT) else 1
    for j in unroll(ACCUMULATORS // (R * H)):
        if i + j < n:
            for t in unroll(R * H):
                keep(scratch[0], j * R * H + t, scratch[2] + (half * PRODUCTS + (i + j) * (R * H) + t) * 256, TILES)


@inline
def four_values(products, factors, d, s, s_stride, k: i32, FMT: str, R: int):
    """v_g of docs/how/numerics.md for four rows, of a batch's k-th group. All point to the first of the rows."""
    F = integers_of(FMT).factors
    H = 2 if sums_of_halves(FMT) else 1
    f = tuple(load(factors, (k * F + i) * 16, lanes=16) for i in range(F))
    values = regs(vec[f32, 16], 4)
    for m in unroll(4):
        isum = load(products, k * (R * H * 256) + m * 16, lanes=16)
        second = isum
        if H == 2:
            second = load(products, k * (R * H * 256) + (R * 256 + m * 16), lanes=16)
        total = activation_sums(s, i64(k * BLOCK_ROWS + m), s_stride, 16, FMT)
        values[m] = group_value(f, isum, second, splat(load(d, k * BLOCK_ROWS + m), 16), total, FMT, 0)
    return values


@inline
def lane_sums(sums, done, q: i32, groups: i32, products, factors, d, s, s_stride, FMT: str, R: int, LANES: int):
    """sums = those of LANES whole lanes, the q-th so many in visiting order, for four rows.

    done: groups of the batch that lanes before them had; theirs are added.
    """
    k: i32 = done[0]
    waiting = regs(vec[f32, 16], 4 * LANES.bit_length())
    for r in unroll(LANES):
        lane = lane_of(q * LANES + r)
        for m in unroll(4):
            sums[m] = zeros(vec[f32, 16])
        stop: i32 = k + ((groups - lane + (TREE_LANES - 1)) >> (TREE_LANES.bit_length() - 1))
        if k < stop:
            first = four_values(products, factors, d, s, s_stride, k, FMT, R)
            for m in unroll(4):
                sums[m] = first[m]
            k += 1
            while k < stop:
                more = four_values(products, factors, d, s, s_stride, k, FMT, R)
                for m in unroll(4):
                    sums[m] = sums[m] + more[m]
                k += 1
        # A binary counter: as many earlier sums are taken up as r ends with ones.
        ONES = (r ^ (r + 1)).bit_length() - 1
        for level in unroll(ONES):
            for m in unroll(4):
                sums[m] = waiting[level * 4 + m] + sums[m]
        for m in unroll(4):
            waiting[ONES * 4 + m] = sums[m]
    done[0] = k


@inline
def batch_sums(
    scratch, b: i32, row: i32, q: i32, n: i32, part: i32, ended, half, lanes: i32, groups: i32, d, s, s_stride,
    FMT: str, R: int,
):  # fmt: skip
    """Add a batch for four rows from `row` of block b, and merge it with those before when it ends its lanes.

    q: which lanes; n: its groups; part: those of the lane that came in batches before, where a lane has several. d, s:
    of its first group and the first row of block b.
    """
    F = integers_of(FMT).factors
    products = scratch[2] + (half * (PRODUCTS * 256) + b * 256 + row * 16)
    factors = scratch[3] + half * (PRODUCTS * 16 * F)
    levels, under_way = scratch[4], scratch[5]
    d = d + row
    s = s + row * sums_step(FMT)
    place = (b * BLOCK_ROWS + row) * 16
    sums = regs(vec[f32, 16], 4)
    if lanes == 1:
        if part != 0:
            for m in unroll(4):
                sums[m] = load(under_way, place + m * 16, lanes=16)
        for k in range(n):
            values = four_values(products, factors, d, s, s_stride, k, FMT, R)
            for m in unroll(4):
                sums[m] = sums[m] + values[m]
        if ended:
            merge(sums, levels, place, q)
        else:
            for m in unroll(4):
                store(under_way, sums[m], place + m * 16)
    else:
        done = regs(i32, 1)
        for LANES in unroll((2, FOUR)):
            if lanes == LANES if LANES < FOUR else lanes >= FOUR:
                for i in range(lanes >> (LANES.bit_length() - 1)):
                    u = q * (lanes >> (LANES.bit_length() - 1)) + i
                    lane_sums(sums, done, u, groups, products, factors, d, s, s_stride, FMT, R, LANES)
                    merge(sums, levels, place, u)


@inline
def merge(sums, levels, place: i32, q: i32):
    """Put the q-th sums of four rows where they wait, after adding up what waits for them: a binary counter."""
    at: i32 = place
    k: i32 = q
    while k & 1 != 0:
        for m in unroll(4):
            sums[m] = load(levels, at + m * 16, lanes=16) + sums[m]
        at += SUMS
        k = k >> 1
    for m in unroll(4):
        store(levels, sums[m], at + m * 16)


@inline
def groups_of(q: i32, groups: i32, shift: i32):
    """Groups of the q-th batch of lanes in visiting order, of 1 << shift: those are so many apart."""
    return (groups - lane_of(q << (TREE_LANES.bit_length() - 1 - shift)) + ((1 << shift) - 1)) >> shift


@inline
def matrix_rows(
    p, tile, scratch, start: i32, fresh, out: ptr[f32], stride: i32, FMT: str, TILES: str, R: int, AHEAD: Ahead
):
    """A tile for R blocks of 16 rows from row `start` of a pack: sums f32[16 R, stride] to `out`.

    fresh: whether to ask for weights ahead; see `matmul.tile_rows`.
    """
    H = 2 if sums_of_halves(FMT) else 1
    BATCH = PRODUCTS // (R * H)
    EACH = ACCUMULATORS // (R * H)
    groups = p.n_groups
    at = i64(start) * i64(groups)
    w: ptr[u8] = weights_of(tile, groups, FMT)
    x = p.q + at * GROUP
    d: ptr[f32] = p.d + at
    s: ptr[i32] = sums_at(p, at, FMT)
    block = i64(groups) * BLOCK_ROWS
    longest = (groups + (TREE_LANES - 1)) >> (TREE_LANES.bit_length() - 1)
    lanes: i32 = BATCH
    shift: i32 = TREE_LANES.bit_length() - BATCH.bit_length()
    while lanes > 1 and lanes * longest > BATCH:
        lanes = lanes >> 1
        shift += 1
    state = regs(i32, 3)
    unpack_group(w, scratch[1], FMT)
    # The batch under way: its lanes, the groups of them that came before, its groups, its place, its half of memory.
    q: i32 = 0
    part: i32 = 0
    n: i32 = 0
    place: i32 = 0
    half: i32 = 0
    begun: i32 = 0  # 0: there is none yet, and the first one is made
    while q < (1 << shift):
        next_q: i32 = q
        next_part: i32 = 0
        if begun != 0:
            next_part = part + n
            if next_part == groups_of(q, groups, shift):
                next_q = q + 1
                next_part = 0
        more: i32 = 0
        if next_q < (1 << shift):
            more = groups_of(next_q, groups, shift) - next_part
            if more > BATCH:
                more = BATCH
        other = half ^ 1
        for turn in range(TURNS):
            begin_products(
                scratch, state, turn * EACH, more, other, w, x, block * GROUP, tile, groups, fresh, FMT, TILES, R, AHEAD
            )
            if begun != 0:
                for b in range(R):
                    here = block * i64(b) + i64(place) * BLOCK_ROWS
                    batch_sums(
                        scratch, b, turn * 4, q, n, part, next_q != q, half, lanes, groups, d + here,
                        s + here * sums_step(FMT), p.s_stride, FMT, R,
                    )  # fmt: skip
            keep_products(scratch, turn * EACH, more, other, FMT, TILES, R)
        place += n
        q = next_q
        part = next_part
        n = more
        half = other
        begun = 1
    level: i32 = shift
    if lanes > FOUR:
        level = TREE_LANES.bit_length() - FOUR.bit_length()
    for m in range(R * BLOCK_ROWS):
        store(out, load(scratch[4], level * SUMS + m * 16, lanes=16) + 0.0, m * stride)


@inline
def matrix_blocks(
    p, tile, scratch, start: i32, left: i32, rows: i32, fresh, out: ptr[f32], stride: i32, FMT: str, TILES: str,
    FEW: int, MANY: int, AHEAD: Ahead,
):  # fmt: skip
    """As `matrix_rows`, for the next rows of a panel that has `left`: how many were worked on; 0: vectors take them.

    rows: of all panels. FEW, MANY: how many blocks of 16 rows are worked on at once, 0, 1 or 2, in products of fewer
    than 32 rows and of more. A block that has no partner goes as those of few rows do.
    """
    done: i32 = 0
    many = rows >= 2 * BLOCK_ROWS
    if MANY == 2:
        if many and left >= 2 * BLOCK_ROWS:
            matrix_rows(p, tile, scratch, start, fresh, out, stride, FMT, TILES, 2, AHEAD)
            done = 2 * BLOCK_ROWS
    if FEW == 1 or MANY == 1:
        alone = left >= BLOCK_ROWS and done == 0
        if FEW != 1:
            alone = alone and many
        if MANY == 0:
            alone = alone and not many
        if alone:
            matrix_rows(p, tile, scratch, start, fresh, out, stride, FMT, TILES, 1, AHEAD)
            done = BLOCK_ROWS
    return done

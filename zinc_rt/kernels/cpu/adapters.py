"""Products of low rank that adapters add, a choice of adapters for each row.

A use is an adapter of a row (or of a row with one of its experts). `order` lists a step's uses by their adapter, once
for all operations, so that each matrix is read once for all rows that have it. As a row's adapters stand in rising
order, going through the uses adds them in the order of the row.

The tree over the 32 lanes of `LORA_A` is cut into four parts, for as many threads: part c has the lanes c, c + 4, ...,
which its first three levels add. `LORA_B` does the other two.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.packs import load_some, not_null, store_some
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, cast, fma, load, minimum, prefetch, regs, splat, store, unroll
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, struct, u8, u32, vec
from zinc_rt.numerics import GROUP, TREE_LANES

QUARTERS = 4
"""Parts of the tree."""
RANKS = 16
"""Elements of t of a unit: room for ranks is a multiple of it."""
COLUMNS = 128
"""Elements of y of a unit."""


@struct
class OrderArgs:
    """adapters: i32[rows, depth]. order: the uses by adapter, then -1."""

    adapters: ptr[i32]
    order: ptr[i32]  # [rows * depth + 1]
    depth: i32
    n_adapters: i32


@struct
class LoraArgs:
    """The operands of both operations; null where one has not got them.

    x: rows of n_in elements, or of n_used times as many; with `ids` of a lookup, none. m: elements of t for a use, r
    for each pair. a: [adapter][expert][m / 16, n_in, 16]; b: [adapter][expert][n_out / 16, r, 16]. quarters: t before
    the tree's last levels, f32[use, QUARTERS, m].
    """

    x: ptr[f32]
    a: ptr[u8]
    b: ptr[u8]
    pairs: ptr[f32]  # [pairs, n_adapters, 2]: rank, factor
    adapters: ptr[i32]
    scales: ptr[f32]
    order: ptr[i32]
    wanted: ptr[i32]  # rows whose logits are wanted
    ids: ptr[i32]  # experts of rows, or token ids; without them the j-th part of a row has the j-th matrix
    weights: ptr[f32]  # of experts
    quarters: ptr[f32]
    base: ptr[f32]
    y: ptr[f32]
    n_in: i32
    n_out: i32
    m: i32
    r: i32
    pair: i32  # the first one
    start: i32  # of its elements in t
    depth: i32  # adapters of a row at the most
    n_adapters: i32
    n_used: i32  # experts of a row
    n_experts: i32
    x_used: i32  # rows of x for each row of the step: 1 or n_used


@inline
def kept(p: ptr[u8], at: i64, HALF: bool, W: int):
    """W numbers of a matrix as f32."""
    if HALF:
        return f32(load(cast(p, ptr[f16]), at, lanes=W))
    return load(cast(p, ptr[f32]), at, lanes=W)


@inline
def rank_of(a: ptr[LoraArgs], pair: i32, adapter: i32):
    return i32(a.pairs[(i64(pair) * i64(a.n_adapters) + i64(adapter)) * 2])


@kernel
def order(a: ptr[OrderArgs], step: ptr[StepRecord], first: i32, last: i32):
    """One unit."""
    n = step.n_rows * a.depth
    found: i32 = 0
    for adapter in range(a.n_adapters):
        for use in range(n):
            if a.adapters[use] == adapter:
                a.order[found] = use
                found += 1
    a.order[found] = -1


@inline
def part_of_tree(x, rows, tile: ptr[u8], n: i32, c: i32, out, HALF: bool, M: int, W: int):
    """out[row, 16] = part c of the trees of M rows of x, for a tile of n rows. rows: where those of x begin."""
    H = RANKS // W
    L = max(1, (8 if W == 16 else 4) // M)  # lanes at once: as many chains as hide a chain's delay
    lanes = array(f32, 8 * M * RANKS, zero=False)
    for block in range(0, 8, L):
        sums = regs(vec[f32, W], L * M * H)
        group: i32 = c + block * QUARTERS
        while group * GROUP < n:
            chain = regs(vec[f32, W], L * M * H)
            begin: i32 = group * GROUP
            if begin + (L - 1) * QUARTERS * GROUP + GROUP <= n:
                for i in range(begin, begin + GROUP):
                    for lane in unroll(L):
                        at = i64(i + lane * (QUARTERS * GROUP))
                        for h in unroll(H):
                            w = kept(tile, at * RANKS + h * W, HALF, W)
                            for row in unroll(M):
                                k = (lane * M + row) * H + h
                                chain[k] = fma(w, splat(load(x, rows[row] + at), W), chain[k])
                for k in unroll(L * M * H):
                    sums[k] = sums[k] + chain[k]
            else:
                for lane in unroll(L):
                    first: i32 = begin + lane * (QUARTERS * GROUP)
                    end = minimum(first + GROUP, n)
                    for i in range(first, end):
                        for h in unroll(H):
                            w = kept(tile, i64(i) * RANKS + h * W, HALF, W)
                            for row in unroll(M):
                                k = (lane * M + row) * H + h
                                chain[k] = fma(w, splat(load(x, rows[row] + i64(i)), W), chain[k])
                    for k in unroll(M * H):
                        sums[lane * M * H + k] = sums[lane * M * H + k] + chain[lane * M * H + k]
            group += TREE_LANES
        for k in unroll(L * M * H):
            store(lanes, sums[k], block * M * RANKS + k * W)
    N = M * RANKS
    for at in range(0, N, W):
        part = tuple(load(lanes, lane * N + at, lanes=W) for lane in range(8))
        pairs = tuple(part[i] + part[i + 4] for i in range(4))
        store(out, (pairs[0] + pairs[2]) + (pairs[1] + pairs[3]), at)


@inline
def row_of(a: ptr[LoraArgs], use: i32):
    """The row of a use, without experts."""
    return i32(u32(use) // u32(a.depth))


@inline
def run_of(a: ptr[LoraArgs], order: ptr[i32]):
    """How many uses from here on are of one adapter; there is at least one."""
    adapter = a.adapters[order[0]]
    n: i32 = 1
    while order[n] >= 0 and a.adapters[order[n]] == adapter:
        n += 1
    return n


@inline
def fetch_part(tile: ptr[u8], n: i32, c: i32, SIZE: int):
    """Ask for the rows of a tile that part c of the tree reads."""
    for group in range(c, i32(u32(n + (GROUP - 1)) // GROUP), QUARTERS):
        for at in unroll(0, GROUP * RANKS * SIZE, 64):
            prefetch(tile, i64(group) * (GROUP * RANKS * SIZE) + at)


@inline
def fetch(p: ptr[u8], n_bytes: i64):
    """Ask for a stretch of memory."""
    for at in range(i64(0), n_bytes, 64):
        prefetch(p, at)


@kernel
def lora_a(a: ptr[LoraArgs], step: ptr[StepRecord], first: i32, last: i32, HALF: bool, W: int, BLOCKS: tuple):
    """Units: (16 elements of t, part of the tree), for all rows of the step. BLOCKS: rows at once, descending to 1."""
    SIZE = 2 if HALF else 4
    part = array(f32, max(BLOCKS) * RANKS, zero=False)
    of_tile = i64(a.n_in) * (RANKS * SIZE)
    of_adapter = i64(u32(a.m) // RANKS) * of_tile
    for u in range(first, last):
        number = u >> 2
        tile = number * RANKS
        c = u & (QUARTERS - 1)
        pair = i32(u32(tile) // u32(a.r))
        tiles = a.a + i64(number) * of_tile
        order: ptr[i32] = a.order
        while order[0] >= 0:
            adapter = a.adapters[order[0]]
            n = run_of(a, order)
            if order[n] >= 0:  # while this one is computed, the next adapter's comes
                fetch_part(tiles + i64(a.adapters[order[n]]) * of_adapter, a.n_in, c, SIZE)
            if tile - pair * a.r < rank_of(a, a.pair + pair, adapter):
                matrix = tiles + i64(adapter) * of_adapter
                done: i32 = 0
                for M in unroll(BLOCKS):
                    while done + M <= n:
                        rows = tuple(i64(row_of(a, order[done + i])) * i64(a.n_in) for i in range(M))
                        part_of_tree(a.x, rows, matrix, a.n_in, c, part, HALF, M, W)
                        for i in unroll(M):
                            at = (i64(order[done + i]) * QUARTERS + i64(c)) * i64(a.m) + i64(tile)
                            for j in unroll(0, RANKS, W):
                                store(a.quarters, load(part, i * RANKS + j, lanes=W), at + j)
                        done += M
            order = order + n


@kernel
def lora_a_each(a: ptr[LoraArgs], step: ptr[StepRecord], first: i32, last: i32, HALF: bool, W: int):
    """The same one use after another: of wanted rows, of rows with their experts, or of rows of a table."""
    SIZE = 2 if HALF else 4
    of_tile = i64(a.n_in) * (RANKS * SIZE)
    of_expert = i64(u32(a.m) // RANKS) * of_tile
    rows: i32 = step.n_rows
    if not_null(a.wanted):
        rows = step.n_logits
    for u in range(first, last):
        tile = (u >> 2) * RANKS
        c = u & (QUARTERS - 1)
        pair = i32(u32(tile) // u32(a.r))
        for row in range(rows):
            source: i32 = row
            if not_null(a.wanted):
                source = a.wanted[row]
            for j in range(a.n_used):
                for k in range(a.depth):
                    adapter = a.adapters[source * a.depth + k]
                    live: i32 = 0
                    if adapter >= 0:
                        live = rank_of(a, a.pair + pair, adapter)
                    if tile - pair * a.r < live:
                        use = (row * a.n_used + j) * a.depth + k
                        to = a.quarters + ((i64(use) * QUARTERS + i64(c)) * i64(a.m) + i64(tile))
                        matrix = a.a + (i64(adapter) * i64(a.n_experts) * of_expert + i64(u >> 2) * of_tile)
                        if a.x_used == 0:  # a lookup: the row of the token
                            for i in unroll(0, RANKS, W):
                                v: vec[f32, W] = 0.0
                                if c == 0:
                                    v = kept(matrix, i64(a.ids[row]) * RANKS + i, HALF, W)
                                store(to, v, i)
                        else:
                            if not_null(a.ids):
                                matrix = matrix + i64(a.ids[row * a.n_used + j]) * of_expert
                            else:
                                matrix = matrix + i64(j) * of_expert
                            place: i64 = i64(source)
                            if a.x_used > 1:
                                place = i64(source * a.x_used + j)
                            part_of_tree(a.x, (place * i64(a.n_in),), matrix, a.n_in, c, to, HALF, 1, W)


@inline
def whole_tree(a: ptr[LoraArgs], use: i32, t, rank: i32, W: int):
    """t[rank] of a use, up to a whole number of vectors."""
    q = a.quarters + (i64(use) * QUARTERS * i64(a.m) + i64(a.start))
    m = a.m
    for i in range(0, rank, W):
        two = load(q, i, lanes=W) + load(q, i + 2 * m, lanes=W)
        store(t, two + (load(q, i + m, lanes=W) + load(q, i + 3 * m, lanes=W)), i)


@inline
def column_sums(a: ptr[LoraArgs], matrix: i64, column: i32, t, rank: i32, HALF: bool, M: int, C: int, W: int, R: int):
    """C vectors of columns of t B for M rows, as a tuple. matrix: the element of `a.b` where B begins; t: f32[M, R]."""
    groups = array(f32, TREE_LANES * M * C * W, zero=False)
    of_tile = i64(a.r) * RANKS
    n: i32 = 0
    for start in range(0, rank, GROUP):
        chain = regs(vec[f32, W], M * C)
        at: i64 = matrix + (i64(u32(column) // RANKS) * of_tile + i64(start * RANKS + (column & (RANKS - 1))))
        for i in range(start, minimum(start + GROUP, rank)):
            for k in unroll(C):
                w = kept(a.b, at + ((k * W) // RANKS * of_tile + (k * W) % RANKS), HALF, W)
                for row in unroll(M):
                    chain[row * C + k] = fma(w, splat(load(t, i + row * R), W), chain[row * C + k])
            at = at + RANKS
        for k in unroll(M * C):
            store(groups, chain[k] + splat(f32(0.0), W), (n * (M * C) + k) * W)
        n += 1
    distance: i32 = TREE_LANES // 2
    while distance > 0:
        for i in range((n - distance) * (M * C)):
            near = load(groups, i * W, lanes=W)
            store(groups, near + load(groups, (i + distance * (M * C)) * W, lanes=W), i * W)
        n = minimum(n, distance)
        distance = distance >> 1
    return tuple(load(groups, k * W, lanes=W) for k in range(M * C))


@inline
def add_scaled(
    a: ptr[LoraArgs], rows, matrix: i64, begin: i32, end: i32, t, rank: i32, scales, HALF: bool, M: int, W: int, R: int,
):  # fmt: skip
    """y[begin .. end - 1] += scale * (t B) for M rows. rows: where those of y begin."""
    by = tuple(splat(scales[row], W) for row in range(M))
    C = max(1, (8 if W == 16 else 4) // (M // 2 if M > 1 else 1))  # as many chains as there are registers for
    column: i32 = begin
    while column + C * W <= end:
        v = column_sums(a, matrix, column, t, rank, HALF, M, C, W, R)
        for row in unroll(M):
            y = a.y + rows[row]
            for k in unroll(C):
                store(y, load(y, column + k * W, lanes=W) + by[row] * v[row * C + k], column + k * W)
        column += C * W
    while column < end:
        v = column_sums(a, matrix, column, t, rank, HALF, M, 1, W, R)
        for row in unroll(M):
            y = a.y + rows[row]
            store_some(y, load_some(y, column, a.n_out, W) + by[row] * v[row], column, a.n_out, W)
        column += W


@inline
def copy_row(a: ptr[LoraArgs], row: i32, begin: i32, end: i32, W: int):
    """Columns of a row as they are without adapters."""
    at_row = i64(row) * i64(a.n_out)
    for at in range(begin, end, W):
        store_some(a.y + at_row, load_some(a.base + at_row, at, a.n_out, W), at, a.n_out, W)


@inline
def scale_of(a: ptr[LoraArgs], use: i32, adapter: i32):
    """The row's scale of the adapter times the factor of the pair."""
    return a.scales[use] * a.pairs[(i64(a.pair) * i64(a.n_adapters) + i64(adapter)) * 2 + 1]


@kernel
def lora_b(a: ptr[LoraArgs], step: ptr[StepRecord], first: i32, last: i32, HALF: bool, W: int, R: int, BLOCKS: tuple):
    """Units: COLUMNS elements of y, for all rows of the step. R: room for a rank; BLOCKS: rows at once."""
    SIZE = 2 if HALF else 4
    t = array(f32, max(BLOCKS) * R, zero=False)
    of_tile = i64(a.r) * RANKS
    of_adapter = i64(u32(a.n_out + (RANKS - 1)) // RANKS) * of_tile
    for u in range(first, last):
        begin = u * COLUMNS
        end = minimum(begin + COLUMNS, a.n_out)
        for row in range(step.n_rows):
            copy_row(a, row, begin, end, W)
        own = i64(u * (COLUMNS // RANKS)) * of_tile
        n_bytes = i64(u32(end - begin + (RANKS - 1)) // RANKS) * of_tile * SIZE
        order: ptr[i32] = a.order
        while order[0] >= 0:
            adapter = a.adapters[order[0]]
            n = run_of(a, order)
            if order[n] >= 0:
                fetch(a.b + (i64(a.adapters[order[n]]) * of_adapter + own) * SIZE, n_bytes)
            rank = rank_of(a, a.pair, adapter)
            if rank > 0:
                done: i32 = 0
                for M in unroll(BLOCKS):
                    while done + M <= n:
                        for i in unroll(M):
                            whole_tree(a, order[done + i], t + i * R, rank, W)
                        rows = tuple(i64(row_of(a, order[done + i])) * i64(a.n_out) for i in range(M))
                        scales = tuple(scale_of(a, order[done + i], adapter) for i in range(M))
                        matrix = i64(adapter) * of_adapter
                        add_scaled(a, rows, matrix, begin, end, t, rank, scales, HALF, M, W, R)
                        done += M
            order = order + n


@kernel
def lora_b_each(
    a: ptr[LoraArgs], step: ptr[StepRecord], first: i32, last: i32, HALF: bool, SUMMED: bool, W: int, R: int,
):  # fmt: skip
    """Units: COLUMNS elements of y, or of each expert's, one use after another. SUMMED: y is the experts' sum."""
    t = array(f32, R, zero=False)
    total = array(f32, COLUMNS)
    of_expert = i64(u32(a.n_out + (RANKS - 1)) // RANKS) * (i64(a.r) * RANKS)
    rows: i32 = step.n_rows
    if not_null(a.wanted):
        rows = step.n_logits
    lines: i32 = a.n_used
    if SUMMED:
        lines = 1
    for u in range(first, last):
        begin = u * COLUMNS
        end = minimum(begin + COLUMNS, a.n_out)
        for row in range(rows):
            source: i32 = row
            if not_null(a.wanted):
                source = a.wanted[row]
            for j in range(lines):
                copy_row(a, row * lines + j, begin, end, W)
            for k in range(a.depth):
                adapter = a.adapters[source * a.depth + k]
                rank: i32 = 0
                if adapter >= 0:
                    rank = rank_of(a, a.pair, adapter)
                if rank > 0:
                    scale = scale_of(a, source * a.depth + k, adapter)
                    for at in range(0, COLUMNS, W):
                        store(total, splat(f32(0.0), W), at)
                    for j in range(a.n_used):
                        place = row * a.n_used + j
                        whole_tree(a, place * a.depth + k, t, rank, W)
                        matrix: i64 = i64(adapter) * i64(a.n_experts) * of_expert
                        if not_null(a.ids):
                            matrix = matrix + i64(a.ids[place]) * of_expert
                        else:
                            matrix = matrix + i64(j) * of_expert
                        if SUMMED:
                            weight = splat(a.weights[place], W)
                            for column in range(begin, end, W):
                                v = column_sums(a, matrix, column, t, rank, HALF, 1, 1, W, R)
                                at = column - begin
                                store(total, fma(weight, v[0], load(total, at, lanes=W)), at)
                        else:
                            row_at = i64(place) * i64(a.n_out)
                            add_scaled(a, (row_at,), matrix, begin, end, t, rank, (scale,), HALF, 1, W, R)
                    if SUMMED:
                        y = a.y + i64(row) * i64(a.n_out)
                        for column in range(begin, end, W):
                            v = splat(scale, W) * load(total, column - begin, lanes=W)
                            store_some(y, load_some(y, column, a.n_out, W) + v, column, a.n_out, W)

"""Activations on their way into matrix products: norms, SwiGLU, and packing as int8 or float groups."""

from __future__ import annotations

from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, LEAST_ROWS
from zinc_rt.kernels.cpu.lookups import TABLE_BYTES, store_tables
from zinc_rt.kernels.cpu.structs import (
    BIASES,
    CROSSED,
    EIGHTH_WORDS,
    EIGHTHS,
    HALF_BIAS,
    HALF_SUMS,
    PLAIN_SUM,
    NormArgs,
    Pack,
    PackArgs,
    StepRecord,
)
from zinc_rt.kernels.cpu.tiles import live_rows
from zinc_rt.kernels.maths import INFINITY, MAGIC, MAGIC_BITS, gated
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    add_pairs,
    array,
    bitcast,
    cast,
    concat,
    dot4,
    fma,
    high,
    lanes,
    load,
    low,
    maximum,
    minimum,
    reduce_add,
    reduce_max,
    regs,
    shuffle,
    splat,
    sqrt,
    store,
    table,
    unroll,
    zeros,
)
from zinc_rt.lang.types import f32, i8, i16, i32, i64, ptr, u8, u32, u64, vec
from zinc_rt.numerics import GROUP, GROUP_SHIFT, MIN_NORMAL, NORM_LANES, QUANT_MAX


@inline
def not_null(p):
    """Whether a pointer points anywhere."""
    return cast(p, u64) != 0


@inline
def pack_group(p: ptr[Pack], v, row: i32, rows: i32, group: i32, W: int):
    """Store one group of 32 (GROUP // W vectors) of a packed row: int8 with scale and sums, and floats, as wanted."""
    block: i32 = rows
    if block > BLOCK_ROWS:
        block = BLOCK_ROWS
    start = row & -BLOCK_ROWS
    store_group(p, v, start, row - start, block, group, W)


@inline
def store_group(p: ptr[Pack], v, start: i32, inside: i32, block: i32, group: i32, W: int):
    """The same for a row by its place: the first row of its block, the row in the block, the rows of the block."""
    N = GROUP // W
    place = p.visit[group]
    at = i64(start) * i64(p.n_groups) + i64(place) * i64(block) + i64(inside)
    if not_null(p.q):
        d = group_scale(v, W)
        q: vec[i8, GROUP] = 0
        if d > 0.0 and d < INFINITY:
            inverse = splat(one_over(d), W)
            q = i8(joined(tuple(nearest(v[i] * inverse) for i in range(N)), N))
        store(p.q + at * GROUP, q)
        p.d[at] = d
        if p.sums != 0:
            store_sums(p, q, at)
        if block >= LEAST_ROWS:
            if not_null(p.words):
                store_words(p.words + at * GROUP, q)
                products = add_pairs(zeros(vec[i32, 8]), columns(q, 0), columns(q, 1))
                p.s[p.s_stride * CROSSED + at] = 0 - reduce_add(products)
        if block == 1:
            if not_null(p.tables):
                store_tables(p.tables + at * TABLE_BYTES, q)
    if not_null(p.f):
        buffer = array(f32, GROUP, zero=False)
        for i in unroll(N):
            store(buffer, v[i], i * W)
        f = p.f + (i64(start) * i64(p.n_groups) + i64(place) * i64(block)) * GROUP + i64(inside)
        for k in range(GROUP):
            f[i64(k) * i64(block)] = buffer[k]


@inline
def columns(bytes, ODD: int):
    """The even or the odd ones of signed bytes, as words."""
    words = bitcast(bytes, vec[i16, lanes(bytes) // 2])
    return words >> 8 if ODD else words << 8 >> 8


@inline
def store_words(words: ptr[i16], q):
    """A group's integers as words: even columns, then odd ones."""
    for odd in unroll(2):
        store(words, columns(q, odd), odd * (GROUP // 2))


@inline
def joined(v, N: int):
    """A tuple of N vectors as one; N: 2, 4 or 8."""
    two = tuple(concat(v[i], v[i + 1]) for i in range(0, N, 2))
    four = tuple(concat(two[i], two[i + 1]) for i in range(0, N // 4 * 2, 2))
    if N == 8:
        return concat(four[0], four[1])
    return four[0] if N == 4 else two[0]


@inline
def store_sums(p: ptr[Pack], q, at: i64):
    """Those sums of a group that products read. q: its 32 integers; at: where they go."""
    wanted = p.sums
    # From the register: what was stored in other pieces cannot be loaded before it has reached the cache.
    ones: vec[u8, GROUP] = 1
    sums = dot4(zeros(vec[i32, 8]), ones, q, a_max=1)
    s0 = reduce_add(low(sums))
    s1 = reduce_add(high(sums))
    total = s0 + s1
    s = p.s + at
    stride = p.s_stride
    if wanted & (1 << PLAIN_SUM) != 0:
        s[stride * PLAIN_SUM] = bitcast(f32(total), i32)
    for i in unroll(len(BIASES)):
        if wanted & (2 << i) != 0:
            s[stride * (1 + i)] = total * -BIASES[i]
    if wanted & (1 << HALF_SUMS[0]) != 0:
        s[stride * HALF_SUMS[0]] = s0 * -HALF_BIAS
        s[stride * HALF_SUMS[1]] = s1 * -HALF_BIAS
    if wanted & (1 << EIGHTHS) != 0:
        eights = sums + shuffle(sums, (1, 0, 3, 2, 5, 4, 7, 6))
        first, others = shuffle(eights, (0, 0, 0, 0, 4, 4, 4, 4)), shuffle(eights, (2, 2, 2, 2, 6, 6, 6, 6))
        pairs = bitcast(i16(shuffle(0 - first, 0 - others, (0, 8, 4, 12, 0, 8, 4, 12))), vec[i16, 8])
        pairs = pairs + shuffle(pairs, zeros(vec[i16, 8]), (8, 8, 8, 8, 2, 3, 8, 8))
        first = first * load(table(i32, (-9, -7) * 4), lanes=8)
        others = others * load(table(i32, (-9, -9, -7, -7) * 2), lanes=8)
        entries = bitcast(i16(first + others), vec[u8, 16])
        words = p.s + (stride * EIGHTHS + at * EIGHTH_WORDS)
        store(words, bitcast(pairs, vec[i32, 4]))
        store(words, bitcast(shuffle(entries, tuple(p % 8 * 2 + p // 8 for p in range(16))), vec[i32, 4]), 4)


@inline
def group_scale(v, W: int):
    """The scale of 32 elements as int8; NaN where any is."""
    # As integers, sizes compare like numbers, and NaN is above infinity.
    biggest = bitcast(v[0], vec[u32, W]) & 0x7FFFFFFF
    for i in unroll(1, GROUP // W):
        biggest = maximum(biggest, bitcast(v[i], vec[u32, W]) & 0x7FFFFFFF)
    d: f32 = bitcast(reduce_max(biggest), f32) / QUANT_MAX
    if d < MIN_NORMAL:
        d = 0.0
    return d


@inline
def nearest(x):
    """The nearest integer of f32 lanes below 2^22, ties to even."""
    return bitcast(x + MAGIC, vec[i32, lanes(x)]) - MAGIC_BITS


@inline
def one_over(d: f32):
    """1 / d, correctly rounded."""
    one: f32 = 1.0
    return one / d


@inline
def load_some(x: ptr[f32], at: i32, n: i32, W: int):
    """W floats from x[at], zeros from x[n] on."""
    v: vec[f32, W] = 0.0
    if at + W <= n:
        v = load(x, at, lanes=W)
    else:
        buffer = array(f32, W, zero=False)
        store(buffer, v)
        for j in range(at, n):
            buffer[j - at] = x[j]
        v = load(buffer, lanes=W)
    return v


@inline
def store_some(y: ptr[f32], v, at: i32, n: i32, W: int):
    """W floats to y[at], none to y[n] and beyond."""
    if at + W <= n:
        store(y, v, at)
    else:
        buffer = array(f32, W, zero=False)
        store(buffer, v)
        for j in range(at, n):
            y[j] = buffer[j - at]


@inline
def padded(x: ptr[f32], at: i32, n: i32, buffer: ptr[f32], N: int, W: int):
    """Where N floats from x[at] can be read: there, or in `buffer`, copied and followed by zeros."""
    p: ptr[f32] = x + at
    if at + N > n:
        for i in range(0, N, W):
            store(buffer, zeros(vec[f32, W]), i)
        whole = (n - at) & -W
        for j in range(0, whole, W):
            store(buffer, load(p, j, lanes=W), j)
        for j in range(whole, n - at):
            buffer[j] = p[j]
        p = buffer
    return p


@inline
def square_sum(x: ptr[f32], n: i32, W: int):
    """The sum of squares by the tree over `NORM_LANES` lanes."""
    C = NORM_LANES // W
    lane = regs(vec[f32, W], C)
    buffer = array(f32, NORM_LANES, zero=False)
    for at in range(0, n, NORM_LANES):
        p = padded(x, at, n, buffer, NORM_LANES, W)
        for i in unroll(C):
            v = load(p, i * W, lanes=W)
            lane[i] = fma(v, v, lane[i])
    for half in unroll(tuple(h // W for h in (NORM_LANES >> k for k in range(1, 7)) if h >= W)):
        for i in unroll(half):
            lane[i] = lane[i] + lane[i + half]
    return reduce_add(lane[0])


@inline
def rms_scale(x: ptr[f32], n: i32, eps: f32, W: int):
    """1 / sqrt(mean of squares + eps)."""
    return one_over(sqrt(square_sum(x, n, W) / f32(n) + eps))


@inline
def source_row(a, step, row: i32):
    """The row that is read for a row of the result."""
    source: i32 = row
    if a.by_logit != 0:
        source = step.logit_rows[row]
    return source


@inline
def row_and_item(u: i32, n_items: i32, rows: i32, together: i32):
    """What unit u is: items of `together` rows side by side, one item after the other, then of the next rows."""
    block = i32(u32(u) // u32(n_items * together)) * together
    here = minimum(rows - block, together)
    within = u - block * n_items
    item = i32(u32(within) // u32(here))
    return block + within - item * here, item


@inline
def norm_input(a, row: i32, W: int):
    """A row to be normed: the sum with the residual, which is stored, where there is one."""
    n = a.n
    x: ptr[f32] = a.x + i64(row) * i64(n)
    if not_null(a.residual):
        other = a.residual + i64(row) * i64(n)
        total = a.total + i64(row) * i64(n)
        # A factor of 1 changes nothing.
        share = splat(a.residual_scale, W)
        whole = splat(a.total_scale, W)
        for at in range(0, n, W):
            sums = load_some(x, at, n, W) + load_some(other, at, n, W) * share
            store_some(total, sums * whole, at, n, W)
        x = total
    return x


@kernel
def norm(a: ptr[NormArgs], step: ptr[StepRecord], first: i32, last: i32, W: int, CHUNK: int):
    """Units: rows. CHUNK: elements that all rows of a block get before the next ones: a line of scales or of sums has
    those of 16 rows, which are then written one after another.
    """
    n = a.n
    rows = live_rows(step, a.by_logit)
    weight = a.weight
    wanted = not_null(a.y)
    packed = not_null(a.pack)
    buffer = array(f32, GROUP, zero=False)
    buffer_w = array(f32, GROUP, zero=False)
    scales = array(f32, BLOCK_ROWS, zero=False)
    start: i32 = first
    while start < last:
        stop: i32 = (start & -BLOCK_ROWS) + BLOCK_ROWS
        if stop > last:
            stop = last
        for u in range(start, stop):
            scales[u - start] = rms_scale(norm_input(a, source_row(a, step, u), W), n, a.eps, W)
        for begin in range(0, n, CHUNK):
            end: i32 = begin + CHUNK
            if end > n:
                end = n
            for u in range(start, stop):
                row = source_row(a, step, u)
                x: ptr[f32] = a.x
                if not_null(a.residual):
                    x = a.total
                x = x + i64(row) * i64(n)
                y = a.y + i64(row) * i64(n)
                scale = splat(scales[u - start], W)
                for at in range(begin, end, GROUP):
                    v = regs(vec[f32, W], GROUP // W)
                    xs = padded(x, at, n, buffer, GROUP, W)
                    for i in unroll(GROUP // W):
                        v[i] = load(xs, i * W, lanes=W) * scale
                    if not_null(weight):
                        ws = padded(weight, at, n, buffer_w, GROUP, W)
                        for i in unroll(GROUP // W):
                            v[i] = v[i] * load(ws, i * W, lanes=W)
                    if wanted:
                        for i in unroll(GROUP // W):
                            store_some(y, v[i], at + i * W, n, W)
                    if packed:
                        pack_group(a.pack, v, u, rows, at >> GROUP_SHIFT, W)
        start = stop


@kernel
def pack(a: ptr[PackArgs], step: ptr[StepRecord], first: i32, last: i32, W: int, CHUNK: int, ACT: str):
    """Units: stretches of CHUNK elements (the last may be short) of the rows of a block, then the next stretch of these
    rows, block after block: a line of scales or of sums has those of 16 rows. ACT: see `gated`.
    """
    n = a.n
    rows = live_rows(step, a.by_logit)
    buffer = array(f32, GROUP, zero=False)
    chunks = i32(u32(n + (CHUNK - 1)) // CHUNK)
    for u in range(first, last):
        row, chunk = row_and_item(u, chunks, rows, BLOCK_ROWS)
        source = source_row(a, step, row)
        offset = i64(source) * i64(n)
        x = a.x + offset
        end: i32 = (chunk + 1) * CHUNK
        if end > n:
            end = n
        for at in range(chunk * CHUNK, end, GROUP):
            v = regs(vec[f32, W], GROUP // W)
            xs = padded(x, at, n, buffer, GROUP, W)
            for i in unroll(GROUP // W):
                v[i] = load(xs, i * W, lanes=W)
            if not_null(a.up):
                ups = padded(a.up + i64(source) * i64(a.up_n), at, n, buffer, GROUP, W)
                alpha = splat(a.alpha, W)
                limit = splat(a.limit, W)
                for i in unroll(GROUP // W):
                    v[i] = gated(v[i], load(ups, i * W, lanes=W), alpha, limit, ACT)
            if not_null(a.y):
                for i in unroll(GROUP // W):
                    store_some(a.y + offset, v[i], at + i * W, n, W)
            if not_null(a.pack):
                pack_group(a.pack, v, row, rows, at >> GROUP_SHIFT, W)

"""Attention over the paged cache: splits of 256 positions, merged in order.

Keys of a page lie with the 16 positions side by side, so a vector holds the scores of consecutive positions; values lie
with the head's elements side by side, so a vector holds consecutive elements of an output. Query heads that share a
key-value head are worked on together, and so are consecutive rows of one sequence: each load of a key or value serves
all of them.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.structs import AttentionArgs, StepRecord
from zinc_rt.kernels.maths import INFINITY, exp
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    array,
    fma,
    iota,
    load,
    maximum,
    reduce_add,
    reduce_max,
    regs,
    select,
    splat,
    store,
    unroll,
)
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, u32, vec
from zinc_rt.numerics import PAGE_SHIFT, PAGE_TOKENS, PAGES_OF_SPLIT, SPLIT, SPLIT_SHIFT

STATE = 16
"""Floats behind a query's weighted values, of which its max and its sum are the first two."""


@inline
def page_at(page, n_kv: i32, kv_head: i32, DIM: int, d: i32):
    """Where the values of a head begin in a page, from element d on."""
    return (i64(page) * i64(n_kv) + i64(kv_head)) * (PAGE_TOKENS * DIM) + i64(d)


@inline
def gather_queries(a, q, row: i32, kv_head: i32, R: int, G: int, DIM: int):
    """The queries of R rows and G heads as q[element, query]."""
    Q = R * G
    n_heads = a.n_kv * G
    for j in unroll(Q):
        source = a.q + (i64(row + j // G) * i64(n_heads) + i64(kv_head * G + j % G)) * DIM
        for d in range(DIM):
            q[d * Q + j] = source[d]


@inline
def scores_of_split(a, pages, q, sums, kv_head: i32, first_page: i32, longest: i32, Q: int, DIM: int, W: int):
    """sums[query, position] = the products of the split's keys and the queries, unscaled, for whole pages."""
    H = PAGE_TOKENS // W
    PAGES = max(1, 8 // (Q * H))
    n_kv = a.n_kv
    n_pages = (longest + (PAGE_TOKENS - 1)) >> PAGE_SHIFT
    for p in range(0, n_pages, PAGES):
        keys = tuple(page_keys(a, pages, first_page, p + j, n_pages, n_kv, kv_head, DIM) for j in range(PAGES))
        acc = regs(vec[f32, W], Q * PAGES * H)
        for d in range(DIM):
            for j in unroll(PAGES):
                for h in unroll(H):
                    k = f32(load(keys[j], d * PAGE_TOKENS + h * W, lanes=W))
                    for i in unroll(Q):
                        c = (i * PAGES + j) * H + h
                        acc[c] = fma(k, splat(load(q, d * Q + i), W), acc[c])
        for i in unroll(Q):
            for j in unroll(PAGES):
                for h in unroll(H):
                    store(sums + p * PAGE_TOKENS, acc[(i * PAGES + j) * H + h], i * SPLIT + j * PAGE_TOKENS + h * W)


@inline
def page_keys(a, pages, first_page: i32, p: i32, n_pages: i32, n_kv: i32, kv_head: i32, DIM: int):
    """The keys of the split's page p; of its last page where it has fewer: those scores are masked."""
    at: i32 = p
    if at >= n_pages:
        at = n_pages - 1
    k = a.k_cache + (i64(pages[first_page + at]) * i64(n_kv) + i64(kv_head)) * (PAGE_TOKENS * DIM)
    return k


@inline
def weigh(a, sums, out, count: i32, DIM: int, W: int):
    """Scores of one query to exponentials; their max and sum to out[DIM], out[DIM + 1]."""
    H = PAGE_TOKENS // W
    scale = splat(a.scale, W)
    n_pages = (count + (PAGE_TOKENS - 1)) >> PAGE_SHIFT
    top: vec[f32, W] = -INFINITY
    for at in range(0, n_pages * PAGE_TOKENS, W):
        live = iota(i32, W) < splat(count - at, W)
        score = select(live, load(sums, at, lanes=W) * scale, -INFINITY)
        store(sums, score, at)
        # A NaN need not show in the maximum: its exponential is NaN, and so is every output.
        top = select(score > top, score, top)
    m = reduce_max(top)
    lane = regs(vec[f32, W], 2 * H)
    for p in range(0, n_pages, 2):
        for half in unroll(2):
            if p + half < n_pages:
                for h in unroll(H):
                    at = (p + half) * PAGE_TOKENS + h * W
                    live = iota(i32, W) < splat(count - at, W)
                    # Hidden positions take e^0: e^-inf would go through subnormal numbers, which are slow.
                    e = exp(select(live, load(sums, at, lanes=W) - splat(m, W), 0.0))
                    e = select(live, e, 0.0)
                    store(sums, e, at)
                    lane[half * H + h] = lane[half * H + h] + e
    for half in unroll(tuple(h for h in (4, 2, 1) if h <= H)):
        for h in unroll(half):
            lane[h] = lane[h] + lane[h + half]
    out[DIM] = m
    out[DIM + 1] = reduce_add(lane[0])


@inline
def values_of_split(a, pages, sums, out, kv_head: i32, first_page: i32, count: i32, R: int, G: int, DIM: int, W: int):
    """out[query, element] = chains over positions of weight and value. Row r of the R sees count + r positions,

    at most a split; where count is not positive, rows that see none keep zeros.
    """
    Q = R * G
    V = max(v for v in (1, 2, 4, 8, 16) if v <= W and DIM % v == 0)
    C = max(c for c in (1, 2, 4, 8) if (DIM // V) % c == 0 and (c * Q <= 16 or c == 1))
    n_kv = a.n_kv
    common: i32 = count
    if common > SPLIT:
        common = SPLIT
    if common < 0:
        common = 0
    longest: i32 = count + (R - 1)
    if longest > SPLIT:
        longest = SPLIT
    for d in range(0, DIM, V * C):
        acc = regs(vec[f32, V], Q * C)
        n_pages = (common + (PAGE_TOKENS - 1)) >> PAGE_SHIFT
        for p in range(n_pages):
            v: ptr[f16] = a.v_cache + page_at(pages[first_page + p], n_kv, kv_head, DIM, d)
            tokens: i32 = common - p * PAGE_TOKENS
            if tokens > PAGE_TOKENS:
                tokens = PAGE_TOKENS
            weights: ptr[f32] = sums + p * PAGE_TOKENS
            for t in range(tokens):
                values = tuple(f32(load(v, c * V, lanes=V)) for c in range(C))
                for i in unroll(Q):
                    weight = splat(load(weights, i * SPLIT), V)
                    for c in unroll(C):
                        acc[i * C + c] = fma(weight, values[c], acc[i * C + c])
                v = v + DIM
                weights = weights + 1
        if R > 1:
            for at in range(common, longest):
                v = a.v_cache + page_at(pages[first_page + (at >> PAGE_SHIFT)], n_kv, kv_head, DIM, d)
                values = tuple(f32(load(v, i64(at & (PAGE_TOKENS - 1)) * DIM + c * V, lanes=V)) for c in range(C))
                for r in unroll(1, R):
                    if at < count + r:
                        for g in unroll(G):
                            weight = splat(load(sums, (r * G + g) * SPLIT + at), V)
                            for c in unroll(C):
                                acc[(r * G + g) * C + c] = fma(weight, values[c], acc[(r * G + g) * C + c])
        for i in unroll(Q):
            for c in unroll(C):
                store(out, acc[i * C + c], i * (DIM + STATE) + d + c * V)


@inline
def one_split(a, pages, q, out, sums, kv_head: i32, s: i32, length: i32, R: int, G: int, DIM: int, W: int):
    """Split s for R consecutive rows, the first of which sees `length` positions, and the G heads of a key-value head.

    Writes the weighted values to out f32[query, DIM + STATE] and each query's max and sum to places DIM and DIM + 1, of
    the rows that see a position of the split.
    """
    count = length - s * SPLIT
    longest: i32 = count + (R - 1)
    if longest > SPLIT:
        longest = SPLIT
    scores_of_split(a, pages, q, sums, kv_head, s * PAGES_OF_SPLIT, longest, R * G, DIM, W)
    for i in range(R * G):
        here: i32 = count + i32(u32(i) // G)
        if here > SPLIT:
            here = SPLIT
        if here > 0:
            weigh(a, sums + i * SPLIT, out + i * (DIM + STATE), here, DIM, W)
    values_of_split(a, pages, sums, out, kv_head, s * PAGES_OF_SPLIT, count, R, G, DIM, W)


@inline
def merge_split(state, part, DIM: int, W: int):
    """Fold a split (values, max, sum) into the state of the splits before it."""
    V = max(v for v in (1, 2, 4, 8, 16) if v <= W and DIM % v == 0)
    top = maximum(state[DIM], part[DIM])
    old = exp(splat(state[DIM] - top, 4))[0]
    new = exp(splat(part[DIM] - top, 4))[0]
    state[DIM] = top
    state[DIM + 1] = (state[DIM + 1] * old) + (part[DIM + 1] * new)
    for d in range(0, DIM, V):
        store(state, (load(state, d, lanes=V) * splat(old, V)) + (load(part, d, lanes=V) * splat(new, V)), d)


@inline
def finish(state, y, DIM: int, W: int):
    """y = values / sum."""
    V = max(v for v in (1, 2, 4, 8, 16) if v <= W and DIM % v == 0)
    total = splat(state[DIM + 1], V)
    for d in range(0, DIM, V):
        store(y, load(state, d, lanes=V) / total, d)


@inline
def whole_rows(a, step, q, sums, state, part, row: i32, kv_head: i32, R: int, G: int, DIM: int, W: int):
    """All splits of R consecutive rows of a sequence, and their output."""
    length = step.positions[row] + 1
    pages = step.page_table + i64(step.slots[row]) * i64(step.max_pages)
    gather_queries(a, q, row, kv_head, R, G, DIM)
    for s in range((length + (R - 1) + (SPLIT - 1)) >> SPLIT_SHIFT):
        target: ptr[f32] = part
        if s == 0:
            target = state
        one_split(a, pages, q, target, sums, kv_head, s, length, R, G, DIM, W)
        if s > 0:
            for i in range(R * G):
                if length + i32(u32(i) // G) > s * SPLIT:
                    merge_split(state + i * (DIM + STATE), part + i * (DIM + STATE), DIM, W)
    n_heads = a.n_kv * G
    for i in range(R * G):
        r = i32(u32(i) // G)
        y = a.y + (i64(row + r) * i64(n_heads) + i64(kv_head * G + i - r * G)) * DIM
        finish(state + i * (DIM + STATE), y, DIM, W)


@inline
def follow(step, row: i32, R: int):
    """Whether R rows from `row` on are consecutive positions of one sequence."""
    same: i32 = 1
    for r in unroll(1, R):
        if step.slots[row + r] != step.slots[row] or step.positions[row + r] != step.positions[row] + r:
            same = 0
    return same != 0


@kernel
def attention(a: ptr[AttentionArgs], step: ptr[StepRecord], first: i32, last: i32, G: int, DIM: int, W: int, R: int):
    """Units: (R rows, key-value head), or (row, key-value head, split) where the step splits; then `merge` follows."""
    n_kv = a.n_kv
    q = array(f32, R * G * DIM, zero=False)
    sums = array(f32, R * G * SPLIT, zero=False)
    state = array(f32, R * G * (DIM + STATE), zero=False)
    part = array(f32, R * G * (DIM + STATE), zero=False)
    n_splits = step.n_splits
    if n_splits != 0:
        n_heads = n_kv * G
        for u in range(first, last):
            unit = i32(u32(u) // u32(n_splits))
            s = u - unit * n_splits
            row = i32(u32(unit) // u32(n_kv))
            kv_head = unit - row * n_kv
            length = step.positions[row] + 1
            if s * SPLIT < length:
                pages = step.page_table + i64(step.slots[row]) * i64(step.max_pages)
                at = (i64(row) * i64(a.max_splits) + i64(s)) * i64(n_heads) + i64(kv_head * G)
                gather_queries(a, q, row, kv_head, 1, G, DIM)
                one_split(a, pages, q, a.partial + at * (DIM + STATE), sums, kv_head, s, length, 1, G, DIM, W)
    else:
        # Units of one key-value head follow each other: its keys and values stay in the cache.
        blocks = i32(u32(step.n_rows + (R - 1)) // R)
        for u in range(first, last):
            kv_head = i32(u32(u) // u32(blocks))
            block = u - kv_head * blocks
            row: i32 = block * R
            end: i32 = row + R
            if end > step.n_rows:
                end = step.n_rows
            together: i32 = 0
            if R > 1 and row + R == end:
                if follow(step, row, R):
                    together = 1
            if together != 0:
                whole_rows(a, step, q, sums, state, part, row, kv_head, R, G, DIM, W)
            else:
                while row < end:
                    whole_rows(a, step, q, sums, state, part, row, kv_head, 1, G, DIM, W)
                    row += 1


@kernel
def merge(a: ptr[AttentionArgs], step: ptr[StepRecord], first: i32, last: i32, G: int, DIM: int, W: int):
    """Units: (row, head) of a step whose attention was split up."""
    n_heads = a.n_kv * G
    for u in range(first, last):
        row = i32(u32(u) // u32(n_heads))
        head = u - row * n_heads
        splits = (step.positions[row] + SPLIT) >> SPLIT_SHIFT
        stride = i64(n_heads) * (DIM + STATE)
        state = a.partial + ((i64(row) * i64(a.max_splits)) * i64(n_heads) + i64(head)) * (DIM + STATE)
        for s in range(1, splits):
            merge_split(state, state + i64(s) * stride, DIM, W)
        finish(state, a.y + i64(u) * DIM, DIM, W)

"""One split of attention: 256 positions, for the query heads of a key-value head and some consecutive rows.

Keys of a page lie with the 16 positions side by side, so a vector holds the scores of consecutive positions; values lie
with the head's elements side by side, so a vector holds consecutive elements of an output. Where values are the first
elements of keys, a block of them is turned about as it is read, once for all queries.

`AttentionShape` has the constants. Of R rows, row r sees positions begin + r to count + r - 1 of the split, as far as
the split has them. Without a window `begin` is not read.
"""

from __future__ import annotations

from typing import NamedTuple

from zinc_rt.kernels.cpu.attention_weights import hide_unchosen, slope_down, weigh
from zinc_rt.kernels.cpu.kv_quant import quantized_page, quantized_scores, unpack_latent, unpack_values
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import fma, load, minimum, prefetch, regs, shuffle, splat, store, unroll
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, u32, vec
from zinc_rt.numerics import PAGE_SHIFT, PAGE_TOKENS, PAGES_OF_SPLIT, SPLIT

STATE = 16
"""Floats behind a query's weighted values, of which its max and its sum are the first two."""
AHEAD_PAGES = 8
"""How far ahead of a load of values, in pages, they are asked for where a single row reads them."""
TILE = 16 * 8 * PAGE_TOKENS
"""Values that are turned about at once, at most: 8 vectors of 16 lanes for each position of a page."""


class AttentionShape(NamedTuple):
    """What a kernel of attention is compiled for.

    G: query heads of a key-value head. DIM: elements of a key, ROPE of them (the last) with queries that come apart.
    VALUE: elements of a value. W: lanes. LATENT: values are the first elements of keys. WINDOWED, CHUNKED, CAPPED,
    SINKS, SLOPES: whether there is a window, are chunks of whole splits, a soft cap, a sink, a slope of scores by
    distance. WHOLE: rows see up to a last position that the step says. QUANT: the caches hold Q8_0 blocks, whose values
    are unpacked a page at a time; FLIP: see `kv_quant`. CHOSEN: rows see chosen positions. SECOND: see `Ahead`, of keys
    and values.
    """

    G: int
    DIM: int
    VALUE: int
    ROPE: int
    W: int
    LATENT: bool
    WINDOWED: bool
    CHUNKED: bool
    CAPPED: bool
    SINKS: bool
    WHOLE: bool
    SLOPES: bool = False
    QUANT: bool = False
    FLIP: bool = False
    CHOSEN: bool = False
    SECOND: bool = False


@inline
def clamp(x: i32, low: i32, high: i32):
    """x, or the bound that it lies beyond."""
    y: i32 = x
    if y > high:
        y = high
    if y < low:
        y = low
    return y


@inline
def gather_queries(a, q, row: i32, kv_head: i32, R: int, G: int, DIM: int, ROPE: int):
    """The queries of R rows and G heads as q[element, query]."""
    Q = R * G
    FIRST = DIM - ROPE
    n_heads = a.n_kv * G
    for j in unroll(Q):
        head = i64(row + j // G) * i64(n_heads) + i64(kv_head * G + j % G)
        source = a.q + head * FIRST
        for d in range(FIRST):
            q[d * Q + j] = source[d]
        if ROPE > 0:
            rest = a.q_rope + head * ROPE
            for d in range(ROPE):
                q[(d + FIRST) * Q + j] = rest[d]


@inline
def scores_of_split(
    a, pages, q, sums, kv_head: i32, first_page: i32, begin: i32, longest: i32, Q: int, DIM: int, VALUE: int, W: int,
    WINDOWED: bool, AHEAD: bool, SECOND: bool,
):  # fmt: skip
    """sums[query, position] = the products of the split's keys and the queries, unscaled, for whole pages.

    AHEAD: ask for the keys that follow, and at the end for values; SECOND: into the second-level cache.
    """
    LINE = 2 if AHEAD and DIM % 2 == 0 else 1
    H = PAGE_TOKENS // W
    PAGES = max(p for p in (1, 2, 4, 8) if p * Q * H <= (8 if W == 8 else 16) or p == 1)
    n_kv = a.n_kv
    n_pages = (longest + (PAGE_TOKENS - 1)) >> PAGE_SHIFT
    start: i32 = 0
    if WINDOWED:
        start = (begin >> PAGE_SHIFT) & ~(PAGES - 1)
    for p in range(start, n_pages, PAGES):
        keys = tuple(page_keys(a, pages, first_page, p + j, n_pages, n_kv, kv_head, DIM) for j in range(PAGES))
        coming = tuple(
            page_after(a, pages, first_page, p + PAGES + j, n_pages, n_kv, kv_head, DIM, VALUE) if AHEAD else keys[j]
            for j in range(PAGES)
        )
        acc = regs(vec[f32, W], Q * PAGES * H)
        for line in range(0, DIM, LINE):
            if AHEAD:
                for j in unroll(PAGES):
                    prefetch(coming[j], line * PAGE_TOKENS, locality=2 if SECOND else 3)
            for d in unroll(LINE):
                k = tuple(
                    f32(load(keys[c // H], (line + d) * PAGE_TOKENS + c % H * W, lanes=W)) for c in range(PAGES * H)
                )
                for i in unroll(Q):
                    element = splat(load(q, (line + d) * Q + i), W)
                    for c in unroll(PAGES * H):
                        acc[i * PAGES * H + c] = fma(k[c], element, acc[i * PAGES * H + c])
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
def page_after(
    a, pages, first_page: i32, p: i32, n_pages: i32, n_kv: i32, kv_head: i32, DIM: int, VALUE: int,
):  # fmt: skip
    """The keys of the split's page p; behind its last page, the values of its first ones."""
    if p < n_pages:
        page: ptr[f16] = page_keys(a, pages, first_page, p, n_pages, n_kv, kv_head, DIM)
    else:
        at = i64(pages[first_page + minimum(p - n_pages, n_pages - 1)]) * i64(n_kv) + i64(kv_head)
        page = a.v_cache + at * (PAGE_TOKENS * VALUE)
    return page


@inline
def turned(vectors, n: int):
    """n vectors of n lanes, with lanes and vectors exchanged."""
    rows = vectors
    for step in unroll(tuple(step for step in (1, 2, 4, 8) if step < n)):
        first = tuple(k if k & step == 0 else n + k - step for k in range(n))
        second = tuple(k + step if k & step == 0 else n + k for k in range(n))
        rows = tuple(
            shuffle(rows[i], rows[i + step], first) if i & step == 0 else shuffle(rows[i - step], rows[i], second)
            for i in range(n)
        )
    return rows


@inline
def turn_page(k: ptr[f16], tile: ptr[f16], V: int, C: int):
    """tile[position, element] = the next C * V elements of a page of keys, k[element, position]."""
    for c in range(C):
        for first in unroll(0, PAGE_TOKENS, V):
            rows = tuple(load(k, (c * V + e) * PAGE_TOKENS + first, lanes=V) for e in range(V))
            columns = turned(rows, V)
            for i in unroll(V):
                store(tile, columns[i], (first + i) * (C * V) + c * V)


@inline
def page_values(a, page, tile, n_kv: i32, kv_head: i32, d: i32, V: int, C: int, S: AttentionShape):
    """Where C * V elements of the values of a page begin, from element d on: in the cache, or in the tile."""
    if S.QUANT:
        if S.LATENT:
            unpack_latent(quantized_page(a.k_cache, page, n_kv, kv_head, S.DIM), tile, d, S.DIM, V, C, S.FLIP)
        else:
            unpack_values(quantized_page(a.v_cache, page, n_kv, kv_head, S.VALUE), tile, d, S.VALUE, V, C)
        return tile
    at = i64(page) * i64(n_kv) + i64(kv_head)
    if S.LATENT:
        turn_page(a.k_cache + (at * (PAGE_TOKENS * S.DIM) + i64(d) * PAGE_TOKENS), tile, V, C)
        return tile
    return a.v_cache + (at * (PAGE_TOKENS * S.VALUE) + i64(d))


@inline
def add_edge(
    acc, a, pages, tile, sums, at: i32, begin: i32, count: i32, where, R: int, V: int, C: int, S: AttentionShape
):
    """One position that not all rows see.

    where: first page, heads, head, element.
    """
    first_page, n_kv, kv_head, d = where
    stride = C * V if S.LATENT or S.QUANT else S.VALUE
    page = pages[first_page + (at >> PAGE_SHIFT)]
    v = page_values(a, page, tile, n_kv, kv_head, d, V, C, S)
    values = tuple(f32(load(v, i64(at & (PAGE_TOKENS - 1)) * stride + c * V, lanes=V)) for c in range(C))
    # Without a window the first row's positions are common to all.
    for r in unroll(0 if S.WINDOWED else 1, R):
        if at < count + r and (not S.WINDOWED or at >= begin + r):
            for g in unroll(S.G):
                weight = splat(load(sums, (r * S.G + g) * SPLIT + at), V)
                for c in unroll(C):
                    acc[(r * S.G + g) * C + c] = fma(weight, values[c], acc[(r * S.G + g) * C + c])


@inline
def values_after(
    a, pages, first_page: i32, p: i32, n_pages: i32, count: i32, n_kv: i32, kv_head: i32, DIM: int, VALUE: int
):
    """The values of the split's page p; behind its last page, the keys of the split that follows, if one does."""
    if p >= n_pages and count > SPLIT:
        last = (count - 1) >> PAGE_SHIFT
        at = i64(pages[first_page + minimum(p, last)]) * i64(n_kv) + i64(kv_head)
        page: ptr[f16] = a.k_cache + at * (PAGE_TOKENS * DIM)
    else:
        at = i64(pages[first_page + minimum(p, n_pages - 1)]) * i64(n_kv) + i64(kv_head)
        page = a.v_cache + at * (PAGE_TOKENS * VALUE)
    return page


@inline
def values_of_split(
    a, pages, sums, tile, out, kv_head: i32, first_page: i32, begin: i32, count: i32, R: int, S: AttentionShape
):
    """out[query, element] = chains over positions of weight and value. Rows that see no position get zeros."""
    AHEAD = R == 1 and not S.LATENT and not S.QUANT
    Q = R * S.G
    V = max(v for v in (1, 2, 4, 8, 16) if v <= S.W and S.VALUE % v == 0)
    C = max(c for c in (1, 2, 4, 8) if (S.VALUE // V) % c == 0 and (c * Q <= (12 if S.W == 8 else 16) or c == 1))
    STRIDE = C * V if S.LATENT or S.QUANT else S.VALUE
    n_kv = a.n_kv
    common = clamp(count, 0, SPLIT)
    longest = clamp(count + (R - 1), 0, SPLIT)
    # All rows see positions from middle to common.
    middle: i32 = 0
    lowest: i32 = 0
    if S.WINDOWED:
        middle = clamp(begin + (R - 1), 0, longest)
        lowest = clamp(begin, 0, longest)
    for d in range(0, S.VALUE, V * C):
        acc = regs(vec[f32, V], Q * C)
        if S.WINDOWED and R > 1:
            for at in range(lowest, middle):
                add_edge(acc, a, pages, tile, sums, at, begin, count, (first_page, n_kv, kv_head, d), R, V, C, S)
        n_pages = (common + (PAGE_TOKENS - 1)) >> PAGE_SHIFT
        for p in range(middle >> PAGE_SHIFT, n_pages):
            v: ptr[f32 if S.QUANT else f16] = page_values(a, pages[first_page + p], tile, n_kv, kv_head, d, V, C, S)
            tokens: i32 = common - p * PAGE_TOKENS
            if tokens > PAGE_TOKENS:
                tokens = PAGE_TOKENS
            weights: ptr[f32] = sums + p * PAGE_TOKENS
            first: i32 = 0
            if S.WINDOWED:
                first = clamp(middle - p * PAGE_TOKENS, 0, PAGE_TOKENS)
                v = v + i64(first) * STRIDE
                weights = weights + first
            coming: ptr[f16] = a.v_cache
            if AHEAD:
                coming = (
                    values_after(a, pages, first_page, p + AHEAD_PAGES, n_pages, count, n_kv, kv_head, S.DIM, S.VALUE)
                    + d
                )
            for t in range(first, tokens):
                if AHEAD:
                    for line in unroll(0, C * V, 32):
                        prefetch(coming, t * S.VALUE + line, locality=2 if S.SECOND else 3)
                values = tuple(f32(load(v, c * V, lanes=V)) for c in range(C))
                for i in unroll(Q):
                    weight = splat(load(weights, i * SPLIT), V)
                    for c in unroll(C):
                        acc[i * C + c] = fma(weight, values[c], acc[i * C + c])
                v = v + STRIDE
                weights = weights + 1
        if R > 1:
            rest: i32 = common
            if S.WINDOWED:
                rest = clamp(common, middle, SPLIT)
            for at in range(rest, longest):
                add_edge(acc, a, pages, tile, sums, at, begin, count, (first_page, n_kv, kv_head, d), R, V, C, S)
        for i in unroll(Q):
            for c in unroll(C):
                store(out, acc[i * C + c], i * (S.VALUE + STATE) + d + c * V)


@inline
def one_split(
    a, pages, q, out, sums, tile, row, max_pages, kv_head: i32, s: i32, length: i32, window: i32, R: int,
    S: AttentionShape,
):  # fmt: skip
    """Split s for R consecutive rows, the first of which sees positions up to `length` - 1, and the G heads of a
    key-value head. row: the first of them; max_pages: words of a row of chosen positions.

    Writes the weighted values to out f32[query, VALUE + STATE] and each query's max and sum to places VALUE and
    VALUE + 1, of the rows that see a position of the split.
    """
    count = length - s * SPLIT
    begin: i32 = 0
    lowest: i32 = 0
    if S.WINDOWED:
        begin = count - window
        lowest = clamp(begin, 0, SPLIT)
    longest = clamp(count + (R - 1), 0, SPLIT)
    first_page = s * PAGES_OF_SPLIT
    if S.QUANT:
        quantized_scores(
            a, pages, q, sums, kv_head, first_page, lowest, longest, R * S.G, S.DIM, S.W, S.WINDOWED, S.FLIP
        )
    else:
        scores_of_split(
            a,
            pages,
            q,
            sums,
            kv_head,
            first_page,
            lowest,
            longest,
            R * S.G,
            S.DIM,
            S.VALUE,
            S.W,
            S.WINDOWED,
            R == 1 and not S.LATENT,
            S.SECOND,
        )
    for i in range(R * S.G):
        r = i32(u32(i) // S.G)
        here = clamp(count + r, 0, SPLIT)
        start: i32 = 0
        if S.WINDOWED:
            start = clamp(begin + r, 0, SPLIT)
        if start < here:
            if S.CHOSEN:
                words = a.chosen + (i64(row + r) * i64(max_pages) + i64(first_page))
                hide_unchosen(sums + i * SPLIT, words, here, S.W)
            if S.SLOPES:
                # The window is a.window positions before the row's own, itself and those behind.
                own = count + r - window + a.window
                slope_down(sums + i * SPLIT, a.scale, a.slopes[kv_head * S.G + i - r * S.G], own, here, S.W)
            weigh(
                a, sums + i * SPLIT, out + i * (S.VALUE + STATE), start, here, S.VALUE, S.W, S.WINDOWED, S.CAPPED,
                S.CHOSEN, S.SLOPES,
            )  # fmt: skip
    values_of_split(a, pages, sums, tile, out, kv_head, first_page, begin, count, R, S)

"""A cache of Q8_0 blocks: how heads are written to it, and how attention reads keys and values from it.

A page of a head is its integers, then its float16 scales, one for each 32 elements: 17 bytes an element of the head.
Keys lie as words of four elements, the 16 positions side by side: i8[elements / 4, 16, 4] and f16[elements / 32, 16].
Values lie position after position: i8[16, elements] and f16[16, elements / 32].

FLIP: keys are kept with 128 added, as bytes without sign, which is what some targets multiply by signed ones.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.packs import group_scale, nearest, one_over
from zinc_rt.kernels.maths import INFINITY
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import array, bitcast, cast, dot4, high, load, low, reduce_add, regs, splat, store, unroll, zeros
from zinc_rt.lang.types import f16, f32, i8, i32, i64, ptr, u8, u32, vec
from zinc_rt.numerics import GROUP, GROUP_SHIFT, PAGE_SHIFT, PAGE_TOKENS, SPLIT

PAGE_BYTES = PAGE_TOKENS * (GROUP + 2) // GROUP
"""Bytes of a page for each element of a head."""
WORDS = GROUP // 4
FLIPPED = 0x80808080


@inline
def quantized_page(cache: ptr[f16], page, n_heads: i32, head: i32, DIM):
    """Where the integers of a page of a head begin; the scales follow behind 16 * DIM of them."""
    return cast(cache, ptr[i8]) + (i64(page) * i64(n_heads) + i64(head)) * (i64(DIM) * PAGE_BYTES)


@inline
def put_integers(q: ptr[i8], v, d: f32, usable, W: int):
    """q = the integers of a group of scale d; zeros unless the scale is usable."""
    if usable:
        inverse = splat(one_over(d), W)
        for i in unroll(GROUP // W):
            store(q, i8(nearest(v[i] * inverse)), i * W)
    else:
        store(q, zeros(vec[i8, GROUP]))


@inline
def cached_group(x: ptr[f32], q: ptr[i8], W: int):
    """q = the integers of 32 elements; their scale as the cache keeps it."""
    v = tuple(load(x, i * W, lanes=W) for i in range(GROUP // W))
    d = group_scale(v, W)
    kept = f16(d)
    wide = f32(kept)
    put_integers(q, v, d, wide > 0.0 and wide < INFINITY, W)
    return kept


@inline
def put_key(page: ptr[i8], x: ptr[f32], token: i64, start: i32, width: i32, DIM: int, W: int, FLIP: bool):
    """Elements start .. start + DIM - 1 of a key of `width` elements."""
    q = array(i8, GROUP, zero=False)
    words = cast(page, ptr[u32]) + i64(start >> 2) * PAGE_TOKENS
    scales = cast(page + i64(width) * PAGE_TOKENS, ptr[f16]) + i64(start >> GROUP_SHIFT) * PAGE_TOKENS
    for g in range(DIM // GROUP):
        scales[i64(g) * PAGE_TOKENS + token] = cached_group(x + g * GROUP, q, W)
        for w in unroll(WORDS):
            word = load(cast(q, ptr[u32]), w)
            if FLIP:
                word = word ^ FLIPPED
            words[i64(g * WORDS + w) * PAGE_TOKENS + token] = word


@inline
def put_value(page: ptr[i8], x: ptr[f32], token: i64, DIM: int, W: int):
    """The elements of a value."""
    scales = cast(page + DIM * PAGE_TOKENS, ptr[f16]) + token * (DIM // GROUP)
    for g in range(DIM // GROUP):
        scales[g] = cached_group(x + g * GROUP, page + (token * DIM + i64(g * GROUP)), W)


@inline
def gather_quantized(a, q: ptr[f32], row: i32, kv_head: i32, R: int, G: int, DIM: int, ROPE: int, W: int):
    """The queries of R rows and G heads as int8: words[word, query], then scales and sums [group, query]."""
    FIRST = DIM - ROPE
    n_heads = a.n_kv * G
    for j in range(R * G):
        r = i32(u32(j) // G)
        head = i64(row + r) * i64(n_heads) + i64(kv_head * G + j - r * G)
        quantized_query(a.q + head * FIRST, q, j, 0, R * G, FIRST, DIM, W)
        if ROPE > 0:
            quantized_query(a.q_rope + head * ROPE, q, j, FIRST // GROUP, R * G, ROPE, DIM, W)


@inline
def quantized_query(x: ptr[f32], q: ptr[f32], j: i32, first: int, Q: int, N: int, DIM: int, W: int):
    """N elements of query j, as the groups from `first` on."""
    words = cast(q, ptr[i32])
    scales = q + Q * DIM // 4
    sums = words + Q * (DIM // 4 + DIM // GROUP)
    made = array(i8, GROUP, zero=False)
    ones: vec[u8, GROUP] = 1
    for g in range(N // GROUP):
        v = tuple(load(x, g * GROUP + i * W, lanes=W) for i in range(GROUP // W))
        d = group_scale(v, W)
        put_integers(made, v, d, d > 0.0 and d < INFINITY, W)
        at = g + first
        scales[at * Q + j] = d
        total = dot4(zeros(vec[i32, 8]), ones, load(made, lanes=GROUP), a_max=1)
        sums[at * Q + j] = reduce_add(low(total)) + reduce_add(high(total))
        for w in unroll(WORDS):
            words[(at * WORDS + w) * Q + j] = load(cast(made, ptr[i32]), w)


@inline
def quantized_scores(
    a, pages, q: ptr[f32], sums, kv_head: i32, first_page: i32, begin: i32, longest: i32, Q: int, DIM: int, W: int,
    WINDOWED: bool, FLIP: bool,
):  # fmt: skip
    """As `scores_of_split`, of the queries that `gather_quantized` left."""
    H = PAGE_TOKENS // W
    PAGES = max(1, 4 // (Q * H))
    words = cast(q, ptr[i32])
    scales = q + Q * DIM // 4
    totals = words + Q * (DIM // 4 + DIM // GROUP)
    n_pages = (longest + (PAGE_TOKENS - 1)) >> PAGE_SHIFT
    start: i32 = 0
    if WINDOWED:
        start = (begin >> PAGE_SHIFT) & ~(PAGES - 1)
    for p in range(start, n_pages, PAGES):
        keys = tuple(split_page(a, pages, first_page, p + j, n_pages, kv_head, DIM) for j in range(PAGES))
        acc = regs(vec[f32, W], Q * PAGES * H)
        for g in range(DIM // GROUP):
            isum = regs(vec[i32, W], Q * PAGES * H)
            if FLIP:
                for i in unroll(Q):
                    for c in unroll(PAGES * H):
                        isum[i * PAGES * H + c] = splat(load(totals, g * Q + i) * -128, W)
            for w in unroll(WORDS):
                for j in unroll(PAGES):
                    for h in unroll(H):
                        k = load(keys[j], (g * WORDS + w) * (4 * PAGE_TOKENS) + h * 4 * W, lanes=4 * W)
                        for i in unroll(Q):
                            c = (i * PAGES + j) * H + h
                            x = bitcast(splat(load(words, (g * WORDS + w) * Q + i), W), vec[i8, 4 * W])
                            if FLIP:
                                isum[c] = dot4(isum[c], bitcast(k, vec[u8, 4 * W]), x)
                            else:
                                isum[c] = dot4(isum[c], k, x)
            for j in unroll(PAGES):
                for h in unroll(H):
                    d = f32(load(cast(keys[j] + PAGE_TOKENS * DIM, ptr[f16]), g * PAGE_TOKENS + h * W, lanes=W))
                    for i in unroll(Q):
                        c = (i * PAGES + j) * H + h
                        acc[c] = acc[c] + (d * splat(load(scales, g * Q + i), W)) * f32(isum[c])
        for i in unroll(Q):
            for j in unroll(PAGES):
                for h in unroll(H):
                    store(sums + p * PAGE_TOKENS, acc[(i * PAGES + j) * H + h], i * SPLIT + j * PAGE_TOKENS + h * W)


@inline
def split_page(a, pages, first_page: i32, p: i32, n_pages: i32, kv_head: i32, DIM: int):
    """The keys of the split's page p; of its last page where it has fewer: those scores are masked."""
    at: i32 = p
    if at >= n_pages:
        at = n_pages - 1
    return quantized_page(a.k_cache, pages[first_page + at], a.n_kv, kv_head, DIM)


@inline
def unpack_values(page: ptr[i8], tile: ptr[f32], d: i32, VALUE: int, V: int, C: int):
    """tile[position, element] = C * V elements of the values of a page, from element d on."""
    scales = cast(page + VALUE * PAGE_TOKENS, ptr[f16])
    for t in range(PAGE_TOKENS):
        for c in unroll(C):
            at = d + c * V
            scale = f32(scales[t * (VALUE // GROUP) + (at >> GROUP_SHIFT)])
            store(tile, f32(load(page, t * VALUE + at, lanes=V)) * splat(scale, V), t * (C * V) + c * V)


@inline
def unpack_latent(page: ptr[i8], tile: ptr[f32], d: i32, DIM: int, V: int, C: int, FLIP: bool):
    """The same where values are the first elements of keys of DIM elements."""
    words = cast(page, ptr[u32])
    scales = cast(page + DIM * PAGE_TOKENS, ptr[f16])
    four = array(u32, V // 4, zero=False)
    for t in range(PAGE_TOKENS):
        for c in unroll(C):
            at = d + c * V
            for w in unroll(V // 4):
                word = words[((at >> 2) + w) * PAGE_TOKENS + t]
                if FLIP:
                    word = word ^ FLIPPED
                four[w] = word
            scale = f32(scales[(at >> GROUP_SHIFT) * PAGE_TOKENS + t])
            store(tile, f32(load(cast(four, ptr[i8]), lanes=V)) * splat(scale, V), t * (C * V) + c * V)

"""A paged cache of Q8_0 blocks: how a wave writes a head to it, and how attention reads keys and values from it.

A page is the integers of its 16 positions, then their float16 scales, one for each 32 elements: i8[16, n_kv, WIDTH] and
f16[16, n_kv, WIDTH / 32].
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.dot import dot
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.maths import INFINITY
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import (
    absolute,
    cast,
    fma,
    lane_id,
    load,
    maximum,
    rint,
    schedule_barrier,
    select,
    splat,
    unroll,
    wave_shuffle_xor,
)
from zinc_rt.lang.types import f16, f32, i8, i32, ptr, u8, u32, u64
from zinc_rt.numerics import GROUP, GROUP_SHIFT, MIN_NORMAL, PAGE_SHIFT, PAGE_TOKENS, QUANT_MAX

MOST_HEADS = 32
"""Products of a group and a head that a lane does without waiting for memory."""
MANY = 8
"""Heads of a lane up to which registers hold what it loads for all of them, and what two pages give."""
AT_ONCE = 64
"""Numbers that are loaded ahead where there are more heads. A wave has about a hundred scalar registers, and LLVM
loads more than they hold rather than to wait with a load.
"""
FEW = 4
"""Heads whose scores go on together: with six heads of 256 elements, or five of 256 in blocks, LLVM spilled queries."""
PAGE_BYTES = PAGE_TOKENS * (GROUP + 2) // GROUP
"""Bytes of a page for each element of a position."""


@inline
def page_of(cache: ptr[f16], page, width: u32):
    """Where the integers of a page begin, whose positions have `width` elements; its scales follow behind them."""
    return cast(cache, ptr[u8]) + u64(page) * u64(width * PAGE_BYTES)


@inline
def scales_of(page: ptr[u8], width: u32):
    """Where the scales of a page begin."""
    return cast(page + u64(width * PAGE_TOKENS), ptr[f16])


@inline
def put_head(cache: ptr[f16], page, token: u32, n_heads: u32, head: u32, x, DIM: int, ROW: int, START: int):
    """Elements START .. START + DIM - 1 of a head of ROW elements, by a wave; x: they, in LDS."""
    width = n_heads * ROW
    at = (token * n_heads + head) * ROW + START
    quants = page_of(cache, page, width)
    scales = scales_of(quants, width) + (at >> GROUP_SHIFT)
    one: f32 = 1.0
    for g in unroll(DIM // GROUP):
        v = x[lane_id() + g * GROUP]
        top = absolute(v)
        for distance in unroll((1, 2, 4, 8, 16)):
            top = maximum(top, wave_shuffle_xor(top, distance))
        d = top / QUANT_MAX
        d = select(d < MIN_NORMAL, 0.0, d)
        kept = f16(d)
        usable = (f32(kept) > 0.0) & (f32(kept) < INFINITY)
        n = i32(select(usable, rint(v * (one / d)), 0.0))
        quants[at + g * GROUP + lane_id()] = u8(u32(n) & 255)
        if lane_id() == 0:
            scales[g] = kept


@inline
def portion(n_heads: int, each: int):
    """How many heads are worked on together where `each` numbers are loaded for a head; static."""
    return n_heads if n_heads <= MANY else max(1, AT_ONCE // each)


@inline
def next_portion(first: int):
    """Nothing that the heads from `first` on need is loaded before their turn."""
    if first > 0:
        schedule_barrier()


@inline
def quantized_scores(page: ptr[u8], width: u32, at: u32, q: ptr[f32], d: ptr[f32], scores, G: int, N: int):
    """Goes on with scores[g] over N elements of a key, from element `at` of the page on, and of query head g.

    q, d: the queries' words and scales, [G, N / 4] and [G, N / 32].
    """
    keys = cast(page + at, ptr[u32])
    key_scales = scales_of(page, width) + (at >> GROUP_SHIFT)
    queries = unchanged(q)
    query_scales = unchanged(d, f32)
    GROUPS = N // GROUP
    EACH = max(n for n in (1, 2, 3, 4) if GROUPS % n == 0 and (n == 1 or n * G <= MOST_HEADS))
    for first in range(u32(0), GROUPS, EACH):
        halves = tuple(load(keys + first * (GROUP // 4), i * 4, lanes=4, align=16) for i in range(2 * EACH))
        factors = tuple(load(key_scales + first, i) for i in range(EACH))
        # All of these are asked for before the first of them is needed.
        schedule_barrier()
        STEP = min(FEW, portion(G, EACH * (GROUP // 4)))
        for head in unroll(0, G, STEP):
            next_portion(head)
            for g in unroll(EACH):
                scale = f32(factors[g])
                for h in unroll(head, min(head + STEP, G)):
                    isum: i32 = 0
                    for w in unroll(GROUP // 4):
                        word = load(queries + first * (GROUP // 4), h * (N // 4) + g * (GROUP // 4) + w)
                        isum = dot(isum, halves[2 * g + w // 4][w % 4], word, True)
                    factor = load(query_scales + first, h * GROUPS + g)
                    scores[h] = scores[h] + (scale * factor) * f32(isum)


@inline
def add_values(values, weights, sums, n: int, HEADS: int):
    """sums[h] = its chain over n more positions, for two elements."""
    pairs = tuple(f32(values[i]) for i in range(n))
    STEP = portion(HEADS, 4 * n)  # in vector registers, of which fewer are left
    for first in unroll(0, HEADS, STEP):
        next_portion(first)
        for i in unroll(n):
            for h in unroll(first, min(first + STEP, HEADS)):
                e = weights[h][i]
                for k in unroll(2):
                    sums[2 * h + k] = fma(e, pairs[i][k], sums[2 * h + k])


@inline
def add_some(v: ptr[i8], scales: ptr[f16], stride: u32, weights, sums, n: int, HEADS: int):
    """sums[h] = its chain over n more positions, for two elements; v, scales: those of the first position."""
    pairs = tuple(load(v + i * stride, lanes=2, align=2) for i in range(n))
    factors = tuple(scales[(stride >> GROUP_SHIFT) * i] for i in range(n))
    values = tuple(f32(pairs[i]) * splat(f32(factors[i]), 2) for i in range(n))
    add_values(values, weights, sums, n, HEADS)


@inline
def weigh_quantized(
    base: ptr[f16], pages, es, sums, kv_head: u32, element: u32, begin: u32, count: u32, n_kv: u32, HEADS: int,
    WIDTH: int,
):  # fmt: skip
    """sums[h] = the chains over the split's positions begin .. count - 1, for two elements; es: each head's weights."""
    stride = n_kv * WIDTH
    at = kv_head * WIDTH + element
    for page in range(begin >> PAGE_SHIFT, (count + (PAGE_TOKENS - 1)) >> PAGE_SHIFT):
        quants = page_of(base, pages[page], stride)
        v = cast(quants + at, ptr[i8])
        scales = scales_of(quants, stride) + (at >> GROUP_SHIFT)
        start = page * PAGE_TOKENS
        first = select(begin > start, begin - start, start - start)
        left = count - start
        stop = select(left < PAGE_TOKENS, left, left - left + PAGE_TOKENS)
        fours = stop - ((stop - first) & 3)
        for t in range(first, fours, 4):
            weights = tuple(p + (start + t) for p in es)
            add_some(v + t * stride, scales + t * (stride >> GROUP_SHIFT), stride, weights, sums, 4, HEADS)
        for t in range(fours, stop):
            weights = tuple(p + (start + t) for p in es)
            add_some(v + t * stride, scales + t * (stride >> GROUP_SHIFT), stride, weights, sums, 1, HEADS)

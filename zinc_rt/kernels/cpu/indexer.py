"""Scores of an indexer's candidates, and the choice of the best of them; see `zinc_rt.ir.ops.indexer`."""

from __future__ import annotations

from zinc_rt.kernels.cpu.routing import choice_key
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, fma, iota, load, reduce_add, regs, select, splat, store, unroll
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, struct, u32, vec
from zinc_rt.numerics import PAGE_SHIFT, PAGE_TOKENS

PARTS = 8
"""Units of a row's scores: each has every eighth page."""
SIGN = 0x80000000


@struct
class IndexScoresArgs:
    """q: f32[rows, HEADS, DIM]. k_cache: f16[page, DIM, 16]. weights: f32[rows, HEADS]. y: f32[rows, n]."""

    q: ptr[f32]
    k_cache: ptr[f16]
    weights: ptr[f32]
    y: ptr[f32]
    scale: f32


@struct
class IndexChoiceArgs:
    """scores: f32[rows, max_pages * 16]. y: i32[rows, max_pages]. top_k: positions that a row keeps."""

    scores: ptr[f32]
    y: ptr[i32]
    top_k: i32


@kernel
def index_scores(
    a: ptr[IndexScoresArgs], step: ptr[StepRecord], first: i32, last: i32, HEADS: int, DIM: int, BLOCK: int,
    WEIGHTED: bool, W: int,
):  # fmt: skip
    """Units: (row, part of its pages)."""
    H = PAGE_TOKENS // W
    TOGETHER = max(h for h in (4, 2, 1) if HEADS % h == 0)
    page_scores = array(f32, PAGE_TOKENS, zero=False)
    for u in range(first, last):
        row = i32(u32(u) // PARTS)
        length = step.positions[row] + 1
        pages = step.page_table + i64(step.slots[row]) * i64(step.max_pages)
        q = a.q + i64(row) * (HEADS * DIM)
        weights = a.weights + i64(row) * HEADS
        y = a.y + i64(row) * (i64(step.max_pages) * PAGE_TOKENS)
        for p in range(u - row * PARTS, (length + (PAGE_TOKENS - 1)) >> PAGE_SHIFT, PARTS):
            keys = a.k_cache + i64(pages[p]) * (PAGE_TOKENS * DIM)
            total = regs(vec[f32, W], H)
            for head in range(0, HEADS, TOGETHER):
                acc = regs(vec[f32, W], TOGETHER * H)
                for d in range(DIM):
                    k = tuple(f32(load(keys, d * PAGE_TOKENS + h * W, lanes=W)) for h in range(H))
                    for i in unroll(TOGETHER):
                        element = splat(load(q, (head + i) * DIM + d), W)
                        for h in unroll(H):
                            acc[i * H + h] = fma(k[h], element, acc[i * H + h])
                for i in unroll(TOGETHER):
                    for h in unroll(H):
                        passed = select(acc[i * H + h] < 0.0, 0.0, acc[i * H + h])
                        if WEIGHTED:
                            total[h] = fma(passed, splat(load(weights, head + i), W), total[h])
                        else:
                            total[h] = total[h] + passed
            for h in unroll(H):
                scaled = total[h] * splat(a.scale, W)
                if BLOCK == 1:
                    store(y, scaled, p * PAGE_TOKENS + h * W)
                else:
                    store(page_scores, scaled, h * W)
            if BLOCK > 1:
                # Of the page's positions those that end a block have its score.
                place: i32 = i32(u32(p * PAGE_TOKENS) // BLOCK)
                at: i32 = place * BLOCK + (BLOCK - 1) - p * PAGE_TOKENS
                while at < PAGE_TOKENS:
                    y[place] = page_scores[at]
                    place += 1
                    at += BLOCK


@inline
def no_less(scores, bound: i32, n: i32, W: int):
    """How many of n scores have keys no less than a bound."""
    count: vec[i32, W] = 0
    for at in range(0, n, W):
        live = (choice_key(load(scores, at, lanes=W)) >= splat(bound, W)) & (iota(i32, W) < splat(n - at, W))
        count = count + select(live, splat(i32(1), W), 0)
    return reduce_add(count)


@inline
def bound_of(scores, n: i32, keep: i32, W: int):
    """The greatest key that no fewer than `keep` of n scores reach, bit by bit."""
    bound: u32 = 0
    bit: u32 = SIGN
    while bit != 0:
        if no_less(scores, i32((bound | bit) ^ SIGN), n, W) >= keep:
            bound = bound | bit
        bit = bit >> 1
    return i32(bound ^ SIGN)


@inline
def see(y, position: i32):
    """Set the bit of a position."""
    y[position >> PAGE_SHIFT] = y[position >> PAGE_SHIFT] | (i32(1) << (position & (PAGE_TOKENS - 1)))


@kernel
def index_choice(a: ptr[IndexChoiceArgs], step: ptr[StepRecord], first: i32, last: i32, BLOCK: int, W: int):
    """Units: rows."""
    some = array(i32, W, zero=False)
    for row in range(first, last):
        length = step.positions[row] + 1
        n = i32(u32(length) // BLOCK)
        keep = i32(u32(a.top_k + (BLOCK - 1) - (length - n * BLOCK)) // BLOCK)
        scores = a.scores + i64(row) * (i64(step.max_pages) * PAGE_TOKENS)
        y = a.y + i64(row) * i64(step.max_pages)
        full: i32 = 0
        if keep >= n:
            full = (1 << PAGE_TOKENS) - 1
        for p in range((length + (PAGE_TOKENS - 1)) >> PAGE_SHIFT):
            y[p] = full
        if keep < n:
            bound = bound_of(scores, n, keep, W)
            equal: i32 = keep
            if bound != 0x7FFFFFFF:
                equal = keep - no_less(scores, bound + 1, n, W)
            for at in range(0, n, W):
                store(some, choice_key(load(scores, at, lanes=W)), 0)
                for i in range(W):
                    if at + i < n and some[i] >= bound:
                        if some[i] > bound or equal > 0:
                            for j in range(BLOCK):
                                see(y, (at + i) * BLOCK + j)
                            if some[i] == bound:
                                equal -= 1
            for position in range(n * BLOCK, length):
                see(y, position)

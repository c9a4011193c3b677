"""Weights of scores, their sums in blocks, and the draw (docs/how/sampling.md, stages 5, 7 and 8)."""

from __future__ import annotations

from zinc_rt.kernels.cpu.sampling_math import exp, greater
from zinc_rt.kernels.cpu.sampling_select import PAD, padded
from zinc_rt.kernels.sampling_math import below_top
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import any_of, iota, load, regs, select, splat, store, unroll, zeros
from zinc_rt.lang.types import f64, i32, ptr, vec
from zinc_rt.numerics import EXP_LOWEST, SUM_BLOCK

BLOCK_SHIFT = SUM_BLOCK.bit_length() - 1


@inline
def plain_weights(pool: ptr[f64], at: i32, top: f64, table, W: int):
    """e ** (score - top)."""
    offset = below_top(load(pool, at, lanes=W), splat(top, W))
    w = zeros(vec[f64, W])
    if any_of(offset >= EXP_LOWEST):
        w = exp(offset, table, W)
    return w


@inline
def final_weights(pool: ptr[f64], at: i32, top: f64, row, bound: f64, last: i32, table, W: int):
    """What is drawn by: 0 where top-p (by bound and last) or min-p drops a token."""
    score = load(pool, at, lanes=W)
    offset = below_top(score, splat(top, W))
    place: vec[i32, W] = iota(i32, W) + splat(at, W)
    kept = ((score > splat(bound, W)) | ((score == splat(bound, W)) & (place <= splat(last, W)))) & (
        offset >= splat(row.least_drawn, W)
    )
    w = zeros(vec[f64, W])
    if any_of(kept):
        if row.min_p > 0.0:
            if any_of(kept & (offset < splat(row.sure_kept, W))):
                kept = kept & (exp(offset, table, W) >= splat(row.min_p, W))
        w = select(kept, exp(offset / splat(row.temperature, W), table, W), 0.0)
    return w


@inline
def add_blocks(buffer: ptr[f64], ends: ptr[f64]):
    """The sums of PAD weights by blocks, each from left to right."""
    sums = regs(f64, PAD // SUM_BLOCK)
    for i in range(SUM_BLOCK):
        for b in unroll(PAD // SUM_BLOCK):
            sums[b] = sums[b] + buffer[b * SUM_BLOCK + i]
    for b in unroll(PAD // SUM_BLOCK):
        ends[b] = sums[b]


@inline
def add_ends(n: i32, ends: ptr[f64]):
    """Sums of blocks become running sums; returns the last."""
    total: f64 = 0.0
    for b in range((n + (SUM_BLOCK - 1)) >> BLOCK_SHIFT):
        total += ends[b]
        ends[b] = total
    return total


@inline
def sum_plain(pool: ptr[f64], n: i32, top: f64, known: i32, s, table, W: int):
    """s.weights = e ** (score - top), unless they are known to be there; returns the sum of all by blocks."""
    for part in range(0, padded(n), PAD):
        if known == 0:
            for at in range(part, part + PAD, W):
                store(s.weights, plain_weights(pool, at, top, table, W), at)
        add_blocks(s.weights + part, s.ends + (part >> BLOCK_SHIFT))
    return add_ends(n, s.ends)


@inline
def sum_final(pool: ptr[f64], n: i32, top: f64, row, bound: f64, last: i32, s, table, W: int):
    """s.ends = the running sums, at the end of each block, of what is drawn by; returns the last."""
    for part in range(0, padded(n), PAD):
        most: vec[f64, W] = 0.0
        for at in range(0, PAD, W):
            w = final_weights(pool, part + at, top, row, bound, last, table, W)
            store(s.weights, w, at)
            most = greater(w, most)
        ends = s.ends + (part >> BLOCK_SHIFT)
        if any_of(most > 0.0):
            add_blocks(s.weights, ends)
        else:
            for b in unroll(PAD // SUM_BLOCK):
                ends[b] = 0.0
    return add_ends(n, s.ends)


@inline
def draw(pool: ptr[f64], n: i32, top: f64, row, bound: f64, last: i32, share: f64, s, table, W: int):
    """The first token whose running sum is above its share of all."""
    target = share * sum_final(pool, n, top, row, bound, last, s, table, W)
    block: i32 = 0
    before: f64 = 0.0
    while s.ends[block] <= target:
        before = s.ends[block]
        block += 1
    first = block * SUM_BLOCK
    for at in range(0, SUM_BLOCK, W):
        store(s.weights, final_weights(pool, first + at, top, row, bound, last, table, W), at)
    running: f64 = s.weights[0]
    i: i32 = 0
    while before + running <= target:
        i += 1
        running += s.weights[i]
    return first + i

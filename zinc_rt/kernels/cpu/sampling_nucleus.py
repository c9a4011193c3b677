"""What top-p keeps (docs/how/sampling.md, stage 6)."""

from __future__ import annotations

from zinc_rt.kernels.cpu.sampling_narrow import BINS, narrow
from zinc_rt.kernels.cpu.sampling_select import CAP, collect_values, padded, sort_falling
from zinc_rt.kernels.cpu.sampling_weights import plain_weights, sum_plain
from zinc_rt.kernels.maths import INFINITY
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import all_of, any_of, bitcast, load, splat, store, unroll
from zinc_rt.lang.types import f64, i32, ptr, u32, u64
from zinc_rt.numerics import EXP_LOWEST

LN2 = 0.6931471805599454
"""A little above ln 2."""
SLACK = 1e-9
"""What bounds of offsets are lowered by: far more than any rounding of them."""


@inline
def share_bound(top_p: f64, total: f64, n: i32):
    """An offset below which all weights together are less than what top-p may leave out."""
    least = (1.0 - top_p) * total * 0.99 / f64(n)
    # 2 to the exponent is not above that weight.
    bound: f64 = f64(i32(bitcast(least, u64) >> 52) - 1023) * LN2
    if bound > 0.0:
        bound = 0.0
    if bound < EXP_LOWEST:
        bound = EXP_LOWEST
    return bound


@inline
def weigh(v: ptr[f64], n: i32, top: f64, w: ptr[f64], table, W: int):
    """w = e ** (v - top) of n scores; what lies behind them, up to a multiple of W, may be anything."""
    for at in range(0, n, W):
        store(w, plain_weights(v, at, top, table, W), at)


@inline
def drop_least(v: ptr[f64], w: ptr[f64], n: i32, min_p: f64):
    """Leave the scores that min-p keeps; how many."""
    kept: i32 = 0
    for i in range(n):
        weight = w[i]
        v[kept] = v[i]
        w[kept] = weight
        kept += i32(weight >= min_p)
    return kept


@inline
def tie_place(pool: ptr[f64], wanted: f64, ties: i32, W: int):
    """The place of the ties-th score that equals `wanted`; there are so many."""
    left: i32 = ties
    at: i32 = 0
    place: i32 = 0
    while left > 0:
        if any_of(load(pool, at, lanes=W) == splat(wanted, W)):
            for i in range(at, at + W):
                if left > 0 and pool[i] == wanted:
                    left -= 1
                    place = i
        at += W
    return place


@inline
def collect_weighed(pool: ptr[f64], n: i32, lowest: f64, row, v: ptr[f64], w: ptr[f64], W: int):
    """v = scores from `lowest` on that min-p keeps, and w = their weights, which lie in w by place; how many."""
    bound = splat(lowest, W)
    m: i32 = 0
    for at in range(0, n, W):
        x = load(pool, at, lanes=W)
        inside = x >= bound
        if any_of(inside):
            weights = load(w, at, lanes=W)
            inside = inside & (weights >= splat(row.min_p, W))
            if all_of(inside):
                store(v, x, m)
                store(w, weights, m)
                m += W
            else:
                marks = u32(inside)
                for i in unroll(W):
                    v[m] = x[i]
                    w[m] = weights[i]
                    m += i32(marks[i])
    return m


@inline
def nucleus(pool: ptr[f64], n: i32, top: f64, known: i32, row, s, table, W: int):
    """What top-p keeps: scores above a bound, and those equal to it up to a place; and whether this is certain.

    The definition adds weights in one chain from the greatest down. Up to CAP tokens this does the same. Beyond that
    greater ones are added by bins. A sum of m terms in any order is off by less than m * 2^-53 of itself, so the sums
    at the crossing and before it are compared with the target with room for both errors. known: whether s.weights has
    the weights of all.
    """
    total = sum_plain(pool, n, top, known, s, table, W)
    target = row.top_p * total
    size = padded(n)
    v = s.list
    w = s.weights
    # What min-p drops, and what is too little to count, need not be looked at.
    offset: f64 = share_bound(row.top_p, total, n)
    complete: i32 = 0
    if offset <= EXP_LOWEST:
        complete = 1
    if row.min_p > 0.0 and row.least_kept >= offset:
        offset = row.least_kept
        complete = 1
    low = top + (offset - SLACK)
    m: i32 = collect_weighed(pool, size, low, row, v, w, W)
    m, above, weight_above, least, most = narrow(v, w, m, low, top, target, True, W)
    if above > 0 and above + m <= CAP:
        above = 0
        weight_above = 0.0
        m = collect_values(pool, size, least, v, W)
        most = top
        if row.min_p > 0.0:
            weigh(v, m, top, w, table, W)
            m = drop_least(v, w, m, row.min_p)
    bound: f64 = -INFINITY
    last: i32 = 0x7FFFFFFF
    certain: i32 = 0
    if m > 0 and (m <= CAP or least == most):
        if m <= CAP:
            sort_falling(v, m)
        weigh(v, m, top, w, table, W)
        running: f64 = weight_above
        before: f64 = weight_above
        j: i32 = 0
        while j < m and (running < target or j == 0):
            before = running
            running += w[j]
            j += 1
        slack: f64 = 0.0
        if above > 0:
            slack = running * (f64(above + m + 64 * BINS) * 2.0**-51)
        if running - slack >= target and (before + slack < target or (above == 0 and j == 1)):
            certain = 1
            bound = v[j - 1]
            first: i32 = j - 1
            while first > 0 and v[first - 1] == bound:
                first -= 1
            last = tie_place(pool, bound, j - first, W)
        elif running + slack < target and complete == 1:
            certain = 1
    return bound, last, certain

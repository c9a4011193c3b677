"""Rows of logits to tokens by the rules of docs/how/sampling.md, every parameter included; a unit of work is a row.

The result is that of `sampling.sampler.Sampler`, to the bit of log-probabilities; or the status says that the host must
choose.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.packs import not_null
from zinc_rt.kernels.cpu.sampling_math import exp, log
from zinc_rt.kernels.cpu.sampling_narrow import narrow, span
from zinc_rt.kernels.cpu.sampling_nucleus import nucleus
from zinc_rt.kernels.cpu.sampling_select import (
    CAP,
    GROUP,
    GROUP_SHIFT,
    collect,
    collect_values,
    count_from,
    fill,
    find_maxima,
    first_of,
    keep_first,
    kth_largest,
    padded,
    sort_falling,
)
from zinc_rt.kernels.cpu.sampling_weights import draw
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.kernels.maths import INFINITY
from zinc_rt.kernels.sampling_math import below_top, ranked, uniform
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    atomic_cas,
    atomic_store,
    cast,
    cycle_counter,
    iota,
    load,
    reduce_add,
    select,
    splat,
    store,
    unroll,
    zeros,
)
from zinc_rt.lang.types import f32, f64, i32, i64, ptr, struct, u32, u64, vec

HOST, CHOSEN, DEGENERATE = 0, 1, 2
"""Status of a row: the host chooses, a token was chosen, there is none to choose."""
MOST_TOP = 20
"""Log-probabilities of the likeliest tokens at the most."""
LEAST_FINITE = -1.7976931348623157e308
SMALL = 8192
"""Scores whose k-th greatest is found by bits alone."""


@struct
class SampleRow:
    """A row's parameters; null where there is none. Offsets from the greatest score: min-p drops all below least_kept,
    none from sure_kept on, and what is below least_drawn is not drawn. n_top: log-probabilities of likeliest tokens;
    -1: none at all.
    """

    temperature: f64  # 0: the greatest score wins
    top_p: f64
    min_p: f64
    least_kept: f64
    least_drawn: f64
    sure_kept: f64
    repetition: f64
    frequency: f64
    presence: f64
    seed: u64
    step: u64  # index of the token in its text
    mask: ptr[u32]
    recent: ptr[i32]  # [n_recent]: tokens that penalties count
    bias_ids: ptr[i64]  # [n_bias]
    bias: ptr[f64]
    n_recent: i32
    n_bias: i32
    top_k: i32  # tokens that stay; n for all
    n_top: i32
    native: i32  # 0: the host chooses
    plain: i32  # 1: the likeliest token is the choice where the mask allows it


@struct
class SampleScratch:
    """Memory of a row that is worked on; n is padded."""

    scores: ptr[f64]  # [n]
    pool: ptr[f64]  # [n + GROUP], what top-k keeps
    ids: ptr[i32]  # [n + GROUP], its tokens
    list: ptr[f64]  # [n + GROUP], scores without order
    weights: ptr[f64]  # [n + GROUP]
    maxima: ptr[f64]  # [n / GROUP * lanes]
    ends: ptr[f64]  # [n / SUM_BLOCK]
    counts: ptr[i32]  # [n], 0 between rows


@struct
class SampleArgs:
    """free: [n_scratch], 0 where a scratch is not in use. likeliest: null where rows have more logits than tokens."""

    rows: ptr[SampleRow]
    scratch: ptr[SampleScratch]
    free: ptr[u32]
    logits: ptr[f32]  # [rows, stride]
    likeliest: ptr[i32]  # [rows]
    table: ptr[u64]  # [128], of exp
    tokens: ptr[i32]  # [rows]
    status: ptr[i32]  # [rows]
    nans: ptr[i32]  # [rows]: logits that are NaN
    logprobs: ptr[f64]  # [rows]
    top_ids: ptr[i32]  # [rows, MOST_TOP]
    top_logprobs: ptr[f64]  # [rows, MOST_TOP]
    begun: ptr[i64]  # [rows]: the cycle counter before the row and behind it
    ended: ptr[i64]
    stride: i64
    n: i32
    n_scratch: i32


@inline
def load_scores(x: ptr[f32], n: i32, mask: ptr[u32], scores: ptr[f64], W: int):
    """Logits as scores: -infinity for NaN, for what the mask forbids, and as padding; how many are NaN."""
    nans = zeros(vec[i64, W])
    whole = n & -32
    for at in range(0, whole, 32):
        word: u32 = 0xFFFFFFFF
        if not_null(mask):
            word = mask[at >> 5]
        bits = splat(word, W)
        for i in unroll(0, 32, W):
            v = f64(load(x, at + i, lanes=W))
            number = v == v  # noqa: PLR0124
            nans = nans + i64(v != v)  # noqa: PLR0124  only NaN differs from itself
            kept = number & (((bits >> (iota(u32, W) + i)) & 1) != 0)
            store(scores, select(kept, v, -INFINITY), at + i)
    found: i32 = i32(reduce_add(nans))
    for at in range(whole, n):
        one = f64(x[at])
        found += i32(one != one)  # noqa: PLR0124
        allowed: u32 = 1
        if not_null(mask):
            allowed = (mask[at >> 5] >> u32(at & 31)) & 1
        scores[at] = select(allowed != 0, ranked(one), -INFINITY)
    fill(scores, n, padded(n))
    return found


@inline
def apply_mask(mask: ptr[u32], n: i32, scores: ptr[f64], weights: ptr[f64], W: int):
    """-infinity for what the mask forbids, and the weight 0."""
    for at in range(0, n, 32):
        bits = splat(mask[at >> 5], W)
        for i in unroll(0, 32, W):
            kept = ((bits >> (iota(u32, W) + i)) & 1) != 0
            store(scores, select(kept, load(scores, at + i, lanes=W), -INFINITY), at + i)
            store(weights, select(kept, load(weights, at + i, lanes=W), 0.0), at + i)


@inline
def adjust(row, n: i32, scores: ptr[f64], counts: ptr[i32]):
    """Bias, then penalties, in place; whether all recent tokens are tokens."""
    for i in range(row.n_bias):
        token = row.bias_ids[i]
        scores[token] = ranked(scores[token] + row.bias[i])
    good: i32 = 1
    for i in range(row.n_recent):
        token = row.recent[i]
        if u32(token) < u32(n):
            counts[token] = counts[token] + 1
        else:
            good = 0
    for i in range(row.n_recent):
        token = row.recent[i]
        if u32(token) < u32(n):
            count = counts[token]
            if count != 0:
                counts[token] = 0
                score: f64 = scores[token]
                score = select(score <= 0.0, score * row.repetition, score / row.repetition)
                scores[token] = ranked(score - (f64(count) * row.frequency + row.presence))
    return good


@inline
def bound_of_many(s, n: i32, k: i32, top: f64, FEW: bool, W: int):
    """The k-th greatest of n scores where k is no small part of them; k < n. FEW: there are not many either."""
    bound: f64 = -INFINITY
    by_bits: i32 = 1
    if not FEW:
        if n > SMALL and top < INFINITY:
            v = s.list
            m: i32 = collect_values(s.scores, padded(n), LEAST_FINITE, v, W)
            by_bits = 0
            if m >= k:
                low, high = span(v, m, W)
                m, above, _, least, most = narrow(v, s.weights, m, low, high, f64(k), False, W)
                if least == most:
                    bound = least
                elif m <= CAP:
                    sort_falling(v, m)
                    bound = v[k - above - 1]
                else:
                    by_bits = 1
    if by_bits != 0:
        bound = kth_largest(s.scores, padded(n), k, W)
    return bound


@inline
def keep_top(s, n: i32, k: i32, top: f64, FEW: bool, W: int):
    """s.pool, s.ids = the k greatest scores and their tokens, of equal ones the first, by rising token. k: up to n;
    FEW: up to MOST_TOP.
    """
    size = padded(n)
    bound: f64 = -INFINITY
    exact: i32 = 1
    if k < n:
        if k * (GROUP // W) < n:
            bound = kth_largest(s.maxima, (size >> GROUP_SHIFT) * W, k, W)
            exact = 0
        else:
            bound = bound_of_many(s, n, k, top, FEW, W)
    m: i32 = collect(s.scores, size, n, bound, s.maxima, s.pool, s.ids, W)
    whole = (m + (4 * W - 1)) & -(4 * W)
    fill(s.pool, m, whole)
    above: i32 = count_from(s.pool, whole, bound, True, W)
    # A bound that maxima gave is that of the scores only where too few are above it.
    if exact == 0 and above >= k:
        bound = kth_largest(s.pool, whole, k, W)
        above = count_from(s.pool, whole, bound, True, W)
    keep_first(s.pool, s.ids, m, bound, k - above)


@inline
def choose(row, s, n: i32, top: f64, weighed: i32, table, W: int):
    """The token of scores whose greatest is `top`; -1: the host must choose. weighed: s.weights has their weights."""
    token: i32 = -1
    if row.temperature == 0.0:
        token = first_of(s.scores, n, top, W)
    else:
        count: i32 = n
        known: i32 = weighed
        pool: ptr[f64] = s.scores
        if row.top_k < n:
            keep_top(s, n, row.top_k, top, False, W)
            count = row.top_k
            pool = s.pool
            known = 0
            fill(pool, count, padded(count))
        bound: f64 = -INFINITY
        last: i32 = 0x7FFFFFFF
        certain: i32 = 1
        if row.top_p < 1.0:
            bound, last, certain = nucleus(pool, count, top, known, row, s, table, W)
        if certain != 0:
            token = draw(pool, count, top, row, bound, last, uniform(row.seed, row.step), s, table, W)
            if row.top_k < n:
                token = s.ids[token]
    return token


@inline
def sum_exponentials(scores: ptr[f64], n: i32, top: f64, weights: ptr[f64], table, W: int):
    """weights = e ** (score - top); returns their sum, one chain from left to right."""
    total: f64 = 0.0
    for at in range(0, padded(n), W):
        w = exp(below_top(load(scores, at, lanes=W), splat(top, W)), table, W)
        store(weights, w, at)
        for i in unroll(W):
            total = total + w[i]
    return total


@inline
def likeliest_tokens(row, s, n: i32, top: f64, log_total: f64, ids: ptr[i32], logprobs: ptr[f64], W: int):
    """The n_top most likely tokens, the likeliest first, of equal ones the lowest."""
    k: i32 = row.n_top
    if k > n:
        k = n
    keep_top(s, n, k, top, True, W)
    for i in range(k):
        score = s.pool[i]
        at: i32 = i
        while at > 0 and logprobs[at - 1] < score:
            logprobs[at] = logprobs[at - 1]
            ids[at] = ids[at - 1]
            at -= 1
        logprobs[at] = score
        ids[at] = s.ids[i]
    for i in range(k):
        logprobs[i] = below_top(logprobs[i], top) - log_total


@inline
def sample_row(a, row, s, unit: i32, W: int):
    """Write a row's results; returns its status."""
    n = a.n
    x = a.logits + i64(unit) * a.stride
    nowhere: u64 = 0
    mask: ptr[u32] = row.mask
    if row.n_top >= 0:
        mask = cast(nowhere, ptr[u32])
    a.nans[unit] = load_scores(x, n, mask, s.scores, W)
    top: f64 = find_maxima(s.scores, n, s.maxima, W)
    model_top: f64 = top
    log_total: f64 = 0.0
    changed: i32 = 0
    weighed: i32 = 0
    if row.n_top >= 0 and top > -INFINITY:
        weighed = 1
        log_total = log(sum_exponentials(s.scores, n, top, s.weights, a.table, W))
        if row.n_top > 0:
            ids = a.top_ids + unit * MOST_TOP
            likeliest_tokens(row, s, n, top, log_total, ids, a.top_logprobs + unit * MOST_TOP, W)
        if not_null(row.mask):
            apply_mask(row.mask, n, s.scores, s.weights, W)
            changed = 1
    good: i32 = 1
    if row.n_bias + row.n_recent > 0:
        good = adjust(row, n, s.scores, s.counts)
        weighed = 0
        changed = 1
    if changed != 0:
        top = find_maxima(s.scores, n, s.maxima, W)
    if top != model_top:
        weighed = 0
    status: i32 = HOST
    if good != 0:
        if top == -INFINITY:
            status = DEGENERATE
        else:
            token = choose(row, s, n, top, weighed, a.table, W)
            if token >= 0:
                a.tokens[unit] = token
                a.logprobs[unit] = below_top(ranked(f64(x[token])), model_top) - log_total
                status = CHOSEN
    return status


@kernel
def sample(a: ptr[SampleArgs], step: ptr[StepRecord], first: i32, last: i32, W: int):
    """Units: rows of logits."""
    slot: i32 = 0
    while atomic_cas(a.free, 0, 1, slot) != 0:
        slot += 1
        if slot == a.n_scratch:
            slot = 0
    s = a.scratch[slot]
    for unit in range(first, last):
        a.begun[unit] = cycle_counter()
        row = a.rows[unit]
        status: i32 = HOST
        wanted: i32 = row.native
        if wanted != 0 and row.plain != 0 and not_null(a.likeliest):
            token = a.likeliest[unit]
            if (row.mask[token >> 5] >> u32(token & 31)) & 1 != 0:
                if a.logits[i64(unit) * a.stride + i64(token)] > -INFINITY:
                    wanted = 0
        if wanted != 0:
            status = sample_row(a, row, s, unit, W)
        a.status[unit] = status
        a.ended[unit] = cycle_counter()
    atomic_store(a.free, 0, slot)

"""What attention does between scores and values: the scores of a split to exponentials, with their max and sum.

Vectors here are several registers wide, so that the long chain of an exponential runs for all of them side by side.
"""

from __future__ import annotations

from zinc_rt.kernels.maths import INFINITY, exp, exp_of_normal, tanh
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import (
    absolute,
    bitcast,
    high,
    iota,
    load,
    low,
    reduce_add,
    reduce_max,
    select,
    splat,
    store,
    unroll,
    zeros,
)
from zinc_rt.lang.types import f32, i32, u32, u64, vec
from zinc_rt.numerics import LEAST_TOP, PAGE_SHIFT, PAGE_TOKENS, TREE_LANES

NORMAL = -86.0
"""From here up to 0 exponentials are normal numbers."""


@inline
def seen(at: i32, begin: i32, count: i32, W: int, WINDOWED: bool):
    """Which of the positions from `at` on a query sees."""
    live = iota(i32, W) < splat(count - at, W)
    if WINDOWED:
        return live & (iota(i32, W) >= splat(begin - at, W))
    return live


@inline
def all_seen(at: i32, begin: i32, count: i32, W: int, WINDOWED: bool):
    """Whether a query sees all of W positions from `at` on."""
    if WINDOWED:
        return at + W <= count and at >= begin
    return at + W <= count


@inline
def scaled(a, score, W: int, CAPPED: bool):
    """Scores from products."""
    x = score * splat(a.scale, W)
    if CAPPED:
        return splat(a.softcap, W) * tanh(x / splat(a.softcap, W))
    return x


@inline
def slope_down(sums, scale: f32, slope: f32, own: i32, count: i32, W: int):
    """Scores of one query from products, less the slope for each position between a key's and its own."""
    for at in range(0, count, W):
        between = absolute(f32(iota(i32, W) + splat(at - own, W)))
        store(sums, load(sums, at, lanes=W) * splat(scale, W) - splat(slope, W) * between, at)


@inline
def exp_of_difference(x, W: int):
    """e^x of what is not above 0, or NaN."""
    y: vec[f32, W] = 0.0
    if bitcast(x >= NORMAL, u64 if W == 64 else u32) == (1 << W) - 1:
        y = exp_of_normal(x)
    else:
        y = exp(x)
    return y


@inline
def hide_unchosen(sums, words, count: i32, W: int):
    """-infinity as the product of positions below `count` that a query does not see; words: their bits, by page."""
    for page in range((count + (PAGE_TOKENS - 1)) >> PAGE_SHIFT):
        word = words[page]
        if word != (1 << PAGE_TOKENS) - 1:
            for at in unroll(0, PAGE_TOKENS, W):
                own = sums + (page * PAGE_TOKENS + at)
                bit = splat(word, W) & (zeros(vec[i32, W]) + 1 << (iota(i32, W) + at))
                store(own, select(bit == 0, -INFINITY, load(own, lanes=W)))


@inline
def weigh(
    a, sums, out, begin: i32, count: i32, VALUE: int, W: int, WINDOWED: bool, CAPPED: bool, CHOSEN: bool = False,
    SCALED: bool = False,
):  # fmt: skip
    """Scores of one query to exponentials; their max and sum to out[VALUE], out[VALUE + 1].

    Positions that the query does not see get weights of 0, or stay as they are. CHOSEN: some products are -infinity.
    SCALED: they are scores already, and no products.
    """
    WIDE = max(TREE_LANES, 4 * W)
    start: i32 = 0
    if WINDOWED:
        start = begin & -WIDE
    top: vec[f32, WIDE] = LEAST_TOP if CHOSEN else -INFINITY
    for at in range(start, count, WIDE):
        score: vec[f32, WIDE] = load(sums, at, lanes=WIDE)
        if not SCALED:
            score = scaled(a, score, WIDE, CAPPED)
        if not all_seen(at, begin, count, WIDE, WINDOWED):
            score = select(seen(at, begin, count, WIDE, WINDOWED), score, -INFINITY)
        store(sums, score, at)
        # A NaN need not show in the maximum: its exponential is NaN, and so is every output.
        top = select(score > top, score, top)
    m = reduce_max(top)
    lane: vec[f32, TREE_LANES] = 0.0
    for at in range(start, count, WIDE):
        x: vec[f32, WIDE] = load(sums, at, lanes=WIDE) - splat(m, WIDE)
        live = seen(at, begin, count, WIDE, WINDOWED)
        whole = all_seen(at, begin, count, WIDE, WINDOWED)
        if not whole:
            # Hidden positions take e^0: e^-inf would go through subnormal numbers, which are slow.
            x = select(live, x, 0.0)
        e: vec[f32, WIDE] = exp_of_difference(x, WIDE)
        if not whole:
            e = select(live, e, 0.0)
        store(sums, e, at)
        if WIDE == 2 * TREE_LANES:
            lane = (lane + low(e)) + high(e)
        else:
            lane = lane + e
    out[VALUE] = m
    out[VALUE + 1] = reduce_add(lane)

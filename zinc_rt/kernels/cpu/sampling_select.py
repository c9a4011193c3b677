"""Finding the k greatest of many scores: bounds by the maxima of stretches, and thresholds by bits of their order.

Arrays of scores are padded with -infinity up to a multiple of PAD.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.sampling_math import greater, greatest
from zinc_rt.kernels.maths import INFINITY
from zinc_rt.kernels.sampling_math import key_score, order_key
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import all_of, any_of, array, load, reduce_add, regs, select, splat, store, unroll
from zinc_rt.lang.types import f64, i32, i64, ptr, u32, u64, vec

PAD = 4096
GROUP = 512
"""Scores whose lanes have a maximum each."""
GROUP_SHIFT = GROUP.bit_length() - 1
CAP = 4096
"""Scores that are sorted at the most."""


@inline
def padded(n: i32):
    """n scores with their padding."""
    return (n + (PAD - 1)) & -PAD


@inline
def fill(v: ptr[f64], begin: i32, end: i32):
    """-infinity from begin to end - 1."""
    for i in range(begin, end):
        v[i] = -INFINITY


@inline
def find_maxima(v: ptr[f64], n: i32, maxima: ptr[f64], W: int):
    """The maxima of each lane of each group, and the greatest score."""
    best: vec[f64, W] = -INFINITY
    for group in range(0, padded(n), GROUP):
        tops = regs(vec[f64, W], 4)
        for i in unroll(4):
            tops[i] = load(v, group + i * W, lanes=W)
        for at in range(group + 4 * W, group + GROUP, 4 * W):
            for i in unroll(4):
                tops[i] = greater(load(v, at + i * W, lanes=W), tops[i])
        top = greater(greater(tops[0], tops[1]), greater(tops[2], tops[3]))
        store(maxima, top, (group >> GROUP_SHIFT) * W)
        best = greater(top, best)
    return greatest(best, W)


@inline
def first_of(v: ptr[f64], n: i32, wanted: f64, W: int):
    """The place of the first score that is `wanted`."""
    at: i32 = 0
    while at < n and not any_of(load(v, at, lanes=W) == splat(wanted, W)):
        at += W
    while v[at] != wanted:
        at += 1
    return at


@inline
def count_from(v: ptr[f64], n: i32, lowest: f64, STRICT: bool, W: int):
    """How many of n scores, a multiple of 4 W, are at least this one, or above it."""
    bound = splat(lowest, W)
    counts = regs(vec[i64, W], 4)
    for at in range(0, n, 4 * W):
        for i in unroll(4):
            x = load(v, at + i * W, lanes=W)
            if STRICT:
                counts[i] = counts[i] + i64(x > bound)
            else:
                counts[i] = counts[i] + i64(x >= bound)
    return i32(reduce_add((counts[0] + counts[1]) + (counts[2] + counts[3])))


@inline
def kth_largest(v: ptr[f64], n: i32, k: i32, W: int):
    """The k-th greatest of n scores, a multiple of 4 W; bit by bit from the highest of its order."""
    key: u64 = 0
    bit: u64 = 1 << 63
    while bit != 0:
        # Beyond the infinities keys are NaN, which nothing reaches.
        found = count_from(v, n, key_score(key | bit), False, W)
        if found >= k:
            key = key | bit
            if found == k:
                break
        bit = bit >> 1
    result: f64 = -INFINITY
    if key != 0:
        # Either the key is that of the score, or so many reach it as are wanted: the least of these.
        least = splat(key_score(key), W)
        low: vec[f64, W] = INFINITY
        for at in range(0, n, W):
            x = load(v, at, lanes=W)
            low = select((x >= least) & (x < low), x, low)
        result = -greatest(-low, W)
    return result


@inline
def collect(v: ptr[f64], size: i32, n: i32, lowest: f64, maxima: ptr[f64], to: ptr[f64], ids: ptr[i32], W: int):
    """Of n scores, padded to size, those from `lowest` on and their places, in order; how many. maxima: see
    `find_maxima`. Room for one more is needed.
    """
    bound = splat(lowest, W)
    m: i32 = 0
    for group in range(0, size, GROUP):
        if any_of(load(maxima, (group >> GROUP_SHIFT) * W, lanes=W) >= bound):
            for at in range(group, group + GROUP, W):
                if any_of(load(v, at, lanes=W) >= bound):
                    for i in range(at, at + W):
                        x = v[i]
                        to[m] = x
                        ids[m] = i
                        m += i32((x >= lowest) & (i < n))
    return m


@inline
def collect_values(v: ptr[f64], n: i32, lowest: f64, to: ptr[f64], W: int):
    """Scores from `lowest` on; how many. Room for W more is needed."""
    bound = splat(lowest, W)
    m: i32 = 0
    for at in range(0, n, W):
        x = load(v, at, lanes=W)
        inside = x >= bound
        if all_of(inside):
            store(to, x, m)
            m += W
        elif any_of(inside):
            for i in range(at, at + W):
                one = v[i]
                to[m] = one
                m += i32(one >= lowest)
    return m


@inline
def keep_first(v: ptr[f64], ids: ptr[i32], m: i32, bound: f64, ties: i32):
    """Of collected scores those above the bound, and the first so many that equal it, in place."""
    kept: i32 = 0
    left: i32 = ties
    for i in range(m):
        x = v[i]
        token = ids[i]
        v[kept] = x
        ids[kept] = token
        if x > bound:
            kept += 1
        elif x == bound and left > 0:
            kept += 1
            left -= 1


@inline
def sort_falling(v: ptr[f64], n: i32):
    """Sort up to CAP scores in place, the greatest first: by 8 bits of their order at a time, from the lowest on."""
    a = array(u64, CAP, zero=False)
    b = array(u64, CAP, zero=False)
    counts = array(i32, 8 * 256)
    for i in range(n):
        key = ~order_key(v[i])
        a[i] = key
        for digit in unroll(8):
            c = counts + (i32(u32(key >> (8 * digit)) & 255) + 256 * digit)
            c[0] = c[0] + 1
    source: ptr[u64] = a
    target: ptr[u64] = b
    for digit in range(8):
        shift = u64(u32(digit)) << 3
        c = counts + digit * 256
        # Where all have one value of the digit, they stay as they are.
        if c[i32(u32(source[0] >> shift) & 255)] != n:
            total: i32 = 0
            for value in range(256):
                here = c[value]
                c[value] = total
                total += here
            for i in range(n):
                key = source[i]
                value = i32(u32(key >> shift) & 255)
                place = c[value]
                target[place] = key
                c[value] = place + 1
            swap = source
            source = target
            target = swap
    for i in range(n):
        v[i] = key_score(~source[i])

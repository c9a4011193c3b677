"""Which score reaches a target, counted or weighed from the greatest down: by histograms, without sorting."""

from __future__ import annotations

from zinc_rt.kernels.cpu.sampling_math import greatest
from zinc_rt.kernels.cpu.sampling_select import CAP
from zinc_rt.kernels.maths import INFINITY
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import any_of, array, bitcast, iota, load, reduce_add, select, splat, store, unroll, zeros
from zinc_rt.lang.types import f64, i32, i64, ptr, u32, u64, vec

BINS = 2048
INTEGER = 2.0**52
"""Added to a number below 2^51 it leaves the nearest integer in the low bits."""
CHUNK = 1024


@inline
def span(v: ptr[f64], m: i32, W: int):
    """The least and the greatest of m scores; room behind them may be read."""
    least: vec[f64, W] = INFINITY
    most: vec[f64, W] = -INFINITY
    for at in range(0, m, W):
        x = load(v, at, lanes=W)
        inside = splat(m - at, W) > iota(i32, W)
        least = select(inside & (x < least), x, least)
        most = select(inside & (x > most), x, most)
    return -greatest(-least, W), greatest(most, W)


@inline
def bins_of(v: ptr[f64], at: i32, highest: f64, scale: f64, W: int):
    """The bins of W scores: of a greater score none that is greater."""
    place = (splat(highest, W) - load(v, at, lanes=W)) * splat(scale, W)
    place = select(place < BINS - 1.0, place, BINS - 1.0)
    return u32(bitcast(place + INTEGER, vec[u64, W]))


@inline
def add_up(
    v: ptr[f64], w: ptr[f64], m: i32, highest: f64, scale: f64, counts: ptr[i32], sums: ptr[f64], WEIGHED: bool, W: int
):
    """How many of m scores are in each bin, or what they weigh."""
    bins = array(u32, CHUNK, zero=False)
    for b in range(BINS):
        if WEIGHED:
            sums[b] = 0.0
        else:
            counts[b] = 0
    for begin in range(0, m, CHUNK):
        end: i32 = begin + CHUNK
        if end > m:
            end = m
        for at in range(begin, end, W):
            store(bins, bins_of(v, at, highest, scale, W), at - begin)
        for i in range(end - begin):
            b = bins[i]
            if WEIGHED:
                sums[b] = sums[b] + w[begin + i]
            else:
                counts[b] = counts[b] + 1


@inline
def keep_bin(v: ptr[f64], w: ptr[f64], m: i32, highest: f64, scale: f64, wanted: u32, WEIGHED: bool, W: int):
    """Leave the scores of a bin, in place; how many there are, and how many were in lower bins."""
    kept: i32 = 0
    lower = zeros(vec[i64, W])
    for at in range(0, m, W):
        bins = bins_of(v, at, highest, scale, W)
        inside = splat(m - at, W) > iota(i32, W)
        lower = lower + i64(inside & (bins < splat(wanted, W)))
        here = inside & (bins == splat(wanted, W))
        if any_of(here):
            marks = u32(here)
            for i in unroll(W):
                v[kept] = v[at + i]
                if WEIGHED:
                    w[kept] = w[at + i]
                kept += i32(marks[i])
    return kept, i32(reduce_add(lower))


@inline
def narrow(v: ptr[f64], w: ptr[f64], n: i32, low: f64, high: f64, target: f64, WEIGHED: bool, W: int):
    """Leave, in place, the scores among which the running sum of their weights from the greatest on reaches the target;
    without weights each counts 1. v and w have room for W more; low and high: bounds of the scores, finite or equal.

    Returns how many are left (at most CAP unless they are equal, or it does not get on), how many greater ones there
    are, the sum of their weights in some order, and bounds of what is left.
    """
    counts = array(i32, BINS, zero=False)
    sums = array(f64, BINS, zero=False)
    m: i32 = n
    above: i32 = 0
    weight_above: f64 = 0.0
    least: f64 = low
    most: f64 = high
    while m > CAP and least < most:
        scale = (BINS - 1.0) / (most - least)
        add_up(v, w, m, most, scale, counts, sums, WEIGHED, W)
        wanted: u32 = 0
        while wanted < BINS - 1:
            here: f64 = 0.0
            if WEIGHED:
                here = sums[wanted]
            else:
                here = f64(counts[wanted])
            if weight_above + here >= target:
                break
            weight_above += here
            wanted += 1
        before = m
        m, lower = keep_bin(v, w, m, most, scale, wanted, WEIGHED, W)
        above += lower
        lowest, highest = span(v, m, W)
        if m == before and lowest == least and highest == most:
            break
        least = lowest
        most = highest
    return m, above, weight_above, least, most

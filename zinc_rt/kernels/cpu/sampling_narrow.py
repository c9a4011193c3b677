"""Which score reaches a target, counted or weighed from the greatest down: by histograms, without sorting."""

from __future__ import annotations

from zinc_rt.kernels.cpu.sampling_math import greatest
from zinc_rt.kernels.cpu.sampling_select import CAP
from zinc_rt.kernels.sampling_math import INFINITY
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import array, bitcast, iota, load, select, splat, store
from zinc_rt.lang.types import f64, i32, ptr, u32, u64, vec

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
def find_bins(v: ptr[f64], begin: i32, end: i32, most: f64, scale: f64, bins: ptr[u32], W: int):
    """The bins of scores begin .. end - 1, up to a multiple of W: of a greater score none that is greater."""
    for at in range(begin, end, W):
        place = (splat(most, W) - load(v, at, lanes=W)) * splat(scale, W)
        place = select(place < BINS - 1.0, place, BINS - 1.0)
        store(bins, u32(bitcast(place + INTEGER, vec[u64, W])), at - begin)


@inline
def narrow(v: ptr[f64], w: ptr[f64], n: i32, target: f64, WEIGHED: bool, W: int):
    """Leave, in place, the scores among which the running sum of their weights from the greatest on reaches the target;
    without weights each counts 1. v has room for W more, all scores are finite or all are equal.

    Returns how many are left (at most CAP unless they are equal, or it does not get on), how many greater ones there
    are, the sum of their weights in some order, and the least and the greatest that is left.
    """
    bins = array(u32, CHUNK, zero=False)
    counts = array(i32, BINS, zero=False)
    sums = array(f64, BINS, zero=False)
    m: i32 = n
    above: i32 = 0
    weight_above: f64 = 0.0
    least, most = span(v, m, W)
    while m > CAP and least < most:
        scale = (BINS - 1.0) / (most - least)
        for b in range(BINS):
            counts[b] = 0
            sums[b] = 0.0
        for begin in range(0, m, CHUNK):
            end: i32 = begin + CHUNK
            if end > m:
                end = m
            find_bins(v, begin, end, most, scale, bins, W)
            for i in range(end - begin):
                b = bins[i]
                counts[b] = counts[b] + 1
                if WEIGHED:
                    sums[b] = sums[b] + w[begin + i]
        wanted: u32 = 0
        while wanted < BINS - 1:
            here: f64 = f64(counts[wanted])
            if WEIGHED:
                here = sums[wanted]
            if weight_above + here >= target:
                break
            weight_above += here
            above += counts[wanted]
            wanted += 1
        kept: i32 = 0
        for begin in range(0, m, CHUNK):
            end: i32 = begin + CHUNK
            if end > m:
                end = m
            find_bins(v, begin, end, most, scale, bins, W)
            for i in range(begin, end):
                v[kept] = v[i]
                if WEIGHED:
                    w[kept] = w[i]
                kept += i32(bins[i - begin] == wanted)
        if kept == m:
            break
        m = kept
        if m > 0:
            least, most = span(v, m, W)
    return m, above, weight_above, least, most

"""Scales of single groups: several are tried, each is fitted by least squares, and the one of the least error stays.

Groups are columns: f32[elements, groups], so that arithmetic runs along contiguous memory. Every weight counts the
same: what a weight is worth is known only where a text has been read with the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from zinc_rt.quantizing.levels import F32, Levels

_RANGE_TRIES: Final = {3: (-0.45, 0.9, 10), 15: (-0.4, 1.2, 9), 31: (-0.3, 1.2, 6)}
"""By the largest integer: the range is divided by so much more than it, from, to, in so many tries."""
_LARGEST_HALF: Final = np.float32(65504)


def inverse(d: F32) -> F32:
    """1 / d, and 0 where that is no number."""
    out = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    return np.where(np.isfinite(out), out, np.float32(0))


def ratio(a: F32, b: F32) -> F32:
    """a / b, and 0 where b is 0 or the quotient is no number."""
    out = np.divide(a, b, out=np.zeros_like(a), where=b != 0)
    return np.where(np.isfinite(out), out, np.float32(0))


def half(d: F32) -> F32:
    """The nearest float16 that is finite."""
    return np.clip(d, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16).astype(np.float32)


def total(a: F32, b: F32) -> F32:
    """The sum of the products of each column."""
    return np.asarray(np.add.reduce(a * b, axis=0), np.float32)


def extreme(x: F32) -> F32:
    """The value of each column that is largest in size."""
    most, least = x.max(axis=0), x.min(axis=0)
    return np.asarray(np.where(most >= -least, most, least), np.float32)


def fit_scale(x: F32, levels: Levels) -> F32:
    """Scales d, f32[groups], such that d times the nearest integers is near x, f32[elements, groups]."""
    towards = inverse(extreme(x))
    best = np.zeros(x.shape[1], np.float32)
    d = np.zeros(x.shape[1], np.float32)
    for target in levels.targets:
        d, best = _better(x, levels.nearest(x * (towards * np.float32(target))), d, best)
    d, best = _better(x, levels.nearest(x * inverse(d)), d, best)
    return d


def _better(x: F32, q: F32, d: F32, best: F32) -> tuple[F32, F32]:
    """The scale of least squares for these integers, where it takes more of the squares away than the best one did."""
    along, size = total(q, x), total(q, q)
    fitted = ratio(along, size)
    gain = along * fitted
    better = gain > best
    return np.where(better, fitted, d), np.where(better, gain, best)


def largest_alike(x: F32) -> tuple[F32, F32, F32]:
    """The scales of the least squared error where the integers are -1, 0 and 1, their negatives, and those for -1 and 1
    alone: f32[groups] each, of x f32[elements, groups].

    The k largest sizes become 1; their mean is the scale, and takes the square of their sum by k away from the error.
    """
    sizes = np.sort(np.abs(x), axis=0)[::-1]
    count = np.arange(1, len(x) + 1, dtype=np.float32)[:, None]
    means = np.add.accumulate(sizes, axis=0) / count
    best = (means * means * count).argmax(axis=0)
    d = np.take_along_axis(means, best[None], axis=0)[0]
    return d, -d, means[-1]


def fit_range(x: F32, top: int, *, below: bool = False) -> tuple[F32, F32]:
    """Scales d and minima m, each f32[groups], such that d * q + m with integers q from 0 to `top` is near x.

    below: m must not be above 0.
    """
    low, high, n = x.min(axis=0), x.max(axis=0), np.float32(len(x))
    if below:
        low = np.minimum(low, np.float32(0))
    wide, sx, sx2 = np.maximum(high - low, np.float32(0)), np.add.reduce(x, axis=0), total(x, x)
    d, m = wide / np.float32(top), low
    best = np.full(x.shape[1], np.inf, np.float32)

    def attempt(step: F32, start: F32) -> None:
        nonlocal d, m, best
        q = integers(x, step, start, top)
        sq, sq2, sqx = np.add.reduce(q, axis=0), total(q, q), total(q, x)
        a = ratio(n * sqx - sx * sq, n * sq2 - sq * sq)
        b = (sx - a * sq) / n
        if below:
            a, b = np.where(b > 0, ratio(sqx, sq2), a), np.minimum(b, np.float32(0))
        a = np.maximum(a, np.float32(0))
        error = sx2 - 2 * a * sqx - 2 * b * sx + a * a * sq2 + 2 * a * b * sq + n * b * b
        better = error < best
        d, m, best = np.where(better, a, d), np.where(better, b, m), np.where(better, error, best)

    first, last, tries = _RANGE_TRIES[top]
    for more in np.linspace(first, last, tries):
        attempt(wide / np.float32(top + more), low)
        if more > 0:  # both ends are clipped, where the low one is free
            attempt(wide / np.float32(top + 2 * more), low + wide * np.float32(more / (top + 2 * more)))
    attempt(d, m)
    return d, m


def integers(x: F32, d: F32, m: F32, top: int) -> F32:
    """The integers from 0 to `top` with d * q + m nearest to x."""
    q = (x - m) * inverse(d)
    np.rint(q, out=q)
    np.maximum(q, np.float32(0), out=q)
    np.minimum(q, np.float32(top), out=q)
    return q


def least_error(x: F32, tried: Iterable[tuple[F32, F32]], stored: tuple[F32, ...]) -> tuple[F32, ...]:
    """For each column, the numbers of the attempt whose values are nearest to x.

    tried: values f32[elements, groups] with an array f32[parts, groups] of what they were made from. stored: the parts
    to begin with, which the first attempt replaces.
    """
    parts, best = np.stack(stored), np.full(x.shape[1], np.inf)
    for values, made in tried:
        gap = x - values
        error = np.add.reduce(gap * gap, axis=0, dtype=np.float64)
        better = error < best
        parts, best = np.where(better, made, parts), np.where(better, error, best)
    return tuple(parts)

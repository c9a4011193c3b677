"""The arithmetic under sampling: exp, log, sums, the random numbers, the k largest.

Everything is float64 built from single IEEE operations (+, -, *, /, round to nearest integer) in a written
order, so no result depends on a platform's libm, on vector width or on the NumPy version. Only functions
whose order NumPy documents or leaves no freedom in are used: element-wise operations and `accumulate`.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from zinc_rt.numerics import EXP_LOWEST, STEP_HIGH, STEP_LOW, STEPS, STEPS_PER_E, SUM_BLOCK

Floats: TypeAlias = npt.NDArray[np.float64]
Ids: TypeAlias = npt.NDArray[np.intp]

_LN2_HIGH: Final = STEP_HIGH * STEPS
_LN2_LOW: Final = STEP_LOW * STEPS
_BLOCK: Final = 64  # values whose maximum `largest` looks at first
_FIRST_PREFIX: Final = 256  # values `count_to_reach` sorts at first
_CHUNK: Final = 16384  # values worked on at a time: the temporaries stay in the fast caches


@cache
def step_bits() -> npt.NDArray[np.int64]:
    """The bits of 2 ** (j / 128), j = 0..127: seven nested square roots of 2 ** j with 128 binary places.

    A root is cut off, not rounded, so the last one is too small by less than 2 ** -126, and no entry lies that close
    to where the nearest float64 changes.
    """
    table = np.empty(STEPS, dtype=np.float64)
    for j in range(STEPS):
        root = 1 << (j + 128)
        for _ in range(7):
            root = math.isqrt(root << 128)
        table[j] = root / 2**128
    return table.view(np.int64)


def exp(x: Floats, out: Floats | None = None) -> Floats:
    """e ** x for x <= 0 (f64[n], -inf allowed, NaN not) within 1 ulp; 0 for x < -708. `out` may be `x`.

    k = rint(x * 128 / ln 2); r = (x - k * high) - k * low;
    p = ((((r/120 + 1/24) * r + 1/6) * r + 1/2) * r + 1) * r; t = 2 ** (k / 128); t + t * p.
    """
    out = np.empty_like(x) if out is None else out
    for start in range(0, len(x), _CHUNK):
        _exp_chunk(x[start : start + _CHUNK], out[start : start + _CHUNK])
    return out


def _exp_chunk(x: Floats, out: Floats) -> None:
    tiny = x < EXP_LOWEST
    r = np.maximum(x, EXP_LOWEST)
    k = r * STEPS_PER_E
    np.rint(k, out=k)
    steps = k.astype(np.int64)
    term = k * STEP_HIGH
    r -= term
    np.multiply(k, STEP_LOW, out=term)
    r -= term
    p = np.multiply(r, 1.0 / 120.0, out=k)
    for coefficient in (1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0):
        p += coefficient
        p *= r
    bits = step_bits()[steps & (STEPS - 1)]
    steps >>= 7
    steps <<= 52
    steps += bits  # adds the whole part of k / 128 to the exponent
    t = steps.view(np.float64)
    p *= t
    np.add(p, t, out=out)
    out[tiny] = 0.0


def log(x: float) -> float:
    """Natural logarithm of a positive finite number, within 2 ulp (absolute 1e-16 around 1).

    x = m * 2 ** e with m in [sqrt 1/2, sqrt 2); log m = 2 artanh s, s = (m - 1) / (m + 1), by its series.
    """
    m, e = math.frexp(x)
    if m < 0.7071067811865476:
        m, e = m * 2.0, e - 1
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series = 0.0
    for n in range(25, 0, -2):
        series = series * square + 1.0 / n
    return e * _LN2_HIGH + (2.0 * s * series + e * _LN2_LOW)


def running_sum(values: Floats) -> Floats:
    """The sums of the first 1, 2, ..., n values, added from left to right, each addition rounded once."""
    return np.add.accumulate(values)


def total(values: Floats) -> float:
    """The sum of f64[n]: blocks of `SUM_BLOCK`, each from left to right, then their sums from left to right. Overwrites
    the values.
    """
    if len(values) <= SUM_BLOCK:
        return float(running_sum(values)[-1])
    _sum_blocks(values, None)
    return float(running_sum(_ends(values, _starts(len(values), None)))[-1])


def first_above(weights: Floats, share: float, places: Ids | None = None) -> int:
    """The first of f64[n] weights at which the running sum is above `share` of the `total`; share: below 1.

    places: where in all the weights these are (rising), the others being 0, which decides about the blocks; None: these
    are all. A running sum is that of the blocks before plus that of the weights up to it in its own block. Overwrites
    the weights.
    """
    last = len(weights) - 1 if places is None else int(places[-1])
    if last < SUM_BLOCK:
        sums = running_sum(weights)
        return int(np.searchsorted(sums, share * float(sums[-1]), side="right"))
    _sum_blocks(weights, places)
    starts = _starts(len(weights), places)
    ends = running_sum(_ends(weights, starts))
    target = share * float(ends[-1])
    block = int(np.searchsorted(ends, target, side="right"))
    start = int(starts[block])
    stop = int(starts[block + 1]) if block + 1 < len(starts) else len(weights)
    before = ends[block - 1] if block else 0.0
    return start + int(np.searchsorted(before + weights[start:stop], target, side="right"))


def _starts(n: int, places: Ids | None) -> Ids:
    """Where the blocks of n values begin; those without any are left out, since adding 0 changes nothing."""
    if places is None:
        return np.arange(0, n, SUM_BLOCK)
    return np.flatnonzero(np.diff(places // SUM_BLOCK, prepend=-1))


def _ends(sums: Floats, starts: Ids) -> Floats:
    """The last running sum of each block."""
    ends: Floats = sums[np.append(starts[1:], len(sums)) - 1]
    return ends


def _sum_blocks(values: Floats, places: Ids | None) -> None:
    """In place, running sums from left to right that begin anew with every block."""
    if places is None:
        whole = len(values) - len(values) % SUM_BLOCK
        blocks = values[:whole].reshape(-1, SUM_BLOCK)
        np.add.accumulate(blocks, axis=1, out=blocks)
        np.add.accumulate(values[whole:], out=values[whole:])
        return
    for start, stop in itertools.pairwise([*_starts(len(values), places).tolist(), len(values)]):
        np.add.accumulate(values[start:stop], out=values[start:stop])


_PHILOX_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_PHILOX_KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
_WORD: Final = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10: four random 32-bit words for a counter and a key (also words).

    Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0 = _PHILOX_MULTIPLIERS[0] * c0
        p1 = _PHILOX_MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _WORD, (p0 >> 32) ^ c3 ^ k1, p0 & _WORD
        k0 = (k0 + _PHILOX_KEY_STEPS[0]) & _WORD
        k1 = (k1 + _PHILOX_KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, step: int) -> float:
    """The uniform number in [0, 1) of one (seed, step), both unsigned 64-bit: a multiple of 2 ** -53."""
    words = philox4x32((step & _WORD, step >> 32, 0, 0), (seed & _WORD, seed >> 32))
    return ((words[0] >> 5) * 2**26 + (words[1] >> 6)) * 2.0**-53


def largest(x: Floats, k: int) -> Ids:
    """Indices of the k largest of f64[n] (no NaN) in rising order; of equal values the lowest indices.

    Block maxima give a bound that at least k values reach, in one pass; only those values are looked at.
    """
    n = len(x)
    if k >= n:
        return np.arange(n)
    ids: Ids | None = None
    whole = n - n % _BLOCK
    if k * _BLOCK < whole:
        tops = x[:whole].reshape(-1, _BLOCK).max(axis=1)
        bound = np.partition(tops, len(tops) - k)[len(tops) - k]
        ids = np.flatnonzero(x >= bound)
        x = x[ids]
    cut = np.partition(x, len(x) - k)[len(x) - k]
    keep = x > cut
    ties = np.flatnonzero(x == cut)
    keep[ties[: k - np.count_nonzero(keep)]] = True
    kept = np.flatnonzero(keep)
    return kept if ids is None else ids[kept]


def count_to_reach(x: Floats, target: float) -> int:
    """How many of the largest of f64[n] (<= 0) it takes for the running sum of their exp to reach `target`; n when it
    never does."""
    n, size = len(x), _FIRST_PREFIX
    while True:
        size = min(size, n)
        prefix = np.sort(x if size == n else np.partition(x, n - size)[n - size :])[::-1]
        reached = running_sum(exp(prefix)) >= target
        first = int(np.argmax(reached))
        if reached[first]:
            return first + 1
        if size == n:
            return n
        size *= 16

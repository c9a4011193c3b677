"""Exact sums and products, rounded once, in every rounding mode.

A value is a pair of float64 (s, e): the unevaluated sum s + e with s = fl(s + e). Sums come by Knuth's TwoSum; products
of two binary16 or binary32 are exact in float64. Rounding a pair to a narrower format is harmless once s is rounded to
odd (its last bit set where e is not zero; Boldo and Melquiond, 2008).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
NEAREST: Final = 0
UP: Final = 1
DOWN: Final = 2
ZERO: Final = 3
_MIN_NORMAL = 2.0**-126
_LOW29, _HALF29 = np.int64((1 << 29) - 1), np.int64(1 << 28)


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Add a and b: the sum as a pair. The error is 0 where the sum is not finite."""
    s = a + b
    t = s - a
    e = (a - (s - t)) + (b - t)
    return s, np.where(np.isfinite(s), e, 0.0)


def to_odd(s: Any, e: Any) -> Any:
    """Round a pair s + e to odd."""
    bits = np.asarray(s, np.float64).view(np.int64)
    away = (e > 0) == (s > 0)  # the exact value is farther from zero than s
    fix = (e != 0) & (bits & 1 == 0) & (s != 0)
    return np.where(fix, bits + np.where(away, 1, -1), bits).view(np.float64)


def narrow(s: Any, e: Any, kind: Any, mode: int) -> Any:
    """Round a pair to float16, float32 or float64."""
    r = np.asarray(s, np.float64) if kind is np.float64 else to_odd(s, e).astype(kind)
    if mode == NEAREST:
        return r
    wide = r.astype(np.float64)
    above = (wide > s) | ((wide == s) & (e < 0))
    below = (wide < s) | ((wide == s) & (e > 0))
    if mode == UP:
        return np.where(below, np.nextafter(r, kind(np.inf)), r)
    if mode == DOWN:
        return np.where(above, np.nextafter(r, kind(-np.inf)), r)
    return np.where((above & (r > 0)) | (below & (r < 0)), np.nextafter(r, kind(0)), r)


def overflow(negative: Any, kind: Any, mode: int) -> Any:
    """The result of rounding a finite number beyond the greatest one."""
    top = np.finfo(kind).max
    high = kind(np.inf) if mode in (NEAREST, UP) else top
    low = kind(-np.inf) if mode in (NEAREST, DOWN) else -top
    return np.where(negative, low, high)


def add(a: Any, b: Any, kind: Any, mode: int) -> Any:
    """Add a and b in a rounding mode. a, b: of the kind.

    A sum of zero is -0.0 when rounding down, unless both are +0.0.
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    s, e = two_sum(x, y)
    r = narrow(s, e, kind, mode)
    if mode != NEAREST and kind is np.float64:
        r = np.where(np.isinf(s) & np.isfinite(x) & np.isfinite(y), overflow(s < 0, kind, mode), r)
    return np.where((s == 0) & (np.signbit(x) | np.signbit(y)), kind(-0.0), r) if mode == DOWN else r


def mul(a: Any, b: Any, kind: Any, mode: int) -> Any:
    """Multiply a and b in a rounding mode, rounded once."""
    if kind is not np.float64:
        p = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        return narrow(p, np.zeros_like(p), kind, mode)
    return a * b if mode == NEAREST else fma(a, b, np.where(np.signbit(a) ^ np.signbit(b), -0.0, 0.0), kind, mode)


def fma(a: Any, b: Any, c: Any, kind: Any, mode: int = NEAREST) -> Any:
    """Fused multiply-add a * b + c in a rounding mode, rounded once."""
    if kind is np.float64:
        return _fma64(a, b, c, mode)
    return add_wide(np.asarray(a, np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64), kind, mode)


def add_wide(p: Any, c: Any, kind: Any, mode: int) -> Any:
    """Add p and c, float64, rounded once to a narrower kind."""
    s, e = two_sum(p, c)
    r = narrow(s, e, kind, mode)
    return np.where((s == 0) & (np.signbit(p) | np.signbit(c)), kind(-0.0), r) if mode == DOWN else r


def fma32(a: Any, b: Any, c: Any) -> Any:
    """Fused multiply-add of float32 to nearest, fast: via float64, and exactly where that may have rounded twice."""
    p = np.multiply(a, b, dtype=np.float64)
    s = p + c
    if not s.ndim:  # constants
        return add_wide(p, np.asarray(c, np.float64), np.float32, NEAREST)
    r = s.astype(np.float32)
    doubt = (s.view(np.int64) & _LOW29) == _HALF29
    small = np.abs(r) < _MIN_NORMAL
    if np.count_nonzero(small):  # a quarter of the time that any() takes
        doubt |= small & (s != 0)  # a sum of 0 in float64 is exact
    if np.count_nonzero(doubt):
        where = np.nonzero(doubt)
        p, c = np.broadcast_to(p, s.shape)[where], np.broadcast_to(c, s.shape)[where]
        r[where] = add_wide(p, np.asarray(c, np.float64), np.float32, NEAREST)
    return r


_SPLIT = float((1 << 27) + 1)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """Multiply a and b: the product as a pair (Dekker, 1971). Exact as long as no part of it over- or underflows."""
    ah, bh = a * _SPLIT, b * _SPLIT
    ah, bh = ah - (ah - a), bh - (bh - b)
    al, bl = a - ah, b - bh
    p = a * b
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _fma64(a: Any, b: Any, c: Any, mode: int) -> Any:
    a, b, c = (np.asarray(x, np.float64) for x in np.broadcast_arrays(a, b, c))
    out = np.asarray((a * b) + c)  # right for all that is not finite, and for exact zeros
    if mode == NEAREST:  # a sum of three, rounded to odd on the way (Boldo and Melquiond, 2008)
        p, q = two_product(a, b)
        high, low = two_sum(c, q)
        v, w = two_sum(p, high)
        near = _between(a, -480, 480) & _between(b, -480, 480) & _between(c, -960, 960)
        out = np.where(near, v + to_odd(*two_sum(w, low)), out)
        left = np.flatnonzero(~near & (a != 0) & (b != 0) & ((c != 0) | (out == 0)))
    else:
        left = np.arange(out.size)
    flat = out.reshape(-1).copy()
    a, b, c = (x.reshape(-1)[left].tolist() for x in (a, b, c))
    for i, x, y, z in zip(left.tolist(), a, b, c, strict=True):
        if math.isfinite(x) and math.isfinite(y) and math.isfinite(z):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            if exact or x == 0.0 or y == 0.0:
                flat[i] = of_fraction(exact, mode) if exact else _zero_sum(x, y, z, mode)
            else:
                flat[i] = -0.0 if mode == DOWN else 0.0
        elif math.isfinite(x) and math.isfinite(y):
            flat[i] = z
    return flat.reshape(out.shape)


def _between(x: Any, low: int, high: int) -> Any:
    """Whether numbers lie between two powers of two, whatever their signs."""
    size = np.abs(x)
    return (size >= 2.0**low) & (size <= 2.0**high)


def _zero_sum(x: float, y: float, z: float, mode: int) -> float:
    signs = {math.copysign(1, x) * math.copysign(1, y), math.copysign(1, z)}
    return math.copysign(0.0, signs.pop()) if len(signs) == 1 else (-0.0 if mode == DOWN else 0.0)


def of_fraction(exact: Fraction, mode: int = NEAREST) -> float:
    """Round an exact number, not 0, to float64."""
    try:
        r = exact.numerator / exact.denominator
    except OverflowError:
        r = math.inf if exact > 0 else -math.inf
    if r == 0.0:
        r = math.copysign(0.0, exact)
    if mode == NEAREST:
        return r
    above, below = r > exact, r < exact
    if mode == UP and below:
        return math.nextafter(r, math.inf)
    if mode == DOWN and above:
        return math.nextafter(r, -math.inf)
    if mode == ZERO and ((above and exact > 0) or (below and exact < 0)):
        return math.nextafter(r, 0.0)
    return r

"""v_div_scale, v_div_fmas and v_div_fixup: with a reciprocal between them, a correctly rounded division.

RDNA 4 ISA, V_DIV_*. In two places a correct result decides here, not the manual's text: where both 1 / d and
n / d are subnormal, the denominator is scaled down; and v_div_fmas multiplies by 2^64 where the quotient's exponent is
above the bias, else by 2^-64 (2^128, 2^-128 for binary64), in one
rounding with its fma. A quotient that is no number, of numbers that are, has overflown on the way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from amdgpu_emu.core import rounding
from amdgpu_emu.core.shapes import alike, chosen


class _Format(NamedTuple):
    kind: Any
    word: Any
    mantissa: int
    bias: int
    step: int  # the exponent that scaling moves by
    near: int  # exponents that are further apart than this bring the quotient near the greatest number
    tiny: int  # biased exponents up to this one are scaled up
    under: int  # quotients below 2^under are 0


_F32 = _Format(np.float32, np.int32, 23, 127, 64, 96, 23, -150)
_F64 = _Format(np.float64, np.int64, 52, 1023, 128, 768, 53, -1075)
_OF = {"f": _F32, "d": _F64}


def _exponent(x: Any, f: _Format) -> Any:
    """Biased exponents as signed integers."""
    return (x.view(f.word) >> f.word(f.mantissa)) & f.word(2 * f.bias + 1)


def _subnormal(x: Any, f: _Format) -> Any:
    return (x != 0) & (_exponent(x, f) == 0)


def scale(t: str, s0: Any, d: Any, n: Any) -> tuple[Any, Any]:
    """v_div_scale: scale s0, the numerator or the denominator. Returns it and the mask for v_div_fmas."""
    f = _OF[t]
    s0, d, n = alike(s0, d, n)
    of_n, of_d = _exponent(n, f), _exponent(d, f)
    apart, none = of_n - of_d, np.bool_(False)
    zero_n, zero_d = of_n.min() == 0, of_d.min() == 0  # or subnormal
    # The greatest and least exponents rule most cases out, as a rule all of them: 1 / d is subnormal from an exponent
    # of the bias less one on, n / d where n is, or where the exponents are that far apart but one.
    reciprocal = _subnormal(f.kind(1) / d, f) if of_d.max() >= 2 * f.bias - 1 else none
    quotient = _subnormal(n / d, f) if zero_n or apart.min() <= 2 - f.bias else none
    cases = [
        ((n == 0) | (d == 0) if zero_n or zero_d else none, lambda: f.kind(np.nan), False),
        (apart >= f.near if apart.max() >= f.near else none, lambda: _scaled_if(_same(s0, d, f), s0, f.step), True),
        ((of_d == 0) & (d != 0) if zero_d else none, lambda: np.ldexp(s0, f.step), False),
        (reciprocal & quotient, lambda: _scaled_if(_same(s0, d, f), s0, -f.step), True),
        (reciprocal, lambda: np.ldexp(s0, -f.step), False),
        (quotient, lambda: _scaled_if(_same(s0, n, f), s0, f.step), True),
        (of_n <= f.tiny if of_n.min() <= f.tiny else none, lambda: np.ldexp(s0, f.step), False),
    ]
    found, marked = np.array(s0), np.zeros(s0.shape, np.bool_)
    for where, what, mark in reversed(cases):  # the first one that holds
        if where is not none and np.count_nonzero(where):
            np.copyto(found, what(), where=where)
            marked[where] = mark
    return found, marked


def _scaled_if(where: Any, x: Any, step: int) -> Any:
    return np.where(where, np.ldexp(x, step), x)


def _same(a: Any, b: Any, f: _Format) -> Any:
    return a.view(f.word) == b.view(f.word)


def fmas(t: str, a: Any, b: Any, c: Any, scaled: Any, mode: int) -> Any:
    """v_div_fmas: fma(a, b, c), times a power of two where `scaled`, rounded once."""
    f = _OF[t]
    a, b, c, scaled = alike(a, b, c, scaled)
    fast = t == "f" and mode == rounding.NEAREST
    plain = rounding.fma32(a, b, c) if fast else rounding.fma(a, b, c, f.kind, mode)
    if not np.count_nonzero(scaled):
        return plain
    by = np.where(_exponent(np.array(c), f) > f.bias, f.step, -f.step)
    if t == "f":
        p = np.multiply(a, b, dtype=np.float64)
        s, e = rounding.two_sum(p, c.astype(np.float64))
        moved = rounding.narrow(np.ldexp(s, by), np.ldexp(e, by), f.kind, mode)
    else:
        moved = plain.copy()
        for at in zip(*np.nonzero(scaled), strict=True):
            moved[at] = _fma_scaled(float(a[at]), float(b[at]), float(c[at]), int(by[at]), mode)
    return np.where(scaled, moved, plain)


def _fma_scaled(a: float, b: float, c: float, by: int, mode: int) -> float:
    if not (np.isfinite(a) and np.isfinite(b)):
        return a * b + c
    if not np.isfinite(c):
        return c
    exact = (Fraction(a) * Fraction(b) + Fraction(c)) * Fraction(2) ** by
    return rounding.of_fraction(exact, mode) if exact else a * b + c


def fixup(t: str, q: Any, d: Any, n: Any, mode: int) -> Any:
    """v_div_fixup: the quotient q of n / d with its special cases and its sign."""
    f = _OF[t]
    q, d, n = alike(q, d, n)
    negative = np.signbit(d) ^ np.signbit(n)
    sign = np.where(negative, f.kind(-1), f.kind(1))
    of_n, of_d = _exponent(n, f), _exponent(d, f)
    apart, top = of_n - of_d, 2 * f.bias + 1
    special = of_n.max() == top or of_d.max() == top or of_n.min() == 0 or of_d.min() == 0
    cases = (
        [
            (np.isnan(n), n),
            (np.isnan(d), d),
            ((n == 0) & (d == 0), f.kind(np.nan)),
            (np.isinf(n) & np.isinf(d), f.kind(np.nan)),
            ((d == 0) | np.isinf(n), sign * f.kind(np.inf)),
            (np.isinf(d) | (n == 0), sign * f.kind(0)),
        ]
        if special
        else []
    )
    if apart.min() < f.under:
        zero, least = f.kind(0), np.nextafter(f.kind(0), f.kind(1))
        under = np.where(negative, least if mode == rounding.DOWN else zero, least if mode == rounding.UP else zero)
        cases.append((apart < f.under, sign * under))
    nan = np.isnan(q)
    if np.count_nonzero(nan):
        cases.append((nan, rounding.overflow(negative, f.kind, mode)))
    return chosen(cases, sign * np.abs(q))


def fixup16(q: Any, d: Any, n: Any) -> Any:
    """v_div_fixup_f16: no underflow case."""
    q, d, n = alike(q, d, n)
    sign = np.where(np.signbit(d) ^ np.signbit(n), np.float16(-1), np.float16(1))
    nan, inf = np.float16(np.nan), np.float16(np.inf)
    cases = [
        (np.isnan(n), n),
        (np.isnan(d), d),
        ((n == 0) & (d == 0), nan),
        (np.isinf(n) & np.isinf(d), nan),
        ((d == 0) | np.isinf(n), sign * inf),
        (np.isinf(d) | (n == 0), sign * np.float16(0)),
    ]
    return chosen(cases, sign * np.abs(q))

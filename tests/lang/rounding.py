"""Rounding to binary formats in exact rational arithmetic: the oracle of conversions and fused operations."""

from __future__ import annotations

import math
from fractions import Fraction

# name -> (significant bits, exponent of the least normal number, greatest exponent)
FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}


def nearest(x: Fraction, form: str, zero: float = 0.0) -> float:
    """The value of a format nearest to x, ties to even, infinity beyond; `zero` where x is 0."""
    if x == 0:
        return zero
    bits, low, high = FORMATS[form]
    size = abs(x)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), low - 1)
    if exponent >= low - 1 and size < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, low)
    unit = Fraction(2) ** (exponent - bits + 1)
    whole = round(size / unit) * unit  # round() of a Fraction is to even
    if whole >= Fraction(2) ** (high + 1):
        return math.inf if x > 0 else -math.inf
    return float(whole) if x > 0 else -float(whole)


def convert(x: float, form: str) -> float:
    """A float in a format."""
    return x if x == 0 or not math.isfinite(x) else nearest(Fraction(x), form, math.copysign(0.0, x))


def fused(a: float, b: float, c: float, form: str) -> float:
    """a * b + c rounded once; Python's own rules where something is not finite."""
    if math.isfinite(a) and math.isfinite(b) and math.isfinite(c):
        product = math.copysign(1.0, a) * math.copysign(1.0, b)
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        same = (a == 0 or b == 0) and c == 0 and product == math.copysign(1.0, c)
        return nearest(exact, form, math.copysign(0.0, product) if same else 0.0)
    if math.isfinite(a) and math.isfinite(b):
        return c
    return a * b + c


def saturated(x: float, low: int, high: int) -> int:
    """Toward zero, kept within limits; NaN is 0."""
    if math.isnan(x):
        return 0
    return low if x <= low else high if x >= high else int(x)

"""Powers, logarithms, cosines and sines on the host, rounded correctly, so that no table depends on a machine's libm.

Libraries give float64 that are off by one unit in the last place or a few, each its own ones.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32, F64

_DIGITS: Final = 50
_PLACES: Final = 256
_HALF_PI: Final = Fraction(
    "1.5707963267948966192313216916397514420985846996875529104874722961539082031431044993140174126710585339910740"
)
_BLOCK: Final = 1 << 15  # angles worked on at a time: the temporaries stay in the caches
_LOW_BITS, _HALFWAY = np.uint64((1 << 29) - 1), np.uint64(1 << 28)  # of a float64 what float32 lacks
_SUBNORMAL = np.uint64(((1023 - 126) << 53) - 1)  # the bits of the least normal float32, without a sign; 0 is above
_DOUBT: Final = np.uint64(32)
"""Units in the last place by which a library's cosine, times a factor, is never off."""


def power(base: float, exponents: npt.ArrayLike) -> F64:
    """base ** exponent, each the nearest float64; base: above 0."""
    with localcontext(prec=_DIGITS):
        rounded = +Decimal(base)  # of a large number many digits would be exact, which takes long
        return np.array([float(rounded ** Decimal(e)) for e in np.ravel(exponents).tolist()]).reshape(
            np.shape(exponents)
        )


def log(x: float) -> float:
    """The nearest float64 of the natural logarithm of x above 0."""
    with localcontext(prec=_DIGITS):
        return float((+Decimal(x)).ln())


def log1p_exp(x: float) -> float:
    """The nearest float64 of ln(1 + e^x)."""
    with localcontext(prec=_DIGITS):
        return float((1 + Decimal(x).exp()).ln())


def turns(angles: F64, factor: float = 1.0) -> F32:
    """cos and sin of f64[...] times a float64 factor, rounded once: f32[..., 2]."""
    flat = angles.reshape(-1)
    out = np.empty((flat.size, 2), np.float32)
    for start in range(0, flat.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        for which, function in enumerate((np.cos, np.sin)):
            wide = function(flat[part]) * factor
            out[part, which] = wide
            for at in np.flatnonzero(_doubtful(wide)) + start:
                out[at, which] = _nearest_to(_turn(float(flat[at]), bool(which)) * Fraction(factor), out[at, which])
    return out.reshape(*angles.shape, 2)


def _doubtful(wide: F64) -> npt.NDArray[np.bool_]:
    """Where a library's value lies so close to where float32 change that it does not say to which side the exact one
    is.
    """
    bits = wide.view(np.uint64)
    found: npt.NDArray[np.bool_] = ((bits & _LOW_BITS) - (_HALFWAY - _DOUBT)) <= 2 * _DOUBT
    tiny = ((bits << 1) - 1) < _SUBNORMAL
    if tiny.any():  # float32 are multiples of 2^-149 there, which change at the odd multiples of half of it
        halves = wide[tiny] * 2.0**150
        whole = np.rint(halves)
        found[tiny] = (whole % 2 == 1) & (np.abs(halves - whole) <= np.abs(halves) * (float(_DOUBT) * 2.0**-53))
    return found


def _nearest_to(exact: Fraction, guess: np.float32) -> np.float32:
    """The float32 nearest to a number, from one that is a neighbour at the most."""
    around = (guess, np.nextafter(guess, np.float32(-np.inf)), np.nextafter(guess, np.float32(np.inf)))
    return min(around, key=lambda number: abs(Fraction(float(number)) - exact))


def _turn(angle: float, sine: bool) -> Fraction:
    """cos or sin within 2^-240 of 1, by the series of the angle without its quarters of a turn."""
    exact = Fraction(angle)
    quarters = round(exact / _HALF_PI)
    rest = round((exact - quarters * _HALF_PI) * (1 << _PLACES))
    square = rest * rest >> _PLACES
    quarter = (quarters - sine) % 4  # sin is cos a quarter before
    total, n = 0, quarter % 2
    term = rest if n else 1 << _PLACES
    while term:
        total += term
        term = -(term * square >> _PLACES) // ((n + 1) * (n + 2))
        n += 2
    return Fraction(-total if quarter in (1, 2) else total, 1 << _PLACES)

"""float32 exp, sigmoid, silu, gelus, relu2, xielu, tanh, softplus: one definition, the same bits on every backend.

Every operation below is one correctly rounded float32 operation in the order written; nothing is fused.
docs/how/numerics.md states the same steps in prose.
"""

from __future__ import annotations

import numpy as np

from zinc_rt import numerics
from zinc_rt.kernels.reference.arith import F32

LOG2_E, LN2_HIGH, LN2_LOW = np.float32(numerics.LOG2_E), np.float32(numerics.LN2_HIGH), np.float32(numerics.LN2_LOW)
EXP_POLY = tuple(np.float32(c) for c in numerics.EXP_POLY)
EXP_MIN, EXP_MAX = np.float32(numerics.EXP_MIN), np.float32(numerics.EXP_MAX)

TANH_SMALL, TANH_POLY = np.float32(numerics.TANH_SMALL), tuple(np.float32(c) for c in numerics.TANH_POLY)
GELU_LINEAR, GELU_CUBIC = np.float32(numerics.GELU_LINEAR), np.float32(numerics.GELU_CUBIC)
GELU_QUICK = np.float32(numerics.GELU_QUICK)
TAIL_STEP, TAIL_POLY = np.float32(numerics.TAIL_STEP), tuple(np.float32(c) for c in numerics.TAIL_POLY)
SOFTPLUS_POLY = tuple(np.float32(c) for c in numerics.SOFTPLUS_POLY)

ONE, TWO = np.float32(1.0), np.float32(2.0)


def exp(x: F32) -> F32:
    """e^x, f32 in and out, within 0.8 ulp; exp(-inf) = 0, exp(inf) = inf, NaN stays NaN, subnormal results kept."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        clamped = np.minimum(np.maximum(x, EXP_MIN), EXP_MAX)  # both propagate NaN
        n = np.rint(clamped * LOG2_E)
        high = clamped - n * LN2_HIGH
        low = n * LN2_LOW
        r = high - low
        r_rest = (high - r) - low  # what rounding r lost
        p: F32 = np.full_like(r, EXP_POLY[0])
        for c in EXP_POLY[1:]:
            p = p * r + c
        s = ONE + r
        s_rest = r - (s - ONE)  # exact: |r| < 1 (Dekker's fast two-sum)
        y = s + (s_rest + (p * (r * r) + r_rest))
        k = np.where(np.isnan(n), np.float32(0.0), n).astype(np.int32)
        half = k >> 1  # two exact powers: 2^k itself may be out of range although y * 2^k is not
        return np.asarray((y * _power_of_two(half)) * _power_of_two(k - half), np.float32)


def _power_of_two(k: np.ndarray) -> F32:
    return ((k + 127) << 23).astype(np.int32).view(np.float32)


def _one_plus(e: F32) -> tuple[F32, F32]:
    """1 + e as a rounded sum and what rounding lost (exact, Dekker); the rest is 0 where the sum is infinite."""
    total = ONE + e
    with np.errstate(invalid="ignore"):
        rest = (np.maximum(e, ONE) - total) + np.minimum(e, ONE)
    return total, np.where(np.isinf(total), np.float32(0.0), rest)


def sigmoid(x: F32) -> F32:
    """1 / (1 + exp(-x)), f32, within 2 ulp for x >= -88.7; below that exp overflows and the result is 0."""
    total, rest = _one_plus(exp(-x))
    q = ONE / total
    with np.errstate(under="ignore"):
        return np.asarray(q - q * (rest * q))


def silu(x: F32) -> F32:
    """x / (1 + exp(-x)), f32, within 2 ulp for x >= -88.7; below that the result is 0 (true value > -3e-37).

    silu of either infinity is NaN.
    """
    return times_sigmoid(x, x)


def times_sigmoid(x: F32, w: F32) -> F32:
    """x / (1 + exp(-w)), f32: what silu, gelu and the clamped activation are made of."""
    total, rest = _one_plus(exp(-w))
    with np.errstate(invalid="ignore", under="ignore", over="ignore"):
        q = x / total
        return np.asarray(q - q * (rest / total))


def gelu(x: F32) -> F32:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), f32, as x times a sigmoid.

    Within 2.5 ulp for x >= -1; below that the argument of exp has lost bits: within 2^-18 of the value where x >= -5,
    and within 2^-16 where x >= -10. gelu of either infinity is NaN.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        w = x * (GELU_LINEAR + GELU_CUBIC * (x * x))
    return times_sigmoid(x, np.asarray(w))


def gelu_quick(x: F32) -> F32:
    """x * sigmoid(1.702 x), f32, within 2.5 ulp for x >= -1; below that the argument of exp has lost bits."""
    with np.errstate(over="ignore", under="ignore"):
        w = x * GELU_QUICK
    return times_sigmoid(x, np.asarray(w))


def relu2(x: F32) -> F32:
    """max(x, 0)^2, f32; NaN stays NaN."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        r = np.where(x <= 0, np.float32(0.0), x)
        return np.asarray(r * r)


def xielu(x: F32, alpha_p: float, alpha_n: float, beta: float, eps: float) -> F32:
    """alpha_p x^2 + beta x where x > 0, else alpha_n (e^min(x, eps) - 1 - x) + beta x; f32. NaN stays NaN."""
    p, n, b, highest = np.float32(alpha_p), np.float32(alpha_n), np.float32(beta), np.float32(eps)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        below = ((exp(np.where(x > highest, highest, x)) - ONE) - x) * n
        return np.asarray(np.where(x > 0, (x * x) * p, below) + x * b)


def gelu_erf(x: F32) -> F32:
    """0.5 x (1 + erf(x / sqrt(2))), f32, within 8 ulp for x >= -2; below that the argument of exp has lost bits: within
    2^-18 of the value where x >= -10. Of either infinity it is NaN.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        t = ONE / (ONE + TAIL_STEP * np.abs(x))
        p: F32 = np.full_like(t, TAIL_POLY[0])
        for c in TAIL_POLY[1:]:
            p = p * t + c
        beyond = x * (p * exp((x * x) * np.float32(-0.5)))
        return np.asarray(np.where(x < 0, beyond, x - beyond))


def tanh(x: F32) -> F32:
    """The hyperbolic tangent, f32, within 1.34 ulp; -0 gives +0, NaN stays NaN."""
    a = np.abs(x)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        z = x * x
        p: F32 = np.full_like(z, TANH_POLY[0])
        for c in TANH_POLY[1:]:
            p = p * z + c
        small = x + x * (z * p)
        large = ONE - TWO / (exp(TWO * a) + ONE)
    return np.asarray(np.where(a < TANH_SMALL, small, np.where(x < 0, -large, large)), np.float32)


def softplus(x: F32) -> F32:
    """ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), f32, within 2 ulp; 0 where e^x is 0; infinity stays, NaN stays NaN.

    With t = e^-|x| and s = t / (2 + t), ln(1 + t) = 2 artanh(s) = t - s * (t - 2 z P(z)), where z = s^2.
    """
    with np.errstate(under="ignore", invalid="ignore"):
        t = exp(-np.abs(x))
        s = t / (TWO + t)
        z = s * s
        p: F32 = np.full_like(z, SOFTPLUS_POLY[0])
        for c in SOFTPLUS_POLY[1:]:
            p = p * z + c
        return np.asarray(np.maximum(x, np.float32(0.0)) + (t - s * (t - (z + z) * p)))

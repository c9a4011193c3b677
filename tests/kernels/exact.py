"""Float32 arithmetic in exact integers: each operation is carried out exactly, then rounded once.

A value is a Python float that holds a float32 value. Every finite float32 is a whole number of 2^-149, so sums and
products of them are whole numbers of 2^-149 and 2^-298: Python's integers hold them without error.
"""

from __future__ import annotations

import math

UNIT = 149


def nearest(n: int, scale: int) -> float:
    """n * 2^-scale as the nearest float32, halves to even; beyond the range infinity. A result of zero is +0.0."""
    size = abs(n)
    drop = max(size.bit_length() - 24, scale - UNIT, 0)  # bits below the last one that float32 keeps
    kept, rest = size >> drop, size & ((1 << drop) - 1)
    half = 1 << (drop - 1) if drop else 1
    if rest > half or (rest == half and kept & 1):
        kept += 1
    if kept.bit_length() + drop - scale > 128:
        return math.copysign(math.inf, n)
    return math.copysign(math.ldexp(kept, drop - scale), n)


def nearest_ratio(p: int, q: int) -> float:
    """p / q, both positive, as the nearest float32."""
    shift = max(0, 320 - p.bit_length() + q.bit_length())
    whole, rest = divmod(p << shift, q)
    return nearest(2 * whole + (rest != 0), shift + 1)  # the last bit stands for all that follow


def units(x: float) -> int:
    """A finite float32 in units of 2^-149."""
    return int(math.ldexp(x, UNIT))


def _finite(*values: float) -> bool:
    return all(map(math.isfinite, values))


def _signed_zero(n: int, result: float, negative: bool) -> float:
    """An exact zero takes its sign from the operands; anything else has its own."""
    return -0.0 if n == 0 and negative else result


def _negative(x: float) -> bool:
    return math.copysign(1.0, x) < 0


def add(a: float, b: float) -> float:
    if not _finite(a, b):
        return a + b
    n = units(a) + units(b)
    return _signed_zero(n, nearest(n, UNIT), _negative(a) and _negative(b))


def sub(a: float, b: float) -> float:
    return add(a, -b)


def mul(a: float, b: float) -> float:
    if not _finite(a, b):
        return a * b
    n = units(a) * units(b)
    return _signed_zero(n, nearest(n, 2 * UNIT), _negative(a) != _negative(b))


def fma(a: float, b: float, c: float) -> float:
    if not _finite(a, b, c):
        return a * b + c  # a finite product of float32 is finite in float64 too
    n = units(a) * units(b) + (units(c) << UNIT)
    return _signed_zero(n, nearest(n, 2 * UNIT), _negative(a) != _negative(b) and _negative(c))


def div(a: float, b: float) -> float:
    negative = _negative(a) != _negative(b)
    if math.isnan(a) or math.isnan(b) or (a == 0.0 and b == 0.0) or (math.isinf(a) and math.isinf(b)):
        return math.nan
    if math.isinf(a) or b == 0.0:
        return -math.inf if negative else math.inf
    if a == 0.0 or math.isinf(b):
        return -0.0 if negative else 0.0
    size = nearest_ratio(abs(units(a)), abs(units(b)))
    return -size if negative else size


def sqrt(x: float) -> float:
    if math.isnan(x) or x < 0.0:
        return math.nan
    if x == 0.0 or math.isinf(x):
        return x
    shift = 2 * UNIT + 1  # makes the number of halvings even: units are 2^-149
    n = units(x) << shift
    root = math.isqrt(n)
    return nearest(2 * root + (root * root != n), (UNIT + shift) // 2 + 1)


def maximum(values: list[float]) -> float:
    """The largest; NaN as soon as there is one."""
    return math.nan if any(map(math.isnan, values)) else max(values)


# Coefficients of docs/how/numerics.md's exp, as bits: the polynomial is part of the contract.
LOG2_E = float.fromhex("0x1.715476p+0")
LN2_HIGH = float.fromhex("0x1.63p-1")
LN2_LOW = float.fromhex("-0x1.bd0106p-13")
EXP_POLY = [
    float.fromhex(c)
    for c in ("0x1.9f085cp-13", "0x1.6d8d52p-10", "0x1.111272p-7", "0x1.55548ep-5", "0x1.555554p-3", "0x1p-1")
]


def exp(x: float) -> float:
    if math.isnan(x):
        return math.nan
    x = min(max(x, -104.5), 89.0)
    n = float(round(mul(x, LOG2_E)))  # round() takes halves to even
    h, low = sub(x, mul(n, LN2_HIGH)), mul(n, LN2_LOW)
    r = sub(h, low)
    c = sub(sub(h, r), low)
    p = EXP_POLY[0]
    for coefficient in EXP_POLY[1:]:
        p = add(mul(p, r), coefficient)
    t = add(1.0, r)
    u = sub(r, sub(t, 1.0))
    y = add(t, add(u, add(mul(p, mul(r, r)), c)))
    half = int(n) >> 1
    return mul(mul(y, 2.0**half), 2.0 ** (int(n) - half))


def _one_plus_exp(x: float) -> tuple[float, float]:
    e = exp(-x)
    t = add(1.0, e)
    if math.isinf(t):
        return t, 0.0
    return t, add(sub(max(e, 1.0), t), min(e, 1.0)) if not math.isnan(e) else math.nan


def sigmoid(x: float) -> float:
    t, u = _one_plus_exp(x)
    q = div(1.0, t)
    return sub(q, mul(q, mul(u, q)))


def times_sigmoid(x: float, w: float) -> float:
    t, u = _one_plus_exp(w)
    q = div(x, t)
    return sub(q, mul(q, div(u, t)))


def silu(x: float) -> float:
    return times_sigmoid(x, x)


GELU = float.fromhex("0x1.988454p+0"), float.fromhex("0x1.2444f2p-4")


def gelu(x: float) -> float:
    return times_sigmoid(x, mul(x, add(GELU[0], mul(GELU[1], mul(x, x)))))


GELU_QUICK = float.fromhex("0x1.b3b646p+0")


def gelu_quick(x: float) -> float:
    return times_sigmoid(x, mul(x, GELU_QUICK))


TAIL_POLY = [
    float.fromhex(c)
    for c in (
        "0x1.1617acp-5", "-0x1.91c59cp-3", "0x1.947b5ap-2", "-0x1.5578ecp-2", "0x1.37cb4p-2", "-0x1.4df688p-6",
        "0x1.f1f0eep-4", "0x1.846252p-4", "0x1.9a89b6p-4", "-0x1.6a60e2p-16",
    )
]  # fmt: skip


def gelu_erf(x: float) -> float:
    t = div(1.0, add(1.0, mul(0.25, abs(x))))
    p = TAIL_POLY[0]
    for coefficient in TAIL_POLY[1:]:
        p = add(mul(p, t), coefficient)
    b = mul(x, mul(p, exp(mul(mul(x, x), -0.5))))
    return b if x < 0 else sub(x, b)


TANH_POLY = [
    float.fromhex(c) for c in ("-0x1.75e1cep-8", "0x1.52269cp-6", "-0x1.b83c5ap-5", "0x1.110726p-3", "-0x1.555532p-2")
]


def tanh(x: float) -> float:
    a = abs(x)
    if a < 0.625:
        z = mul(x, x)
        p = TANH_POLY[0]
        for coefficient in TANH_POLY[1:]:
            p = add(mul(p, z), coefficient)
        return add(x, mul(x, mul(z, p)))
    y = sub(1.0, div(2.0, add(exp(mul(2.0, a)), 1.0)))
    return -y if x < 0 else y


SOFTPLUS_POLY = [
    float.fromhex(c) for c in ("0x1.dc3cbep-4", "0x1.bc6abap-4", "0x1.24ca56p-3", "0x1.9998cep-3", "0x1.555556p-2")
]


def softplus(x: float) -> float:
    if math.isnan(x):
        return math.nan
    t = exp(-abs(x))
    s = div(t, add(2.0, t))
    z = mul(s, s)
    p = SOFTPLUS_POLY[0]
    for coefficient in SOFTPLUS_POLY[1:]:
        p = add(mul(p, z), coefficient)
    return add(max(x, 0.0), sub(t, mul(s, sub(t, mul(add(z, z), p)))))

"""exp, sigmoid, silu, gelus, relu2, xielu, tanh, softplus as kernels/reference/mathfn.py has them; gates by name;
one more value of a softmax.
"""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import absolute, bitcast, fma, lanes, rint, select, static_assert, unroll
from zinc_rt.lang.types import f32, i32, vec
from zinc_rt.numerics import (
    EXP_MAX,
    EXP_MIN,
    EXP_POLY,
    GELU_CUBIC,
    GELU_LINEAR,
    GELU_QUICK,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    SOFTPLUS_POLY,
    TAIL_POLY,
    TAIL_STEP,
    TANH_POLY,
    TANH_SMALL,
)

INFINITY = float("inf")


MAGIC = 12582912.0
"""1.5 * 2^23: adding it puts an integer below 2^22 into the low bits of the sum."""
MAGIC_BITS = 0x4B400000


@inline
def power_of_two(k):
    """2^k as f32, for k whose exponent is in range."""
    return bitcast((k + 127) << 23, vec[f32, lanes(k)])


@inline
def not_below(x, bound: float):
    """The greater of x and a bound; NaN stays NaN."""
    return select(x < bound, bound, x)


@inline
def not_above(x, bound: float):
    """The lesser of x and a bound; NaN stays NaN."""
    return select(x > bound, bound, x)


@inline
def exp(x):
    """e^x of f32 lanes."""
    clamped = not_above(not_below(x, EXP_MIN), EXP_MAX)
    n = rint(clamped * LOG2_E)
    y = exp_of_rest(clamped, n)
    # For NaN the integer is arbitrary: y is NaN, and so is its product with anything.
    k = bitcast(n + MAGIC, vec[i32, lanes(n)]) - MAGIC_BITS
    half = k >> 1
    return (y * power_of_two(half)) * power_of_two(k - half)


@inline
def exp_of_normal(x):
    """e^x of f32 lanes that are numbers from -86 to 86: the bits of `exp`, in fewer steps."""
    # The sum has the integer in its low bits, rounded as rint does; a zero's sign does not matter to what follows.
    sum = x * LOG2_E + MAGIC
    y = exp_of_rest(x, sum - MAGIC)
    # The other bits of the sum leave at the top. y is between 0.7 and 1.42, its product with 2^n a normal number.
    return bitcast(bitcast(y, vec[i32, lanes(x)]) + (bitcast(sum, vec[i32, lanes(x)]) << 23), vec[f32, lanes(x)])


@inline
def exp_of_rest(x, n):
    """e^(x - n ln 2) of f32 lanes."""
    high = x - n * LN2_HIGH
    low = n * LN2_LOW
    r = high - low
    r_rest = (high - r) - low
    p = r * EXP_POLY[0] + EXP_POLY[1]
    for i in unroll(2, len(EXP_POLY)):
        p = p * r + EXP_POLY[i]
    s = r + 1.0
    s_rest = r - (s - 1.0)
    return s + (s_rest + (p * (r * r) + r_rest))


@inline
def silu(x):
    """x / (1 + e^-x) of f32 lanes."""
    return times_sigmoid(x, x)


@inline
def times_sigmoid(x, w):
    """x / (1 + e^-w) of f32 lanes."""
    e = exp(-w)
    total = e + 1.0
    rest = (not_below(e, 1.0) - total) + not_above(e, 1.0)
    rest = select(total == INFINITY, 0.0, rest)
    q = x / total
    return q - q * (rest / total)


@inline
def gelu(x):
    """GELU in its tanh form, of f32 lanes."""
    return times_sigmoid(x, x * ((x * x) * GELU_CUBIC + GELU_LINEAR))


@inline
def gelu_quick(x):
    """GELU in its quick form, of f32 lanes."""
    return times_sigmoid(x, x * GELU_QUICK)


@inline
def gelu_erf(x):
    """GELU with erf, of f32 lanes."""
    t = 1.0 / (absolute(x) * TAIL_STEP + 1.0)
    p = t * TAIL_POLY[0] + TAIL_POLY[1]
    for i in unroll(2, len(TAIL_POLY)):
        p = p * t + TAIL_POLY[i]
    beyond = x * (p * exp((x * x) * -0.5))
    return select(x < 0.0, beyond, x - beyond)


@inline
def relu2(x):
    """max(x, 0)^2 of f32 lanes."""
    r = select(x <= 0.0, 0.0, x)
    return r * r


@inline
def xielu(x, alpha_p, alpha_n, beta, eps):
    """alpha_p x^2 + beta x where x > 0, else alpha_n (e^min(x, eps) - 1 - x) + beta x, of f32 lanes."""
    below = ((exp(select(x > eps, eps, x)) - 1.0) - x) * alpha_n
    return select(x > 0.0, (x * x) * alpha_p, below) + x * beta


@inline
def activated(x, numbers, ACT: str):
    """The activation of f32 lanes, one of `numerics.UNGATED`; numbers: what "xielu" takes, as lanes or scalars."""
    if ACT == "gelu":
        return gelu(x)
    elif ACT == "gelu_quick":
        return gelu_quick(x)
    elif ACT == "relu2":
        return relu2(x)
    static_assert(ACT == "xielu", f"no kernel knows the activation {ACT}")
    alpha_p, alpha_n, beta, eps = numbers
    return xielu(x, alpha_p, alpha_n, beta, eps)


@inline
def clamp(x, low, high):
    """x held in low .. high, of f32 lanes or scalars; NaN stays."""
    return select(x > high, high, select(x < low, low, x))


@inline
def tanh(x):
    """The hyperbolic tangent of f32 lanes."""
    z = x * x
    p = z * TANH_POLY[0] + TANH_POLY[1]
    for i in unroll(2, len(TANH_POLY)):
        p = p * z + TANH_POLY[i]
    small = x + x * (z * p)
    a = absolute(x)
    large = 1.0 - 2.0 / (exp(a * 2.0) + 1.0)
    return select(a < TANH_SMALL, small, select(x < 0.0, -large, large))


@inline
def gather_step(own, value, score):
    """The greatest score of a softmax, its sum and its weighted sum, with one more value."""
    top = select(score > own[0], score, own[0])
    keep = exp(own[0] - top)
    more = exp(score - top)
    return top, fma(own[1], keep, more), fma(value, more, own[2] * keep)


@inline
def gated(gate, up, alpha, limit, ACT: str):
    """activation(gate) * up of f32 lanes; alpha, limit: of "clamped", "silu_clamped" and "clamped_silu", as lanes or
    scalars that fit them.
    """
    if ACT == "silu":
        return silu(gate) * up
    elif ACT == "gelu":
        return gelu(gate) * up
    elif ACT == "gelu_quick":
        return gelu_quick(gate) * up
    elif ACT == "relu":
        return select(gate < 0.0, 0.0, gate) * up
    elif ACT == "silu_clamped":
        g = silu(gate)
        return select(g > limit, limit, g) * clamp(up, -limit, limit)
    elif ACT == "gelu_alone":
        return gelu(gate)
    elif ACT == "gelu_erf":
        return gelu_erf(gate) * up
    elif ACT == "clamped_silu":
        return silu(select(gate > limit, limit, gate)) * clamp(up, -limit, limit)
    static_assert(ACT == "clamped", f"no kernel knows the activation {ACT}")
    g = select(gate > limit, limit, gate)
    return times_sigmoid(g, g * alpha) * (clamp(up, -limit, limit) + 1.0)


@inline
def sigmoid(x):
    """1 / (1 + e^-x) of f32 lanes."""
    e = exp(-x)
    total = e + 1.0
    rest = (not_below(e, 1.0) - total) + not_above(e, 1.0)
    rest = select(total == INFINITY, 0.0, rest)
    one: vec[f32, lanes(x)] = 1.0
    q = one / total
    return q - q * (rest * q)


@inline
def softplus(x):
    """ln(1 + e^x) of f32 lanes."""
    t = exp(select(x > 0.0, -x, x))
    s = t / (t + 2.0)
    z = s * s
    p = z * SOFTPLUS_POLY[0] + SOFTPLUS_POLY[1]
    for i in unroll(2, len(SOFTPLUS_POLY)):
        p = p * z + SOFTPLUS_POLY[i]
    return not_below(x, 0.0) + (t - s * (t - (z + z) * p))

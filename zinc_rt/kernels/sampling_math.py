"""Sampling's arithmetic (docs/how/sampling.md, "Arithmetic") how scores are ordered: exp, Philox, keys of float64."""

from __future__ import annotations

from zinc_rt.kernels.maths import INFINITY
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, rint, select, unroll
from zinc_rt.lang.types import f64, i32, u32, u64
from zinc_rt.numerics import EXP_LOWEST, STEP_HIGH, STEP_LOW, STEPS, STEPS_PER_E

SIGN = 1 << 63
KEY_OF_NOTHING = 0x000FFFFFFFFFFFFF
"""`order_key` of -infinity; every number's is greater, a place that holds no token has 0."""


@inline
def exp_part(r):
    """e ** r - 1 for |r| <= ln 2 / 256."""
    return ((((r * (1.0 / 120.0) + 1.0 / 24.0) * r + 1.0 / 6.0) * r + 0.5) * r + 1.0) * r


@inline
def exp(x, table):
    """e ** x for x <= 0; 0 below −708. table: the bits of 2 ** (j / 128), j = 0 … 127."""
    tiny = x < EXP_LOWEST
    y = select(tiny, EXP_LOWEST, x)
    k = rint(y * STEPS_PER_E)
    r = (y - k * STEP_HIGH) - k * STEP_LOW
    p = exp_part(r)
    steps = i32(k)
    t = bitcast(table[u32(steps) & (STEPS - 1)] + (u64(u32(steps >> (STEPS.bit_length() - 1))) << 52), f64)
    return select(tiny, 0.0, p * t + t)


@inline
def ranked(x):
    """NaN becomes −infinity."""
    return select(x >= -INFINITY, x, -INFINITY)


@inline
def order_key(x):
    """A u64 that is greater for greater numbers; the zeros have one. x: no NaN."""
    bits = bitcast(x + 0.0, u64)
    return select(bits >= SIGN, ~bits, bits | SIGN)


@inline
def key_score(key):
    """The number of an `order_key`."""
    return bitcast(select(key >= SIGN, key ^ SIGN, ~key), f64)


@inline
def below_top(score, top):
    """score − top; of several +infinity each is at the top, and nothing else counts. top: not −infinity."""
    return select(score == top, 0.0, score - top)


@inline
def uniform(seed: u64, step: u64):
    """The number in [0, 1) of a seed and a token's index: Philox4x32-10, 53 bits of its first two words."""
    c0 = u32(step)
    c1 = u32(step >> 32)
    c2: u32 = 0
    c3: u32 = 0
    k0 = u32(seed)
    k1 = u32(seed >> 32)
    for _ in unroll(10):
        p0 = u64(c0) * 0xD2511F53
        p1 = u64(c2) * 0xCD9E8D57
        n0 = u32(p1 >> 32) ^ c1 ^ k0
        n2 = u32(p0 >> 32) ^ c3 ^ k1
        c1 = u32(p1)
        c3 = u32(p0)
        c0 = n0
        c2 = n2
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return (f64(c0 >> 5) * 2.0**26 + f64(c1 >> 6)) * 2.0**-53

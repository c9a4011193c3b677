"""Sampling's exp and log on a processor, and what they are summed by (docs/how/sampling.md, "Arithmetic")."""

from __future__ import annotations

from zinc_rt.kernels.sampling_math import exp_part
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, gather, select, unroll
from zinc_rt.lang.types import f64, i64, u64, vec
from zinc_rt.numerics import EXP_LOWEST, STEP_HIGH, STEP_LOW, STEPS, STEPS_PER_E

ROUNDER = 1.5 * 2.0**52
"""Added to a number below 2^51 it leaves the nearest integer in the low bits."""
LN2_HIGH = STEP_HIGH * STEPS
LN2_LOW = STEP_LOW * STEPS


@inline
def exp(x, table, W: int):
    """e ** x for W lanes x <= 0; 0 below −708. table: the bits of 2 ** (j / 128), j = 0 … 127."""
    tiny = x < EXP_LOWEST
    y = select(tiny, 0.0, x)  # any number will do; with the lowest one products were subnormal, which is slow
    rounded = y * STEPS_PER_E + ROUNDER
    k = rounded - ROUNDER
    r = (y - k * STEP_HIGH) - k * STEP_LOW
    p = exp_part(r)
    steps = bitcast(rounded, vec[u64, W])
    whole = (steps >> (STEPS.bit_length() - 1)) << 52
    t = bitcast(gather(table, steps & (STEPS - 1)) + whole, vec[f64, W])
    return select(tiny, 0.0, p * t + t)


@inline
def log(x):
    """The natural logarithm of a normal number."""
    bits = bitcast(x, u64)
    m: f64 = bitcast((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000, f64)
    e: f64 = f64(i64(bits >> 52) - 1022)
    if m < 0.7071067811865476:
        m = m * 2.0
        e = e - 1.0
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series: f64 = 0.0
    for n in unroll(25, 0, -2):
        series = series * square + 1.0 / n
    return e * LN2_HIGH + ((2.0 * s) * series + e * LN2_LOW)


@inline
def greater(a, b):
    """The greater of two numbers, lane by lane; neither is NaN."""
    return select(a > b, a, b)


@inline
def greatest(v, W: int):
    """The greatest lane; none is NaN."""
    x: f64 = v[0]
    for i in unroll(1, W):
        x = greater(v[i], x)
    return x

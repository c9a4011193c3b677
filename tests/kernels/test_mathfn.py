"""exp, sigmoid, silu, softplus, gelus, tanh: bit for bit by their definition, and within some ulp of the true value."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import exact
from tests.kernels.oracle import same_bits
from zinc_rt.kernels.reference import mathfn

Function = Callable[[np.ndarray], np.ndarray]
FUNCTIONS: dict[str, tuple[Function, Callable[[float], float]]] = {
    "exp": (mathfn.exp, exact.exp),
    "sigmoid": (mathfn.sigmoid, exact.sigmoid),
    "silu": (mathfn.silu, exact.silu),
    "softplus": (mathfn.softplus, exact.softplus),
    "gelu": (mathfn.gelu, exact.gelu),
    "gelu_quick": (mathfn.gelu_quick, exact.gelu_quick),
    "gelu_erf": (mathfn.gelu_erf, exact.gelu_erf),
    "tanh": (mathfn.tanh, exact.tanh),
}
# Below -88.72 exp(-x) overflows, which sigmoid and silu say of themselves.
LEAST = {
    "exp": -104.5,
    "sigmoid": -88.7,
    "silu": -88.7,
    "softplus": -104.5,
    "gelu": -1.0,
    "gelu_quick": -1.0,
    "gelu_erf": -2.0,
    "tanh": -200.0,
}
MOST = {
    "exp": 89.0, "sigmoid": 120.0, "silu": 3.0e38, "softplus": 3.0e38, "gelu": 3.0e38, "gelu_quick": 3.0e38,
    "gelu_erf": 3.0e38,
    "tanh": 3.0e38,
}  # fmt: skip
# The largest errors over every float32 in these ranges, found by trying them all, rounded up.
ULPS = {
    "exp": 0.8,
    "sigmoid": 2.0,
    "silu": 2.0,
    "softplus": 2.0,
    "gelu": 2.5,
    "gelu_quick": 2.5,
    "gelu_erf": 8.0,
    "tanh": 1.34,
}

named = pytest.mark.parametrize("name", FUNCTIONS)


def truth(name: str, x: np.ndarray) -> np.ndarray:
    """float64, whose own error is below 2^-50 of a value."""
    wide = x.astype(np.float64)
    if name == "exp":
        return np.exp(wide)
    if name == "tanh":
        return np.tanh(wide)
    if name == "gelu":
        return wide / (1.0 + np.exp(-2.0 * math.sqrt(2.0 / math.pi) * (wide + 0.044715 * wide**3)))
    if name == "gelu_quick":
        return wide / (1.0 + np.exp(-1.702 * wide))
    if name == "gelu_erf":
        return np.array([0.5 * v * math.erfc(-v / math.sqrt(2.0)) for v in wide.flat]).reshape(wide.shape)
    if name == "softplus":
        return np.maximum(wide, 0.0) + np.log1p(np.exp(-np.abs(wide)))
    return (wide if name == "silu" else 1.0) / (1.0 + np.exp(-wide))


def ulp(value: np.ndarray) -> np.ndarray:
    """The distance of neighbouring float32 about a value: 2^-149 among the subnormals."""
    return np.ldexp(1.0, np.maximum(np.frexp(np.abs(value))[1] - 24, -149))


def worst(name: str, x: np.ndarray) -> float:
    """The largest error in ulp; results beyond float32 must be infinite and count as exact."""
    want = truth(name, x)
    got = FUNCTIONS[name][0](x).astype(np.float64)
    beyond = want > float(np.finfo(np.float32).max)
    assert (got[beyond] >= np.finfo(np.float32).max).all()
    return float(np.max(np.abs(got - want)[~beyond] / ulp(want[~beyond]), initial=0.0))


@named
def test_within_two_ulp_on_dense_samples(name: str) -> None:
    rng = np.random.default_rng(1)
    low, high = LEAST[name], min(MOST[name], 200.0)
    uniform = rng.uniform(low, high, 200_000).astype(np.float32)
    by_size = (rng.choice([-1.0, 1.0], 200_000) * 2.0 ** rng.uniform(-40, 8, 200_000)).astype(np.float32)
    by_size = by_size[(by_size >= np.float32(low)) & (by_size <= np.float32(high))]
    assert worst(name, uniform) <= ULPS[name]
    assert worst(name, by_size) <= ULPS[name]
    assert worst(name, uniform) > 0.5  # a measurement, not a tautology


@named
def test_within_two_ulp_about_the_edges(name: str) -> None:
    """Every float32 around the places where something changes: reduction, subnormals, overflow, cancellation."""
    half = math.log(2) / 2
    places = [0.0, half, -half, 3 * half, 1.0, -1.0, 17.33, -17.33, -17.42, 88.72, -87.34, -88.6, 88.0, 89.0, -103.9]
    for place in places:
        centre = int(np.float32(place).view(np.int32))
        # Steps of one bit pattern; across the sign these would wrap, so zero is approached from above.
        bits = np.arange(centre - (0 if place == 0.0 else 3000), centre + 3000, dtype=np.int64).astype(np.uint32)
        x = bits.view(np.float32)
        x = x[(x >= np.float32(LEAST[name])) & (x <= np.float32(MOST[name]))]
        assert worst(name, x) <= ULPS[name]


@named
def test_bit_for_bit(name: str) -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-110, 110, 400), rng.standard_normal(200) * 3, 2.0 ** rng.uniform(-149, 7, 100)])
    x = np.concatenate([x, -x[-100:]]).astype(np.float32)
    same_bits(FUNCTIONS[name][0](x), [FUNCTIONS[name][1](v) for v in x.tolist()])


@named
@given(st.lists(st.floats(width=32), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_bit_for_bit_on_anything(name: str, values: list[float]) -> None:
    with np.errstate(all="ignore"):
        got = FUNCTIONS[name][0](np.array(values, np.float32))
    same_bits(got, [FUNCTIONS[name][1](v) for v in values])


TINY = 2.0**-149
SPECIAL = {
    "exp": [
        (0.0, 1.0), (-0.0, 1.0), (TINY, 1.0), (-TINY, 1.0), (math.inf, math.inf), (-math.inf, 0.0), (1e30, math.inf),
        (-1e30, 0.0), (-103.97, TINY), (-103.98, 0.0), (-200.0, 0.0), (88.73, math.inf), (math.nan, math.nan),
    ],
    "sigmoid": [
        (0.0, 0.5), (-0.0, 0.5), (math.inf, 1.0), (-math.inf, 0.0), (1e30, 1.0), (-1e30, 0.0), (-89.0, 0.0),
        (20.0, 1.0), (math.nan, math.nan),
    ],
    "silu": [
        (0.0, 0.0), (1e30, 1e30), (-1e30, 0.0), (-89.0, 0.0), (100.0, 100.0), (3e38, 3e38), (math.inf, math.nan),
        (-math.inf, math.nan), (math.nan, math.nan),
    ],
    "gelu": [
        (0.0, 0.0), (-0.0, 0.0), (1e30, 1e30), (-1e30, 0.0), (-20.0, 0.0), (20.0, 20.0), (math.inf, math.nan),
        (-math.inf, math.nan), (math.nan, math.nan),
    ],
    "gelu_quick": [
        (0.0, 0.0), (-0.0, 0.0), (1e30, 1e30), (-1e30, 0.0), (-60.0, 0.0), (20.0, 20.0), (math.inf, math.nan),
        (-math.inf, math.nan), (math.nan, math.nan),
    ],
    "gelu_erf": [
        (0.0, 0.0), (-0.0, 0.0), (1e30, 1e30), (-1e30, 0.0), (-20.0, 0.0), (20.0, 20.0), (math.inf, math.nan),
        (-math.inf, math.nan), (math.nan, math.nan),
    ],
    "tanh": [
        (0.0, 0.0), (-0.0, 0.0), (TINY, TINY), (20.0, 1.0), (-20.0, -1.0), (3e38, 1.0), (math.inf, 1.0),
        (-math.inf, -1.0), (math.nan, math.nan),
    ],
    "softplus": [
        (math.inf, math.inf), (-math.inf, 0.0), (1e30, 1e30), (-1e30, 0.0), (20.0, 20.0), (3e38, 3e38),
        (math.nan, math.nan), (0.0, 0.6931472), (-0.0, 0.6931472),
    ],
}  # fmt: skip


@named
def test_special_values(name: str) -> None:
    for x, want in SPECIAL[name]:
        with np.errstate(all="ignore"):
            got = FUNCTIONS[name][0](np.float32([x]))[0]
        assert np.isnan(got) if math.isnan(want) else got == np.float32(want), x


def test_exp_never_falls() -> None:
    """Not promised by an error bound alone; it keeps attention's largest score the largest weight."""
    x = np.sort(np.random.default_rng(3).uniform(-104.5, 89.0, 300_000).astype(np.float32))
    neighbours = np.arange(0x3F000000, 0x3F000000 + 100_000, dtype=np.uint32).view(np.float32)
    for points in (x, neighbours, -neighbours[::-1]):
        y = mathfn.exp(points)
        assert (y[1:] >= y[:-1]).all()


@pytest.mark.parametrize(("low", "high", "bound"), [(-5.0, -1.0, 2.0**-18), (-10.0, -5.0, 2.0**-16)])
def test_gelu_of_what_it_nearly_drops(low: float, high: float, bound: float) -> None:
    """There the argument of exp is large, and rounding it costs bits of the value."""
    x = np.random.default_rng(4).uniform(low, high, 200_000).astype(np.float32)
    want = truth("gelu", x)
    off = np.abs(mathfn.gelu(x).astype(np.float64) - want) / np.abs(want)
    assert bound / 4 < off.max() < bound


def test_tanh_is_odd_and_never_falls() -> None:
    rng = np.random.default_rng(5)
    x = np.sort(np.concatenate([rng.uniform(0, 12, 200_000), rng.uniform(0.62, 0.63, 50_000)]).astype(np.float32))
    y = mathfn.tanh(x)
    assert (mathfn.tanh(-x) == -y).all()
    assert (np.diff(y) >= -(2.0**-24)).all()
    assert np.abs(y).max() == 1.0

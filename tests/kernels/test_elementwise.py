"""swiglu, sigmoid_mul, vadd, argmax and softmax: values, bits, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.kernels import exact, oracle
from tests.kernels.oracle import same_bits
from zinc_rt import kernels
from zinc_rt.ir.ops.argmax import argmax_rows
from zinc_rt.ir.ops.elementwise import gated_rows
from zinc_rt.kernels.reference.softmax import softmax
from zinc_rt.seed.kernels.errors import EmptyInput, ShapeMismatch

WILD = np.float32([0.0, -0.0, 2.0**-149, -(2.0**-140), 1e-30, 3e38, -3e38, np.inf, -np.inf, np.nan, 1.0, -88.0])
BINARY: dict[str, Callable[[float, float], float]] = {
    "swiglu": lambda gate, up: exact.mul(exact.silu(gate), up),
    "sigmoid_mul": lambda gate, x: exact.mul(exact.sigmoid(gate), x),
    "vadd": exact.add,
}
binary = pytest.mark.parametrize("name", BINARY)


def run(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.full(len(a), 7.0, np.float32)
    getattr(kernels, name)(a, b, out)
    return out


@binary
def test_bit_for_bit(name: str) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 31, 100):
        a, b = (rng.standard_normal((2, n)) * 8).astype(np.float32)
        same_bits(run(name, a, b), [BINARY[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    a, b = (g.reshape(-1) for g in np.meshgrid(WILD, WILD))
    same_bits(run(name, a, b), [BINARY[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])


def limited(x: float, low: float, high: float) -> float:
    return high if x > high else low if x < low else x


@pytest.mark.parametrize(
    ("attrs", "formula"),
    [
        ({"activation": "relu"}, lambda g, u: exact.mul(0.0 if g < 0 else g, u)),
        (
            {"activation": "silu_clamped", "limit": 1.5},
            lambda g, u: exact.mul(limited(exact.silu(g), -math.inf, 1.5), limited(u, -1.5, 1.5)),
        ),
        (
            {"activation": "clamped_silu", "limit": 1.5},
            lambda g, u: exact.mul(exact.silu(limited(g, -math.inf, 1.5)), limited(u, -1.5, 1.5)),
        ),
    ],
)
def test_gates(attrs: dict[str, Any], formula: Callable[[float, float], float]) -> None:
    gate, up = (g.reshape(-1) for g in np.meshgrid(WILD, np.float32([*WILD, 0.5, -2.0, 7.0])))
    want = [formula(g, u) for g, u in zip(gate.tolist(), up.tolist(), strict=True)]
    same_bits(gated_rows(gate, up, attrs | {"alpha": 1.0}), want)


@binary
def test_errors(name: str) -> None:
    kernel, out = getattr(kernels, name), np.zeros(2, np.float32)
    with pytest.raises(EmptyInput, match=f"{name}: .* is empty"):
        kernel([], [], out)
    with pytest.raises(ShapeMismatch, match=r"2.*3"):
        kernel([1.0, 2.0], [1.0, 2.0, 3.0], out)
    with pytest.raises(ShapeMismatch, match="output 2"):
        kernel([1.0] * 3, [1.0] * 3, out)
    assert not out.any()


def test_the_table_of_the_kernel_pages() -> None:
    assert run("swiglu", np.float32([2.0]), np.float32([4.0]))[0] == pytest.approx(7.0463767, abs=5e-7)
    assert run("sigmoid_mul", np.float32([0.0]), np.float32([3.0]))[0] == 1.5
    assert run("vadd", np.float32([1.0]), np.float32([2.0]))[0] == 3.0
    token = np.zeros(1, np.int32)
    kernels.argmax([-1.0, 3.5, 2.0], token)
    assert token[0] == 1


def test_outputs_may_be_inputs() -> None:
    a, b = np.float32([1.0, -2.0, 3.0]), np.float32([4.0, 5.0, -6.0])
    want = run("swiglu", a, b)
    kernels.swiglu(a, b, a)
    same_bits(a, want)


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("logits", "index"),
    [
        ([5.0], 0),
        ([1.0, 3.0, 3.0], 1),
        ([2.0, 2.0, 2.0], 0),
        ([NAN, 1.0, 2.0], 2),
        ([1.0, NAN, 1.0], 0),
        ([NAN, -3e38], 1),
        ([NAN, -INF], 1),
        ([NAN, NAN, -INF, NAN, -INF], 2),
        ([-INF, NAN], 0),
        ([NAN, NAN], 0),
        ([-INF, -INF], 0),
        ([1.0, INF, INF], 1),
        ([-0.0, 0.0], 0),
        ([0.0, -0.0], 0),
        ([-1.0, -(2.0**-149)], 1),
        ([0.0, 2.0**-149], 1),
    ],
)
def test_argmax(logits: list[float], index: int) -> None:
    token = np.full(1, -1, np.int32)
    kernels.argmax(np.float32(logits), token)
    assert token[0] == index


def test_argmax_of_rows_is_that_of_each() -> None:
    rng = np.random.default_rng(2)
    rows = rng.choice(np.float32([-np.inf, np.nan, -1.0, 0.0, 2.0, 3.0]), (300, 4))
    got = argmax_rows(rows)
    assert got.dtype == np.int32
    for row, index in zip(rows.tolist(), got.tolist(), strict=True):
        # NaN below everything, ties to the lowest index: the key says so directly
        assert index == max(range(4), key=lambda i: (not math.isnan(row[i]), row[i] if row[i] == row[i] else 0.0, -i))


def test_argmax_errors() -> None:
    with pytest.raises(EmptyInput, match="logits"):
        kernels.argmax([], np.zeros(1, np.int32))
    with pytest.raises(ShapeMismatch, match="1 are needed"):
        kernels.argmax([1.0], np.zeros(2, np.int32))


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100, 300])
def test_softmax_bit_for_bit(n: int) -> None:
    x = (np.random.default_rng(n).standard_normal((3, n)) * 5).astype(np.float32)
    got = softmax(x)
    same_bits(got, [oracle.softmax(row) for row in x.tolist()])
    np.testing.assert_allclose(got.sum(axis=-1), 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "want"),
    [
        ([INF, 0.0], [NAN, NAN]),
        ([-INF, 0.0], [0.0, 1.0]),
        ([NAN, 0.0], [NAN, NAN]),
        ([3e38, -3e38], [1.0, 0.0]),
        ([1000.0, 1000.0], [0.5, 0.5]),
    ],
)
def test_softmax_at_the_edges(x: list[float], want: list[float]) -> None:
    same_bits(softmax(np.float32(x)), want)
    same_bits(softmax(np.float32(x)), oracle.softmax(np.float32(x).tolist()))

"""Activations as int8: d, q and s of every group, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import oracle
from tests.kernels.material import activations, adversarial_activations
from tests.kernels.oracle import same_bits
from zinc_rt.kernels.reference.activations import quantize_activations


def check(x: np.ndarray) -> None:
    """x: f32[n_rows, n_in]. Integers are compared as numbers: the sign of a zero is nobody's business."""
    acts = quantize_activations(x)
    n_rows, n_groups = len(x), x.shape[1] // 32
    assert acts.q.shape == (n_rows, n_groups, 32)
    assert acts.s.shape == acts.d.shape == (n_rows, n_groups)
    for r, row in enumerate(x.reshape(n_rows, n_groups, 32).tolist()):
        for g, group in enumerate(row):
            d, q = oracle.quantize_group(group)
            same_bits(acts.d[r, g : g + 1], [d])
            assert acts.q[r, g].tolist() == q
            assert acts.s[r, g] == sum(q)
            assert max(map(abs, q)) <= 127


def group(*values: float) -> np.ndarray:
    """One group: these values, then zeros."""
    x = np.zeros((1, 32), np.float32)
    x[0, : len(values)] = values
    return x


@pytest.mark.parametrize("seed", range(3))
def test_ordinary_rows(seed: int) -> None:
    check(activations(np.random.default_rng(seed), 3, 512))


@pytest.mark.parametrize("seed", range(4))
def test_adversarial_rows(seed: int) -> None:
    check(adversarial_activations(np.random.default_rng(seed), 4, 640, finite=False))


def test_half_even() -> None:
    halves = np.arange(-126, 127) + 0.5
    for start in range(0, 253, 31):
        x = group(127.0, *halves[start : start + 31])
        check(x)
        check(x * np.float32(2.0**-30))
    assert quantize_activations(group(127.0, 0.5, 1.5, 2.5, -0.5, -1.5)).q[0, 0, 1:6].tolist() == [0, 2, 2, 0, -2]


def test_the_quotient_is_a_product_with_the_rounded_inverse() -> None:
    """Next to halves, x * (1 / d) and x / d are rounded to different integers; the first one is the definition."""
    rng = np.random.default_rng(5)
    amax = rng.uniform(1, 2, 200).astype(np.float32)
    d = amax / np.float32(127)
    halves = (rng.integers(40, 126, (200, 31)) + np.float32(0.5)).astype(np.float32)
    near = (halves * d[:, None]).view(np.int32) + rng.integers(-2, 3, (200, 31)).astype(np.int32)
    x = np.concatenate([amax[:, None], near.view(np.float32)], axis=1)
    check(x)
    assert (np.rint(x / d[:, None]) != quantize_activations(x).q[:, 0]).sum() > 50


def test_both_ends_of_the_largest_magnitude() -> None:
    acts = quantize_activations(group(3.0, -3.0, 1.0))
    assert acts.q[0, 0, :3].tolist() == [127.0, -127.0, 42.0]
    check(group(3.0, -3.0, 1.0))


@pytest.mark.parametrize("factor", [1.0, 1.0 - 2.0**-24, 1.0 + 2.0**-23, 0.5, 2.0])
def test_where_the_scale_becomes_subnormal(factor: float) -> None:
    """d = 2^-126 is the least that is used: 1 / d of a smaller one could overflow."""
    x = group(127 * 2.0**-126 * factor, 2.0**-126, -(2.0**-149))
    check(x)
    assert bool(quantize_activations(x).q.any()) == (factor >= 1.0)


def test_zero_and_subnormal_groups_are_nothing() -> None:
    for x in (group(), group(-0.0), group(2.0**-149), group(2.0**-126, -(2.0**-127))):
        acts = quantize_activations(x)
        assert acts.d[0, 0] == 0.0
        assert not acts.q.any()
        assert not acts.s.any()


def test_huge_groups() -> None:
    largest = float(np.finfo(np.float32).max)
    check(group(largest, -largest, largest / 254, 1.0))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_group_that_is_not_finite_keeps_its_scale_and_drops_its_integers(bad: float) -> None:
    x = np.concatenate([group(1.0, bad, 2.0), group(5.0)], axis=1)
    acts = quantize_activations(x)
    assert math.isnan(acts.d[0, 0]) if math.isnan(bad) else acts.d[0, 0] == math.inf
    assert not acts.q[0, 0].any()
    assert acts.d[0, 1] == np.float32(5.0) / np.float32(127.0)  # the neighbour is not touched
    check(x)


@given(st.lists(st.floats(width=32), min_size=32, max_size=32))
@settings(max_examples=50, deadline=None)
def test_any_group(values: list[float]) -> None:
    check(np.array([values], np.float32))

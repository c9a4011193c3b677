"""The fused chain, round to odd and the lane tree, bit for bit against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import oracle
from tests.kernels.exact import fma, nearest
from tests.kernels.oracle import same_bits
from zinc_rt.kernels.reference import arith

LARGEST = float(np.finfo(np.float32).max)
SHORT_TIE = 1.0 + 2.0**-12  # its square lies halfway between two float32
PALETTE = [
    0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 2.0**-149, -(2.0**-149), 2.0**-126, 2.0**-127, -(2.0**-126), 2.0**-75, 2.0**-74,
    2.0**-64, 2.0**63, 2.0**64, 2.0**127, LARGEST, -LARGEST, SHORT_TIE, -SHORT_TIE, 1.0 + 2.0**-23, 1.0 - 2.0**-24,
    2.0**-24, 2.0**-25, 16777215.0, 127.0,
]  # fmt: skip
WILD = [*PALETTE, math.inf, -math.inf, math.nan]

float32s = st.floats(width=32) | st.sampled_from(WILD)
finite32s = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from(PALETTE)


def column(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


def run_chain(a: np.ndarray, b: np.ndarray, first_row: np.ndarray | None = None) -> np.ndarray:
    """Overflow and invalid operations are results here, not accidents."""
    with np.errstate(all="ignore"):
        return arith.fma_chain(a, b, first_row)


def tie_cases(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Chains of two steps, f32[2, n] each: a tiny addend, then a product that lies halfway between two float32.

    The product is an odd number of 25 bits, made of factors of 13 and 12 bits. The addend is anything from just
    visible in float64 to far below, and of either sign, so float64 rounds most of the sums onto the tie.
    """
    rng = np.random.default_rng(seed)
    a = rng.integers(1 << 12, 1 << 13, 4 * n) | 1
    b = rng.integers(1 << 11, 1 << 12, 4 * n) | 1
    odd = (a * b >> 24) == 1
    a, b = a[odd][:n].astype(np.float64), b[odd][:n].astype(np.float64)
    scale = rng.integers(-50, 60, n)
    addend = rng.choice([-1.0, 1.0], n) * np.ldexp(rng.integers(1, 1 << 24, n), scale - rng.integers(20, 90, n))
    left = np.stack([addend, np.ldexp(a, scale // 2) * rng.choice([-1.0, 1.0], n)]).astype(np.float32)
    right = np.stack([np.ones(n), np.ldexp(b, scale - scale // 2)]).astype(np.float32)
    return left, right


def expected_chains(a: np.ndarray, b: np.ndarray) -> list[float]:
    return [oracle.chain(x, y) for x, y in zip(a.T.tolist(), b.T.tolist(), strict=True)]


def test_ties_hidden_by_tiny_addends() -> None:
    a, b = tie_cases(3, 3000)
    want = expected_chains(a, b)
    same_bits(run_chain(a, b), want)
    # Rounding twice would go wrong on a good part of these, so the test would notice.
    twice = (a[1].astype(np.float64) * b[1] + a[0]).astype(np.float32)
    assert 0.2 < np.mean(twice != np.array(want, np.float32)) < 0.8


def test_ties_below_the_normal_range() -> None:
    """Results that are float32 subnormals have fewer bits: their ties are elsewhere."""
    rng = np.random.default_rng(4)
    n = 2000
    addend = np.ldexp(rng.integers(-(1 << 20), 1 << 20, n).astype(np.float64), -149)
    # (odd + 1/2 unit) * (1 + tiny): products whose 48 bits straddle a tie between two subnormals
    big = np.ldexp(2.0 * rng.integers(1 << 5, 1 << 20, n) + 1.0, -80)
    ratio = np.ldexp(1.0 + rng.choice([-1.0, 0.0, 1.0], n) * 2.0**-23, -70)
    a = np.stack([addend, big]).astype(np.float32)
    b = np.stack([np.ones(n), ratio]).astype(np.float32)
    want = expected_chains(a, b)
    same_bits(run_chain(a, b), want)
    assert (np.abs(np.array(want)) < 2.0**-126).mean() > 0.9


def test_subnormal_sums_that_float64_cannot_hold() -> None:
    """A product far below 2^-149 next to a tie made of the accumulator and a half unit."""
    # acc = 3 units exactly; product = half a unit, plus or minus less than float64 keeps beside 3.5 units
    half_unit = 2.0**-75
    for end in (1.0, 1.0 + 2.0**-23, 1.0 - 2.0**-24):
        for factor in (1.0, 1.0 + 2.0**-23, 1.0 - 2.0**-24):
            for sign in (1.0, -1.0):
                a, b = [3 * 2.0**-149, sign * half_unit * end], [1.0, half_unit * factor]
                same_bits(run_chain(column(a), column(b)), [oracle.chain(a, b)])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([LARGEST, 2.0**103], [1.0, 1.0]),  # halfway to 2^128: infinity
        ([LARGEST, 2.0**103, -(2.0**-149)], [1.0, 1.0, 1.0]),
        ([-(2.0**-149), LARGEST, 2.0**103], [1.0, 1.0, 1.0]),
        ([LARGEST, 2.0**102], [1.0, 1.5]),
        ([2.0**127, -(2.0**127)], [2.0, 1.0]),  # the first overflows; a chain rounds each step
        ([math.inf, -math.inf], [1.0, 1.0]),
        ([math.inf, 0.0], [0.0, 1.0]),
        ([math.inf, 1.0], [1.0, -LARGEST]),
        ([math.nan, 1.0], [1.0, 1.0]),
        ([1.0, 1.0], [1.0, math.nan]),
        ([-0.0, -0.0], [1.0, 1.0]),
        ([-(2.0**-100), 0.0], [2.0**-100, 1.0]),  # underflows to -0.0, then +0.0 again
        ([-(2.0**-100)], [2.0**-100]),
        ([2.0**-149, 2.0**-149], [0.5, 0.5]),
    ],
)
def test_chains_at_the_edges(a: list[float], b: list[float]) -> None:
    same_bits(run_chain(column(a), column(b)), [oracle.chain(column(a)[:, 0].tolist(), column(b)[:, 0].tolist())])


@given(st.lists(st.tuples(float32s, float32s), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_chains_of_anything(pairs: list[tuple[float, float]]) -> None:
    a, b = zip(*pairs, strict=True)
    same_bits(run_chain(column(list(a)), column(list(b))), [oracle.chain(a, b)])


@given(finite32s, finite32s, finite32s)
@settings(max_examples=100, deadline=None)
def test_a_sum_rounded_to_odd_makes_an_fma(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        product = np.multiply(np.float32([a]), np.float32([b]), dtype=np.float64)
        got = arith.round_to_odd_sum(product, np.float64([np.float32(c)])).astype(np.float32)
    want = fma(a, b, c)
    same_bits(got, [want])


def test_long_chains_in_many_columns() -> None:
    """More elements than one block of work, doubtful sums scattered over columns and steps."""
    rng = np.random.default_rng(5)
    n, rows, columns = 45, 60, 70
    a = rng.standard_normal((n, rows, columns)).astype(np.float32)
    b = rng.standard_normal((n, rows, columns)).astype(np.float32)
    left, right = tie_cases(6, 200)
    planted = rng.choice(rows * columns, 200, replace=False)
    for i, at in enumerate(planted):
        step = int(rng.integers(0, n - 2))
        r, c = divmod(int(at), columns)
        a[: step + 2, r, c] = 0.0  # the chain so far sums to zero
        a[step : step + 2, r, c], b[step : step + 2, r, c] = left[:, i], right[:, i]
    got = arith.fma_chain(a, b).reshape(-1)
    looked_at = np.unique(np.concatenate([planted, rng.choice(rows * columns, 100, replace=False)]))
    flat_a, flat_b = a.reshape(n, -1)[:, looked_at], b.reshape(n, -1)[:, looked_at]
    same_bits(got[looked_at], expected_chains(flat_a, flat_b))


def test_chains_broadcast_and_take_float16_and_float64() -> None:
    rng = np.random.default_rng(7)
    a = rng.standard_normal((9, 4, 1)).astype(np.float16)
    b = rng.standard_normal((9, 1, 5)).astype(np.float32).astype(np.float64)
    want = [[oracle.chain(a[:, i, 0].tolist(), b[:, 0, j].tolist()) for j in range(5)] for i in range(4)]
    same_bits(arith.fma_chain(a, b), want)
    same_bits(arith.fma_chain(b, a), want)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_first_row_leaves_earlier_rows_alone(data: st.DataObject) -> None:
    n, rows = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    first = sorted(data.draw(st.lists(st.integers(0, rows), min_size=n, max_size=n)))
    shape = st.lists(st.tuples(float32s, float32s), min_size=n * rows, max_size=n * rows)
    a, b = np.array(data.draw(shape), np.float32).reshape(n, rows, 2).transpose(2, 0, 1)
    want = []
    for r in range(rows):
        steps = [i for i in range(n) if r >= first[i]]
        want.append(oracle.chain([float(a[i, r]) for i in steps], [float(b[i, r]) for i in steps]))
    same_bits(run_chain(a, b, np.array(first)), want)


def test_first_row_with_doubtful_sums() -> None:
    """The redone chains know of the mask too."""
    left, right = tie_cases(8, 64)
    a, b = np.zeros((3, 65), np.float32), np.ones((3, 65), np.float32)
    a[0, 1:], b[0, 1:], a[1, 1:], b[1, 1:] = left[0], right[0], left[1], right[1]
    a[2] = 7.5
    first = np.array([0, 0, 40])
    want = [oracle.chain(a[: 3 if r >= 40 else 2, r].tolist(), b[: 3 if r >= 40 else 2, r].tolist()) for r in range(65)]
    same_bits(run_chain(a, b, first), want)


def to_odd(exact: Fraction) -> float:
    """53 bits, the last one set when anything is lost."""
    size = abs(exact)
    scale = 0
    while size >= 2**53:
        size, scale = size / 2, scale + 1
    while size < 2**52:
        size, scale = size * 2, scale - 1
    whole = math.floor(size)
    if whole != size:
        whole |= 1
    return math.copysign(math.ldexp(whole, scale), exact)


middling = st.floats(allow_nan=False, allow_infinity=False, min_value=2.0**-300, max_value=2.0**300)
signed_middling = st.tuples(middling, st.sampled_from([1.0, -1.0])).map(lambda t: t[0] * t[1])


@given(signed_middling, signed_middling, st.integers(-60, 60) | st.none())
@settings(max_examples=100, deadline=None)
def test_round_to_odd_sum(a: float, b: float, apart: int | None) -> None:
    if apart is not None:  # operands of like size are where rounding happens
        b = math.ldexp(math.frexp(b)[0], math.frexp(a)[1] - apart)
    exact = Fraction(a) + Fraction(b)
    got = float(arith.round_to_odd_sum(np.array([a]), np.array([b]))[0])
    assert got == (to_odd(exact) if exact else 0.0)


def test_round_to_odd_keeps_exact_sums_and_what_is_not_finite() -> None:
    a = np.array([1.0, 0.0, math.inf, math.inf, math.nan, 2.0**52, 1.0])
    b = np.array([2.0, -0.0, 1.0, -math.inf, 0.0, 1.0, -(2.0**-53)])
    with np.errstate(all="ignore"):
        got = arith.round_to_odd_sum(a, b)
    np.testing.assert_array_equal(got, [3.0, 0.0, math.inf, math.nan, math.nan, 2.0**52 + 1.0, 1.0 - 2.0**-53])


def test_rounding_to_odd_and_then_to_float32_is_rounding_once() -> None:
    a, b = tie_cases(9, 1000)
    odd = arith.round_to_odd_sum(np.multiply(a[1], b[1], dtype=np.float64), a[0].astype(np.float64))
    want = [
        nearest(int(x * 2**400), 400)
        for x in (Fraction(float(p)) * Fraction(float(q)) + Fraction(float(c)) for p, q, c in zip(a[1], b[1], a[0]))
    ]
    same_bits(odd.astype(np.float32), want)


def tree_values(seed: int, n: int, rows: int) -> np.ndarray:
    """Values of all sizes with much cancellation, -0.0 among them."""
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.standard_normal((n, rows)), rng.integers(-30, 30, (n, rows))).astype(np.float32)
    values[rng.random((n, rows)) < 0.2] = -0.0
    back = rng.random((n, rows)) < 0.3
    values[back] = -np.roll(values, 1, axis=0)[back]
    return values


@pytest.mark.parametrize("lanes", [32, 256])
def test_lane_tree_sum_of_every_length(lanes: int) -> None:
    lengths = [*range(1, 101), 127, 128, 129, 255, 256, 257, 300, 511, 513, 1024, 1025]
    for n in lengths:
        values = tree_values(n, n, 2)
        before = values.copy()
        same_bits(arith.lane_tree_sum(values, lanes), [oracle.tree(values[:, r].tolist(), lanes) for r in range(2)])
        same_bits(values, before)  # the operand is left alone


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64])
def test_a_sum_of_negative_zeros_is_positive(n: int) -> None:
    """Lanes start at +0.0."""
    same_bits(arith.lane_tree_sum(np.full((n, 2), -0.0, np.float32), 32), [0.0, 0.0])


def test_the_tree_is_not_just_any_sum() -> None:
    """The order shows: adding from left to right gives other bits for most of these."""
    values = np.random.default_rng(10).standard_normal((100, 300)).astype(np.float32)
    left_to_right = np.zeros(300, np.float32)
    for row in values:
        left_to_right += row
    assert np.mean(arith.lane_tree_sum(values, 32) != left_to_right) > 0.5


@given(st.lists(float32s, min_size=1, max_size=70))
@settings(max_examples=80, deadline=None)
def test_lane_tree_sum_of_anything(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        got = arith.lane_tree_sum(np.array(values, np.float32), 32)
    same_bits(got, oracle.tree(values))


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100, 255, 256])
def test_fold_lanes(n: int) -> None:
    values = tree_values(n, n, 3)
    want = [oracle.fold([*values[:, r].tolist(), *[0.0] * (256 - n)]) for r in range(3)]
    same_bits(arith.fold_lanes(values + np.float32(0.0), 256), want)

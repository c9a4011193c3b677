"""The matrix product of every format: bit for bit, and against float64 within a derived bound."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gguf.judge import dequantized
from tests.kernels import oracle
from tests.kernels.material import (
    FLOATS,
    QUANTISED,
    SCALE_BYTES,
    WILD_F16,
    activations,
    adversarial_activations,
    adversarial_rows,
    float_rows,
    packed_rows,
    widened,
)
from tests.kernels.oracle import same_bits
from zinc_rt.gguf import GGMLType, UnsupportedTensorType
from zinc_rt.kernels.errors import ShapeMismatch
from zinc_rt.kernels.reference import matmul as module
from zinc_rt.kernels.reference.activations import quantize_activations
from zinc_rt.kernels.reference.matmul import Weight, matmul

quantised = pytest.mark.parametrize("kind", QUANTISED, ids=lambda t: t.name)
floats = pytest.mark.parametrize("kind", FLOATS, ids=lambda t: t.name)


def lengths(kind: GGMLType) -> list[int]:
    """Row lengths about the 32 lanes' first and second round: 1024 elements are one round. Where blocks are the same
    size, the lengths do not depend on how they are decoded: Q8_0 and Q4_K have more of them.
    """
    if kind.block_size == 256:
        return [256, 512, 1024, 1280, 1536] if kind is GGMLType.Q4_K else [256, 1280]
    every = (
        (32, 64, 96, 480, 992, 1024, 1056, 1536, 64 * 17) if kind is GGMLType.Q8_0 else (32, 128, 1024, 64 * 17, 1152)
    )
    return [n for n in every if n % kind.block_size == 0]


def check_quantised(kind: GGMLType, raw: np.ndarray, x: np.ndarray) -> None:
    got = matmul(x, Weight.from_raw(kind, raw))
    same_bits(got, [[oracle.quant_dot(kind, row, a) for row in raw] for a in x.tolist()])


@quantised
def test_quantised_rows(kind: GGMLType) -> None:
    for n_in in lengths(kind):
        rng = np.random.default_rng(n_in)
        check_quantised(kind, packed_rows(kind, rng, 2, n_in), activations(rng, 2, n_in))


@quantised
def test_adversarial_rows(kind: GGMLType) -> None:
    for n_in, n_x in ((512, 2), (1280, 1)):
        rng = np.random.default_rng(n_in + 1)
        check_quantised(kind, adversarial_rows(kind, rng, 4, n_in), adversarial_activations(rng, n_x, n_in))


@quantised
def test_what_is_not_finite_propagates(kind: GGMLType) -> None:
    rng = np.random.default_rng(2)
    raw = adversarial_rows(kind, rng, 4, 512, WILD_F16)
    check_quantised(kind, raw, adversarial_activations(rng, 2, 512, finite=False))
    ordinary, x = packed_rows(kind, rng, 3, 512), activations(rng, 2, 512)
    for bad in (np.nan, np.inf):
        x[0, 100] = bad
        got = matmul(x, Weight.from_raw(kind, ordinary))
        assert np.isnan(got[0]).all()  # the whole row's products, and no other row's
        assert np.isfinite(got[1]).all()


@quantised
def test_the_largest_integers_are_exact(kind: GGMLType) -> None:
    """All nibbles, scales and activations at one end: the integer sums at their largest."""
    for fill, signs in ((0x00, "+"), (0x7F, "+-"), (0x80, "-"), (0xFF, "+-")):
        raw = np.full((2, 512 // kind.block_size, kind.block_bytes), fill, np.uint8)
        for at in SCALE_BYTES[kind]:
            raw[:, :, at : at + 2] = np.array([0x3555], "<u2").view(np.uint8)  # 0.3332: products do round
        for sign in signs:
            check_quantised(kind, raw.reshape(2, -1), np.full((1, 512), float(f"{sign}0.7"), np.float32))


@floats
@pytest.mark.parametrize("n_in", [1, 2, 31, 32, 33, 63, 100, 255, 1000, 1024, 1025, 1100])
def test_float_rows(kind: GGMLType, n_in: int) -> None:
    rng = np.random.default_rng(n_in)
    raw = float_rows(kind, activations(rng, 3, n_in))
    x = activations(rng, 2, n_in)
    w = widened(kind, raw)
    got = matmul(x, Weight.from_raw(kind, raw))
    same_bits(got, [[oracle.float_dot(row, a) for row in w.tolist()] for a in x.tolist()])


@floats
def test_adversarial_float_rows(kind: GGMLType) -> None:
    """Overflow on the way, cancellation, subnormal products, infinities and NaN."""
    rng = np.random.default_rng(3)
    w = np.concatenate([adversarial_activations(rng, 3, 160, finite=False), adversarial_activations(rng, 3, 160)])
    raw = float_rows(kind, w[:, :131])
    x = adversarial_activations(rng, 4, 160)[:, :131]
    got = matmul(x, Weight.from_raw(kind, raw))
    same_bits(got, [[oracle.float_dot(row, a) for row in widened(kind, raw).tolist()] for a in x.tolist()])
    assert np.isfinite(got).any()


def test_bf16_and_f16_read_their_bits() -> None:
    x = np.float32([[1.0, 2.0]])
    bf16 = np.array([[0x3F80, 0x4040]], "<u2").view(np.uint8)  # 1, 3
    f16 = np.array([[0x3C00, 0xC200]], "<u2").view(np.uint8)  # 1, -3
    assert matmul(x, Weight.from_raw(GGMLType.BF16, bf16)).tolist() == [[7.0]]
    assert matmul(x, Weight.from_raw(GGMLType.F16, f16)).tolist() == [[-5.0]]


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q4_1, GGMLType.Q6_K, GGMLType.F16], ids=lambda t: t.name)
def test_tiles_slabs_and_keeping_change_nothing(kind: GGMLType, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    n_in = 256
    raw = packed_rows(kind, rng, 23, n_in) if kind.quantized else float_rows(kind, activations(rng, 23, n_in))
    x = activations(rng, 11, n_in)
    whole = matmul(x, Weight.from_raw(kind, raw))
    kept = Weight.from_raw(kind, raw, keep=True)
    for _ in range(2):
        same_bits(matmul(x, kept), whole)
    same_bits(matmul(x, Weight.from_raw(kind, raw), quantize_activations(x)), whole)
    for i in range(11):
        same_bits(matmul(x[i : i + 1], kept), whole[i : i + 1])
    monkeypatch.setattr(module, "_TILE", 700)
    monkeypatch.setattr(module, "_SLAB", 5 * n_in)
    for keep in (False, True):
        cut = Weight.from_raw(kind, raw, keep=keep)
        for _ in range(2):
            same_bits(matmul(x, cut), whole)


def test_no_rows_give_no_products() -> None:
    raw = packed_rows(GGMLType.Q8_0, np.random.default_rng(5), 3, 64)
    assert matmul(np.empty((0, 64), np.float32), Weight.from_raw(GGMLType.Q8_0, raw)).shape == (0, 3)


def test_errors() -> None:
    raw = packed_rows(GGMLType.Q8_0, np.random.default_rng(6), 2, 64)
    with pytest.raises(ShapeMismatch, match="64 elements"):
        matmul(np.zeros((1, 96), np.float32), Weight.from_raw(GGMLType.Q8_0, raw))
    with pytest.raises(ShapeMismatch, match="34-byte blocks"):
        Weight.from_raw(GGMLType.Q8_0, raw[:, :-1])
    with pytest.raises(UnsupportedTensorType, match="Q8_K"):
        matmul(np.zeros((1, 256), np.float32), Weight.from_raw(GGMLType.Q8_K, np.zeros((1, 292), np.uint8)))


# Against float64: the dequantised weights times the float activations, as if nothing were rounded.


def absolute_terms(kind: GGMLType, raw: np.ndarray, q: np.ndarray, d_x: np.ndarray) -> np.ndarray:
    """f64[n, n_rows]: the sum of what each group adds and subtracts, without signs."""
    out = np.zeros((len(q), len(raw)))
    for j, row in enumerate(raw):
        for g, w in enumerate(oracle.row_groups(kind, row)):
            ints, scales = np.abs(np.array(w.ints, np.float64)), np.ones(32)
            if w.sc:
                scales = np.abs(np.repeat(w.sc, 32 // len(w.sc))).astype(np.float64)
            low = abs(w.m) * (np.repeat(w.mn, 16) if isinstance(w.mn, tuple) else w.mn if w.mn else 1)
            d = w.d if w.last is None else np.repeat([w.d, w.last], 16)
            out[:, j] += d_x[:, g] * (np.abs(q[:, g]) @ (np.abs(d) * scales * ints + low))
    return out


@quantised
def test_the_error_is_what_int8_activations_explain(kind: GGMLType) -> None:
    """|y - W x| <= sum over groups of (d_x / 2)(1 + 2^-14) sum |w|  +  (depth) 2^-24 * (sum of absolute terms).

    The first part: q is the nearest integer to x * fl(1 / d), which is off from x / d by two roundings of at most
    127 * 2^-24 each, far below 2^-15; so |x - q d| <= (d / 2)(1 + 2^-14). The second: a term passes 2 roundings of its
    scale, 1 of its product, 1 of the difference or sum with the minimum's, then at most ceil(G / 32) lane additions
    and 5 of the tree, each at most 2^-24 of what has been summed so far without signs.
    """
    rng = np.random.default_rng(7)
    n, n_rows, n_in = 24, 40, 1280
    raw, x = packed_rows(kind, rng, n_rows, n_in), activations(rng, n, n_in)
    w = dequantized(kind, raw).astype(np.float64)
    wide = x.astype(np.float64)
    got = matmul(x, Weight.from_raw(kind, raw)).astype(np.float64)
    error = got - wide @ w.T

    grouped = wide.reshape(n, -1, 32)
    d_x = np.abs(grouped).max(axis=2) / 127
    q = np.rint(grouped / d_x[:, :, None])
    per_element = np.repeat(d_x, 32, axis=1)
    depth = 4 + -(-(n_in // 32) // 32) + 5
    bound = per_element / 2 * (1 + 2.0**-14) @ np.abs(w).T
    bound += depth * 2.0**-24 * absolute_terms(kind, raw, q, d_x) * 1.01
    assert (np.abs(error) <= bound).all()

    # As a number: rounding to the nearest of equally spaced integers leaves d_x / sqrt(12) in the mean, and signs
    # that are as good as random. The error is that, neither more (a wrong order of steps) nor less (no int8 at all).
    predicted = np.sqrt(per_element**2 / 12 @ (w**2).T)
    ratio = float(np.sqrt(np.mean((error / predicted) ** 2)))
    assert 0.9 < ratio < 1.1


@floats
def test_the_error_of_float_weights_is_rounding(kind: GGMLType) -> None:
    """|y - W x| <= (32 + ceil(G / 32) + 5) 2^-24 sum |w x|: 32 steps of a chain, lane additions, the tree."""
    rng = np.random.default_rng(8)
    n_in = 1100
    raw, x = float_rows(kind, activations(rng, 12, n_in)), activations(rng, 6, n_in)
    w, wide = widened(kind, raw).astype(np.float64), x.astype(np.float64)
    error = np.abs(matmul(x, Weight.from_raw(kind, raw)) - wide @ w.T)
    bound = (32 + -(-n_in // 1024) + 5) * 2.0**-24 * (np.abs(wide) @ np.abs(w).T)
    assert (error <= bound).all()
    assert error.max() > 0.0

"""RMS norms and rotary embedding: bits, values, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.kernels import exact, oracle
from tests.kernels.material import activations, adversarial_activations
from tests.kernels.oracle import same_bits
from zinc_rt import kernels
from zinc_rt.kernels.reference.rms_norm import rms_norm_rows
from zinc_rt.kernels.reference.rope import rope_rows, rope_table
from zinc_rt.seed.kernels.errors import EmptyInput, ShapeMismatch

SIZES = [1, 2, 32, 192, 255, 256, 257, 511, 513, 1000, 1024]
EPS = float(np.float32(1e-5))


def run_norm(x: np.ndarray, w: np.ndarray, eps: float) -> np.ndarray:
    out = np.empty_like(x)
    kernels.rms_norm(x, w, out, eps)
    return out


@pytest.mark.parametrize("n", SIZES)
def test_rms_norm_bit_for_bit(n: int) -> None:
    rng = np.random.default_rng(n)
    x, w = activations(rng, 3, n), rng.standard_normal(n).astype(np.float32)
    got = rms_norm_rows(x, w, 1e-5)
    same_bits(got, [oracle.rms_norm(row, w.tolist(), EPS) for row in x.tolist()])
    same_bits(run_norm(x[1], w, 1e-5), got[1])


@pytest.mark.parametrize("n", [32, 160, 256, 288, 1024])
def test_rms_norm_of_awkward_rows(n: int) -> None:
    rng = np.random.default_rng(n + 1)
    x, w = adversarial_activations(rng, 6, n, finite=False), activations(rng, 1, n)[0]
    for eps in (0.0, EPS, 1.0):
        got = rms_norm_rows(x, w, eps)
        same_bits(got, [oracle.rms_norm(row, w.tolist(), eps) for row in x.tolist()])


def test_a_row_of_zeros() -> None:
    x = np.zeros(300, np.float32)
    assert not run_norm(x, np.ones(300, np.float32), 1e-6).any()
    assert np.isnan(run_norm(x, np.ones(300, np.float32), 0.0)).all()  # 0 times 1 / 0


def test_heads_are_rows() -> None:
    rng = np.random.default_rng(3)
    x, w = activations(rng, 6, 32).reshape(2, 3, 32), rng.standard_normal(32).astype(np.float32)
    got = rms_norm_rows(x, w, 1e-6)
    assert got.shape == (2, 3, 32)
    for i in range(2):
        for h in range(3):
            same_bits(got[i, h], oracle.rms_norm(x[i, h].tolist(), w.tolist(), float(np.float32(1e-6))))


def test_the_table_of_the_kernel_pages() -> None:
    got = run_norm(np.float32([3.0, 4.0]), np.float32([1.0, 0.5]), 0.0)
    np.testing.assert_allclose(got, [0.84852815, 0.5656854], rtol=1e-7)


def test_rms_norm_against_float64() -> None:
    """Relative error: n / 256 fma steps and 8 tree levels in the sum count half; 5 roundings follow."""
    rng = np.random.default_rng(4)
    for n in SIZES:
        x, w = activations(rng, 4, n), rng.standard_normal(n).astype(np.float32)
        wide = x.astype(np.float64)
        want = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + EPS) * w
        bound = ((-(-n // 256) + 8) / 2 + 6) * 2.0**-24
        assert (np.abs(rms_norm_rows(x, w, 1e-5) - want) <= bound * np.abs(want) + 2.0**-149).all()


def test_rms_norm_errors() -> None:
    out = np.zeros(2, np.float32)
    with pytest.raises(EmptyInput, match="input"):
        kernels.rms_norm([], [1.0], out, 0.0)
    with pytest.raises(EmptyInput, match="weight"):
        kernels.rms_norm([1.0], [], out, 0.0)
    with pytest.raises(ShapeMismatch, match="weight 3"):
        kernels.rms_norm([1.0, 2.0], [1.0] * 3, out, 0.0)
    with pytest.raises(ShapeMismatch, match="output 2"):
        kernels.rms_norm([1.0] * 3, [1.0] * 3, out, 0.0)


@pytest.mark.parametrize("n", [1, 100, 300])
def test_residual_rms_norm(n: int) -> None:
    rng = np.random.default_rng(n)
    x, residual = activations(rng, 2, n)
    w = rng.standard_normal(n).astype(np.float32)
    total, out, alone = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    kernels.residual_rms_norm(x, residual, w, out, 1e-5, total)
    kernels.residual_rms_norm(x, residual, w, alone, 1e-5)
    want = [exact.add(a, b) for a, b in zip(x.tolist(), residual.tolist(), strict=True)]
    same_bits(total, want)
    same_bits(out, oracle.rms_norm(want, w.tolist(), EPS))
    same_bits(alone, out)


@pytest.mark.filterwarnings("error")
def test_residual_rms_norm_overflows_quietly_and_checks_sizes() -> None:
    out = np.zeros(2, np.float32)
    kernels.residual_rms_norm([3e38, 1.0], [3e38, 1.0], [1.0, 1.0], out, 1e-5)
    assert np.isnan(out[0])
    assert out[1] == 0.0
    with pytest.raises(EmptyInput, match="residual"):
        kernels.residual_rms_norm([1.0], [], [1.0], out, 0.0)
    with pytest.raises(ShapeMismatch, match="residual 3"):
        kernels.residual_rms_norm([1.0] * 2, [1.0] * 3, [1.0] * 2, out, 0.0)
    with pytest.raises(ShapeMismatch, match="sum_output 1"):
        kernels.residual_rms_norm([1.0] * 2, [1.0] * 2, [1.0] * 2, out, 0.0, np.zeros(1, np.float32))


# RoPE.


def rope_case(seed: int, n: int, heads: int, head_dim: int, rope_dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = activations(rng, n * heads, head_dim).reshape(n, heads, head_dim)
    freqs = 10000.0 ** (-np.arange(0, rope_dim, 2) / rope_dim)
    return x, rope_table(rng.integers(0, 5000, n), freqs)


@pytest.mark.parametrize("interleaved", [True, False], ids=["neighbours", "halves"])
@pytest.mark.parametrize(("head_dim", "rope_dim"), [(2, 2), (64, 64), (48, 48), (64, 32), (10, 6)])
def test_rope_bit_for_bit(interleaved: bool, head_dim: int, rope_dim: int) -> None:
    x, table = rope_case(head_dim, 3, 2, head_dim, rope_dim)
    before = x.copy()
    got = rope_rows(x, table, interleaved=interleaved)
    for i in range(3):
        cos, sin = table[i, :, 0].tolist(), table[i, :, 1].tolist()
        for h in range(2):
            same_bits(got[i, h], oracle.rope(x[i, h].tolist(), cos, sin, interleaved=interleaved))
    same_bits(got[:, :, rope_dim:], x[:, :, rope_dim:])
    same_bits(x, before)


def test_rope_of_awkward_values() -> None:
    _, table = rope_case(5, 6, 1, 64, 64)
    x = adversarial_activations(np.random.default_rng(5), 6, 64, finite=False).reshape(6, 1, 64)
    for interleaved in (True, False):
        got = rope_rows(x, table, interleaved=interleaved)
        for i in range(6):
            cos, sin = table[i, :, 0].tolist(), table[i, :, 1].tolist()
            same_bits(got[i, 0], oracle.rope(x[i, 0].tolist(), cos, sin, interleaved=interleaved))


def test_the_layouts_are_the_same_rotation_of_other_pairs() -> None:
    x, table = rope_case(6, 4, 3, 32, 32)
    halves = rope_rows(x, table, interleaved=False)
    shuffled = np.stack([x[..., :16], x[..., 16:]], axis=-1).reshape(4, 3, 32)
    neighbours = rope_rows(shuffled, table, interleaved=True)
    same_bits(neighbours[..., 0::2], halves[..., :16])
    same_bits(neighbours[..., 1::2], halves[..., 16:])


def test_rope_table_is_float64_rounded_once() -> None:
    positions, freqs = np.array([0, 1, 7, 4095, 131071]), [1.0, 0.1, 1e-4]
    table = rope_table(positions, freqs, 1.25)
    assert table.dtype == np.float32
    for i, p in enumerate(positions.tolist()):
        for j, f in enumerate(freqs):
            assert table[i, j, 0] == np.float32(math.cos(p * f) * 1.25)
            assert table[i, j, 1] == np.float32(math.sin(p * f) * 1.25)


def test_position_zero_changes_nothing_and_positions_turn_by_angle() -> None:
    x = np.float32([1.0, 0.0, 0.5, -2.0])
    data = x.copy()
    kernels.rope(data, 4, 4, 1, 0, [1.0, 0.5])
    same_bits(data, x)
    data = np.float32([1.0, 1.0, 0.0, 0.0])
    kernels.rope(data, 4, 4, 1, 3, [1.0, 0.5])
    np.testing.assert_allclose(data, [math.cos(3), math.cos(1.5), math.sin(3), math.sin(1.5)], rtol=1e-6)


def test_the_single_row_kernel_turns_halves_in_place() -> None:
    rng = np.random.default_rng(7)
    data = rng.standard_normal(3 * 10 + 4).astype(np.float32)
    before, freqs = data.copy(), [1.0, 0.3]
    kernels.rope(data, 10, 6, 3, 17, freqs)  # the third pair has no frequency: it stays
    table = rope_table(np.array([17]), [*freqs, 0.0])[0]
    for h in range(3):
        head = before[10 * h : 10 * h + 10].tolist()
        want = oracle.rope(head, table[:, 0].tolist(), table[:, 1].tolist(), interleaved=False)
        same_bits(data[10 * h : 10 * h + 10], want)
        assert data[10 * h + 2] == head[2]
        assert data[10 * h + 5] == head[5]
    same_bits(data[30:], before[30:])


def test_rope_errors() -> None:
    data = np.zeros(8, np.float32)
    for rope_dim in (3, 6, -2):
        with pytest.raises(ShapeMismatch, match=f"rope_dim {rope_dim}"):
            kernels.rope(data, 4, rope_dim, 2, 0, [1.0])
    with pytest.raises(ShapeMismatch, match="3 heads of 4 need 12"):
        kernels.rope(data, 4, 4, 3, 0, [1.0])
    with pytest.raises(ShapeMismatch, match="data"):
        kernels.rope(data.reshape(2, 4), 4, 4, 2, 0, [1.0])

"""Recurrent layers: the reference against scalar arithmetic in exact integers, and against float64 formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.kernels import oracle
from tests.kernels.exact import add, div, exp, fma, mul, sigmoid, silu, softplus, sqrt, sub
from tests.kernels.oracle import same_bits
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import DEFINITIONS
from zinc_rt.ir.ops.recurrent import PAIRINGS

EPS = float(np.float32(1e-6))
SLOTS = 3
BOUNDED = {"decay": "channel", "lower_bound": -5.0}


class At:
    """Operands of one node, as the reference backend hands them out."""

    name = "node"

    def __init__(self, inputs: list[Any], outputs: list[np.ndarray], **attrs: Any) -> None:
        self.inputs, self.outputs, self.attrs = inputs, outputs, attrs

    def quantized(self, port: int) -> Any:
        raise AssertionError(port)


def run(op: Op, at: At) -> list[np.ndarray]:
    DEFINITIONS[op].reference(at)
    return at.outputs


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


# Rows of two sequences: slot 1 goes on from a state, slot 2 begins; their rows are mixed.
POSITIONS, ROWS_OF = i32(5, 0, 6, 1, 7), i32(1, 2, 1, 2, 1)


def conv_oracle(x: Any, taps: Any, state: Any, bias: Any, gated: bool) -> list[list[float]]:
    out = []
    for row, position, slot in zip(x, POSITIONS.tolist(), ROWS_OF.tolist(), strict=True):
        if position == 0:
            state[slot] = [[0.0] * len(row) for _ in state[slot]]
        window, made = [*state[slot], row], []
        for c in range(len(row)):
            acc = 0.0
            for j, past in enumerate(window):
                acc = fma(past[c], taps[c][j], acc)
            acc = acc if bias is None else add(acc, bias[c])
            made.append(silu(acc) if gated else acc)
        out.append(made)
        state[slot] = window[1:]
    return out


@pytest.mark.parametrize(("taps", "biased", "gated"), [(4, False, True), (2, True, False), (3, True, True)])
def test_convolution_bit_for_bit(taps: int, biased: bool, gated: bool) -> None:
    rng = np.random.default_rng(taps)
    n = 5
    x = (rng.standard_normal((5, n)) * 4).astype(np.float32)
    w, bias = rng.standard_normal((n, taps)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    state = rng.standard_normal((SLOTS, taps - 1, n)).astype(np.float32)
    kept = state.tolist()
    want = conv_oracle(x.tolist(), w.tolist(), kept, bias.tolist() if biased else None, gated)
    y = np.empty_like(x)
    at = At(
        [x, w, state, POSITIONS, ROWS_OF, *([bias] if biased else [])],
        [y, state],
        activation="silu" if gated else "none",
    )
    run(Op.SSM_CONV1D, at)
    same_bits(y, want)
    same_bits(state, kept)


def unit(x: list[float]) -> list[float]:
    lanes = [0.0] * 256
    for i, v in enumerate(x):
        lanes[i % 256] = fma(v, v, lanes[i % 256])
    scale = div(1.0, sqrt(add(oracle.fold(lanes), EPS)))
    return [mul(v, scale) for v in x]


def delta_oracle(
    u: Any, alpha: Any, beta: Any, a: Any, dt: Any, state: Any, n_k: int, n_v: int, d: int, pairing: str,
    lower_bound: float | None = None,
) -> Any:  # fmt: skip
    """alpha and dt have a value for each head, or for each channel of each."""
    out = []

    def decay(a: float, x: float) -> float:
        return exp(mul(a, softplus(x)) if lower_bound is None else mul(lower_bound, sigmoid(mul(a, x))))

    for row, position, slot in zip(range(len(u)), POSITIONS.tolist(), ROWS_OF.tolist(), strict=True):
        y: list[list[float]] = []
        for h in range(n_v):
            key = h // (n_v // n_k) if pairing == "block" else h % n_k
            q = [mul(v, float(np.float32(1 / math.sqrt(d)))) for v in unit(u[row][key * d : (key + 1) * d])]
            k = unit(u[row][(n_k + key) * d : (n_k + key + 1) * d])
            v = u[row][(2 * n_k + h) * d : (2 * n_k + h + 1) * d]
            each = len(dt) // n_v
            rates = zip(alpha[row][h * each : (h + 1) * each], dt[h * each : (h + 1) * each], strict=True)
            g = [decay(a[h], add(x, offset)) for x, offset in rates] * (d // each)
            b = sigmoid(beta[row][h])
            old = [[0.0] * d for _ in range(d)] if position == 0 else state[slot][h]
            s = [[mul(g[i], e) for e in line] for i, line in enumerate(old)]
            o = [0.0] * d
            for j in range(d):
                r = 0.0
                for i in range(d):
                    r = fma(s[i][j], k[i], r)
                change = mul(b, sub(v[j], r))
                for i in range(d):
                    s[i][j] = fma(k[i], change, s[i][j])
                    o[j] = fma(s[i][j], q[i], o[j])
            state[slot][h] = s
            y.append(o)
        out.append(y)
    return out


def delta_inputs(rng: np.random.Generator, n_k: int, n_v: int, d: int, each: int = 1) -> list[np.ndarray]:
    """u, alpha, beta, ssm_a, dt_bias, state; each: decays of a head."""
    sizes = [(5, (2 * n_k + n_v) * d), (5, n_v * each), (5, n_v), (n_v,), (n_v * each,), (SLOTS, n_v, d, d)]
    made = [rng.standard_normal(size).astype(np.float32) for size in sizes]
    made[3] = -np.exp(made[3])
    return made


@pytest.mark.parametrize(
    ("pairing", "decay"),
    [*((pairing, {}) for pairing in PAIRINGS), ("block", {"decay": "channel"}), ("modulo", BOUNDED)],
)
def test_delta_rule_bit_for_bit(pairing: str, decay: dict[str, Any]) -> None:
    n_k, n_v, d = 2, 6, 4
    *inputs, state = delta_inputs(np.random.default_rng(7), n_k, n_v, d, d if decay else 1)
    kept = state.tolist()
    want = delta_oracle(*(x.tolist() for x in inputs), kept, n_k, n_v, d, pairing, decay.get("lower_bound"))
    y = np.empty((5, n_v, d), np.float32)
    at = At(
        [*inputs, state, POSITIONS, ROWS_OF],
        [y, state],
        n_k_heads=n_k,
        n_v_heads=n_v,
        head_dim=d,
        eps=EPS,
        pairing=pairing,
        **decay,
    )
    run(Op.SSM_DELTA_NET, at)
    same_bits(y, want)
    same_bits(state, kept)


def test_the_pairings_differ() -> None:
    outs = []
    for pairing in PAIRINGS:
        *inputs, state = delta_inputs(np.random.default_rng(7), 2, 6, 4)
        y = np.empty((5, 24), np.float32)
        at = At(
            [*inputs, state, POSITIONS, ROWS_OF],
            [y, state],
            n_k_heads=2,
            n_v_heads=6,
            head_dim=4,
            eps=EPS,
            pairing=pairing,
        )
        outs.append(run(Op.SSM_DELTA_NET, at)[0].reshape(5, 6, 4))
    assert (outs[0] == outs[1]).all(axis=(0, 2)).tolist() == [True, False, True, True, False, True]


def scan_oracle(x: Any, b: Any, c: Any, rates: Any, d: Any, state: Any) -> Any:
    """Rows of heads of elements. x: [row][head][p]; b, c: [row][head][n]; rates: dt and decays [row][head][p][n]."""
    out = []
    for row, position, slot in zip(range(len(x)), POSITIONS.tolist(), ROWS_OF.tolist(), strict=True):
        y: list[list[float]] = []
        for h, elements in enumerate(x[row]):
            old = [[0.0] * len(elements) for _ in b[row][h]] if position == 0 else state[slot][h]
            line = []
            for p, value in enumerate(elements):
                dt, decays = rates(row, h, p)
                for n, write in enumerate(b[row][h]):
                    old[n][p] = fma(write, mul(dt, value), mul(decays[n], old[n][p]))
                sums = []
                for start in range(0, len(old), 32):
                    r = 0.0
                    for n in range(start, min(start + 32, len(old))):
                        r = fma(old[n][p], c[row][h][n], r)
                    sums.append(r)
                total = sums[0]
                for r in sums[1:]:
                    total = add(total, r)
                line.append(fma(d(h, p), value, total))
            state[slot][h] = old
            y.append(line)
        out.append(y)
    return out


def test_scan_bit_for_bit() -> None:
    """Heads in groups, with a state that is no whole number of blocks."""
    rng, heads, dim, groups, size = np.random.default_rng(21), 4, 3, 2, 70
    u, dt, a, bias, d, state = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in (
            (5, heads * dim + 2 * groups * size),
            (5, heads),
            (heads, 1),
            (heads,),
            (heads, 1),
            (SLOTS, heads, size, dim),
        )
    )
    a = -np.exp(a)
    kept, y = state.tolist(), np.empty((5, heads, dim), np.float32)
    x, b, c = np.split(u, [heads * dim, heads * dim + groups * size], axis=1)
    b, c = (np.repeat(part.reshape(5, groups, size), heads // groups, axis=1).tolist() for part in (b, c))

    def rates(row: int, h: int, p: int) -> tuple[float, list[float]]:
        step = softplus(add(float(dt[row, h]), float(bias[h])))
        return step, [exp(mul(float(a[h, 0]), step))] * size

    want = scan_oracle(x.reshape(5, heads, dim).tolist(), b, c, rates, lambda h, p: float(d[h, 0]), kept)
    sizes = {"n_heads": heads, "head_dim": dim, "n_groups": groups, "state_size": size}
    run(Op.SSM_SCAN, At([u, dt, a, bias, d, state, POSITIONS, ROWS_OF], [y, state], **sizes))
    same_bits(y, want)
    same_bits(state, kept)


def test_scan_of_channels_bit_for_bit() -> None:
    rng, dim, size = np.random.default_rng(22), 5, 7
    x, dt, b, c, rates, state = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((5, dim), (5, dim), (5, size), (5, size), (size + 1, dim), (SLOTS, size, dim))
    )
    rates[:-1] = -np.exp(rates[:-1])
    kept, y = state[:, None].tolist(), np.empty((5, dim), np.float32)

    def of(row: int, h: int, p: int) -> tuple[float, list[float]]:
        step = softplus(float(dt[row, p]))
        return step, [exp(mul(float(rates[n, p]), step)) for n in range(size)]

    one = [rows[:, None].tolist() for rows in (x, b, c)]
    want = scan_oracle(*one, of, lambda h, p: float(rates[size, p]), kept)
    at = At(
        [x, b, c, dt, rates, state, POSITIONS, ROWS_OF], [y, state], head_dim=dim, state_size=size, per_channel=True
    )
    run(Op.SSM_SCAN, at)
    same_bits(y[:, None], want)
    same_bits(state[:, None], kept)


@pytest.mark.parametrize(("activation", "opened"), [("silu", silu), ("sigmoid", sigmoid)])
def test_gated_norm_bit_for_bit(activation: str, opened: Any) -> None:
    rng = np.random.default_rng(9)
    o, z = rng.standard_normal((2, 3, 4, 6)).astype(np.float32) * 3
    w = rng.standard_normal(6).astype(np.float32)
    y = np.empty((3, 24), np.float32)
    run(Op.SSM_GATED_NORM, At([o, z.reshape(3, 24), w], [y], eps=EPS, n_heads=4, head_dim=6, activation=activation))
    want = [
        [mul(n, opened(g)) for n, g in zip(oracle.rms_norm(head, w.tolist(), EPS), gate, strict=True)]
        for head, gate in zip(o.reshape(12, 6).tolist(), z.reshape(12, 6).tolist(), strict=True)
    ]
    same_bits(y.reshape(12, 6), want)


def test_norm_behind_the_gate_bit_for_bit() -> None:
    rng = np.random.default_rng(23)
    o, z = rng.standard_normal((2, 3, 4, 6)).astype(np.float32) * 3
    w, ones = rng.standard_normal((4, 6)).astype(np.float32), [1.0] * 6
    y = np.empty((3, 24), np.float32)
    run(Op.SSM_GATED_NORM, At([o, z.reshape(3, 24), w], [y], eps=EPS, n_heads=4, head_dim=6, gate_first=True))
    want = []
    for i, (head, gate) in enumerate(zip(o.reshape(12, 6).tolist(), z.reshape(12, 6).tolist(), strict=True)):
        gated = [mul(v, silu(g)) for v, g in zip(head, gate, strict=True)]
        normed = oracle.rms_norm(gated, ones, EPS)
        want.append([mul(v, weight) for v, weight in zip(normed, w[i % 4].tolist(), strict=True)])
    same_bits(y.reshape(12, 6), want)


def test_products_bit_for_bit() -> None:
    rng = np.random.default_rng(10)
    a, b = (rng.standard_normal((2, 3, 8)) * 5).astype(np.float32)
    pairs = list(zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True))
    y = np.empty_like(a)
    same_bits(run(Op.SIGMOID_MUL, At([a, b], [y]))[0].reshape(-1), [mul(x, sigmoid(g)) for x, g in pairs])
    same_bits(run(Op.MUL, At([a, b], [y]))[0].reshape(-1), [mul(x, g) for x, g in pairs])


def test_products_with_a_factor_for_each_head() -> None:
    rng = np.random.default_rng(12)
    x, each = rng.standard_normal((4, 15)).astype(np.float32), rng.standard_normal((4, 3)).astype(np.float32)
    for op, factor in ((Op.MUL, lambda g: g), (Op.SIGMOID_MUL, sigmoid)):
        (y,) = run(op, At([x, each], [np.empty_like(x)], n_heads=3, head_dim=5))
        want = [mul(v, factor(g)) for v, g in zip(x.reshape(-1).tolist(), np.repeat(each, 5).tolist(), strict=True)]
        same_bits(y.reshape(-1), want)


def test_delta_rule_against_float64() -> None:
    """A sequence of 40 positions; the error is that of float32, not that of another formula."""
    rng, n_k, n_v, d, n = np.random.default_rng(11), 2, 4, 16, 40
    u = rng.standard_normal((n, (2 * n_k + n_v) * d)).astype(np.float32)
    alpha, beta = rng.standard_normal((2, n, n_v)).astype(np.float32)
    a, dt = -np.exp(rng.standard_normal(n_v)).astype(np.float32), rng.standard_normal(n_v).astype(np.float32)
    state = np.full((1, n_v, d, d), np.nan, np.float32)
    y = np.empty((n, n_v, d), np.float32)
    at = At(
        [u, alpha, beta, a, dt, state, np.arange(n, dtype=np.int32), np.zeros(n, np.int32)],
        [y, state],
        n_k_heads=n_k,
        n_v_heads=n_v,
        head_dim=d,
        eps=EPS,
        pairing="modulo",
    )
    run(Op.SSM_DELTA_NET, at)
    s, wide = np.zeros((n_v, d, d)), u.astype(np.float64).reshape(n, -1, d)
    for t in range(n):
        for h in range(n_v):
            q, k, v = wide[t, h % n_k], wide[t, n_k + h % n_k], wide[t, 2 * n_k + h]
            q, k = (x / np.sqrt((x**2).sum() + EPS) for x in (q, k))
            s[h] *= np.exp(a[h] * np.logaddexp(0, np.float64(alpha[t, h]) + dt[h]))
            s[h] += np.outer(k, (v - s[h].T @ k) / (1 + np.exp(-np.float64(beta[t, h]))))
            np.testing.assert_allclose(y[t, h], s[h].T @ (q / np.sqrt(d)), atol=2e-6)
    np.testing.assert_allclose(state[0], s, atol=5e-6)

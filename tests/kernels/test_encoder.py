"""Layer norm, activations without a gate, learned positions: bits, values, and every backend alike."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.cpu.both import BEST_AND_LEAST, Case, Net, Outputs, Step, check, expected, on_levels
from tests.backends.cpu.hostile import hostile, ordinary, rows
from tests.kernels import oracle
from tests.kernels.material import activations, adversarial_activations
from tests.kernels.oracle import same_bits
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.encoder import layer_norm_rows
from zinc_rt.kernels.reference.mathfn import relu2, xielu
from zinc_rt.numerics import UNGATED

WIDTHS = (1, 5, 33, 255, 256, 257, 768)
EPS = float(np.float32(1e-12))
XIELU_NUMBERS = {"alpha_p": 0.8, "alpha_n": 1.3, "beta": 0.5, "eps": -1e-6}


@pytest.mark.parametrize("n", WIDTHS)
def test_bit_for_bit(n: int) -> None:
    rng = np.random.default_rng(n)
    w, b = activations(rng, 2, n)
    for x in (activations(rng, 2, n), adversarial_activations(rng, 4, n, finite=False)):
        got = layer_norm_rows(x, w, b, EPS)
        same_bits(got, [oracle.layer_norm(row, w.tolist(), b.tolist(), EPS) for row in x.tolist()])


def test_values() -> None:
    """Against float64, with a mean far from 0."""
    rng = np.random.default_rng(1)
    x, w, b = rng.standard_normal((3, 384)) + 5.0, rng.standard_normal(384), rng.standard_normal(384)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12) * w + b
    got = layer_norm_rows(np.float32(x), np.float32(w), np.float32(b), 1e-12)
    assert np.abs(got - want).max() < 4e-6
    without_mean = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-12) * w + b
    assert np.abs(got - without_mean).max() > 0.5


def test_heads_have_their_own_weights() -> None:
    """Each head is normed as a row would be, by its own weights and bias."""
    for n in (5, 257):
        case, want = layer_norm(n), wanted(n)
        weights, biases = (w.view(np.float32) for w in list(case.weights.values())[-2:])
        for step, got in zip(case.steps, want, strict=True):
            x = np.asarray(step.inputs["heads"]).reshape(step.n_rows, 3, n)
            y = got["of heads"].view(np.float32)[: step.n_rows].reshape(x.shape)
            for head in range(3):
                alone = layer_norm_rows(x[:, head], weights[head], biases[head], float(np.float32(1e-5)))
                np.testing.assert_array_equal(y[:, head].view(np.uint32), alone.view(np.uint32))


def test_xielu() -> None:
    """Against float64 on both sides of 0, and its step beside 0."""
    p, n, b, eps = XIELU_NUMBERS.values()
    x = np.concatenate([np.linspace(-8, 8, 4001), [0.0, 1e-7, -1e-7]]).astype(np.float32)
    w = x.astype(np.float64)
    want = np.where(w > 0, p * w * w, n * (np.expm1(np.minimum(w, eps)) - w)) + b * w
    assert np.abs(xielu(x, p, n, b, eps) - want).max() < 1e-5
    assert np.isnan(xielu(np.array([np.nan], np.float32), p, n, b, eps)).all()


def test_relu2() -> None:
    x = np.array([2.0, 0.5, 0.0, -0.0, -3.0, np.inf, -np.inf, np.nan, 1e30], np.float32)
    same_bits(relu2(x), [4.0, 0.25, 0.0, 0.0, 0.0, math.inf, 0.0, math.nan, math.inf])


@cache
def layer_norm(n: int) -> Case:
    rng = np.random.default_rng(n)
    net = Net(5)
    x, inner = net.rows("x", n), net.temp(n)
    w, b = net.vector(ordinary(rng, 1, n)[0]), net.vector(hostile(rng, 1, n)[0])
    net.node(Op.LAYER_NORM, [x, w, b], [net.out("y", n)], eps=1e-12)
    net.node(Op.LAYER_NORM, [x, w, b], [inner], eps=0.25)
    for activation in UNGATED:
        numbers = {name: float(np.float32(value)) for name, value in XIELU_NUMBERS.items()}
        more = numbers if activation == "xielu" else {}
        net.node(Op.ACTIVATE, [inner], [net.out(activation, n)], activation=activation, **more)
    heads = net.rows("heads", 3 * n)
    weights = [net.vector(m) for m in (ordinary(rng, 3, n), hostile(rng, 3, n))]
    net.node(Op.LAYER_NORM, [heads, *weights], [net.out("of heads", 3 * n)], eps=1e-5, n_heads=3, head_dim=n)
    table = net.table(hostile(rng, 16, n))
    net.node(Op.ADD_POSITION, [x, net.indices("positions", "n_rows"), table], [net.out("placed", n)])
    places = rng.permutation(16)
    return net.case(
        [Step(k, {"x": rows(rng, k, n), "heads": rows(rng, k, 3 * n), "positions": places[:k]}) for k in (1, 5, 3)]
    )


@cache
def wanted(n: int) -> Outputs:
    return expected(layer_norm(n))


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("n", WIDTHS)
def test_cpu(n: int, isa: str) -> None:
    for threads in (1, 3):
        check(layer_norm(n), wanted(n), isa, threads)


def test_gpu() -> None:
    with amd_backend() as (backend, _):
        for n in (5, 257):
            check_gpu(backend, layer_norm(n), wanted(n))


HEADS, KV_HEADS, DIM, N_CTX = 4, 2, 16, 304
FAR, SLOPES = 1 << 30, (0.25, 0.0625, 0.3, 1e-3)


@cache
def both_ways(reach: int | None, all_lengths: tuple[tuple[int, int], ...] = ((303, 5), (1, 1), (17, 40))) -> Case:
    """Two sequences in a step, whose rows see what lies behind them; reach: so far at the most, both ways, and where
    that is the whole text, scores fall with distance. all_lengths: of the sequences of each step.
    """
    rng = np.random.default_rng(1)
    net = Net(308, n_ctx=N_CTX, n_slots=2, n_pages=40)
    q, k, v = net.rows("q", HEADS * DIM), net.rows("k", KV_HEADS * DIM), net.rows("v", KV_HEADS * DIM)
    positions, slots, pages = net.where()
    last, caches = net.indices("last_positions", "n_rows"), net.caches(KV_HEADS, DIM)
    net.node(Op.KV_WRITE, [k, v, positions, slots, pages], caches, n_kv_heads=KV_HEADS, head_dim=DIM)
    own, attrs = ([], {"whole": True}) if reach is None else ([positions], {"reach": reach})
    if reach == FAR:
        own.append(net.vector(np.float32(SLOPES)))
    net.node(
        Op.FLASH_ATTN,
        [q, *caches, last, slots, pages, *own],
        [net.out("y", HEADS * DIM)],
        scale=0.25,
        n_heads=HEADS,
        n_kv_heads=KV_HEADS,
        head_dim=DIM,
        **attrs,
    )
    table = rng.permutation(40)[: 2 * 19].reshape(2, 19)
    steps = []
    for lengths in all_lengths:
        n = sum(lengths)
        where = {
            "positions": np.concatenate([np.arange(m) for m in lengths]),
            "slots": np.repeat([0, 1], lengths),
            "page_table": table,
            "last_positions": np.repeat([m - 1 for m in lengths], lengths),
        }
        widths = (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
        acts = {name: rng.standard_normal((n, w * DIM)).astype(np.float32) for name, w in widths}
        steps.append(Step(n, {**acts, **where}))
    return net.case(steps)


@cache
def seen_both_ways(reach: int | None) -> Outputs:
    return expected(both_ways(reach))


@pytest.mark.parametrize("reach", [None, 1, 20, 260, FAR])
def test_rows_see_what_lies_behind_them(reach: int | None) -> None:
    """The reference against float64 formulas over float16 keys and values; a reach one farther is noticed, and
    so are heads whose slopes are exchanged.
    """
    case = both_ways(reach)
    for step, got in zip(case.steps, seen_both_ways(reach), strict=True):
        n, slots, at = step.n_rows, np.asarray(step.inputs["slots"]), np.asarray(step.inputs["positions"])
        q, k, v = (np.float64(step.inputs[name]).reshape(n, -1, DIM) for name in "qkv")
        k, v = (np.repeat(np.float64(np.float16(x)), HEADS // KV_HEADS, axis=1) for x in (k, v))

        def formula(far: int | None, slopes=SLOPES, q=q, k=k, v=v, slots=slots, at=at) -> np.ndarray:
            hidden = slots[:, None] != slots
            if far is not None:
                hidden = hidden | (np.abs(at[:, None] - at) > far)
            scores = np.where(hidden, -np.inf, np.einsum("ihd,jhd->hij", q, k) * 0.25)
            if far == FAR:
                scores = scores - np.array(slopes)[:, None, None] * np.abs(at[:, None] - at)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            return np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v)

        y = got["y"].view(np.float32)[:n].reshape(n, HEADS, DIM)
        assert np.abs(y - formula(reach)).max() < 2e-5
        if reach == FAR and n > 2:
            assert np.abs(y - formula(FAR, SLOPES[::-1])).max() > 1e-2
        elif reach is not None and n > 2 * reach + 40:
            assert np.abs(y - formula(reach + 1)).max() > 1e-3


@pytest.mark.parametrize(("reach", "isa"), on_levels([None, 1, 20, 260, FAR], least=(1, 260)))
def test_both_ways_on_the_cpu(reach: int | None, isa: str) -> None:
    for threads in (1, 2):
        check(both_ways(reach), seen_both_ways(reach), isa, threads)


def test_both_ways_on_the_gpu() -> None:
    with amd_backend() as (backend, _):
        for reach, lengths in ((None, (258, 2)), (20, (30, 9)), (FAR, (17, 40))):  # beyond a split where it costs least
            case = both_ways(reach, (lengths,))
            check_gpu(backend, case, expected(case))

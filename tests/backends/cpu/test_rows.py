"""Operations on rows: embedding, norms, additions, gates, factors, argmax, alone and where they write for a product."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from tests.backends.cpu.both import BEST_AND_LEAST, THREADS, Case, Net, Outputs, Step, check, expected
from tests.backends.cpu.hostile import NOT_FINITE, SPECIAL, hostile, ordinary, rows
from tests.kernels.material import FLOATS, QUANTISED, WILD_F16, T, adversarial_rows, packed_rows
from zinc_rt.ir.op import Op

WIDTHS = (1, 5, 31, 32, 33, 64, 100, 255, 256, 257, 768, 1000)


@cache
def norm(n: int, eps: float) -> Case:
    rng = np.random.default_rng(n)
    net = Net(9)
    weight = hostile(rng, 1, n)[0] if n % 2 else ordinary(rng, 1, n)[0]
    net.node(Op.RMS_NORM, [net.rows("x", n), net.vector(weight)], [net.out("y", n)], eps=eps)
    return net.case([Step(k, {"x": rows(rng, k, n)}) for k in (1, 9, 4)])


@cache
def residual_norm(n: int) -> Case:
    """The sum is read elsewhere too; a second norm of it writes for a float product, so short groups are packed."""
    rng = np.random.default_rng(n)
    net = Net(9)
    a, b, v = net.rows("a", n), net.rows("b", n), net.vector(ordinary(rng, 1, n)[0])
    total, again, normed = net.temp(n), net.temp(n), net.temp(n)
    net.node(Op.RESIDUAL_RMS_NORM, [a, b, v], [total, net.out("normed", n)], eps=1e-6)
    net.node(Op.RESIDUAL_ADD, [total, b], [again])
    net.node(Op.RMS_NORM, [again, v], [normed], eps=1e-6)
    net.node(Op.RESIDUAL_ADD, [total, total], [net.out("twice", n)])
    net.node(Op.MATMUL, [normed, net.matrix(T.F32, ordinary(rng, 18, n).view(np.uint8))], [net.out("y", 18)])
    return net.case([Step(k, {"a": rows(rng, k, n), "b": rows(rng, k, n)}) for k in (9, 2, 1)])


@cache
def last_norm() -> Case:
    """A sum and its norm that only the output matrix reads: no other row is worked on."""
    rng = np.random.default_rng(3)
    net = Net(8, n_logits=5)
    a, b, ids = net.rows("a", 96), net.rows("b", 96), net.indices("logit_rows", "n_logits")
    total, normed = net.temp(96), net.temp(96)
    net.node(Op.RESIDUAL_ADD, [a, b], [total])
    net.node(Op.RMS_NORM, [total, net.vector(ordinary(rng, 1, 96)[0])], [normed], eps=1e-5)
    head = net.matrix(T.Q8_0, packed_rows(T.Q8_0, rng, 40, 96))
    net.node(Op.LM_HEAD, [normed, head, ids], [net.out("logits", 40, "n_logits")])
    steps = [
        Step(k, {"a": rows(rng, k, 96), "b": rows(rng, k, 96), "logit_rows": rng.permutation(k)[:w]}, w)
        for k, w in ((8, 5), (1, 1), (6, 0), (8, 1), (3, 3))
    ]
    return net.case(steps)


@cache
def additions(n: int) -> Case:
    """A bias of rows that come from outside, a sum of two, a row with itself."""
    rng = np.random.default_rng(n)
    net = Net(7)
    a, b = net.rows("a", n), net.rows("b", n)
    net.node(Op.BIAS_ADD, [a, net.vector(hostile(rng, 1, n, finite=False)[0])], [net.out("biased", n)])
    net.node(Op.RESIDUAL_ADD, [a, b], [net.out("sum", n)])
    net.node(Op.RESIDUAL_ADD, [a, a], [net.out("twice", n)])
    return net.case([Step(k, {"a": rows(rng, k, n), "b": rows(rng, k, n)}) for k in (7, 1, 3)])


@cache
def swiglu(n: int) -> Case:
    """By itself, and as what products of both kinds read."""
    rng = np.random.default_rng(n)
    net = Net(5)
    gate, up = net.rows("gate", n), net.rows("up", n)
    act, inner = net.out("y", n), net.temp(n)
    net.node(Op.SWIGLU, [gate, up], [act])
    net.node(Op.SWIGLU, [up, gate], [inner])
    net.node(Op.MATMUL, [inner, net.matrix(T.F16, packed(T.F16, rng, 17, n))], [net.out("z", 17)])
    if n % 32 == 0:
        net.node(Op.MATMUL, [inner, net.matrix(T.Q4_0, packed_rows(T.Q4_0, rng, 17, n))], [net.out("q", 17)])
    return net.case([Step(k, {"gate": rows(rng, k, n), "up": rows(rng, k, n)}) for k in (5, 1, 2)])


def packed(kind: T, rng: np.random.Generator, n_out: int, n_in: int) -> np.ndarray:
    return rng.standard_normal((n_out, n_in)).astype("<f2" if kind is T.F16 else "<f4").view(np.uint8)


@cache
def gates(n: int) -> Case:
    """Other activations, and a part of rows that hold more: by themselves, and as what a product reads."""
    rng = np.random.default_rng(n)
    net = Net(5)
    gate, up, wide = net.rows("gate", n), net.rows("up", n), net.rows("wide", 2 * n + 1)
    matrix = net.matrix(T.F16, packed(T.F16, rng, 17, n))
    for attrs in (
        {"activation": "gelu"},
        {"activation": "gelu_quick"},
        {"activation": "gelu_erf"},
        {"activation": "gelu_alone"},
        {"activation": "clamped"},
        {"activation": "clamped", "alpha": 0.5, "limit": 0.25},
        {"activation": "relu"},
        {"activation": "silu_clamped", "limit": 0.25},
        {"activation": "clamped_silu", "limit": 0.25},
    ):
        which = str(len(net.b._nodes))
        net.node(Op.SWIGLU, [gate, up], [net.out(f"y{which}", n)], **attrs)
        inner = net.temp(n)
        net.node(Op.SWIGLU, [gate, wide], [inner], up_start=n - 1, **attrs)
        net.node(Op.MATMUL, [inner, matrix], [net.out(f"z{which}", 17)])
    net.node(Op.SWIGLU, [gate, wide], [net.out("part", n)], up_start=n + 1)
    steps = [
        Step(k, {"gate": rows(rng, k, n), "up": rows(rng, k, n), "wide": rows(rng, k, 2 * n + 1)}) for k in (5, 1, 2)
    ]
    return net.case(steps)


@cache
def factors(n: int) -> Case:
    """Rows times a number, times one of their position or of their head, under a bound; of the step's rows and of the
    wanted ones.
    """
    rng = np.random.default_rng(n)
    net = Net(7, n_logits=3)
    x, last, positions = net.rows("x", n), net.rows("last", n, "n_logits"), net.indices("positions", "n_rows")
    net.constants["table"] = np.ascontiguousarray(hostile(rng, 1, 16, finite=False)[0])
    table = net.b.buffer("table", "constant", "f32", ["n_ctx"])
    net.node(Op.SCALE, [x], [net.out("scaled", n)], factor=-0.3)
    net.node(Op.SOFTCAP, [x], [net.out("capped", n)], cap=1.5)
    net.node(Op.CLAMP, [x], [net.out("clamped", n)], low=-0.5, high=0.0)
    heads, each = net.rows("heads", 3 * n), net.rows("each", 3)
    for op in (Op.MUL, Op.SIGMOID_MUL):
        net.node(op, [heads, each], [net.out(op.name, 3 * n)], n_heads=3, head_dim=n)
    net.node(Op.POSITION_SCALE, [x, positions, table], [net.out("by position", n)])
    net.node(Op.SCALE, [last], [net.out("scaled last", n, "n_logits")], factor=1e30)
    net.node(Op.SOFTCAP, [last], [net.out("capped last", n, "n_logits")], cap=30.0)
    steps = [
        Step(
            k,
            {
                "x": rows(rng, k, n),
                "last": rows(rng, w, n),
                "positions": rng.integers(0, 16, k),
                "heads": rows(rng, k, 3 * n),
                "each": rows(rng, k, 3),
            },
            w,
        )
        for k, w in ((7, 3), (1, 0), (4, 1))
    ]
    return net.case(steps)


@cache
def plain_norms(n: int) -> Case:
    """Norms without a weight, of rows and of heads; sums with factors, and their norms with and without one."""
    rng = np.random.default_rng(n)
    net = Net(6)
    a, b, heads = net.rows("a", n), net.rows("b", n), net.rows("heads", 3 * n)
    net.node(Op.RMS_NORM, [a], [net.out("normed", n)], eps=1e-5)
    net.node(Op.RMS_NORM, [heads], [net.out("heads normed", 3 * n)], eps=1e-5, n_heads=3, head_dim=n)
    weight, matrix = net.vector(ordinary(rng, 1, n)[0]), net.matrix(T.F32, ordinary(rng, 18, n).view(np.uint8))
    for i, weights in enumerate(([weight], [])):
        part, total, scaled, y = (net.temp(n) for _ in range(4))
        net.node(Op.SCALE, [b], [part], factor=0.22)
        net.node(Op.RESIDUAL_ADD, [a, part], [total])
        net.node(Op.SCALE, [total], [scaled], factor=1.7)
        net.node(Op.RMS_NORM, [scaled, *weights], [y], eps=1e-5)
        net.node(Op.RESIDUAL_ADD, [scaled, y], [net.out(f"again{i}", n)])
        net.node(Op.MATMUL, [y, matrix], [net.out(f"product{i}", 18)])
    part, total, y = (net.temp(n) for _ in range(3))
    net.node(Op.SCALE, [b], [part], factor=-3.0)
    net.node(Op.RESIDUAL_RMS_NORM, [a, part, weight], [total, y], eps=1e-5)
    net.node(Op.RESIDUAL_ADD, [total, y], [net.out("both", n)])
    steps = [Step(k, {"a": rows(rng, k, n), "b": rows(rng, k, n), "heads": rows(rng, k, 3 * n)}) for k in (6, 1, 2)]
    return net.case(steps)


@cache
def silu_everywhere() -> Case:
    """Gates of every exponent and both signs, about the ends of exp, and the special ones."""
    exponents = np.arange(256, dtype=np.uint32) << 23
    bits = np.concatenate([exponents, exponents | 0x7FFFFF, exponents | 0x2AAAAA, exponents | 0x400001])
    near = np.arange(-110, 95, 0.0625, dtype=np.float32)
    halves = (np.arange(-150, 130) + 0.5) * np.log(2)  # where the power of two changes
    gate = np.concatenate(
        [bits.view(np.float32), -bits.view(np.float32), near, halves.astype(np.float32), SPECIAL, NOT_FINITE]
    )
    gate = np.concatenate([gate, np.zeros(-gate.size % 64, np.float32)]).reshape(-1, 64)
    net = Net(len(gate))
    x, up = net.rows("gate", 64), net.rows("up", 64)
    net.node(Op.SWIGLU, [x, up], [net.out("y", 64)])
    for activation in ("gelu", "gelu_quick", "gelu_erf", "clamped"):
        net.node(Op.SWIGLU, [x, up], [net.out(activation, 64)], activation=activation)
    net.node(Op.SOFTCAP, [x], [net.out("tanh", 64)], cap=1.0)
    return net.case([Step(len(gate), {"gate": gate, "up": np.full_like(gate, scale)}) for scale in (1.0, 2.0**-30)])


@cache
def embedding(kind: T, how: str) -> Case:
    rng = np.random.default_rng(int(kind))
    n = 33 if kind in FLOATS else kind.block_size * 3
    if how == "bytes":
        raw = rng.integers(0, 256, (40, n // kind.block_size * kind.block_bytes), np.uint8)
    elif kind in FLOATS:
        raw = rng.integers(0, 256, (40, n * kind.block_bytes), np.uint8)
    else:
        raw = adversarial_rows(kind, rng, 40, n, WILD_F16)
    net = Net(17)
    net.node(Op.EMBED, [net.indices("token_ids", "n_rows"), net.matrix(kind, raw)], [net.out("y", n)])
    return net.case([Step(k, {"token_ids": ids[:k]}) for k, ids in ((17, rng.permutation(40)), (1, [39]), (2, [0, 0]))])


@cache
def largest(n: int) -> Case:
    rng = np.random.default_rng(n)
    net = Net(1, n_logits=24)
    x = net.rows("x", n, "n_logits")
    net.node(Op.ARGMAX, [x], [net.b.buffer("y", "output", "i32", ["n_logits"])])
    few = np.float32([1.0, 1.0, 2.0, 2.0, -1.0, np.nan, -np.inf, np.inf, 0.0, -0.0])
    pairs = ((np.nan, -np.inf), (np.nan,), (-np.inf,), (0.0, -0.0), (-5e-45, np.nan))
    values = np.stack(
        [few[rng.integers(0, k, n)] for k in (2, 4, 6, 7, 8, 10)]
        + [rng.choice(np.float32(pair), n) for pair in pairs]
        + list(hostile(rng, 13, n, finite=False))
    )
    return net.case([Step(0, {"x": values}, 24), Step(0, {"x": values[::-1].copy()}, 24), Step(0, {"x": values}, 1)])


CASES: dict[str, Callable[[], Case]] = {
    **{f"norm-{n}": lambda n=n: norm(n, 1e-5) for n in WIDTHS},
    **{f"norm-{n}-eps-0": lambda n=n: norm(n, 0.0) for n in (32, 257)},
    **{f"residual-norm-{n}": lambda n=n: residual_norm(n) for n in WIDTHS},
    "last-norm": last_norm,
    **{f"additions-{n}": lambda n=n: additions(n) for n in (1, 15, 16, 17, 64, 257)},
    **{f"swiglu-{n}": lambda n=n: swiglu(n) for n in (1, 31, 64, 255, 256, 257, 544)},
    "silu-everywhere": silu_everywhere,
    **{f"gates-{n}": lambda n=n: gates(n) for n in (1, 33, 256, 300)},
    **{f"factors-{n}": lambda n=n: factors(n) for n in (1, 33, 2048, 2049)},
    **{f"plain-norms-{n}": lambda n=n: plain_norms(n) for n in (1, 33, 64, 257)},
    **{f"embedding-{k.name}-bytes": lambda k=k: embedding(k, "bytes") for k in (*QUANTISED, *FLOATS)},
    **{f"embedding-{k.name}-wild": lambda k=k: embedding(k, "wild") for k in QUANTISED},
    **{f"argmax-{n}": lambda n=n: largest(n) for n in (1, 2, 7, 8, 9, 15, 16, 17, 33, 64, 1000)},
}


@cache
def wanted(name: str) -> Outputs:
    return expected(CASES[name]())


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("name", CASES)
def test_rows(name: str, isa: str) -> None:
    for threads in (1, 3):
        check(CASES[name](), wanted(name), isa, threads)


@pytest.mark.slow
@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("name", CASES)
def test_rows_on_other_numbers_of_threads(name: str, isa: str) -> None:
    for threads in set(THREADS) - {1, 3}:
        check(CASES[name](), wanted(name), isa, threads)

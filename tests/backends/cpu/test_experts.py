"""Mixture of experts: every step of it gives the reference's bits, for any number of rows at an expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.both import (
    BEST_AND_LEAST,
    LEVELS,
    Case,
    Net,
    Outputs,
    Step,
    check,
    compare,
    expected,
    finite_share,
    outputs,
)
from tests.backends.cpu.hostile import NOT_FINITE, hostile, ordinary, rows
from tests.helpers import soon
from tests.kernels.material import FLOATS, T, float_rows, packed_rows
from zinc_rt.backends.cpu.backend import CpuBackend, CpuLoweredGraph
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.graph import BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cpu.layout import PANEL_ROWS
from zinc_rt.lang.target import host_targets
from zinc_rt.utils.environment import MATRIX_ROWS

COUNTS = (1, 2, 3, 4, 17, 40)
"""Rows of a step."""


def stacked(net: Net, kind: GGMLType, rng: np.random.Generator, *shape: int) -> int:
    """A tensor of several matrices."""
    n_rows, n_in = int(np.prod(shape[:-1])), shape[-1]
    name = net._name("w")
    values = (rng.standard_normal((n_rows, n_in)) / 4).astype(np.float32)
    net.weights[name] = float_rows(kind, values) if kind in FLOATS else packed_rows(kind, rng, n_rows, n_in)
    return net.b.buffer(name, BufferKind.WEIGHT, DType[kind.name], shape)


def ids_of(net: Net, name: str, k: int, kind: BufferKind = BufferKind.INPUT) -> int:
    return net.b.buffer(name, kind, DType.I32, ["n_rows", k])


def choices(rng: np.random.Generator, n_rows: int, n_experts: int, k: int, how: str) -> np.ndarray:
    """i32[n_rows, k], rising. crowd: all rows choose the same; skewed: low ids mostly; raised: high ids mostly, so that
    experts of many rows follow those of few.
    """
    if how == "crowd":
        return np.broadcast_to(np.sort(rng.permutation(n_experts)[:k]), (n_rows, k))
    odds = {"even": np.ones(n_experts), "skewed": 0.4 ** np.arange(n_experts)}
    odds["raised"] = odds["skewed"][::-1]
    picked = [rng.choice(n_experts, k, replace=False, p=odds[how] / odds[how].sum()) for _ in range(n_rows)]
    return np.sort(picked, axis=1)


# Choosing experts.

TOPK: dict[str, tuple[int, dict[str, Any], tuple[bool, bool]]] = {
    "softmax": (128, {"k": 8, "normalise": True}, (False, False)),
    "few": (3, {"k": 3, "scale": 2.5}, (False, False)),
    "one": (60, {"k": 1}, (True, False)),
    "sigmoid": (64, {"k": 6, "gating": "sigmoid", "normalise": True, "scale": 1.8}, (True, False)),
    "groups": (48, {"k": 5, "gating": "sigmoid", "n_groups": 8, "n_groups_used": 3}, (True, True)),
    "lone groups": (9, {"k": 4, "n_groups": 9, "n_groups_used": 5}, (False, False)),
    "chosen": (32, {"k": 4, "gating": "softmax_chosen"}, (False, False)),
    "sigmoid chosen": (40, {"k": 3, "gating": "sigmoid_chosen"}, (False, False)),
    "mixer": (16, {"k": 2, "gating": "sparse_mixer"}, (False, False)),
    "mixer of many": (70, {"k": 5, "gating": "sparse_mixer"}, (False, False)),
    "root of softplus": (40, {"k": 6, "gating": "sqrt_softplus", "normalise": True, "scale": 1.5}, (True, False)),
    "chosen of many": (100, {"k": 40, "gating": "softmax_chosen", "normalise": True}, (True, True)),
}


def logits(rng: np.random.Generator, n_rows: int, n: int) -> np.ndarray:
    """Ordinary rows, rows of few different values, whose ties decide, and rows with numbers that are none."""
    out = ordinary(rng, n_rows, n)
    for row in range(n_rows):
        if row % 4 == 1:
            out[row] = rng.integers(-1, 2, n) * np.float32(0.0 if row % 8 == 1 else 1.5)
        elif row % 4 == 2:
            out[row] = hostile(rng, 1, n)[0]
        elif row % 4 == 3:
            out[row, rng.random(n) < 0.2] = rng.choice(NOT_FINITE)
    return out


@cache
def topk_case(name: str) -> tuple[Case, Outputs]:
    n, attrs, (biased, scaled) = TOPK[name]
    rng = np.random.default_rng(len(name))
    net = Net(max(COUNTS))
    inputs = [net.rows("logits", n)]
    if biased:
        inputs.append(net.vector(rng.integers(-2, 3, n) / 4))
    if scaled:
        inputs.append(net.vector(rng.standard_normal(n)))
    ids = ids_of(net, "ids", attrs["k"], BufferKind.OUTPUT)
    net.node(Op.MOE_GATE_TOPK, inputs, [ids, net.out("weights", attrs["k"])], **attrs)
    case = net.case([Step(r, {"logits": logits(rng, r, n)}) for r in COUNTS])
    return case, expected(case)


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("name", TOPK)
def test_choice(name: str, isa: str) -> None:
    case, want = topk_case(name)
    check(case, want, isa, 2)


# Their feed-forward.


def experts_case(
    kinds: Sequence[GGMLType], n_experts: int, k: int, n_ff: int, n_embd: int, *, biases: bool = False,
    apart: bool = False, activation: str = "silu", n_rows: Sequence[int] = COUNTS, seed: int = 1,
) -> Case:  # fmt: skip
    """apart: whether what lies between the operations is wanted, too."""
    rng = np.random.default_rng(seed)
    net = Net(max(n_rows))
    x, ids, given = net.rows("x", n_embd), ids_of(net, "ids", k), net.rows("weights", k)
    gate, up = (stacked(net, kind, rng, n_experts, n_ff, n_embd) for kind in kinds[:2])
    down = stacked(net, kinds[2], rng, n_experts, n_embd, n_ff)

    def bias(n: int) -> list[int]:
        return [stacked(net, T.F32, rng, n_experts, n)] if biases else []

    y, wide = net.out("y", n_embd), k * n_ff
    made = net.out if apart else lambda name, width: net.temp(width)
    gated, upped, act = (made(name, wide) for name in ("gated", "upped", "act"))
    net.node(Op.MOE_GATE_UP, [x, ids, gate, up, *bias(n_ff), *bias(n_ff)], [gated, upped])
    net.node(Op.MOE_SWIGLU, [gated, upped], [act], activation=activation)
    net.node(Op.MOE_DOWN_ACC, [act, ids, given, down, *bias(n_embd)], [y])
    steps = []
    for (i, r), how in zip(enumerate(n_rows), ("even", "crowd", "skewed", "raised") * len(n_rows), strict=False):
        inputs = {
            "x": rows(rng, r, n_embd) if i % 2 else ordinary(rng, r, n_embd),
            "ids": choices(rng, r, n_experts, k, how),
            "weights": rng.random((r, k), np.float32),
        }
        steps.append(Step(r, inputs))
    return net.case(steps)


ON_THE_BEST = soon(LEVELS[:1], LEVELS)


def checked(case: Case, threads: Sequence[int] = (1, 2, 3), levels: Sequence[str] = LEVELS[:1]) -> None:
    want = expected(case)
    assert finite_share(want, case) > 0.4
    for isa, n in product(levels, threads):
        check(case, want, isa, n)


@pytest.mark.parametrize("isa", ON_THE_BEST)
def test_experts_of_k_quants(isa: str) -> None:
    """The usual mix, in units of one tile and several; one expert has more rows than a panel."""
    n_rows = (1, 3, 40, 2 * PANEL_ROWS + 5)
    checked(experts_case((T.Q4_K, T.Q4_K, T.Q6_K), 6, 2, 256, 256, n_rows=n_rows), threads=(1, 3), levels=(isa,))


@pytest.mark.slow
def test_experts_with_eighths() -> None:
    """Their sums lie together for each group, and so go to the slots of pairs."""
    checked(experts_case((T.IQ1_S, T.IQ1_M, T.IQ1_M), 5, 2, 256, 256), threads=(2,), levels=(ON_THE_BEST[0],))


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("down", soon((T.Q4_0,), (T.Q4_0, T.Q5_1)))
def test_experts_of_bytes(down: GGMLType, isa: str) -> None:
    """A width that fills no tile and no group of a tree's lanes; biases."""
    checked(experts_case((T.Q8_0, T.Q8_0, down), 5, 5, 96, 64, biases=True), threads=(2,), levels=(isa,))


@pytest.mark.parametrize("isa", ON_THE_BEST)
def test_experts_of_floats(isa: str) -> None:
    """A width that fills no group."""
    checked(experts_case((T.F32, T.F32, T.F32), 4, 1, 23, 40), threads=(2,), levels=(isa,))


@pytest.mark.parametrize(
    ("kind", "activation"),
    [(T.F32, "clamped"), *(pytest.param(T.Q8_0, a, marks=pytest.mark.slow) for a in ("gelu", "clamped"))],
)
def test_other_activations(kind: GGMLType, activation: str) -> None:
    """In the kernel of gate and up; a width that fills no group."""
    case = experts_case((kind, kind, T.F32), 4, 2, 40, 64, biases=True, activation=activation)
    with CpuBackend(threads=1) as backend:
        batch = backend.lower(backend.plan(case.graph, case.sizes), case.weights, case.constants)
        assert isinstance(batch, CpuLoweredGraph)
        assert [op.kind for op in batch.lowered.operations].count("swiglu") == 0
    checked(case, threads=(2,))


@pytest.mark.slow  # `test_rows_of_every_period` has gate and up apart
@pytest.mark.parametrize("down", [T.F32, T.Q8_0, T.Q5_1])
def test_operations_apart(down: GGMLType) -> None:
    """Gate and up are of different formats, and what lies between is wanted."""
    checked(experts_case((T.Q4_0, T.F32, down), 3, 2, 32, 64, biases=True, apart=True), threads=(2,))


@pytest.mark.parametrize("tiles", [pytest.param("emulated", marks=pytest.mark.slow if "amx" in LEVELS else ())])
def test_experts_in_matrix_registers(tiles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From sixteen rows an expert on, thirty-two at a time where there are as many; vectors take the rest."""
    monkeypatch.setenv(MATRIX_ROWS.name, "32")
    usable = [t.name for t in host_targets() if "vnni" in t.isa]
    if not usable:
        pytest.skip("the path needs 512-bit vectors with byte dot products")
    case = experts_case((T.Q4_K, T.Q4_K, T.Q6_K), 6, 2, 256, 256, n_rows=(1, 3, 40, 2 * PANEL_ROWS + 5))
    with CpuBackend(isa=usable[-1], threads=2) as backend:
        backend.choice = replace(backend.choice, tiles=tiles, blocks=(1,))  # the least to compile
        compare(case, outputs(backend, case), expected(case), tiles)
        tuning = backend.tune(backend.plan(case.graph, case.sizes)).tuning
        assert tuning.expert_down(T.Q6_K)[1]["TILES"] == tiles


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
def test_shared_expert(isa: str) -> None:
    rng = np.random.default_rng(3)
    net = Net(5)
    routed, shared, gate = net.rows("routed", 70), net.rows("shared", 70), net.rows("gate", 1)
    net.node(Op.SHARED_EXPERT, [routed, shared, gate], [net.out("gated", 70)])
    net.node(Op.SHARED_EXPERT, [routed, shared], [net.out("plain", 70)])
    gates = np.float32([[0], [3], [-90], [np.nan], [9]])
    inputs = {"routed": rows(rng, 5, 70), "shared": rows(rng, 5, 70), "gate": gates}
    checked(net.case([Step(5, inputs)]), threads=(2,), levels=(isa,))


def test_rows_of_every_period() -> None:
    """Gate and up of one tensor, and heads that hold two things: stretches of rows that lie apart."""
    rng = np.random.default_rng(4)
    e, f, n = 3, 40, 64
    net = Net(3)
    x, ids = net.rows("x", n), ids_of(net, "ids", 2)
    made = []
    for name, shape, stretch in (("gate", (e, f, n), f), ("up", (e, f, n), f), ("heads", (e * 8, n), 8)):
        made.append(net.b.buffer(name, BufferKind.WEIGHT, DType.Q8_0, shape))
        whole = packed_rows(T.Q8_0, rng, e * (stretch + 24), n).reshape(e, stretch + 24, -1)
        net.weights[name] = whole[:, 5 : 5 + stretch]
    net.node(Op.MOE_GATE_UP, [x, ids, *made[:2]], [net.out("gated", 2 * f), net.out("upped", 2 * f)])
    net.node(Op.MATMUL, [x, made[2]], [net.out("y", e * 8)])
    steps = [Step(r, {"x": ordinary(rng, r, n), "ids": choices(rng, r, e, 2, "even")}) for r in (1, 3)]
    case = net.case(steps)
    checked(case, threads=(2,))
    # The same as when the rows had been stored together.
    together = {name: np.ascontiguousarray(raw).reshape(-1, raw.shape[-1]) for name, raw in case.weights.items()}
    compare(case, expected(case), expected(replace(case, weights=together)), "together")

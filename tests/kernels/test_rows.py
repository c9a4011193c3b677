"""Rotation by each row's own angles, and attention among the rows of a step: values, and every backend alike."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.cpu.both import BEST_AND_LEAST, Case, Net, Outputs, Step, check, expected
from tests.backends.cpu.hostile import rows
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.rows import OPS

HEADS = 2
SPANS = ((0, 300), (300, 301), (301, 308))
"""First row and end of the rows that see each other: more than a split, one alone, some."""


FEW, ALONE = ((0, 258), (258, 259), (259, 261)), 255
"""The same for the emulated GPU, where of the first span so many rows see themselves alone."""


@cache
def among_rows(
    dim: int, interleaved: bool = False, all_spans: tuple[tuple[int, int], ...] = SPANS, alone: int = 0
) -> Case:
    """The rotation of some pairs of each head, and attention of rows in spans; of long steps the first rows see
    themselves alone.
    """
    rng = np.random.default_rng(dim)
    net = Net(308)
    pairs = dim // 4
    x, table = net.rows("x", HEADS * dim), net.rows("table", 2 * pairs)
    heads = {"n_heads": HEADS, "head_dim": dim}
    net.node(Op.ROTATE, [x, table], [net.out("rotated", HEADS * dim)], interleaved=interleaved, **heads)
    halves = {"n_heads": 2 * HEADS, "head_dim": dim // 2, "tables": 2}
    net.node(Op.ROTATE, [x, table], [net.out("by halves", HEADS * dim)], interleaved=interleaved, **halves)
    for n_tails in (1, HEADS):
        sizes = {"n_heads": HEADS, "head_dim": dim, "n_tails": n_tails, "tail_dim": 3}
        tail, y = net.rows(f"tail {n_tails}", 3 * n_tails), net.out(f"joined {n_tails}", HEADS * (dim + 3))
        net.node(Op.JOIN_HEADS, [x, tail], [y], **sizes)
    q, k, v = (net.rows(name, HEADS * dim) for name in "qkv")
    first, last = net.indices("first", "n_rows"), net.indices("last", "n_rows")
    net.node(Op.ROW_ATTN, [q, k, v, first, last], [net.out("y", HEADS * dim)], scale=0.25, **heads)
    given, flags = net.rows("given", 3 * HEADS * dim), net.indices("is_given", "n_rows")
    net.node(Op.GIVEN_ROWS, [x, given, flags], [net.out("replaced", HEADS * dim)])
    net.node(Op.GIVEN_ROWS, [x, given, flags], [net.out("added", HEADS * dim)], start=2 * HEADS * dim, add=True)
    steps = []
    for spans in (all_spans, all_spans[1:2], ((0, 10),)):
        spans = tuple((a - spans[0][0], b - spans[0][0]) for a, b in spans)
        n = spans[-1][1]
        acts = {name: rng.standard_normal((n, HEADS * dim)).astype(np.float32) for name in "qkv"}
        acts |= {f"tail {m}": rows(rng, n, 3 * m) for m in (1, HEADS)}
        acts["given"] = rows(rng, n, 3 * HEADS * dim)
        acts |= {"x": rows(rng, n, HEADS * dim), "table": rng.standard_normal((n, 2 * pairs)).astype(np.float32)}
        first = np.concatenate([np.full(b - a, a) for a, b in spans])
        last = np.concatenate([np.full(b - a, b - 1) for a, b in spans])
        if n > alone:
            first[:alone] = last[:alone] = np.arange(alone)
        seen = {"first": first, "last": last, "is_given": rng.integers(0, 2, n)}
        steps.append(Step(n, {**acts, **seen}))
    return net.case(steps)


@cache
def wanted(dim: int, interleaved: bool = False) -> Outputs:
    return expected(among_rows(dim, interleaved))


def test_values() -> None:
    """The reference against float64 formulas."""
    dim, case = 24, among_rows(24)
    for step, got in zip(case.steps, wanted(dim), strict=True):
        q, k, v = (np.float64(step.inputs[name]).reshape(step.n_rows, HEADS, dim) for name in "qkv")
        at, first, last = np.arange(step.n_rows), step.inputs["first"], step.inputs["last"]
        hidden = (at < first[:, None]) | (at > last[:, None])
        scores = np.where(hidden[:, None], -np.inf, np.einsum("nhd,mhd->nhm", q, k) * 0.25)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.einsum("nhm,mhd->nhd", weights / weights.sum(-1, keepdims=True), v)
        found = got["y"][: step.n_rows].view(np.float32)
        assert np.abs(found - y.reshape(found.shape)).max() < 2e-6
        for n_tails in (1, HEADS):
            x, tail = step.inputs["x"].reshape(step.n_rows, HEADS, dim), step.inputs[f"tail {n_tails}"]
            joined = got[f"joined {n_tails}"][: step.n_rows].reshape(step.n_rows, HEADS, dim + 3)
            np.testing.assert_array_equal(joined[..., :dim], x.view(np.uint32))
            for head in range(HEADS):
                own = tail.reshape(step.n_rows, n_tails, 3)[:, head % n_tails]
                np.testing.assert_array_equal(joined[:, head, dim:], own.view(np.uint32))
        x, given, flags = (step.inputs[name][: step.n_rows] for name in ("x", "given", "is_given"))
        n = HEADS * dim
        with np.errstate(all="ignore"):
            added = x + given[:, 2 * n :]
        for name, part in (("replaced", given[:, :n]), ("added", added)):
            right = np.where(flags[:, None] != 0, part, x).astype(np.float32)
            assert got[name][: step.n_rows].view(np.uint32).tobytes() == right.view(np.uint32).tobytes()


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize(("dim", "interleaved"), [(24, False), (64, True)])
def test_cpu(dim: int, interleaved: bool, isa: str) -> None:
    for threads in (1, 3):
        check(among_rows(dim, interleaved), wanted(dim, interleaved), isa, threads)


def test_gpu() -> None:
    with amd_backend() as (backend, _):
        case = among_rows(8, False, FEW, ALONE)
        check_gpu(backend, case, expected(case))
        case = among_rows(16, True, FEW[1:])
        check_gpu(backend, case, expected(case))


def test_costs_are_counted() -> None:
    assert {definition.op for definition in OPS} == {Op.ROTATE, Op.ROW_ATTN, Op.GIVEN_ROWS}

"""Graphs of any shape on the emulated GPU: the reference's bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend, check
from tests.backends.cpu.both import Net, Step, expected
from tests.backends.cpu.hostile import ordinary
from tests.backends.cpu.test_graphs import random_case, short_case
from tests.backends.cpu.test_rows import CASES
from tests.helpers import soon
from tests.kernels.material import (
    FLOATS,
    QUANTISED,
    WILD_F16,
    T,
    activations,
    adversarial_activations,
    adversarial_rows,
    float_rows,
    packed_rows,
)
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.base import Capacity, StepFence, check_step
from zinc_rt.backends.gpu.lowering import GpuLowering
from zinc_rt.errors import BackendError
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import BufferKind, DType
from zinc_rt.ir.op import Op

SEEDS = range(100, 105)


@pytest.fixture(scope="module")
def backend() -> Iterator[AmdBackend]:
    with amd_backend() as (made, _):
        yield made


@pytest.mark.slow  # graph 101 is what the tests below run
@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(backend: AmdBackend, seed: int) -> None:
    check(backend, *random_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(105, 112), *range(200, 320)])
def test_more_random_graphs(backend: AmdBackend, seed: int) -> None:
    check(backend, *random_case(seed))


SOON = (T.Q6_K,)
"""`test_models.py` has floats in steps of many rows; `tests/kernels/gpu/test_matvec.py` multiplies by all kinds."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.name, marks=() if kind in SOON else pytest.mark.slow)
        for kind in (*QUANTISED, *FLOATS)
    ],
)
def test_products_of_any_number_of_rows(backend: AmdBackend, rng: np.random.Generator, kind: T) -> None:
    """From one row to several blocks of eight, and the table of the same rows."""
    width, n_out = 256 if kind in QUANTISED else 77, 37
    net = Net(19, n_logits=6)
    raw = (
        packed_rows(kind, rng, n_out, width) if kind in QUANTISED else float_rows(kind, activations(rng, n_out, width))
    )
    matrix = net.matrix(kind, np.ascontiguousarray(raw))
    x, ids, wanted = net.rows("x", width), net.indices("ids", "n_rows"), net.indices("rows", "n_logits")
    embedded = net.out("embedded", width)
    net.node(Op.MATMUL, [x, matrix], [net.out("y", n_out)])
    net.node(Op.EMBED, [ids, matrix], [embedded])
    net.node(Op.LM_HEAD, [embedded, matrix, wanted], [net.out("logits", n_out, "n_logits")])
    steps = [
        Step(
            n,
            {"x": ordinary(rng, n, width), "ids": rng.integers(0, n_out, n), "rows": rng.permutation(n)[:k]},
            k,
        )
        for n, k in ((1, 0), (1, 1), (2, 2), (3, 1), (4, 3), (5, 5), (8, 6), (9, 2), (19, 6))
    ]
    case = net.case(steps)
    check(backend, case, expected(case))


def test_hostile_weights_and_activations(backend: AmdBackend, rng: np.random.Generator) -> None:
    for kind in (T.Q4_0, T.Q6_K):
        net = Net(3)
        matrix = net.matrix(kind, adversarial_rows(kind, rng, 9, 512, WILD_F16))
        net.node(Op.MATMUL, [net.rows("x", 512), matrix], [net.out("y", 9)])
        case = net.case([Step(3, {"x": adversarial_activations(rng, 3, 512)})])
        check(backend, case, expected(case))


@pytest.mark.parametrize(
    "name",
    soon(
        ("gates-33", "factors-2049", "plain-norms-64"),
        ("gates-33", "gates-256", "factors-33", "factors-2049", "plain-norms-33", "plain-norms-64"),
    ),
)
def test_gates_factors_and_norms_without_weights(backend: AmdBackend, name: str) -> None:
    check(backend, CASES[name](), expected(CASES[name]()))


def test_batches_are_recorded_once_a_shape(backend: AmdBackend) -> None:
    case, _ = random_case(101)
    batch = backend.lower(backend.plan(case.graph, case.sizes), case.weights, case.constants)
    recorded = []
    for _ in range(2):
        for n in (1, 2, 1):
            batch.counts[:] = n, 0
            before = len(backend.gpu._programs)
            backend.submit_and_wait(batch)
            assert len(backend.gpu._programs) == before
            recorded.append([id(r.batches[0]) for r in batch.recorded._kept.values()])
    assert len(recorded[-1]) == 2
    assert set(recorded[-1]) == set(recorded[1])


def test_shapes_that_are_not_used_any_more_give_their_memory_back(backend: AmdBackend, monkeypatch) -> None:
    monkeypatch.setattr("zinc_rt.backends.gpu.batches.KEPT", 2)
    case, want = random_case(101)
    check(backend, case, want)
    assert len(backend._batches[-1].recorded._kept) <= 2


def test_large_steps_are_several_submissions(backend: AmdBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its share of the work; a driver resets a GPU that is busy with one for too long."""
    case, want = short_case(101)
    check(backend, case, want)
    before = backend.gpu.retired()
    monkeypatch.setattr(backend.gpu.budget, "longest", 1e-6)
    check(backend, case, want)
    assert len(backend._batches[-2].recorded._kept) == len(backend._batches[-1].recorded._kept)
    assert all(len(r.batches) == 1 for r in backend._batches[-2].recorded._kept.values())
    most = max(len(r.batches) for r in backend._batches[-1].recorded._kept.values())
    assert most > 1
    assert backend.gpu.retired() - before > len(case.steps)


# What is refused.


def test_operations_without_a_kernel(backend: AmdBackend) -> None:
    net = Net(1)
    net.node(Op.BARRIER, [], [])
    net.node(Op.SWIGLU, [net.rows("a", 8), net.rows("b", 8)], [net.out("y", 8)])
    case = net.case([Step(1, {"a": np.ones((1, 8), np.float32), "b": np.ones((1, 8), np.float32)})])
    check(backend, case, expected(case))


@pytest.mark.parametrize(
    ("dim", "heads", "words"), [(12, 2, "multiples of 8"), (1024, 2, "values up to 512"), (16, 40, "up to 32")]
)
def test_heads_that_the_kernels_cannot_do(dim: int, heads: int, words: str) -> None:
    net = Net(1)
    q = net.rows("q", heads * dim)
    caches = net.caches(1, dim)
    net.node(
        Op.FLASH_ATTN,
        [q, *caches, *net.where()],
        [net.out("y", heads * dim)],
        n_heads=heads,
        n_kv_heads=1,
        head_dim=dim,
        scale=1.0,
    )
    with pytest.raises(BackendError, match=words):
        GpuLowering(net.b.build(), net.sizes).run()


def test_steps_and_fences_are_checked(backend: AmdBackend) -> None:
    case, _ = random_case(101)
    batch = backend.lower(backend.plan(case.graph, case.sizes), case.weights, case.constants)
    batch.counts[:] = case.sizes.n_rows + 1, 0
    with pytest.raises(BackendError, match="rows"):
        backend.submit(check_step(batch))
    batch.counts[:] = 1, 0
    with amd_backend() as (other, _), pytest.raises(BackendError, match="not lowered by this backend"):
        other.submit(check_step(batch))
    with pytest.raises(BackendError, match="not submitted"):
        backend.wait(StepFence(1))


def test_a_closed_backend() -> None:
    with amd_backend() as (backend, _):
        backend.close()
        backend.close()
        for call in (lambda: backend.plan(*_nothing()), lambda: backend.wait(None)):  # type: ignore[arg-type]
            with pytest.raises(BackendError, match="the GPU backend is closed"):
                call()


def _nothing():
    b = GraphBuilder("empty")
    x = b.buffer("x", BufferKind.INPUT, DType.F32, ["n_rows", 4])
    b.node(Op.RESIDUAL_ADD, [x, x], [b.buffer("y", BufferKind.OUTPUT, DType.F32, ["n_rows", 4])])
    return b.build(), Capacity(1, 1, 16, 1, 1)

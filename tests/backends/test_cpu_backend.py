"""The backends of the processor, compiled and reference: fences, lowering, step sizes, closing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.ir.dense import Dims, dense
from tests.kernels.material import packed_rows
from zinc_rt.backends.base import BackendFeatures, Capacity, LoweredGraph, StepFence, check_step
from zinc_rt.backends.cpu import backend as cpu_backend
from zinc_rt.backends.cpu import binding, few_rows
from zinc_rt.backends.cpu import weights as native_weights
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.cpu.lowering import matrices_of
from zinc_rt.backends.host import HostBackend
from zinc_rt.backends.reference import backend as reference
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.errors import BackendError, UsageError, ZincError
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import BufferKind, DType, Graph
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.norms import rms_norm_rows
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.numerics import pages_for

SIZES = Capacity(n_rows=6, n_logits=4, n_ctx=40, n_slots=2, n_pages=6)


@pytest.fixture(params=[CpuBackend, ReferenceBackend])
def backend(request: pytest.FixtureRequest) -> Iterator[HostBackend]:
    with request.param() as made:
        yield made


def bindings(
    graph: Graph, sizes: Capacity = SIZES, seed: int = 1
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random weights and constants of a graph."""
    rng = np.random.default_rng(seed)
    weights = {}
    for b in graph.of_kind(BufferKind.WEIGHT):
        rows, n = (1, b.shape[0]) if len(b.shape) == 1 else b.shape
        if b.dtype is DType.F32:
            weights[b.name] = rng.standard_normal((rows, n)).astype(np.float32).view(np.uint8)
        else:
            weights[b.name] = packed_rows(GGMLType[b.dtype.name], rng, rows, n)
    constants = {
        b.name: rng.standard_normal(sizes.shape(b.shape)).astype(np.float32) for b in graph.of_kind(BufferKind.CONSTANT)
    }
    return weights, constants


def lowered(backend: HostBackend, graph: Graph, sizes: Capacity = SIZES) -> LoweredGraph:
    return backend.lower(backend.plan(graph, sizes), *bindings(graph, sizes))


def run_step(
    backend: HostBackend, batch: LoweredGraph, tokens: list[int], start: int = 0, wanted: list[int] | None = None
) -> np.ndarray:
    """One sequence in slot 0 over the first pages; the logits of the wanted rows."""
    wanted = [len(tokens) - 1] if wanted is None else wanted
    batch.inputs["token_ids"][: len(tokens)] = tokens
    batch.inputs["positions"][: len(tokens)] = np.arange(start, start + len(tokens))
    batch.inputs["slots"][: len(tokens)] = 0
    batch.inputs["page_table"][0] = np.arange(batch.inputs["page_table"].shape[1])
    batch.inputs["logit_rows"][: len(wanted)] = wanted
    batch.counts[:] = len(tokens), len(wanted)
    backend.submit_and_wait(batch)
    return np.array(batch.outputs["logits"][: len(wanted)])


# Fences and closing.


def test_fences_count_and_have_retired_on_return(backend: HostBackend) -> None:
    graph = lowered(backend, dense(Dims(layers=1)))
    fences = [backend.submit(check_step(graph)) for _ in range(3)]
    assert [f.sequence for f in fences] == [1, 2, 3]
    assert all(f.retired for f in fences)
    for fence in (*fences, fences[0]):
        backend.wait(fence)
        backend.wait(fence, timeout=0.0)


@pytest.mark.parametrize(
    "fence", [StepFence(1), StepFence(2, retired=True), StepFence(0, retired=True), StepFence(-1, retired=True)]
)
def test_a_foreign_fence_is_refused(fence: StepFence, backend: HostBackend) -> None:
    backend.submit(check_step(lowered(backend, dense(Dims(layers=1)))))
    with pytest.raises(BackendError, match=f"fence {fence.sequence} was not submitted to this backend; its last is 1"):
        backend.wait(fence)


def test_everything_but_close_needs_an_open_backend(backend: HostBackend) -> None:
    graph = dense(Dims(layers=1))
    batch = lowered(backend, graph)
    fence = backend.submit(check_step(batch))
    backend.close()
    backend.close()
    calls: list[Callable[[], Any]] = [
        lambda: backend.plan(graph, SIZES),
        lambda: lowered(backend, graph),
        lambda: backend.submit(check_step(batch)),
        lambda: backend.wait(fence),
        lambda: backend.submit_and_wait(batch),
    ]
    for call in calls:
        with pytest.raises(BackendError, match="closed"):
            call()


def test_arguments_are_checked() -> None:
    for kind in (CpuBackend, ReferenceBackend):
        with pytest.raises(UsageError, match="threads is 0"):
            kind(threads=0)
    assert issubclass(BackendError, ZincError)


def test_graphs_of_another_kind_of_backend_are_refused(backend: HostBackend) -> None:
    with CpuBackend(threads=1) as compiled, ReferenceBackend() as oracle:
        other = oracle if isinstance(backend, CpuBackend) else compiled
        batch = lowered(other, dense(Dims(layers=1)))
        with pytest.raises(BackendError, match="the graph was lowered by another kind of backend; this is"):
            backend.submit(check_step(batch))


def test_what_a_processor_does_not_do(backend: HostBackend) -> None:
    batch = lowered(backend, dense(Dims(layers=1)))
    assert backend.features.samples is isinstance(backend, CpuBackend)
    with pytest.raises(BackendError, match=r"chosen by something else; this is (native|reference) kernels"):
        backend.submit(check_step(batch), object())  # type: ignore[arg-type]
    with ReferenceBackend() as oracle:
        assert oracle.features == BackendFeatures("reference")
        for call in (
            lambda: oracle.start_profile(batch),
            oracle.finish_profile,
            lambda: oracle.read_bandwidth(1 << 20),
        ):
            with pytest.raises(BackendError, match="reference kernels, 1 thread"):
                call()


# Lowering.


def test_missing_bindings_are_named(backend: HostBackend) -> None:
    graph = dense(Dims(layers=1))
    weights, constants = bindings(graph)
    for given, kind in ((weights, "weight"), (constants, "constant")):
        for name in list(given):
            taken = given.pop(name)
            with pytest.raises(BackendError, match=f"{kind} {name} of the graph"):
                backend.lower(backend.plan(graph, SIZES), weights, constants)
            given[name] = taken
    backend.lower(backend.plan(graph, SIZES), weights, constants)


@pytest.mark.parametrize("op", [Op.SAMPLE, Op.RMS_NORM_FUSED_QKV, Op.MATMUL_WMMA_F16, Op.STREAM_OUT])
def test_operations_without_a_kernel_are_named(op: Op, backend: HostBackend) -> None:
    b = GraphBuilder("strange")
    x = b.buffer("x", BufferKind.INPUT, DType.F32, ["n_rows", 4])
    y = b.buffer("y", BufferKind.OUTPUT, DType.F32, ["n_rows", 4])
    b.node(op, [x], [y], "the_node")
    with pytest.raises(BackendError) as caught:
        backend.lower(backend.plan(b.build(), SIZES), {}, {})
    refusal = {"native": "the native kernels have none for", "reference": "the CPU backend has no kernel for"}
    assert f"node the_node: {refusal[backend.features.kernels]} {op.name}; " in str(caught.value)
    assert "MATMUL" in str(caught.value)


def test_a_lowered_graph_names_its_data(backend: HostBackend) -> None:
    graph = dense(Dims(layers=2))
    batch = lowered(backend, graph)
    assert batch.limits == (6, 4)
    assert [(v.node, v.n_rows) for v in batch.lookups] == [("embed", 50)]
    assert {k: v.shape for k, v in batch.inputs.items()} == {
        "token_ids": (6,),
        "positions": (6,),
        "slots": (6,),
        "page_table": (2, 3),
        "logit_rows": (4,),
    }
    assert {k: (v.shape, v.dtype) for k, v in batch.outputs.items()} == {
        "logits": ((4, 50), np.float32),
        "tokens": ((4,), np.int32),
    }
    assert batch.counts.tolist() == [0, 0]


def taken_by(backend: HostBackend, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that lowering asks the system for."""
    taken: list[int] = []
    take = cpu_backend.huge_bytes

    def counted(n_bytes: int, **how: int) -> np.ndarray:
        taken.append(n_bytes)
        return take(n_bytes, **how)

    for module in (reference, cpu_backend, binding, native_weights):
        monkeypatch.setattr(module, "huge_bytes", counted)
    lowered(backend, graph)
    return sum(taken)


def test_the_plan_is_what_lowering_takes(backend: HostBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = dense(Dims(layers=2))
    plan = backend.plan(graph, SIZES).n_bytes
    assert plan["kv_cache"] == 2 * 2 * (SIZES.n_pages * 16 * 2 * 32) * 2  # layers, k and v, pages, float16
    table = 40 * 16 * 2 * 4
    weights = sum(len(row) * row.shape[1] for row in bindings(graph)[0].values())
    tiles = sum(m.n_bytes for m in matrices_of(graph).values())
    if backend.features.kernels == "native":
        assert plan["weights"] <= 1.1 * weights + 20_000  # whole tiles of 16 rows, and the embedding as it is
        assert plan["unpacked"] == 0
        assert plan["constants"] == 2 * table
    else:
        tiles = 0
        matrices = [b for b in graph.of_kind(BufferKind.WEIGHT) if len(b.shape) == 2]
        elements = sum(int(np.prod(SIZES.shape(b.shape))) for b in matrices)
        assert plan["weights"] == weights
        assert plan["unpacked"] == 4 * (elements + elements // 32)  # float32 for each element and each group's scale
        assert plan["constants"] == table
    assert taken_by(backend, graph, monkeypatch) == plan["kv_cache"] + plan["scratch"] + tiles


def test_temporaries_take_turns() -> None:
    graph = dense(Dims(layers=2))
    temps = sum(4 * 6 * b.shape[1] for b in graph.of_kind(BufferKind.TEMP))  # type: ignore[operator]
    with ReferenceBackend() as backend:
        assert backend.plan(graph, SIZES).n_bytes["scratch"] < temps / 3
    deep = dense(Dims(layers=8))
    with CpuBackend(threads=1) as backend:
        few, more = (backend.plan(g, SIZES).n_bytes["scratch"] for g in (graph, deep))
        assert more == few  # layers use the same memory one after the other
    with CpuBackend(threads=2) as backend:
        # What late threads may be at takes no turns: so much for each layer, and no more than its limit.
        first, second, third = (backend.plan(dense(Dims(layers=n)), SIZES).n_bytes["scratch"] for n in (2, 8, 14))
        assert third - second == second - first
        assert 0 < third - first <= few_rows.MAX_BYTES


def test_logits_take_memory_for_the_wanted_rows_alone(backend: HostBackend) -> None:
    """Of a large vocabulary: 512 rows of it would be 311 MB."""
    graph = dense(Dims(n_vocab=151_936))
    logits = next(b for b in graph.of_kind(BufferKind.OUTPUT) if b.name == "logits")
    sizes = Capacity(n_rows=512, n_logits=1, n_ctx=512, n_slots=1, n_pages=32)
    plan = backend.plan(graph, sizes).n_bytes["scratch"]
    row = int(logits.shape[1]) * 4
    assert plan < 8 << 20
    more = backend.plan(graph, replace(sizes, n_logits=9)).n_bytes["scratch"] - plan
    assert 8 * row <= more < 9 * row


def test_frugal_reference_kernels_keep_nothing_unpacked() -> None:
    with ReferenceBackend(keep_bytes=1000) as frugal:
        assert frugal.plan(dense(Dims(layers=2)), SIZES).n_bytes["unpacked"] == 0


def test_sizes() -> None:
    assert SIZES.max_pages == pages_for(40) == 3
    assert SIZES.shape(("n_rows", 5, "max_pages")) == (6, 5, 3)


# Steps.


def test_kept_and_unkept_weights_give_the_same_bits() -> None:
    graph = dense(Dims(layers=2))
    results = []
    for keep_bytes in (0, 1 << 30):
        with ReferenceBackend(keep_bytes=keep_bytes) as backend:
            batch = lowered(backend, graph)
            results.append([run_step(backend, batch, [3, 1, 4]), run_step(backend, batch, [1], start=3)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def test_shared_activations_belong_to_their_step(backend: HostBackend) -> None:
    """q, k and v share one quantised input; a step must not see the one before."""
    graph = dense(Dims(layers=1))
    batch, fresh = lowered(backend, graph), lowered(backend, graph)
    run_step(backend, batch, [3, 1, 4, 1])
    again = run_step(backend, batch, [9, 2], wanted=[0, 1])
    np.testing.assert_array_equal(
        again.view(np.uint32), run_step(backend, fresh, [9, 2], wanted=[0, 1]).view(np.uint32)
    )


def test_one_backend_runs_several_batches(backend: HostBackend) -> None:
    first, second = lowered(backend, dense(Dims(layers=1))), lowered(backend, dense(Dims(layers=2, n_vocab=20)))
    before = run_step(backend, first, [5, 6])
    assert run_step(backend, second, [5, 6]).shape == (1, 20)
    np.testing.assert_array_equal(run_step(backend, first, [5, 6]).view(np.uint32), before.view(np.uint32))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((7, 0), "the step has 7 rows, the graph was lowered for 6"),
        ((6, 5), "the step has 5 wanted logits, the graph was lowered for 4"),
        ((-1, 0), "the step has -1 rows"),
        ((1, -1), "-1 wanted logits"),
    ],
)
def test_steps_that_are_too_large(counts: tuple[int, int], message: str, backend: HostBackend) -> None:
    batch = lowered(backend, dense(Dims(layers=1)))
    batch.counts[:] = counts
    with pytest.raises(BackendError, match=message):
        backend.submit(check_step(batch))
    assert run_step(backend, batch, [1, 2, 3, 4, 5, 6], wanted=[0, 1, 2, 5]).shape == (4, 50)  # as large as it may be


def test_a_step_of_nothing_does_nothing(backend: HostBackend) -> None:
    batch = lowered(backend, dense(Dims(layers=1)))
    before = run_step(backend, batch, [1, 2], wanted=[0, 1])
    batch.counts[:] = 0, 0
    backend.submit_and_wait(batch)
    np.testing.assert_array_equal(batch.outputs["logits"][:2], before)
    batch.counts[:] = 2, 0
    backend.submit_and_wait(batch)  # rows without wanted logits
    np.testing.assert_array_equal(batch.outputs["logits"][:2], before)


@pytest.mark.parametrize("bad", [-1, 50, 1 << 30])
def test_token_out_of_range_stops_the_step_at_its_start(bad: int, backend: HostBackend) -> None:
    batch = lowered(backend, dense(Dims(layers=1)))
    want = run_step(backend, batch, [1, 2, 3])
    with pytest.raises(TokenOutOfRange, match=f"embed: token id {bad} is outside the vocabulary of 50"):
        run_step(backend, batch, [4, bad, 5])
    np.testing.assert_array_equal(run_step(backend, batch, [3], start=2), want)  # the cache is as it was


def test_a_graph_without_step_inputs_of_a_model(backend: HostBackend) -> None:
    """Rows come in as activations; counts still say how many are live, and a barrier does nothing."""
    b = GraphBuilder("norm")
    x = b.buffer("x", BufferKind.INPUT, DType.F32, ["n_rows", 32])
    w = b.buffer("w", BufferKind.WEIGHT, DType.F32, [32])
    y = b.buffer("y", BufferKind.OUTPUT, DType.F32, ["n_rows", 32])
    b.node(Op.BARRIER, [], [])
    b.node(Op.RMS_NORM, [x, w], [y], eps=1e-5)
    weight = np.random.default_rng(1).standard_normal((1, 32)).astype(np.float32)
    batch = backend.lower(backend.plan(b.build(), SIZES), {"w": weight.view(np.uint8)}, {})
    rows = np.random.default_rng(2).standard_normal((6, 32)).astype(np.float32)
    batch.inputs["x"][...] = rows.view(np.int32)
    batch.counts[:] = 4, 0
    backend.submit_and_wait(batch)
    want = rms_norm_rows(rows, weight[0], 1e-5)
    np.testing.assert_array_equal(batch.outputs["y"][:4], want[:4])
    assert not batch.outputs["y"][4:].any()  # rows past the count are not written

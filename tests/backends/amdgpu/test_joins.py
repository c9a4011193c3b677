"""What is one dispatch on the GPU, and how many barriers a layer has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.amdgpu.queue.stage import machine
from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.amdgpu.test_barriers import Observed, check, last_batch
from tests.backends.cpu.both import Case, Net, Step, expected
from tests.backends.cpu.hostile import ordinary
from tests.helpers import random_tokens
from tests.kernels.material import T, packed_rows
from tests.models.families import CASES, build
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.amdgpu.lowering import GpuLowering
from zinc_rt.backends.amdgpu.operations import GpuOperation, StepShape
from zinc_rt.backends.amdgpu.placement import scheduled
from zinc_rt.backends.base import Capacity
from zinc_rt.engine import Device, Engine, Options, Rows
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.op import Op
from zinc_rt.models import define


@pytest.fixture(scope="module")
def backend() -> Iterator[AmdBackend]:
    with amd_backend() as (made, _):
        yield made


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers with a delta net and one with attention, all with experts and a shared one, in blocks of int8."""
    return write_case(tmp_path_factory.mktemp("models") / "hybrid.gguf", CASES["qwen35moe"], T.Q8_0).path


def lowered(path: Path) -> list[GpuOperation]:
    with GGUFFile.open(path) as file:
        found = GpuLowering(define(file).graph, Capacity(8, 1, 32, 2, 4)).run().operations
    scheduled(found)
    return found


def kernel(op: GpuOperation) -> str:
    return op.kernel(StepShape(1, 1, 1)).spec.function.name


def test_phases_of_a_layer(path: Path) -> None:
    """Seven of a delta net with experts. Of attention eight; nine here, where the products behind it read floats."""
    found = lowered(path)
    phases = [{op.phase for op in found if op.name.startswith(f"blk.{layer}.")} for layer in range(3)]
    assert [len(p) for p in phases] == [8, 7, 9]  # the first layer has a norm before it
    assert not phases[0] & phases[1]
    assert not phases[1] & phases[2]
    names = Counter(kernel(op) for op in found if op.name.startswith("blk.1."))
    assert names == {
        "matvec": 4, "conv1d": 1, "delta_net_32": 1, "matvec_norm": 1, "route": 1, "gated_experts": 1, "gated_rows": 1,
        "matvec_float": 1, "experts_down_norm": 1,
    }  # fmt: skip


def with_heads_of(case: build.Case, dim: int) -> build.Case:
    """The same model with other heads of attention; 32 elements and more are in one group, as in every real model."""
    old = case.keys["attention.key_length"]

    def shape_of(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        part = name.split(".")[2] if name.startswith("blk.") else name
        if part == "attn_output" and name.endswith("weight"):
            return shape[0], shape[1] * dim // old
        if part in ("attn_q", "attn_k", "attn_v", "attn_q_norm", "attn_k_norm"):
            return shape[0] * dim // old, *shape[1:]
        return shape

    keys = {**case.keys, "attention.key_length": dim, "attention.value_length": dim}
    return replace(case, keys=keys, shapes={name: shape_of(name, shape) for name, shape in case.shapes.items()})


@pytest.mark.parametrize(
    ("name", "want"),
    [("qwen3", [8, 8]), ("qwen3moe", [8, 8]), ("qwen35moe", [7, 7, 8]), ("gpt-oss", [8, 8, 8])],
)
def test_phases_of_layers(name: str, want: list[int], tmp_path: Path) -> None:
    """Eight at most. A layer's first norm is part of the layer before it; the first layer's has a phase of its own."""
    found = lowered(write_case(tmp_path / "m.gguf", with_heads_of(CASES[name], 32), T.Q8_0).path)
    layers = {int(op.name.split(".")[1]) for op in found if op.name.startswith("blk.")}
    phases = [
        {op.phase for op in found if op.name.startswith(f"blk.{i}.") and not op.name.startswith(f"blk.{i}.attn_norm")}
        for i in sorted(layers)
    ]
    assert [len(p) for p in phases] == want
    everything = {op.phase for op in found}
    ends = "the embedding, the first norm, the rows of wanted logits, their norm, their product, the greatest"
    assert len(everything) - sum(want) == len(ends.split(", "))


def test_steps_are_ordered(path: Path) -> None:
    """No dispatch touches what another one of its phase stores, in steps of any size."""
    tokens, core = random_tokens(5, 3, N_VOCAB - 2), Observed()
    options = Options(Device.gpu_kfd, n_ctx=32, n_batch=3, n_slots=2)
    with (
        machine(shader=core, time_scale=100.0) as made,
        GGUFFile.open(path) as file,
        Engine(options, linux=made.process()) as engine,
    ):
        engine.load(file, define(file))
        slots = [engine.open_sequence() for _ in range(2)]
        for rows in (
            [Rows(slots[0], 0, tokens[:1], (0,)), Rows(slots[1], 0, tokens[:2])],
            [Rows(slots[0], 1, tokens[1:2], (0,))],
        ):
            core.seen.clear()
            engine.step(rows)
            check(last_batch(engine), core.seen)


def attended(dim: int, kind: T) -> Case:
    """Attention, a gate on it, and a product of nothing else."""
    rng = np.random.default_rng(dim)
    net, heads = Net(5, n_ctx=32, n_pages=2), 4
    q, k, v = (net.rows(name, n * dim) for name, n in (("q", heads), ("k", 2), ("v", 2)))
    caches, where = net.caches(2, dim), net.where()
    net.node(Op.KV_WRITE, [k, v, *where], caches, n_kv_heads=2, head_dim=dim)
    y, gated, width = net.temp(heads * dim), net.temp(heads * dim), heads * dim
    net.node(Op.FLASH_ATTN, [q, *caches, *where], [y], n_heads=heads, n_kv_heads=2, head_dim=dim, scale=0.25)
    net.node(Op.SIGMOID_MUL, [y, net.rows("gate", width)], [gated])
    net.node(Op.MATMUL, [gated, net.matrix(kind, packed_rows(kind, rng, 7, width))], [net.out("p", 7)])
    steps = []
    for first, n in ((0, 5), (5, 1), (6, 3)):
        given = {
            name: ordinary(rng, n, w) for name, w in (("q", width), ("k", 2 * dim), ("v", 2 * dim), ("gate", width))
        }
        at = {"positions": np.arange(first, first + n), "slots": [0] * n, "page_table": np.arange(2).reshape(1, 2)}
        steps.append(Step(n, {**given, **at}))
    return net.case(steps)


@pytest.mark.parametrize(("dim", "kernels"), [(32, ["attention"]), (24, ["attention", "quantize"])])
def test_a_gate_on_attention(backend: AmdBackend, dim: int, kernels: list[str]) -> None:
    case = attended(dim, T.Q8_0)
    check_gpu(backend, case, expected(case))
    found = GpuLowering(case.graph, case.sizes).run().operations
    behind = [kernel(op) for op in found if kernel(op) != "heads"]
    assert behind == [*kernels, "matvec"]


@pytest.mark.parametrize("n_rows", [1, 3, 11])
@pytest.mark.parametrize("kind", [T.Q4_K, T.F16], ids=lambda kind: kind.name)
def test_a_norm_behind_a_product(backend: AmdBackend, kind: T, n_rows: int) -> None:
    """The sum and its norm for one product that wants int8 and one that wants floats; with a bias and without."""
    rng = np.random.default_rng(n_rows)
    net = Net(n_rows)
    x, width = net.rows("x", 256), 256

    def weight(n_out: int, kind: T = kind) -> int:
        raw = packed_rows(kind, rng, n_out, width) if kind.quantized else ordinary(rng, n_out, width).astype(
            np.float16
        ).view(np.uint8)  # fmt: skip
        return net.matrix(kind, raw)

    stream = net.rows("stream", width)
    for part, bias in enumerate((True, False)):
        made, total, normed = (net.temp(width) for _ in range(3))
        source = made
        net.node(Op.MATMUL, [x, weight(width)], [made])
        if bias:
            source = net.temp(width)
            net.node(Op.BIAS_ADD, [made, net.vector(ordinary(rng, 1, width)[0])], [source])
        norm = net.vector(ordinary(rng, 1, width)[0])
        net.node(Op.RESIDUAL_RMS_NORM, [source, stream, norm], [total, normed], eps=1e-6)
        net.node(Op.MATMUL, [normed, weight(9, T.Q8_0)], [net.out(f"blocks{part}", 9)])
        if bias:
            net.node(Op.MATMUL, [normed, net.matrix(T.F32, ordinary(rng, 5, width).view(np.uint8))], [net.out("f", 5)])
        stream = total
    net.node(Op.RESIDUAL_ADD, [stream, x], [net.out("sum", width)])
    case = net.case([Step(n_rows, {"x": ordinary(rng, n_rows, width), "stream": ordinary(rng, n_rows, width)})])
    check_gpu(backend, case, expected(case))
    found = [kernel(op) for op in GpuLowering(case.graph, case.sizes).run().operations]
    assert sum(name.endswith("_norm") for name in found) == 2


@pytest.mark.parametrize("summed", [True, False])
def test_a_norm_as_floats_and_int8(backend: AmdBackend, summed: bool) -> None:
    """For products of both kinds, in one dispatch."""
    rng = np.random.default_rng(4)
    net, width = Net(3), 96
    x, total, normed = net.rows("x", width), net.out("total", width), net.temp(width)
    norm = net.vector(ordinary(rng, 1, width)[0])
    if summed:
        net.node(Op.RESIDUAL_RMS_NORM, [x, net.rows("z", width), norm], [total, normed], eps=1e-6)
    else:
        net.node(Op.RESIDUAL_ADD, [x, net.rows("z", width)], [total])
        net.node(Op.RMS_NORM, [x, norm], [normed], eps=1e-6)
    net.node(Op.MATMUL, [normed, net.matrix(T.Q8_0, packed_rows(T.Q8_0, rng, 9, width))], [net.out("blocks", 9)])
    net.node(Op.MATMUL, [normed, net.matrix(T.F32, ordinary(rng, 5, width).view(np.uint8))], [net.out("f", 5)])
    case = net.case([Step(n, {"x": ordinary(rng, n, width), "z": ordinary(rng, n, width)}) for n in (1, 3)])
    check_gpu(backend, case, expected(case))
    found = [kernel(op) for op in GpuLowering(case.graph, case.sizes).run().operations]
    assert "quantize" not in found

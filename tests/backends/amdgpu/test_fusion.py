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
from tests.helpers import logits_of, random_tokens, soon
from tests.kernels.material import T, packed_rows
from tests.models.families import CASES, build, gemma4
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.base import Capacity
from zinc_rt.backends.gpu.lowering import GpuLowering
from zinc_rt.backends.gpu.operations import GpuOperation, StepShape
from zinc_rt.backends.gpu.placement import scheduled
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
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
    """The operations of a step of one row."""
    with GGUFFile.open(path) as file:
        found = GpuLowering(define(file).graph, Capacity(16, 1, 32, 2, 4)).run().operations
    scheduled(found)
    return [op for op in found if op.when(StepShape(1, 1, 1))]


def kernel(op: GpuOperation) -> str:
    return op.kernel(StepShape(1, 1, 1)).spec.function.name


def test_phases_of_a_layer(path: Path) -> None:
    """Six with experts, of a delta net as of attention."""
    found = lowered(path)
    phases = [{op.phase for op in found if op.name.startswith(f"blk.{layer}.")} for layer in range(3)]
    assert [len(p) for p in phases] == [7, 6, 6]  # the first layer has a norm before it
    assert not phases[0] & phases[1]
    assert not phases[1] & phases[2]
    names = Counter(kernel(op) for op in found if op.name.startswith("blk.1."))
    assert names == {
        "matvec": 3, "matvec_conv": 1, "delta_net_32": 1, "matvec_norm": 1, "route": 1, "gated_experts": 1,
        "gated_rows": 1, "matvec_float": 1, "experts_down_norm": 1,
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


WIDE = {
    **{name: with_heads_of(CASES[name], 32) for name in ("qwen3", "qwen3moe", "qwen35moe", "gpt-oss", "granite")},
    **{name: with_heads_of(CASES[name], 32) for name in ("gemma2", "gemma3", "glm4")},
    "gemma4": gemma4.case(experts=False, inputs=False, d_local=32),
    "gemma4-inputs": gemma4.case(experts=False, d_local=32),
    "gemma4-experts": gemma4.case(experts=True, d_local=32),
}
"""Models whose heads are whole groups."""
ENDS = "the embedding, the first norm, the rows of wanted logits, their norm, their product, the greatest"
SCALED = {"granite": 2, "gemma2": 2, "gemma3": 1, "gemma4": 2, "gemma4-inputs": 2, "gemma4-experts": 2}
"""Phases more: a factor of the embedding, a factor or a cap of the logits."""


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("qwen3", 5), ("granite", 5), ("glm4", 5), ("qwen3moe", 6), ("qwen35moe", 6), ("gpt-oss", 6), ("gemma2", 5),
        ("gemma3", 5), ("gemma4", 5), ("gemma4-inputs", 7), ("gemma4-experts", 7),
    ],
)  # fmt: skip
def test_phases_of_layers(name: str, most: int, tmp_path: Path) -> None:
    """Seven at most. A layer's first norm is part of the layer before it; the first layer's has a phase of its own."""
    case = WIDE[name]
    found = lowered(write_case(tmp_path / "m.gguf", case, T.Q8_0).path)
    phases = [
        {op.phase for op in found if op.name.startswith(f"blk.{i}.") and not op.name.startswith(f"blk.{i}.attn_norm")}
        for i in range(case.keys["block_count"])
    ]
    assert {len(p) for p in phases} == {most}
    everything = {op.phase for op in found}
    assert len(everything) - most * len(phases) == len(ENDS.split(", ")) + SCALED.get(name, 0)


@pytest.mark.parametrize("n_slots", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_are_ordered(path: Path, n_slots: int) -> None:
    """No dispatch touches what another one of its phase stores, and the logits are the reference's.

    By default in steps of one row. `test_barriers.py` has steps of several, in which memory is shared.
    """
    tokens, core = random_tokens(5, 2, N_VOCAB - 2), Observed()
    options = Options(Device.gpu_kfd, n_ctx=32, n_batch=2, n_slots=n_slots)
    want = logits_of(path, tokens, n_ctx=32, kernels="reference")
    with (
        machine(shader=core, time_scale=100.0) as made,
        GGUFFile.open(path) as file,
        Engine(options, linux=made.process()) as engine,
    ):
        engine.load(file, define(file))
        slots = [engine.open_sequence() for _ in range(n_slots)]
        for at, rows in enumerate(
            (
                [SequenceChunk(slots[0], 0, tokens[:1], (0,)), *(SequenceChunk(s, 0, tokens[1:]) for s in slots[1:])],
                [SequenceChunk(slots[0], 1, tokens[1:2], (0,))],
            )
        ):
            core.seen.clear()
            got = engine.step(rows).logits.copy()
            check(last_batch(engine), core.seen)
            np.testing.assert_array_equal(got[0].view(np.uint32), want[at].view(np.uint32))


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


@pytest.mark.parametrize("dim", [32, pytest.param(24, marks=pytest.mark.slow)])
def test_a_gate_on_attention(backend: AmdBackend, dim: int) -> None:
    case = attended(dim, T.Q8_0)
    check_gpu(backend, case, expected(case))
    found = GpuLowering(case.graph, case.sizes).run().operations
    behind = [kernel(op) for op in found if kernel(op) != "heads"]
    assert behind == ["attention", "matvec"]


@pytest.mark.parametrize(
    ("kind", "n_rows"),
    [
        pytest.param(kind, n, id=f"{kind.name}-{n}", marks=() if (kind, n) == (T.Q4_K, 1) else pytest.mark.slow)
        for kind in (T.Q4_K, T.F16)
        for n in (1, 3, 11)
    ],
)
def test_a_norm_behind_a_product(backend: AmdBackend, kind: T, n_rows: int) -> None:
    """The sum and its norm for one product that wants int8 and one that wants floats; with a bias and without.

    By default the chains below have a norm behind floats, and behind several rows.
    """
    rng = np.random.default_rng(n_rows)
    net = Net(n_rows)
    x, width = net.rows("x", 256), 256

    def weight(n_out: int, kind: T = kind) -> int:
        raw = (
            packed_rows(kind, rng, n_out, width)
            if kind.quantized
            else ordinary(rng, n_out, width).astype(np.float16).view(np.uint8)
        )
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


CHAINS = {
    # The norms before the sum, whether there is a sum, its factors, whether a norm follows.
    "a norm": (1, False, (None, None), False),
    "a norm, a sum": (1, True, (None, None), False),
    "a norm, a scaled sum, a norm": (1, True, (None, 0.7), True),
    "a share, a norm": (0, True, (0.3, None), True),
    "a norm, a sum, a norm, a sum, a norm": (2, True, (None, None), True),
    "a norm, a sum, a norm, a sum": (2, True, (None, None), False),
}


def chain(net: Net, rng: np.random.Generator, kind: T, which: str) -> None:
    """A product, the norms and sums behind it, and products that read the last result."""
    before, summed, (share, whole), normed = CHAINS[which]
    width = 96

    def norm(x: int) -> int:
        y = net.temp(width)
        net.node(Op.RMS_NORM, [x, net.vector(ordinary(rng, 1, width)[0])], [y], eps=1e-6)
        return y

    def add(a: int, b: int) -> int:
        y = net.temp(width)
        net.node(Op.RESIDUAL_ADD, [a, b], [y])
        return y

    def scale(x: int, factor: float | None) -> int:
        if factor is None:
            return x
        y = net.temp(width)
        net.node(Op.SCALE, [x], [y], factor=factor)
        return y

    x, stream, y = net.rows("x", width), net.rows("stream", width), net.temp(width)
    raw = packed_rows(kind, rng, width, width) if kind.quantized else ordinary(rng, width, width).view(np.uint8)
    net.node(Op.MATMUL, [x, net.matrix(kind, raw)], [y])
    for i in range(before):
        y = norm(y if i == 0 else add(y, net.rows("beside", width)))
    if normed and whole is None:
        branch, y, last = scale(y, share), net.temp(width), net.temp(width)
        weight = net.vector(ordinary(rng, 1, width)[0])
        net.node(Op.RESIDUAL_RMS_NORM, [stream, branch, weight], [y, last], eps=1e-6)
    else:
        y = scale(add(stream, y), whole) if summed else y
        last = norm(y) if normed else y
    net.node(Op.MATMUL, [last, net.matrix(T.Q8_0, packed_rows(T.Q8_0, rng, 5, width))], [net.out("p", 5)])
    net.node(Op.RESIDUAL_ADD, [y if summed else stream, x], [net.out("sum", width)])


LONGEST = ("a norm, a scaled sum, a norm", "a share, a norm", "a norm, a sum, a norm, a sum, a norm")
"""The chains of which the others are parts."""


@pytest.mark.parametrize("which", soon(LONGEST, CHAINS))
def test_what_follows_a_product(backend: AmdBackend, which: str) -> None:
    """All of it is one dispatch, with the reference's bits."""
    try_chain(backend, which, (1, 2) if which == LONGEST[-1] else (2,))


@pytest.mark.slow  # by default the longest of them has steps of one row and of several
@pytest.mark.parametrize("which", CHAINS)
def test_what_follows_products_of_one_row_and_several(backend: AmdBackend, which: str) -> None:
    try_chain(backend, which, (1, 3, 2))


def try_chain(backend: AmdBackend, which: str, rows: tuple[int, ...]) -> None:
    kind = T.F32 if "scaled" in which else T.Q8_0
    rng, net = np.random.default_rng(len(which)), Net(max(rows))
    chain(net, rng, kind, which)
    names = ("x", "stream", "beside")[: 2 + (CHAINS[which][0] > 1)]
    case = net.case([Step(n, {name: ordinary(rng, n, 96) for name in names}) for n in rows])
    check_gpu(backend, case, expected(case))
    found = [kernel(op) for op in GpuLowering(case.graph, case.sizes).run().operations]
    first = "matvec_float_norm" if kind is T.F32 else "matvec_norm"
    assert sorted(found) == sorted([*["quantize"] * (kind is not T.F32), first, "matvec", "add"])


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

"""Heads behind the product that makes them: the reference's bits, with no dispatch of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend, check
from tests.backends.cpu.both import Case, Net, Step, expected
from tests.backends.cpu.hostile import ordinary
from tests.backends.cpu.test_heads import N_CTX, table
from tests.kernels.material import SUPER, T, packed_rows
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.base import Capacity
from zinc_rt.backends.gpu.lowering import GpuLowering
from zinc_rt.backends.gpu.operations import StepShape
from zinc_rt.ir.graph import DType, Graph
from zinc_rt.ir.op import Op

KV_HEADS, GROUP = 2, 2


class Shape(NamedTuple):
    """kind: of the weights; one: whether keys and values are made of one product; kv: of the cache."""

    kind: T
    dim: int
    pairs: int
    interleaved: bool = False
    bias: bool = False
    one: bool = False
    kv: DType = DType.F16


SHAPES = (
    Shape(T.Q8_0, 32, 16, bias=True),
    Shape(T.Q4_K, 24, 5, interleaved=True),
    Shape(T.F16, 128, 64, one=True),
    Shape(T.Q8_0, 64, 20, interleaved=True, one=True, kv=DType.Q8_0),
)


MANY = (([0, 1, 0], [0, 0, 1]), ([*range(2, 11), 1, 2], [0] * 9 + [1] * 2), ([11], [0]))
FEW = (([0, 0], [0, 1]), ([1], [0]))
"""Rows of steps as their positions and sequences. A product has a kernel for one row, two, four and eight."""


def projected(shape: Shape, rows: Sequence[tuple[list[int], list[int]]] = MANY) -> Case:
    """Queries, keys and values of rows, with norms where there is no bias, the cache, attention, and a product."""
    rng, dim = np.random.default_rng(shape.dim), shape.dim
    width = 256 if shape.kind in SUPER else 96
    net = Net(max(len(slots) for _, slots in rows), n_ctx=N_CTX, n_slots=2, n_pages=6)
    x, where, turns = net.rows("x", width), net.where(), net.table(table(rng, max(shape.pairs, 1)))

    def made(heads: int) -> int:
        y, n = net.temp(heads * dim), heads * dim
        kind = shape.kind
        floats = ordinary(rng, n, width)
        raw = (
            packed_rows(kind, rng, n, width)
            if kind.quantized
            else floats.astype(np.float16 if kind is T.F16 else np.float32).view(np.uint8)
        )
        net.node(Op.MATMUL, [x, net.matrix(kind, raw)], [y])
        if not shape.bias:
            return y
        biased = net.temp(n)
        net.node(Op.BIAS_ADD, [y, net.vector(ordinary(rng, 1, n)[0])], [biased])
        return biased

    def placed(y: int, heads: int, *, turned: bool, weight: bool = True) -> int:
        form = {"n_heads": heads, "head_dim": dim}
        if not shape.bias:
            weights = [net.vector(ordinary(rng, 1, dim)[0])] if weight else []
            normed = net.temp(heads * dim)
            net.node(Op.RMS_NORM, [y, *weights], [normed], eps=1e-6, **form)
            y = normed
        if not turned or not shape.pairs:
            return y
        out = net.temp(heads * dim)
        net.node(Op.ROPE, [y, where[0], turns], [out], interleaved=shape.interleaved, **form)
        return out

    heads = KV_HEADS * GROUP
    q = placed(made(heads), heads, turned=True)
    k = made(KV_HEADS)
    v = k if shape.one else made(KV_HEADS)
    k, v = placed(k, KV_HEADS, turned=True), placed(v, KV_HEADS, turned=False, weight=False)
    caches = net.caches(KV_HEADS, dim, dtype=shape.kv)
    net.node(Op.KV_WRITE, [k, v, *where], caches, n_kv_heads=KV_HEADS, head_dim=dim)
    y = net.temp(heads * dim)
    net.node(
        Op.FLASH_ATTN, [q, *caches, *where], [y], scale=dim**-0.5, n_heads=heads, n_kv_heads=KV_HEADS, head_dim=dim
    )
    net.node(Op.MATMUL, [y, net.matrix(T.Q8_0, packed_rows(T.Q8_0, rng, 9, heads * dim))], [net.out("p", 9)])
    pages = np.array([[4, 0, 2], [1, 5, 3]])
    steps = [
        Step(
            len(positions),
            {
                "x": ordinary(rng, len(positions), width),
                "positions": np.array(positions),
                "slots": np.array(slots),
                "page_table": pages,
            },
        )
        for positions, slots in rows
    ]
    return net.case(steps)


def kernels(graph: Graph, sizes: Capacity) -> list[str]:
    """Names of the kernels of a step of one row."""
    operations = GpuLowering(graph, sizes).run().operations
    return [op.kernel(StepShape(1, 1, 1)).spec.function.name for op in operations]


@pytest.fixture(scope="module")
def backend() -> Iterator[AmdBackend]:
    with amd_backend() as (made, _):
        yield made


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        pytest.param(shape, rows, id=f"{shape} {name}", marks=() if quick else pytest.mark.slow)
        for shape in SHAPES
        for name, rows, quick in (
            ("few", FEW, shape.kind is not T.Q4_K),
            ("many", MANY, False),
        )
    ],
)
def test_heads_behind_products(backend: AmdBackend, shape: Shape, rows: Sequence[tuple[list[int], list[int]]]) -> None:
    case = projected(shape, rows)
    check(backend, case, expected(case))
    found = kernels(case.graph, case.sizes)
    kind = ("" if shape.kind.quantized else "_float") + ("_bias" if shape.bias else "")
    products = [f"matvec{kind}_heads"] * (2 if shape.one else 3)
    assert found == [*["quantize"] * shape.kind.quantized, *products, "attention", "matvec"]


def test_heads_of_no_whole_workgroups_have_a_dispatch() -> None:
    """Twelve elements are no multiple of the eight rows of a workgroup; a row that others read stays as it is."""
    net, rng = Net(3, n_ctx=N_CTX), np.random.default_rng(1)
    x, positions, turns = net.rows("x", 64), net.indices("positions", "n_rows"), net.table(table(rng, 4))
    for dim, also in ((12, False), (16, True)):
        y, matrix = net.temp(2 * dim), net.matrix(T.Q8_0, packed_rows(T.Q8_0, rng, 2 * dim, 64))
        net.node(Op.MATMUL, [x, matrix], [y])
        net.node(
            Op.ROPE, [y, positions, turns], [net.out(f"y{dim}", 2 * dim)], n_heads=2, head_dim=dim, interleaved=False
        )
        if also:
            net.node(Op.RESIDUAL_ADD, [y, y], [net.out("twice", 2 * dim)])
    found = kernels(net.b.build(), net.sizes)
    assert sorted(found) == ["add", "heads", "heads", "matvec", "matvec", "quantize"]

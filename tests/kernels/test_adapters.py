"""The two products of an adapter: values, and every backend alike, with other adapters for each row."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.cpu.both import BEST_AND_LEAST, Case, Net, Step, check, expected
from tests.backends.cpu.hostile import ordinary, rows
from zinc_rt.ir.graph import BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.adapters import in_tiles

N_IN, N_OUT, N_VOCAB, USED, EXPERTS, DEPTH = 80, 150, 11, 2, 5, 2
RANKS = ((3, 0, 40), (16, 5, 33))
"""By pair and adapter; 0: the adapter has no such pair."""


def kept(net: Net, name: str, values: np.ndarray, dtype: DType) -> int:
    net.constants[name] = in_tiles(values.astype(np.float16 if dtype is DType.F16 else np.float32))
    return net.b.buffer(name, BufferKind.CONSTANT, dtype, net.constants[name].shape)


def columns(tiles: np.ndarray) -> np.ndarray:
    """A matrix as rows again."""
    return tiles.swapaxes(0, 1).reshape(tiles.shape[1], -1)


@cache
def adapted(kind: str, room: int = 48, dtype: DType = DType.F32, n_rows: int = 9, tame: bool = False) -> Case:
    """Two pairs that read the same rows, and one step of many rows, one of one row, one without any adapter."""
    rng = np.random.default_rng(room)
    net = Net(n_rows, n_logits=n_rows)
    n_adapters = len(RANKS[0])
    table = np.zeros((2, n_adapters, 2), np.float32)
    table[:, :, 0] = np.minimum(RANKS, room)
    table[:, :, 1] = rng.standard_normal((2, n_adapters))
    pairs = net.b.buffer("pairs", BufferKind.CONSTANT, DType.F32, table.shape)
    net.constants["pairs"] = table
    experts = (EXPERTS,) if kind in ("experts", "down") else (USED,) if kind == "parts" else ()
    n = N_VOCAB if kind == "lookup" else N_IN
    a = kept(net, "a", rng.standard_normal((n_adapters, *experts, n, 2 * room)) / 8, dtype)
    listed = net.b.buffer("adapters", BufferKind.INPUT, DType.I32, ("n_rows", DEPTH))
    scales = net.b.buffer("scales", BufferKind.INPUT, DType.F32, ("n_rows", DEPTH))
    widths = {"x": N_IN * (USED if kind in ("down", "parts") else 1)}
    more_a, more_b, attrs, first = [], [], {}, "n_rows"
    if kind == "lookup":
        x, attrs_a = net.indices("token_ids", "n_rows"), {"lookup": True}
    else:
        x, attrs_a = net.rows("x", widths["x"]), {}
    if kind == "wanted":
        more_a = more_b = [net.indices("logit_rows", "n_logits")]
        attrs, first = {"wanted": True}, "n_logits"
    if experts:
        attrs = {"n_used": USED}
        if kind != "parts":
            ids = net.b.buffer("ids", BufferKind.INPUT, DType.I32, ("n_rows", USED))
            more_a, more_b = [ids], [ids]
        if kind == "down":
            widths["weights"] = USED
            more_b = [ids, net.rows("weights", USED)]
    shape = (first, *((USED,) if experts else ()), DEPTH, 2 * room)
    t = net.b.buffer("t", BufferKind.TEMP, DType.F32, shape)
    net.node(Op.LORA_A, [x, a, pairs, listed, *more_a], [t], pair=0, n_pairs=2, **attrs, **attrs_a)
    for pair in range(2):
        b = kept(net, f"b{pair}", rng.standard_normal((n_adapters, *experts, room, N_OUT)) / 8, dtype)
        width = N_OUT * (USED if kind in ("experts", "parts") else 1)
        widths[f"y{pair}"] = width
        base = net.rows(f"y{pair}", width, first)
        out = net.out(f"out{pair}", width, first)
        inputs = [base, t, b, pairs, listed, scales, *more_b]
        net.node(Op.LORA_B, inputs, [out], pair=pair, start=pair * room, **attrs)
    steps = []
    for n, some in ((n_rows, True), (1, True), (2, False)):
        given = {name: (ordinary if tame else rows)(rng, n, width) for name, width in widths.items()}
        lists = np.sort(np.array([rng.permutation(n_adapters)[:DEPTH] for _ in range(n)]))
        lists[::3, 1] = -1
        lists[1::4] = -1
        given["adapters"] = lists if some else np.full_like(lists, -1)
        given["scales"] = rng.standard_normal((n, DEPTH)).astype(np.float32)
        given["token_ids"] = rng.integers(N_VOCAB, size=n)
        given["logit_rows"] = rng.permutation(n)
        given["ids"] = np.array([rng.permutation(EXPERTS)[:USED] for _ in range(n)])
        names = {b.name for b in net.b._buffers if b.kind is BufferKind.INPUT}
        steps.append(Step(n, {name: given[name] for name in names}, n))
    return net.case(steps)


def test_values() -> None:
    """The reference against float64."""
    case = adapted("plain", tame=True)
    step, got = case.steps[0], expected(case)[0]
    table = case.constants["pairs"].astype(float)
    for pair in range(2):
        want = np.float64(step.inputs[f"y{pair}"])
        for row in range(step.n_rows):
            for adapter, scale in zip(step.inputs["adapters"][row], step.inputs["scales"][row], strict=True):
                if adapter >= 0:
                    rank = int(table[pair, adapter, 0])
                    t = (
                        np.float64(step.inputs["x"][row])
                        @ columns(case.constants["a"][adapter])[:, pair * 48 :][:, :rank]
                    )
                    want[row] += (
                        scale
                        * table[pair, adapter, 1]
                        * (t @ columns(case.constants[f"b{pair}"][adapter])[:rank, :N_OUT])
                    )
        found = got[f"out{pair}"].view(np.float32)
        assert np.abs(found - want).max() < 1e-4 * np.abs(want).max()
        assert np.abs(want - step.inputs[f"y{pair}"]).max() > 1  # there is something to see


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize(
    ("kind", "room", "dtype"),
    [
        ("plain", 48, DType.F32), ("plain", 16, DType.F16), ("wanted", 48, DType.F16), ("lookup", 48, DType.F32),
        ("experts", 48, DType.F32), ("down", 48, DType.F16),
        ("parts", 16, DType.F32),
    ],
)  # fmt: skip
def test_cpu(kind: str, room: int, dtype: DType, isa: str) -> None:
    case = adapted(kind, room, dtype)
    for threads in (1, 3):
        check(case, expected(case), isa, threads)


@pytest.mark.parametrize("kind", ["plain", "wanted", "lookup", "experts", "down", "parts"])
def test_gpu(kind: str) -> None:
    with amd_backend() as (backend, _):
        case = adapted(kind, 48, DType.F16 if kind in ("wanted", "down") else DType.F32, 3)
        check_gpu(backend, case, expected(case))

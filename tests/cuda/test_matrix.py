"""Products of many rows by NVIDIA's matrix instruction, which `matrix` makes of its documents: the reference's bits."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.both import assert_same
from tests.backends.cpu.test_whole_models import SPECS
from tests.cuda import opencl_cpu
from tests.cuda.stage import cuda_backend, cuda_engine
from tests.helpers import engine_for, random_tokens, run_tokens, write_model
from tests.kernels import material as m
from tests.kernels.gpu.stage import same
from tests.kernels.gpu.test_many_rows import MANY, SHAPES
from tests.kernels.gpu.test_matvec import expected
from tests.lang import gpu_kernels
from tests.models.families import CASES
from tests.models.families.build import write_case
from zinc_rt.backends.gpu import driver_backend
from zinc_rt.backends.gpu.selftest import SelfTest
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.ops.elementwise import add_rows
from zinc_rt.kernels.gpu import block_experts, block_tiles
from zinc_rt.kernels.gpu.catalogue import DECODE, KernelEntry, arrange_experts, block_expert_tiles, block_tile
from zinc_rt.kernels.gpu.expert_lists import TILE_ROWS, TILE_SLAB, VISITS, slabs_in_tile, tiles_of
from zinc_rt.kernels.gpu.tile_layout import SLAB_BYTES, SLAB_ROWS, slabs_of
from zinc_rt.kernels.reference.matmul import Weight, matmul
from zinc_rt.lang.frontend import Spec

QUANTIZED = [kind for kind in MANY if GGMLType[kind] not in m.FLOATS]
SOME = [kind if kind == "Q4_0" else pytest.param(kind, marks=pytest.mark.slow) for kind in QUANTIZED]
"""Halves with sums (Q2_K), halves (Q6_K), minima (Q4_K) and none: the forms of `block_tile_values`."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.fixture(autouse=True, scope="module")
def processor() -> None:
    """Skips where kernels cannot run."""
    opencl_cpu.device()


def run(entry: KernelEntry | Spec, groups: tuple[int, int, int], *arguments: Any) -> None:
    spec = entry if isinstance(entry, Spec) else entry.spec
    raw = [struct.pack("<Q", a.ctypes.data) if isinstance(a, np.ndarray) else struct.pack("<I", a) for a in arguments]
    opencl_cpu.run(spec, groups, raw)


def test_the_instruction(rng: np.random.Generator) -> None:
    """Against a product of matrices; both shapes."""
    rows, columns = (rng.integers(-128, 128, (n, 48), np.int8) for n in (16, 8))
    start = rng.integers(-1000, 1000, (16, 8), np.int32)
    x, y = np.zeros((32, 16), np.int32), np.zeros((32, 4), np.int32)
    for lane in range(32):
        g, t = divmod(lane, 4)
        x[lane, :4] = start[[g, g, g + 8, g + 8], [2 * t, 2 * t + 1, 2 * t, 2 * t + 1]]
        for number, k in enumerate((0, 16, 32)):
            place = slice(k + 4 * t, k + 4 * t + 4)
            a, b = ((4, 8), (6, 9), (12, 14))[number]
            x[lane, a], x[lane, a + 1] = (rows[r, place].copy().view(np.int32)[0] for r in (g, g + 8))
            x[lane, b] = columns[g, place].copy().view(np.int32)[0]
    run(Spec(gpu_kernels.both_mma), (1, 1, 1), x, y)
    want = start + rows.astype(np.int32) @ columns.astype(np.int32).T
    for lane in range(32):
        g, t = divmod(lane, 4)
        assert (y[lane].reshape(2, 2) == want[[g, g + 8], 2 * t : 2 * t + 2]).all()


@pytest.mark.parametrize("kind", SOME)
def test_many_rows(rng: np.random.Generator, kind: str) -> None:
    of = GGMLType[kind]
    for groups, n_rows, n_x in SHAPES:
        n = 32 * groups
        x, w = m.activations(rng, n_x, n), m.packed_rows(of, rng, n_rows, n)
        bias, y = m.activations(rng, 1, n_rows)[0].copy(), np.full((n_x + 1, n_rows), 55, np.float32)
        slabs = np.full(-(-n_x // SLAB_ROWS) * slabs_of(groups) * SLAB_BYTES, 77, np.uint8)
        run(DECODE["arrange"], (slabs_of(groups), -(-n_x // SLAB_ROWS), 1), *expected(x), slabs, groups, n_x)
        tiles = -(-n_x // block_tiles.TILE_X), -(-n_rows // block_tiles.TILE_W), 1
        more = (bias, y) if MANY[kind] else (y,)
        run(block_tile(kind, bias=MANY[kind]), tiles, w, slabs, *more, groups, n_rows, n_x)
        want = matmul(x, Weight.from_raw(of, w))
        assert same(y[:n_x], add_rows(want, bias) if MANY[kind] else want), (groups, n_rows, n_x)
        assert (y[n_x] == 55).all()


@pytest.mark.slow  # by default the same kernel runs on the emulated AMD card, and the instruction in the tiles above
@pytest.mark.parametrize("kind", QUANTIZED)
def test_experts(rng: np.random.Generator, kind: str) -> None:
    """Of which one has more rows than a tile, some a few and one none."""
    of, groups, n_rows, n_x, k, n_experts = GGMLType[kind], 40, 130, 50, 2, 5
    ids = np.stack([np.zeros(n_x, np.uint32), rng.integers(1, n_experts - 1, n_x, np.uint32)], axis=1)
    ids[7] = 2, 1
    x, w = m.activations(rng, n_x, 32 * groups), m.packed_rows(of, rng, n_experts * n_rows, 32 * groups)
    pairs, tiles = n_x * k, tiles_of(n_x * k, n_experts)
    rows, places, table = np.zeros(pairs, np.uint32), np.zeros(pairs, np.uint32), np.zeros((tiles, 4), np.uint32)
    run(DECODE["expert_lists"], (n_experts, 1, 1), ids, rows, places, table, pairs, k)
    slabs = np.full(tiles * slabs_in_tile(groups) * TILE_SLAB, 77, np.uint8)
    across = (tiles, slabs_in_tile(groups) // VISITS, 1)
    run(arrange_experts(gather=True), across, *expected(x), rows, table, slabs, groups)
    y, entry = np.full((pairs, n_rows), 55, np.float32), block_expert_tiles(kind, bias=False)
    run(entry, (tiles, -(-n_rows // block_experts.TILE_W), 1), w, slabs, table, y, groups, n_rows)
    assert (table[:, 2] <= TILE_ROWS).all()
    for pair, expert in enumerate(ids.reshape(-1)):
        own = w[expert * n_rows : (expert + 1) * n_rows]
        assert same(y[places[pair]], matmul(x[pair // k : pair // k + 1], Weight.from_raw(of, own))[0]), pair


def test_how_far_the_driver_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers compile for a while: lines say so."""
    monkeypatch.setattr(driver_backend, "_TELL_AGAIN", -1.0)
    lines: list[str] = []
    with cuda_backend(notify=lines.append) as (backend, _):
        SelfTest(backend)
    built = [line for line in lines if line.startswith("the driver has built ")]
    assert built[0].startswith("the driver has built 1 of ")
    assert len(built) == int(built[-1].split()[-2])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3-q8_0", "qwen3moe"])
def test_a_prompt(name: str, tmp_path: Path) -> None:
    """In a step of many rows, then a few more tokens: the reference's logits."""
    if name in SPECS:
        path = write_model(tmp_path / "model.gguf", replace(SPECS[name], n_layers=1)).path
    else:
        path = write_case(tmp_path / "model.gguf", CASES[name], GGMLType.Q8_0).path
    tokens = random_tokens(1, 27, 61)
    with engine_for(path, n_ctx=32, n_batch=24, kernels="reference") as engine:
        want = run_tokens(engine, engine.open_sequence(), tokens, 24)
    with cuda_engine(path, n_ctx=32, n_batch=24) as (engine, fake):
        got = run_tokens(engine, engine.open_sequence(), tokens, 24)
        assert any(name.startswith(("block_tile", "block_expert_tiles")) for name in fake.launched)
    assert_same(got.view(np.uint32), want.view(np.uint32), "cuda")

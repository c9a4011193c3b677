"""Products of many rows by NVIDIA's matrix instruction, which `matrix` makes of its documents: the reference's bits."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tests.cuda import opencl_cpu
from tests.kernels import material as m
from tests.kernels.gpu.stage import same
from tests.kernels.gpu.test_many_rows import MANY, SHAPES
from tests.kernels.gpu.test_matvec import expected
from tests.lang import gpu_kernels
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


@pytest.mark.parametrize("kind", SOME)
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

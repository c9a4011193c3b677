"""Products of many rows of activations on the emulated shader core: the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import material as m
from tests.kernels.gpu.stage import MANY, Stage, kernel_of, many_rows, same
from tests.kernels.gpu.test_matvec import expected
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.ops.elementwise import add_rows
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu import block_tiles, float_tiles
from zinc_rt.kernels.gpu.tile_layout import SLAB_BYTES, SLAB_ROWS, slabs_of
from zinc_rt.kernels.reference.matmul import Weight, matmul

SHAPES = ((8, 3, 1), (40, 130, 20), (72, 40, 140))
"""Groups of 32 (of 4, for floats), rows of weights, rows of activations: lanes without a group, with one or two, with
two or three; less than a tile, more than one.
"""


def product(gpu: Stage, kind: GGMLType, w: np.ndarray, x: np.ndarray, n_rows: int, bias: np.ndarray) -> np.ndarray:
    """By the kernels for many rows; there is one row too many, which none may touch."""
    entry, (n_x, n) = many_rows(kind.name, bias=MANY[kind.name]), x.shape
    y = np.full((n_x + 1, n_rows), 55, np.float32)
    more = (bias, y) if MANY[kind.name] else (y,)
    if kind in m.FLOATS:
        tiles = -(-n_x // float_tiles.TILE_X), -(-n_rows // float_tiles.TILE_W)
        gpu.run(entry, tiles, w, x, *more, n, n_rows, n_x)
    else:
        groups = n // 32
        slabs = np.full(-(-n_x // SLAB_ROWS) * slabs_of(groups) * SLAB_BYTES, 77, np.uint8)
        gpu.run(KERNELS["arrange"], (slabs_of(groups), -(-n_x // SLAB_ROWS)), *expected(x), slabs, groups, n_x)
        tiles = -(-n_x // block_tiles.TILE_X), -(-n_rows // block_tiles.TILE_W)
        gpu.run(entry, tiles, w, slabs, *more, groups, n_rows, n_x)
    assert (y[n_x] == 55).all()
    return y[:n_x]


# Floats have many rows by default in `tests/backends/amdgpu/test_models.py`.
@pytest.mark.parametrize(
    "kind", [kind if kind == "Q4_K" else pytest.param(kind, marks=pytest.mark.slow) for kind in MANY]
)
def test_many_rows(gpu: Stage, rng: np.random.Generator, kind: str) -> None:
    """Of ordinary numbers, of ones at the edge of what floats hold, and of what is no number."""
    of = GGMLType[kind]
    for (groups, n_rows, n_x), scales in zip(SHAPES, (m.WILD_F16, m.FINITE_F16, None), strict=True):
        n = 4 * groups - 11 if of in m.FLOATS else 32 * groups  # floats have no groups
        x = m.activations(rng, n_x, n)
        if scales is not None:
            x = m.adversarial_activations(rng, n_x, n, finite=scales is m.FINITE_F16)
        if of in m.FLOATS:
            numbers = m.activations(rng, n_rows, n)
            if scales is not None:
                numbers = m.adversarial_activations(rng, n_rows, n, finite=scales is m.FINITE_F16)
            w = np.ascontiguousarray(m.float_rows(of, numbers))
        else:
            w = m.packed_rows(of, rng, n_rows, n) if scales is None else m.adversarial_rows(of, rng, n_rows, n, scales)
        bias = m.activations(rng, 1, n_rows)[0].copy()
        with np.errstate(all="ignore"):
            want = matmul(x, Weight(of, w, n) if of in m.FLOATS else Weight.from_raw(of, w))
            want = add_rows(want, bias) if MANY[kind] else want
        assert same(product(gpu, of, w, x, n_rows, bias), want), (groups, n_rows, n_x)


@pytest.mark.slow  # of this compiler
@pytest.mark.parametrize("kind", [kind for kind in MANY if GGMLType[kind] not in m.FLOATS])
def test_registers_of_matrix_instructions(kind: str) -> None:
    """Nothing is spilled, and two workgroups fit: one multiplies while the other waits for memory."""
    kernel = kernel_of(many_rows(kind, bias=MANY[kind]))
    assert kernel.scratch_bytes == 0
    assert kernel.occupancy >= (4 if kind == "Q2_K" else 8)

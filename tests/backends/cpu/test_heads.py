"""What happens to heads between their projection and attention: norm, rotation, the way into the cache."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.backends.cpu.both import Case, Net, Outputs, Step, check, expected, on_levels
from tests.backends.cpu.hostile import hostile, ordinary, rows
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op

N_CTX = 40
# head_dim, rotated pairs, whether neighbours turn together, heads
ROPES = (
    (16, 8, False, 2), (16, 8, True, 3), (64, 16, False, 1), (64, 20, True, 2), (80, 40, False, 5), (96, 3, True, 1),
    (24, 1, False, 2), (128, 64, True, 3), (256, 128, False, 1), (40, 5, False, 4),
)  # fmt: skip

BLOCKS = ((64, 20, True, 2), (32, 3, True, 1), (32, 16, False, 3))


def table(rng: np.random.Generator, pairs: int) -> np.ndarray:
    """Cosines and sines, and nonsense for the last position."""
    angles = rng.uniform(0, 1000, (N_CTX, pairs))
    out = np.stack([np.cos(angles), np.sin(angles)], axis=2).astype(np.float32)
    out[-1] = hostile(rng, pairs, 2, finite=False)
    return out


def steps(rng: np.random.Generator, width: int) -> list[Step]:
    return [
        Step(n, {"x": rows(rng, n, width), "positions": np.append(rng.integers(0, N_CTX, n - 1), N_CTX - 1)})
        for n in (1, 7, 3)
    ]


@cache
def rope(dim: int, pairs: int, interleaved: bool, heads: int) -> Case:
    """A rotation, a norm with a rotation after it, and a norm alone."""
    rng = np.random.default_rng(dim + pairs)
    net = Net(7, n_ctx=N_CTX, n_pages=3)
    x, positions, turns = net.rows("x", heads * dim), net.indices("positions", "n_rows"), net.table(table(rng, pairs))
    normed = net.temp(heads * dim)
    shape = {"n_heads": heads, "head_dim": dim}
    weight = net.vector(ordinary(rng, 1, dim)[0])
    net.node(Op.ROPE, [x, positions, turns], [net.out("turned", heads * dim)], interleaved=interleaved, **shape)
    net.node(Op.RMS_NORM, [x, weight], [normed], eps=1e-6, **shape)
    net.node(Op.ROPE, [normed, positions, turns], [net.out("both", heads * dim)], interleaved=interleaved, **shape)
    net.node(Op.RMS_NORM, [x, weight], [net.out("normed", heads * dim)], eps=0.0, **shape)
    return net.case(steps(rng, heads * dim))


@cache
def cached(dim: int, pairs: int, interleaved: bool, heads: int, kv: DType = DType.F16) -> Case:
    """Norm and rotation on the way into the cache, read back by attention; values go in as they are or normed too."""
    rng = np.random.default_rng(dim + pairs)
    net = Net(7, n_ctx=N_CTX, n_slots=2, n_pages=6)
    width = heads * dim
    k, v, q, turns = net.rows("k", width), net.rows("v", width), net.rows("q", width), net.table(table(rng, pairs))
    where = net.where()
    normed, turned = net.temp(width), net.temp(width)
    shape = {"n_heads": heads, "head_dim": dim}
    net.node(Op.RMS_NORM, [k, net.vector(ordinary(rng, 1, dim)[0])], [normed], eps=1e-6, **shape)
    net.node(Op.ROPE, [normed, where[0], turns], [turned], interleaved=interleaved, **shape)
    if pairs % 2:
        values = net.temp(width)
        net.node(Op.RMS_NORM, [v, net.vector(ordinary(rng, 1, dim)[0])], [values], eps=1e-6, **shape)
        v = values
    caches = net.caches(heads, dim, dtype=kv)
    net.node(Op.KV_WRITE, [turned, v, *where], caches, n_kv_heads=heads, head_dim=dim)
    net.node(Op.FLASH_ATTN, [q, *caches, *where], [net.out("y", width)], scale=dim**-0.5, n_kv_heads=heads, **shape)
    pages = np.array([[4, 0, 2], [1, 5, 3]])
    made = []
    for positions, slots in (([0, 1, 2, 0], [0, 0, 0, 1]), ([3, 1], [0, 1]), ([4, 2, 3, 5, 6], [0, 1, 1, 0, 0])):
        n = len(positions)
        inputs = {name: rows(rng, n, width) for name in ("k", "v", "q")}
        made.append(
            Step(n, {**inputs, "positions": np.array(positions), "slots": np.array(slots), "page_table": pages})
        )
    return net.case(made)


@cache
def wanted(kind: str, shape: tuple[int, int, bool, int], kv: DType = DType.F16) -> Outputs:
    return expected(cached(*shape, kv) if kind == "cached" else rope(*shape))


@pytest.mark.parametrize(("shape", "isa"), on_levels(ROPES, [ROPES[i] for i in (3, 6)], [ROPES[i] for i in (3, 6, 9)]))
def test_norm_and_rotation(shape: tuple[int, int, bool, int], isa: str) -> None:
    for threads in (1, 3):
        check(rope(*shape), wanted("rope", shape), isa, threads)


@pytest.mark.parametrize(("shape", "isa"), on_levels(ROPES[:4], ROPES[3:4], ROPES[3:4]))
def test_into_the_cache(shape: tuple[int, int, bool, int], isa: str) -> None:
    for threads in (1, 2, 4):
        check(cached(*shape), wanted("cached", shape), isa, threads)


@pytest.mark.parametrize(("shape", "isa"), on_levels(BLOCKS, BLOCKS[1:2], BLOCKS[1:2]))
def test_into_a_cache_of_blocks(shape: tuple[int, int, bool, int], isa: str) -> None:
    for threads in (1, 4):
        check(cached(*shape, DType.Q8_0), wanted("cached", shape, DType.Q8_0), isa, threads)

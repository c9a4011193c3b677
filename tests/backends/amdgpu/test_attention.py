"""Attention on the emulated GPU: windows, soft caps, sinks, values of another width, keys that are values, too; and the
products of heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pytest

from tests.backends.amdgpu.stage import amd_backend, check
from tests.backends.attention_cases import Shape, add_nodes, build
from tests.backends.cpu.both import LEVELS, Net, expected, native, outputs
from tests.backends.cpu.test_heads import BLOCKS, cached
from tests.backends.grouped_cases import SHAPES as GROUPED
from tests.backends.grouped_cases import grouped
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.gpu.lowering import GpuLowering
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op

CONTEXTS = (530, 40)
STEPS = {
    "edges": [(0, 254), (0, 255), (0, 256), (0, 257), (0, 511), (0, 512), (0, 513)],
    "mixed": [(1, 0), (0, 300), (1, 1), (1, 17), (1, 39), (0, 15), (0, 16)],
    "deep": [(0, 529)],
}
SINKS = (0.5, math.nan, math.inf, -math.inf)
FEW = {
    "edges": [(0, 254), (0, 256), (0, 512)],
    "mixed": [(1, 0), (0, 300), (1, 17), (1, 39)],
}
"""Positions on both sides of a split, two splits, and rows of two sequences."""
SHAPES = {
    "plain": Shape(16, 2, 1),
    "window 1": Shape(16, 1, 1, window=1),
    "window 16": Shape(16, 2, 1, window=16, sinks=(1.0, -1.0)),
    "window 255": Shape(16, 1, 2, window=255),
    "window 256": Shape(24, 4, 1, window=256, sinks=SINKS),
    "chunks": Shape(16, 2, 1, chunk=256, sinks=(1.0, -1.0)),
    "window 257": Shape(16, 1, 1, window=257, softcap=30.0),
    "sinks": Shape(32, 2, 2, sinks=SINKS),
    "soft cap": Shape(16, 3, 1, softcap=50.0),
    "wider keys": Shape(24, 2, 1, value_dim=16),
    "wider values": Shape(16, 1, 2, value_dim=40, window=40),
    "latent": Shape(40, 4, 1, rope=8),
    "latent with all": Shape(48, 3, 1, rope=16, window=100, softcap=20.0, sinks=SINKS[:3]),
    "read by products": Shape(32, 4, 1, window=257, sinks=(0.5, math.nan, 2.0, -math.inf), product=True),
    "latent, read by products": Shape(80, 2, 1, rope=16, product=True),
    "blocks": Shape(64, 3, 2, kv=DType.Q8_0),
    "blocks, window, sinks, read by products": Shape(
        32, 4, 1, window=257, sinks=SINKS, value_dim=64, product=True, kv=DType.Q8_0
    ),
    "blocks, wild, soft cap": Shape(32, 1, 2, softcap=30.0, window=16, kv=DType.Q8_0),
    "latent blocks": Shape(96, 5, 1, rope=32, window=100, kv=DType.Q8_0),  # heads in two turns
}


@pytest.fixture(scope="module")
def backend() -> Iterator[AmdBackend]:
    with amd_backend() as (made, _):
        yield made


SOON = (
    "window 257",
    "blocks, window, sinks, read by products",
    "latent blocks",
)
"""Halves with a soft cap; blocks, apart and latent; the others, and more steps, are slow tests."""


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        *(pytest.param(name, FEW, id=f"{name}, few") for name in SOON),
        *(pytest.param(name, STEPS, id=name, marks=pytest.mark.slow) for name in SHAPES),
    ],
)
def test_attention(backend: AmdBackend, name: str, steps: Mapping[str, list[tuple[int, int]]]) -> None:
    how = ("ordinary", "hostile", "wild")[list(SHAPES).index(name) % 3]
    case = build(SHAPES[name], CONTEXTS, steps, how)
    check(backend, case, expected(case))


@pytest.mark.parametrize("shape", BLOCKS, ids=str)
def test_heads_into_a_cache_of_blocks(backend: AmdBackend, shape: tuple[int, int, bool, int]) -> None:
    case = cached(*shape, DType.Q8_0)
    check(backend, case, expected(case))


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(
            shape,
            id=str(shape),
            marks=() if shape[0] in (GGMLType.F16, GGMLType.Q6_K) or shape[2] > 1024 else pytest.mark.slow,
        )
        for shape in GROUPED
    ],
)
def test_products_of_parts(backend: AmdBackend, shape: tuple[GGMLType, int, int, int]) -> None:
    case, _ = grouped(*shape, counts=(1, 2, 3, 9))
    check(backend, case, expected(case))


@pytest.mark.slow
@pytest.mark.parametrize("group", [16, 20, 32])
def test_latent_attention_as_models_have_it(backend: AmdBackend, group: int) -> None:
    case = build(Shape(576, group, 1, rope=64), (270,), {"deep": [(0, 269)], "first": [(0, 3)]}, "ordinary")
    check(backend, case, expected(case))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Shape(16, 1, 1, value_dim=12), "16 elements with values of 12; .* multiples of 8"),
        (Shape(64, 1, 1, value_dim=520), "values of 520; .* values up to 512"),
        (Shape(1032, 1, 1, rope=1000), "keys up to 1024"),
        (Shape(72, 33, 1, rope=8), "33 query heads to a key head.*up to 32"),
        (Shape(72, 33, 1), "33 query heads to a key head.*up to 32"),
    ],
)
def test_heads_that_the_kernels_cannot_do(shape: Shape, words: str) -> None:
    net = Net(1)
    add_nodes(net, shape)
    with pytest.raises(BackendError, match=words):
        GpuLowering(net.b.build(), net.sizes).run()


def test_keys_and_values_of_different_types() -> None:
    net = Net(1)
    sources, where = [net.rows(name, 32) for name in ("q", "k", "v")], net.where()
    caches = [net.cache(1, 32, dtype) for dtype in (DType.F16, DType.Q8_0)]
    net.node(Op.KV_WRITE, [*sources[1:], *where], caches, n_kv_heads=1, head_dim=32)
    out, shape = net.out("y", 32), {"n_heads": 1, "n_kv_heads": 1, "head_dim": 32}
    net.node(Op.FLASH_ATTN, [sources[0], *caches, *where], [out], scale=1.0, **shape)
    for lower in (GpuLowering(net.b.build(), net.sizes).run, lambda: outputs(native(LEVELS[0], 1), net.case([]))):
        with pytest.raises(BackendError, match="keys and values are f16 and q8_0"):
            lower()

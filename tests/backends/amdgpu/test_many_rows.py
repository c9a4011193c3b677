"""Steps of many rows have dispatches of their own, and memory for both ways."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.models.families import CASES
from tests.models.families.build import write_case
from zinc_rt.backends.base import Capacity
from zinc_rt.backends.gpu.lower import products
from zinc_rt.backends.gpu.lowering import GpuLowered, GpuLowering
from zinc_rt.backends.gpu.operations import MANY_ROWS, StepShape
from zinc_rt.backends.gpu.placement import arena_bytes, scheduled
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.ir.graph import Graph
from zinc_rt.kernels.gpu.tile_layout import SLAB_BYTES, SLAB_ROWS, slabs_of
from zinc_rt.models import define

TILES = {"block_tile", "arrange", "float_tile"}
SIZES = Capacity(40, 1, 64, 2, 4)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = write_case(tmp_path_factory.mktemp("models") / "dense.gguf", CASES["qwen3"], GGMLType.Q4_0).path
    with GGUFFile.open(path) as file:
        return define(file).graph


def both_ways(graph: Graph) -> GpuLowered:
    made = GpuLowering(graph, SIZES).run()
    made.take(GpuLowering(graph, SIZES, tiles=True).run())
    for way in made.ways:
        scheduled(way.operations)
    return made


def names(way: GpuLowered, layer: str, n_rows: int) -> Counter[str]:
    shape = StepShape(n_rows, 1, 1)
    return Counter(op.kernel(shape).spec.function.name for op in way.operations if op.name.startswith(layer))


def test_products_of_a_layer(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of blocks and one of floats; activations are laid out once for all that read them. None is left to the kernels
    for few rows, but where a matrix of floats has too few rows for tiles.
    """
    small = names(both_ways(graph).of(MANY_ROWS), "blk.1.", MANY_ROWS)
    assert {name: small[name] for name in small if name.startswith(("matvec", *TILES))} == {
        "arrange": 3,
        "block_tile": 6,
        "matvec_float_shared": 1,
    }
    monkeypatch.setattr(products, "FEW_FOR_TILES", 8)
    made = both_ways(graph)
    many = names(made.of(MANY_ROWS), "blk.1.", MANY_ROWS)
    assert {name: many[name] for name in sorted(TILES)} == {"arrange": 3, "block_tile": 6, "float_tile": 1}
    few = names(made.of(MANY_ROWS - 1), "blk.1.", MANY_ROWS - 1)
    assert not few.keys() & TILES
    assert not many.keys() & {name for name in few if name.startswith(("matvec", "gated_rows"))}


def test_memory_of_both_ways(graph: Graph) -> None:
    """Slabs are whole, and the arena has room for either way."""
    made = both_ways(graph)
    assert made.many_rows is not None
    slabs = {key: room for key, room in made.many_rows.rooms.items() if isinstance(key, tuple) and key[0] == "slabs"}
    width = int(graph.buffer(next(key[1] for key in slabs)).shape[1])
    room, slab = next(iter(slabs.values())), slabs_of(width // 32) * SLAB_BYTES
    assert room.size(SIZES) == -(-SIZES.n_rows // SLAB_ROWS) * slab
    assert room.size(StepShape(SLAB_ROWS + 1, 1, 1)) == 2 * slab
    alone = GpuLowering(graph, SIZES).run()
    scheduled(alone.operations)
    assert arena_bytes(graph, made, SIZES) >= max(
        arena_bytes(graph, alone, SIZES), sum(room.size(SIZES) for room in slabs.values()) // len(slabs)
    )
    assert {k.spec.symbol for k in made.kernels} > {k.spec.symbol for k in alone.kernels}

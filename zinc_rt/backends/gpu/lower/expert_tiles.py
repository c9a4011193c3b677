"""Routed feed-forwards in steps of many rows: the rows by their experts, and products by tiles of these."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from zinc_rt.backends.gpu.fusion import ExpertsDown, Gated
from zinc_rt.backends.gpu.lowering import FOUR, GpuLowering, pack_keys
from zinc_rt.backends.gpu.operations import StepShape, TempSpec, TileRoom
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu import block_experts, float_tiles
from zinc_rt.kernels.gpu.catalogue import (
    DECODE,
    arrange_experts,
    block_expert_tiles,
    float_expert_tiles,
    gate_kernels,
    sum_experts,
)
from zinc_rt.kernels.gpu.expert_lists import TILE_SLAB, TILE_WORDS, VISITS, slabs_in_tile, tiles_of
from zinc_rt.numerics import GROUP


def takes_tiles(low: GpuLowering, n: Gated) -> bool:
    """Whether a step's rows go through their experts by tiles: where nothing but the sum of the same experts reads what
    they make, which lies in the order of slots then.
    """
    if not low.tiles or n.ids is None or not low.fused.read_once(n.y):
        return False
    reader = low.fused.readers(n.y)[0]
    return reader.op is Op.MOE_DOWN_ACC and reader.inputs[:2] == (n.y, n.ids)


def gated_tiles(low: GpuLowering, n: Gated) -> None:
    """Gate, up and activation of the chosen experts, as `takes_tiles` says. Rows are slots (`expert_lists`)."""
    assert n.ids is not None
    assert n.up is not None
    width, made = low.width(n.y), []
    for weight, bias in ((n.gate, n.gate_bias), (n.up, n.up_bias)):
        y = low.room(("product", weight, n.node.id), "n_rows", width * 4)
        _product(low, n.node, n.x, n.ids, weight, bias, y.key, gather=True)
        made.append(y)
    packed = low.only_packed(n.y)
    results = low.packed(n.y, width) if packed else (low.at(n.y),)
    plain, quantized, _ = gate_kernels(n.activation)
    low.emit(
        n.node,
        quantized if packed else plain,
        lambda s: (-(-s.n_rows * width // FOUR),),
        (*made, *results, lambda s: s.n_rows * width, n.alpha, n.limit),
        "n_rows",
        tuple(y.key for y in made),
        tuple(place.key for place in results),
    )
    low.there.add(_slots(n.y))


def lies_in_slots(low: GpuLowering, act: int) -> bool:
    """Whether a buffer was made by `gated_tiles`."""
    return _slots(act) in low.there


def down_tiles(low: GpuLowering, n: ExpertsDown) -> None:
    """The weighted sum of the chosen experts, of what `gated_tiles` made."""
    assert n.shared is None
    width, k = low.width(n.y), low.width(n.ids)
    made = low.room(("product", n.weight, n.node.id), "n_rows", k * width * 4)
    _product(low, n.node, n.act, n.ids, n.weight, n.bias, made.key, gather=False)
    _, places, _ = _lists(low, n.node, n.ids, n.weight)
    low.emit(
        n.node,
        sum_experts(k),
        lambda s: (-(-width // 256), s.n_rows),
        (made, TempSpec(places), low.at(n.weights), low.at(n.y), width),
        "n_rows",
        (made.key, places, n.weights),
        (n.y,),
    )


def _slots(act: int) -> tuple[str, int]:
    return ("slots", act)


def _tiles(low: GpuLowering, ids: int, weight: int) -> Callable[[StepShape], int]:
    """Tiles of a step."""
    k, n_experts = low.width(ids), int(low.graph.buffer(weight).shape[0])
    return lambda s: tiles_of(s.n_rows * k, n_experts)


def _lists(low: GpuLowering, node: Node, ids: int, weight: int) -> tuple[Hashable, Hashable, Hashable]:
    """The names of a slot's row, a pair's slot and the tiles, made once for all products of the same choice."""
    rows, places, tiles = keys = ("rows of slots", ids), ("slots of pairs", ids), ("tiles", ids)
    if keys not in low.there:
        low.there.add(keys)
        k, n_experts = low.width(ids), int(low.graph.buffer(weight).shape[0])
        low.room(rows, "n_rows", k * 4)
        low.room(places, "n_rows", k * 4)
        low.out.rooms[tiles] = TileRoom("n_rows", TILE_WORDS * 4, tiles=lambda n: tiles_of(n * k, n_experts))
        low.emit(
            node,
            DECODE["expert_lists"],
            lambda s: (n_experts,),
            (low.at(ids), *map(TempSpec, keys), lambda s: s.n_rows * k, k),
            "n_rows",
            (ids,),
            keys,
        )
    return keys


def _slabs(low: GpuLowering, node: Node, x: int, ids: int, weight: int, *, gather: bool) -> Hashable:
    """Activations as matrix instructions read them, made once for all products that do: their name."""
    key = ("slabs of slots", x, ids)
    if key not in low.there:
        low.there.add(key)
        n_experts, _, n_in = (int(d) for d in low.graph.buffer(weight).shape)
        k, groups = low.width(ids), n_in // GROUP
        rows, _, tiles = _lists(low, node, ids, weight)
        packed = low.pack(node, x, n_in, "n_rows") if gather else pack_keys(x)
        number = _tiles(low, ids, weight)
        low.out.rooms[key] = TileRoom(
            "n_rows", slabs_in_tile(groups) * TILE_SLAB, tiles=lambda n: tiles_of(n * k, n_experts)
        )
        low.emit(
            node,
            arrange_experts(gather=gather),
            lambda s: (number(s), slabs_in_tile(groups) // VISITS),
            (*map(TempSpec, packed), TempSpec(rows), TempSpec(tiles), TempSpec(key), groups),
            "n_rows",
            (*packed, rows, tiles),
            (key,),
        )
    return key


def _product(
    low: GpuLowering, node: Node, x: int, ids: int, weight: int, bias: int | None, y: Hashable, *, gather: bool
) -> None:
    """Slots times the matrices of their experts. gather: x has the step's rows, else slots."""
    _, n_out, n_in = (int(d) for d in low.graph.buffer(weight).shape)
    quantized, number, k = low.quantized(node, weight), _tiles(low, ids, weight), low.width(ids)
    rows, _, tiles = _lists(low, node, ids, weight)
    kind, biased = low.format_of(node, weight), bias is not None
    extra = () if bias is None else (low.at(bias),)
    if quantized:
        slabs = _slabs(low, node, x, ids, weight, gather=gather)
        names, units, across = [slabs], n_in // GROUP, block_experts.TILE_W
        entry = block_expert_tiles(kind, bias=biased)
    else:
        low.at(x)
        names, units, across = [x, rows], n_in, float_tiles.TILE_W
        entry = float_expert_tiles(kind, bias=biased, gather=gather)
    low.emit(
        node,
        entry,
        lambda s: (number(s), -(-n_out // across)),
        (low.at(weight), *map(TempSpec, names), TempSpec(tiles), *extra, TempSpec(y), units, n_out),
        "n_rows",
        (*names, tiles),
        (y,),
        lambda s: s.n_rows * k * n_out * n_in,
    )

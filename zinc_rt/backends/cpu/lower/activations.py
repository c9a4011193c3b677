"""Rows of activations: embeddings, norms, sums, SwiGLU, and packing for the products that read them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from zinc_rt.backends.cpu.choice import PACK_CHUNK, SCALE_CHUNK
from zinc_rt.backends.cpu.lowering import CPU, CpuLowering, External
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Gate, NormRows, Single
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cpu import structs


@CPU.lowers(Op.EMBED)
def embed(low: CpuLowering, single: Single) -> None:
    """Rows of the file's table."""
    (ids, table), y = single.node.inputs, single.node.outputs[0]
    b = low.graph.buffer(table)
    width = int(b.shape[1])
    arguments = {
        "table": External("rows", b.name),
        "row_bytes": b.dtype.row_bytes(width),
        "y": low.at(y),
        "n": width,
        "ids": low.at(ids) if "per_row" in single.node.attrs else 0,
    }
    low.emit(
        single.node,
        "embed",
        low.choice.embed(b.dtype.ggml),
        structs.EmbedArgs,
        arguments,
        int(single.node.attrs.get("per_row", 1)),
        UnitsPer.ROWS,
        (ids,),
        (y,),
    )


@CPU.lowers(NormRows)
def norm(low: CpuLowering, n: NormRows) -> None:
    """The sum, its norm, and the norm packed for the products that read it."""
    products, by_logit = low.fused.products(n.y), n.logit_rows is not None
    plain = not products or low.fused.plain_needed(n.y) or (any(p.by_logit for p in products) and not by_logit)
    writes: list[Hashable] = [] if n.total is None else [n.total]
    arguments: dict[str, Any] = {
        "x": low.at(n.x), "residual": low.optional(n.residual), "weight": low.optional(n.weight),
        "total": low.optional(n.total), "n": low.width(n.y), "eps": n.eps, "by_logit": int(by_logit), "y": 0, "pack": 0,
        "residual_scale": 1.0 if n.residual_scale is None else n.residual_scale,
        "total_scale": 1.0 if n.total_scale is None else n.total_scale,
    }  # fmt: skip
    if plain:
        arguments["y"] = low.at(n.y)
        writes.append(n.y)
    if by_logit or any(not p.by_logit for p in products):
        place = low.pack_place(n.y, by_logit)
        arguments["pack"] = place
        writes.append(place.key)
    low.emit(
        n.node,
        "norm",
        low.choice.norm(),
        structs.NormArgs,
        arguments,
        1,
        UnitsPer.LOGITS if by_logit else UnitsPer.ROWS,
        n.sources,
        tuple(writes),
    )


@CPU.lowers(Op.RESIDUAL_ADD, Op.BIAS_ADD)
def add(low: CpuLowering, single: Single) -> None:
    """A sum of rows, or of rows and one vector."""
    (a, b), y = single.node.inputs, single.node.outputs[0]
    repeat = len(low.graph.buffer(b).shape) == 1
    arguments = {"a": low.at(a), "b": low.at(b), "y": low.at(y), "n": low.width(y), "repeat": int(repeat)}
    low.emit(single.node, "add", low.choice.add(), structs.AddArgs, arguments, 1, low.scale(y), (a, b), (y,))


@CPU.lowers(Op.SCALE, Op.SOFTCAP, Op.CLAMP, Op.POSITION_SCALE)
def scale(low: CpuLowering, single: Single) -> None:
    """Rows times a number, or times one of their position, or held under a bound or between two."""
    (x, *table), y, attrs = single.node.inputs, single.node.outputs[0], single.node.attrs
    function, key = {Op.SOFTCAP: ("softcap", "cap"), Op.CLAMP: ("clamp", "low")}.get(
        single.node.op, ("scale", "factor")
    )
    arguments = {"x": low.at(x), "y": low.at(y), "n": low.width(y), "number": attrs.get(key, 1.0)}
    if function == "clamp":
        arguments["high"] = attrs["high"]
    if table:
        arguments["factors"] = low.at(table[1])
    units = -(-low.width(y) // SCALE_CHUNK)
    low.emit(
        single.node, "scale", low.choice.scale(function), structs.ScaleArgs, arguments, units, low.scale(y), (x,),
        (y,),
    )  # fmt: skip


@CPU.lowers(Op.MUL, Op.SIGMOID_MUL)
def multiply(low: CpuLowering, single: Single) -> None:
    """A product of rows, or rows gated by others; b may have one element for each head."""
    (a, b), y, attrs = single.node.inputs, single.node.outputs[0], single.node.attrs
    by_head = "head_dim" in attrs
    arguments = {"a": low.at(a), "b": low.at(b), "y": low.at(y), "n": low.width(y), "dim": attrs.get("head_dim", 0)}
    kernel = low.choice.multiply(gated=single.node.op is Op.SIGMOID_MUL, heads=by_head)
    units = int(attrs["n_heads"]) if by_head else 1
    low.emit(single.node, "multiply", kernel, structs.MulArgs, arguments, units, low.scale(y), (a, b), (y,))


@CPU.lowers(Gate)
def gate(low: CpuLowering, n: Gate) -> None:
    """activation(gate) * up, packed for the products that read it."""
    if n.node.id in low.joined:
        return
    products = low.fused.products(n.y)
    arguments: dict[str, Any] = {
        "x": low.at(n.gate),
        "up": low.at(n.up, n.up_start),
        "up_n": low.width(n.up),
        "alpha": n.alpha,
        "limit": n.limit,
    }
    writes: list[Hashable] = []
    if low.fused.plain_needed(n.y) or any(p.by_logit for p in products):
        arguments["y"] = low.at(n.y)
        writes.append(n.y)
    if any(not p.by_logit for p in products):
        place = low.pack_place(n.y, by_logit=False)
        arguments["pack"] = place
        writes.append(place.key)
    width, operands = low.width(n.gate), (n.gate, n.up)
    _pack(low, n.node, "swiglu", arguments, width, operands, tuple(writes), by_logit=False, activation=n.activation)


def pack(low: CpuLowering, n: Node, x: int, *, by_logit: bool) -> None:
    """Pack rows of a buffer, or the wanted ones, for their products."""
    place = low.pack_place(x, by_logit)
    _pack(low, n, "pack", {"x": low.at(x), "pack": place}, low.width(x), (x,), (place.key,), by_logit=by_logit)


def _pack(
    low: CpuLowering, n: Node, kind: str, arguments: dict[str, Any], width: int, reads: tuple[Hashable, ...],
    writes: tuple[Hashable, ...], *, by_logit: bool, activation: str = "silu",
) -> None:  # fmt: skip
    low.emit(
        n, kind, low.choice.pack(activation), structs.PackArgs, {**arguments, "n": width, "by_logit": int(by_logit)},
        -(-width // PACK_CHUNK), UnitsPer.LOGITS if by_logit else UnitsPer.ROWS, reads, writes,
    )  # fmt: skip

"""Routed feed-forwards: the choice of experts, their products, the shared expert."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from zinc_rt.backends.fusion import ExpertGate, Single
from zinc_rt.backends.gpu.fusion import ExpertsDown, Gated, RouterProduct
from zinc_rt.backends.gpu.lower.expert_tiles import down_tiles, gated_tiles, lies_in_slots, takes_tiles
from zinc_rt.backends.gpu.lowering import ELSEWHERE, FOUR, GPU, GpuLowering
from zinc_rt.backends.gpu.operations import ArgumentBlock, TempSpec, block_of, blocks_of
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.gpu import catalogue
from zinc_rt.kernels.gpu.catalogue import (
    DECODE,
    choose_experts,
    expert_rows,
    experts_down,
    gated_experts,
    gated_rows,
)
from zinc_rt.kernels.gpu.down import GpuDownArgs
from zinc_rt.kernels.gpu.epilogue import GpuRouteArgs
from zinc_rt.kernels.gpu.experts import GpuExpertRowsArgs, GpuGatedArgs
from zinc_rt.kernels.gpu.router import MOST_CHOSEN, MOST_EXPERTS, MOST_GROUPS, GpuRouterArgs
from zinc_rt.numerics import GROUP

_PACKED = ("q", "d", "s")


@GPU.lowers(Op.MOE_GATE_TOPK)
def gate_topk(low: GpuLowering, single: Single) -> None:
    """The chosen experts of each row and their weights."""
    n = single.node
    n_experts, constants, block = _choice(low, n)
    entry = choose_experts(n_experts, **constants)
    low.emit(n, entry, lambda s: (s.n_rows,), (block,), "n_rows", (n.inputs[0],), n.outputs)


@GPU.lowers(RouterProduct)
def route(low: GpuLowering, n: RouterProduct) -> None:
    """The router's logits, and by its last workgroup the choice of experts."""
    n_experts, constants, choice = _choice(low, n.node)
    weight, bias, logits = n.product.weight, n.product.bias, n.node.inputs[0]
    width = int(low.graph.buffer(weight).shape[1])
    kind = low.format_of(n.node, weight)
    entries = {
        m: catalogue.route(kind, m, n_experts, router_bias=bias is not None, factor=n.factor is not None, **constants)
        for m in blocks_of(low.sizes.n_rows)
    }
    low.out.kernels += entries.values()
    block = ArgumentBlock(GpuRouteArgs, {
        "x": low.at(n.product.x), "w": low.at(weight), "router_bias": low.optional(bias),
        "counters": low.counters(n.node), "n": width, "n_rows": lambda s: s.n_rows, "factor": n.factor or 0.0,
    })  # fmt: skip
    low.emit(
        n.node,
        lambda s: entries[block_of(s.n_rows)],
        lambda s: (n_experts, -(-s.n_rows // block_of(s.n_rows))),
        (block, choice),
        "n_rows",
        (n.product.x, logits),
        (logits, *n.node.outputs),
        lambda s: s.n_rows * n_experts * width,
    )


def _choice(low: GpuLowering, n: Node) -> tuple[int, dict[str, Any], ArgumentBlock]:
    """Experts, the constants of the kernels that choose them, and their arguments. Raises `BackendError`."""
    attrs = attributes(n)
    by_token = bool(attrs.get("by_token"))
    _, bias, scale = (n.inputs[0], None, None) if by_token else (*n.inputs, None, None)[:3]
    (ids, weights), n_experts, k = n.outputs, low.width(n.inputs[0]), int(attrs["k"])
    groups, used = int(attrs["n_groups"]), int(attrs["n_groups_used"])
    for what, has, most in (("experts", n_experts, MOST_EXPERTS), ("experts of a row", k, MOST_CHOSEN)):
        if has > most:
            raise BackendError(f"node {n.name}: {has} {what}; the GPU kernels do up to {most}; {ELSEWHERE}")
    if used < groups and groups > MOST_GROUPS:
        raise BackendError(
            f"node {n.name}: {groups} groups of experts; the GPU kernels do up to {MOST_GROUPS}; {ELSEWHERE}"
        )
    block = ArgumentBlock(
        GpuRouterArgs,
        {
            "logits": low.at(n.inputs[0]),
            "bias": low.optional(bias),
            "expert_scale": low.optional(scale),
            "ids": low.at(ids),
            "weights": low.at(weights),
            "scale": float(attrs["scale"]),
            "token_ids": low.at(n.inputs[1]) if by_token else 0,
            "table": low.at(n.inputs[2]) if by_token else 0,
        },
    )
    constants = {
        "k": k,
        "gating": str(attrs["gating"]),
        "normalise": bool(attrs["normalise"]),
        "bias": bias is not None,
        "scaled": scale is not None,
        "groups": groups if used < groups else 1,
        "used": used if used < groups else 1,
        **({"by_token": True} if by_token else {}),
    }
    return n_experts, constants, block


def _activations(low: GpuLowering, n: Node, x: int, weight: int, width: int) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """What a product reads of its rows, by field of arguments and by name: as int8, or as floats."""
    if low.quantized(n, weight):
        keys = low.pack(n, x, width, "n_rows")
        return dict(zip(_PACKED, map(TempSpec, keys), strict=True)), keys
    return {"x": low.at(x)}, (x,)


def _experts(low: GpuLowering, weight: int) -> tuple[int, int, int]:
    """Experts, rows of a matrix, and their elements."""
    e, n_out, n_in = (int(d) for d in low.graph.buffer(weight).shape)
    return e, n_out, n_in


@GPU.lowers(ExpertGate)
def gate_up(low: GpuLowering, n: ExpertGate) -> None:
    """The two products of each chosen expert, apart, and their activation where it follows."""
    k, made = low.width(n.ids), []
    for weight, bias, y in ((n.gate, n.gate_bias, n.gated), (n.up, n.up_bias, n.upped)):
        _, n_out, n_in = _experts(low, weight)
        fields, keys = _activations(low, n.node, n.x, weight, n_in)
        place = low.room(("product", weight, n.node.id), "n_rows", k * n_out * 4) if y is None else low.at(y)
        block = ArgumentBlock(GpuExpertRowsArgs, {
            **fields, "w": low.at(weight), "bias": low.optional(bias), "ids": low.at(n.ids),
            "y": place, "n_in": n_in, "n_out": n_out, "k": k,
        })  # fmt: skip
        _rows_of_experts(low, n, (weight, bias), block, (*keys, n.ids), place.key)
        made.append(place)
    if n.y is not None:
        width = low.width(n.y)
        arguments = (*made, low.at(n.y))
        low.emit(
            n.node,
            DECODE["swiglu"],
            lambda s: (-(-s.n_rows * width // FOUR),),
            (*arguments, lambda s: s.n_rows * width, 0.0, 0.0),
            "n_rows",
            tuple(p.key for p in made),
            (n.y,),
        )


def _rows_of_experts(
    low: GpuLowering,
    n: ExpertGate,
    matrix: tuple[int, int | None],
    block: ArgumentBlock,
    reads: tuple[Hashable, ...],
    y: Hashable,
) -> None:
    """matrix: the experts' one and its bias."""
    _, n_out, n_in = _experts(low, matrix[0])
    k = low.width(n.ids)
    entry = expert_rows(low.format_of(n.node, matrix[0]), bias=matrix[1] is not None)
    low.emit(
        n.node,
        entry,
        lambda s: (s.n_rows, k, -(-n_out // 4)),
        (block,),
        "n_rows",
        reads,
        (y,),
        lambda s: s.n_rows * k * n_out * n_in,
    )


@GPU.lowers(Gated)
def gated(low: GpuLowering, n: Gated) -> None:
    """Gate, up and activation in one dispatch: of the chosen experts, of one pair of matrices, or of one, up given. Of
    many rows the chosen experts' are several dispatches, by tiles.
    """
    if takes_tiles(low, n):
        gated_tiles(low, n)
        return
    *_, n_ff, n_in = (int(d) for d in low.graph.buffer(n.gate).shape)
    kinds = low.format_of(n.node, n.gate), "" if n.up is None else low.format_of(n.node, n.up)
    fields, keys = _activations(low, n.node, n.x, n.gate, n_in)
    packed = n_ff % GROUP == 0 and low.only_packed(n.y)
    results: tuple[TempSpec, ...] = low.packed(n.y, low.width(n.y)) if packed else (low.at(n.y),)
    k = 1 if n.ids is None else low.width(n.ids)
    bias = n.gate_bias is not None
    block = ArgumentBlock(GpuGatedArgs, {
        **fields, "gate": low.at(n.gate), "up": low.optional(n.up),
        "gate_bias": low.optional(n.gate_bias),
        "up_bias": low.optional(n.up_bias), "ids": low.optional(n.ids),
        **dict(zip(("out_q", "out_d", "out_s") if packed else ("y",), results, strict=True)),
        "n_in": n_in, "n_ff": n_ff, "k": k, "alpha": n.alpha, "limit": n.limit,
        "given": low.optional(n.given), "width": 0 if n.given is None else low.width(n.given),
        "start": n.start,
    })  # fmt: skip
    how: dict[str, Any] = {"packed": packed, "bias": bias, "activation": n.activation}
    blocks, writes = -(-n_ff // GROUP), tuple(place.key for place in results)
    if n.ids is not None:
        low.emit(
            n.node,
            gated_experts(*kinds, **how),
            lambda s: (s.n_rows, k, blocks),
            (block,),
            "n_rows",
            (*keys, n.ids),
            writes,
            lambda s: 2 * s.n_rows * k * n_ff * n_in,
        )
        return
    entries = {m: gated_rows(*kinds, m, **how) for m in blocks_of(low.sizes.n_rows)}
    low.out.kernels += entries.values()
    low.emit(
        n.node,
        lambda s: entries[block_of(s.n_rows)],
        lambda s: (-(-s.n_rows // block_of(s.n_rows)), 1, blocks),
        (block,),
        "n_rows",
        keys if n.given is None else (*keys, n.given),
        writes,
        lambda s: (1 + (n.up is not None)) * s.n_rows * n_ff * n_in,
    )


class DownArguments(NamedTuple):
    """Of the chosen experts' sum: the constants of its kernel, its arguments, what they read, elements of a row of the
    result, and products and sums of a row.
    """

    constants: dict[str, Any]
    block: ArgumentBlock
    reads: tuple[Hashable, ...]
    n_out: int
    work: int


def down_arguments(low: GpuLowering, n: ExpertsDown) -> DownArguments:
    """What the kernels of the chosen experts' sum have in common."""
    _, n_out, n_in = _experts(low, n.weight)
    k = low.width(n.ids)
    fields, keys = _activations(low, n.node, n.act, n.weight, k * n_in)
    reads: tuple[Hashable, ...] = (*keys, n.ids, n.weights)
    values = {
        **fields,
        "w": low.at(n.weight),
        "bias": low.optional(n.bias),
        "ids": low.at(n.ids),
        "weights": low.at(n.weights),
        "y": low.at(n.y),
        "n_out": n_out,
    }
    shared, n_shared = "", 0
    if n.shared is not None:
        shared, n_shared = low.format_of(n.node, n.shared.weight), int(low.graph.buffer(n.shared.weight).shape[1])
        more, keys = _activations(low, n.shared.node, n.shared.x, n.shared.weight, n_shared)
        values |= {f"shared_{name}": value for name, value in more.items()} | {"shared_w": low.at(n.shared.weight)}
        reads = (*reads, *keys)
        if n.gate_logit is not None:
            values["gate_logit"] = low.at(n.gate_logit)
            reads = (*reads, n.gate_logit)
    constants = {
        "kind": low.format_of(n.node, n.weight),
        "k": k,
        "n_in": n_in,
        "bias": n.bias is not None,
        "shared": shared,
        "n_shared": n_shared,
        "gated": n.gate_logit is not None,
    }
    return DownArguments(constants, ArgumentBlock(GpuDownArgs, values), reads, n_out, n_out * (k * n_in + n_shared))


@GPU.lowers(ExpertsDown)
def down(low: GpuLowering, n: ExpertsDown) -> None:
    """The chosen experts' weighted sum, with the shared expert where there is one."""
    if lies_in_slots(low, n.act):
        down_tiles(low, n)
        return
    made = down_arguments(low, n)
    low.emit(
        n.node,
        experts_down(**made.constants),
        lambda s: (-(-made.n_out // 4), s.n_rows),
        (made.block,),
        "n_rows",
        made.reads,
        (n.y,),
        lambda s: s.n_rows * made.work,
    )


@GPU.lowers(Op.SHARED_EXPERT)
def shared_expert(low: GpuLowering, single: Single) -> None:
    """The sum of both, where it is no part of a product's dispatch."""
    n, y = single.node, single.node.outputs[0]
    width = low.width(y)
    arguments = tuple(map(low.at, n.inputs))
    if len(n.inputs) < 3:
        low.elements(n, "add", "n_rows", width, (*arguments, low.at(y)), n.inputs, (y,))
        return
    low.emit(
        n,
        DECODE["add_shared"],
        lambda s: (-(-width // 256), s.n_rows),
        (*arguments, low.at(y), width),
        "n_rows",
        n.inputs,
        (y,),
    )

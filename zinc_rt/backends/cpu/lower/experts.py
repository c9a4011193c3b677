"""Mixture of experts: choosing experts, their feed-forward, the shared expert."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from zinc_rt.backends.cpu.lower.activations import pack
from zinc_rt.backends.cpu.lowering import CPU, CpuLowering, ExpertChoice, External, QuantisedActs, RouteRef
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import ExpertDown, ExpertGate, Single
from zinc_rt.ir.graph import BufferKind, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.cpu import layout, structs
from zinc_rt.numerics import GROUP

_ACTIVATION: Mapping[str, Any] = {"activation": "silu", "alpha": 0.0, "limit": 0.0}
"""What follows the products where the fused node says so."""


@CPU.lowers(Op.MOE_GATE_TOPK)
def topk(low: CpuLowering, single: Single) -> None:
    """The experts of each row and their weights."""
    (logits, *given), (ids, weights) = single.node.inputs, single.node.outputs
    attrs = attributes(single.node)
    by_token = bool(attrs.get("by_token"))
    bias, scales = (None, None) if by_token else (*given, None, None)[:2]
    arguments = {
        "logits": low.at(logits),
        "bias": low.optional(bias),
        "expert_scale": low.optional(scales),
        "ids": low.at(ids),
        "weights": low.at(weights),
        "table": low.at(given[1]) if by_token else 0,
        "n_experts": low.width(logits),
        "normalise": int(attrs["normalise"]),
        **{name: attrs[name] for name in ("k", "n_groups", "n_groups_used", "scale")},
    }
    kernel = low.choice.topk(str(attrs["gating"]), low.width(logits))
    low.emit(single.node, "route", kernel, structs.TopkArgs, arguments, 1, UnitsPer.ROWS, (logits,), (ids, weights))


@CPU.lowers(ExpertGate)
def expert_gate(low: CpuLowering, given: ExpertGate) -> None:
    """Gate, up and activation, packed for the down products that read it."""
    n, attrs = _with_activation(low, given)
    gate, up = low.matrices[n.gate], low.matrices[n.up]
    route, choice = _route(low, n.node, n.ids, gate.count)
    key = ("pack", n.x, False)
    if key not in low.out.packs:
        pack(low, n.node, n.x, by_logit=False)
    rows = low.out.packs[key]
    slots = _gathered(low, n, route, choice, rows)
    results, writes = _results(low, n, choice, gate.n_out)
    arguments: dict[str, Any] = {
        "route": route, "pack": rows, "slots": slots, "gate": External("tiles", gate.name),
        "up": External("tiles", up.name), "gate_bias": low.optional(n.gate_bias), "up_bias": low.optional(n.up_bias),
        "gate_bytes": gate.tile_bytes, "up_bytes": up.tile_bytes, "n_out": gate.n_out, "alpha": attrs["alpha"],
        "limit": attrs["limit"], **results,
    }  # fmt: skip
    low.emit(
        n.node, "experts", low.choice.expert_gate_up(gate.kind, up.kind, str(attrs["activation"])),
        structs.ExpertGateArgs, arguments, -(-gate.n_out // GROUP), _jobs(low, choice),
        (rows.key, slots.key, route.key), writes,
        sum(low.matrices[w].n_bytes for w in {n.gate, n.up}) // choice.n_experts,  # a job's
    )  # fmt: skip


def _with_activation(low: CpuLowering, n: ExpertGate) -> tuple[ExpertGate, Mapping[str, Any]]:
    """The products with the activation that alone reads them, whichever it is, and its attributes."""
    if n.gated is None or n.upped is None:
        return n, _ACTIVATION
    readers = low.fused.readers(n.gated)
    apart = len(readers) != 1 or readers != low.fused.readers(n.upped) or readers[0].inputs != (n.gated, n.upped)
    kept = any(low.graph.buffer(b).kind is not BufferKind.TEMP for b in (n.gated, n.upped))
    if apart or kept or readers[0].op is not Op.MOE_SWIGLU:
        return n, _ACTIVATION
    low.joined.add(readers[0].id)
    return n._replace(gated=None, upped=None, y=readers[0].outputs[0]), attributes(readers[0])


def _results(
    low: CpuLowering, n: ExpertGate, choice: ExpertChoice, n_out: int
) -> tuple[dict[str, Any], tuple[Hashable, ...]]:
    """Where the products and their activation go, as arguments and as what is written."""
    results: dict[str, Any] = {"gated": low.optional(n.gated), "upped": low.optional(n.upped)}
    writes: list[Hashable] = [b for b in (n.gated, n.upped) if b is not None]
    if n.y is None:
        return results, tuple(writes)
    readers = low.fused.readers(n.y)
    downs = [r for r in readers if r.op is Op.MOE_DOWN_ACC and r.inputs[1] == n.ids]
    if downs:
        results["act"] = _slots(low, n.y, n.ids, choice, n_out, [r.inputs[3] for r in downs])
        writes.append(("slots", n.y, n.ids))
    if len(downs) < len(readers) or low.graph.buffer(n.y).kind is not BufferKind.TEMP:
        results["y"] = low.at(n.y)
        writes.append(n.y)
    return results, tuple(writes)


@CPU.lowers(ExpertDown)
def expert_down(low: CpuLowering, n: ExpertDown) -> None:
    """The down products, weighed and summed."""
    m = low.matrices[n.down]
    route, choice = _route(low, n.node, n.ids, m.count)
    key = ("slots", n.act, n.ids)
    if key not in low.out.packs:
        _slots(low, n.act, n.ids, choice, m.n_in, [n.down])
        arguments: dict[str, Any] = {"route": route, "x": low.at(n.act), "slots": low.out.packs[key], "n": m.n_in}
        low.emit(
            n.node, "pack", low.choice.pack_pairs(), structs.ExpertPackArgs, arguments, choice.k, UnitsPer.ROWS,
            (n.act, route.key), (key,),
        )  # fmt: skip
    arguments = {
        "route": route, "act": low.out.packs[key], "weights": low.at(n.weights), "w": External("tiles", m.name),
        "bias": low.optional(n.bias), "y": low.at(n.y), "tile_bytes": m.tile_bytes, "n_out": m.n_out, "k": choice.k,
    }  # fmt: skip
    low.emit(
        n.node, "experts", low.choice.expert_down(m.kind), structs.ExpertDownArgs, arguments, m.n_tiles, UnitsPer.ONCE,
        (key, route.key, n.weights), (n.y,), m.n_bytes * choice.k // choice.n_experts,
    )  # fmt: skip


@CPU.lowers(Op.SHARED_EXPERT)
def shared_expert(low: CpuLowering, single: Single) -> None:
    """The sum of the routed experts and the shared one."""
    (routed, shared, *gate), y = single.node.inputs, single.node.outputs[0]
    arguments = {
        "routed": low.at(routed),
        "shared": low.at(shared),
        "gate": low.at(gate[0]) if gate else 0,
        "y": low.at(y),
        "n": low.width(y),
    }
    low.emit(
        single.node, "add", low.choice.add_shared(), structs.SharedArgs, arguments, 1, UnitsPer.ROWS,
        tuple(single.node.inputs), (y,),
    )  # fmt: skip


def _route(low: CpuLowering, n: Node, ids: int, n_experts: int) -> tuple[RouteRef, ExpertChoice]:
    """The step's rows by the experts that `ids` lists, computed before the first node that asks."""
    choice = ExpertChoice(n_experts, low.width(ids))
    known = low.out.routes.get(ids)
    if known is not None:
        return known, choice
    pairs = low.sizes.n_rows * choice.k
    used = min(n_experts, pairs)
    sizes = {
        "used": 2, "expert": used, "start": used, "count": used, "index": n_experts, "filled": used,
        "job": 2 * choice.jobs(low.sizes.n_rows), "place": 3 * pairs, "pair": _n_slots(low, choice),
    }  # fmt: skip
    at, parts = 0, {}
    for name, size in sizes.items():
        parts[name] = at
        at += -(-size * 4 // 64) * 64
    route = low.out.routes[ids] = RouteRef(("route", ids), parts)
    low.out.sizes[route.key] = at
    arguments = {"ids": low.at(ids), "route": route, "n_experts": n_experts, "k": choice.k}
    low.emit(n, "route", low.choice.route(), structs.RouteArgs, arguments, 1, UnitsPer.ONCE, (ids,), (route.key,))
    return route, choice


def _n_slots(low: CpuLowering, choice: ExpertChoice) -> int:
    """Slots of the largest step: its pairs, and what fills the last blocks of experts that have blocks."""
    pairs = low.sizes.n_rows * choice.k
    return pairs + (layout.BLOCK_ROWS - 1) * min(choice.n_experts, pairs // layout.BLOCK_ROWS)


def _slots(low: CpuLowering, x: int, ids: int, choice: ExpertChoice, n: int, weights: list[int]) -> QuantisedActs:
    """Room for packed rows by pairs."""
    kinds = [low.matrices[w].kind for w in weights]
    return low.add_pack(("slots", x, ids), n, _n_slots(low, choice), kinds)


def _gathered(
    low: CpuLowering, n: ExpertGate, route: RouteRef, choice: ExpertChoice, rows: QuantisedActs
) -> QuantisedActs:
    """The packed rows by pairs, for steps of more than one row."""
    key = ("slots", n.x, n.ids)
    if low.sizes.n_rows == 1:
        return rows
    if key not in low.out.packs:
        _slots(low, n.x, n.ids, choice, rows.n, list(n.weights))
        arguments = {"route": route, "pack": rows, "slots": low.out.packs[key], "k": choice.k}
        low.emit(
            n.node, "pack", low.choice.gather(), structs.GatherArgs, arguments, choice.k, UnitsPer.ROWS,
            (rows.key, route.key), (key,),
        )  # fmt: skip
    return low.out.packs[key]


def _jobs(low: CpuLowering, choice: ExpertChoice) -> int:
    """The multiplier that counts panels of experts' rows."""
    if choice not in low.out.choices:
        low.out.choices.append(choice)
    return len(UnitsPer) + low.out.choices.index(choice)

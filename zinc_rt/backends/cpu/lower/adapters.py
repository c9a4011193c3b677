"""Products of low rank that adapters add."""

from __future__ import annotations

from typing import Any

from zinc_rt.backends.cpu.lowering import CPU, CpuLowering, TempRef
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.graph import DType, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cpu import adapters
from zinc_rt.kernels.cpu.adapters import COLUMNS, QUARTERS, RANKS, LoraArgs, OrderArgs

_BLOCKS = (4, 2, 1)
"""Rows of one adapter at once."""


@CPU.lowers(Op.LORA_A)
def lora_a(low: CpuLowering, single: Single) -> None:
    """t = A x, up to the last two levels of the tree."""
    node, t = single.node, single.node.outputs[0]
    x, a, _, listed, *more = node.inputs
    *counts, tiles, n_in, _ = (int(d) for d in low.graph.buffer(a).shape)
    m = tiles * RANKS
    quarters = _quarters(low, t)
    arguments = _common(low, node, 2) | {
        "a": low.at(a),
        "quarters": quarters,
        "n_in": n_in,
        "m": m,
        "r": m // int(node.attrs["n_pairs"]),
        "n_experts": counts[1] if len(counts) > 1 else 1,
        "x_used": 0 if "lookup" in node.attrs else low.width(x) // n_in,
    }
    if "lookup" in node.attrs:
        arguments["ids"] = low.at(x)
    else:
        arguments["x"] = low.at(x)
    units = tiles * QUARTERS
    kernel, reads = _kernel(low, node, a, (adapters.lora_a, {"BLOCKS": _BLOCKS}), (adapters.lora_a_each, {}))
    low.emit(
        node, "adapters", kernel, LoraArgs, arguments | reads, units, UnitsPer.ONCE,
        (*_read(low, node, (x, listed, *more)),), (quarters.key,),
    )  # fmt: skip


@CPU.lowers(Op.LORA_B)
def lora_b(low: CpuLowering, single: Single) -> None:
    """y = base + scale * (B t)."""
    node, y = single.node, single.node.outputs[0]
    base, t, b, _, listed, scales, *more = node.inputs
    *counts, _, r, _ = (int(d) for d in low.graph.buffer(b).shape)
    summed = "n_used" in node.attrs and len(more) > 1
    n_out = low.width(y) // (1 if summed else int(node.attrs.get("n_used", 1)))
    quarters = _quarters(low, t)
    m = int(low.graph.buffer(t).shape[-1])
    arguments = _common(low, node, 3) | {
        "b": low.at(b),
        "scales": low.at(scales),
        "quarters": quarters,
        "base": low.at(base),
        "y": low.at(y),
        "n_out": n_out,
        "m": m,
        "r": r,
        "start": int(node.attrs["start"]),
        "n_experts": counts[1] if len(counts) > 1 else 1,
    }
    if summed:
        arguments["weights"] = low.at(more[1])
    constants = {"R": -(-r // RANKS) * RANKS}
    each = adapters.lora_b_each, {"SUMMED": summed, **constants}
    kernel, reads = _kernel(low, node, b, (adapters.lora_b, constants | {"BLOCKS": _BLOCKS}), each)
    low.emit(
        node, "adapters", kernel, LoraArgs, arguments | reads, -(-n_out // COLUMNS), UnitsPer.ONCE,
        (*_read(low, node, (base, listed, scales, *more)), quarters.key), (y,),
    )  # fmt: skip


def _common(low: CpuLowering, node: Node, pairs_at: int) -> dict[str, Any]:
    """The arguments of both operations. pairs_at: the number of the input `pairs`."""
    pairs, listed = node.inputs[pairs_at : pairs_at + 2]
    n_used = int(node.attrs.get("n_used", 1))
    arguments = {
        "pairs": low.at(pairs),
        "adapters": low.at(listed),
        "pair": int(node.attrs["pair"]),
        "depth": low.width(listed),
        "n_adapters": int(low.graph.buffer(pairs).shape[1]),
        "n_used": n_used,
    }
    more = node.inputs[4:] if node.op is Op.LORA_A else node.inputs[6:]
    if "wanted" in node.attrs:
        arguments["wanted"] = low.at(more[0])
    if "n_used" in node.attrs and more:
        arguments["ids"] = low.at(more[0])
    return arguments


def _kernel(
    low: CpuLowering, node: Node, matrix: int, sorted_: tuple[Any, dict[str, Any]], each: tuple[Any, dict[str, Any]]
) -> tuple[tuple[Any, dict[str, Any]], dict[str, Any]]:
    """The kernel of a node, and the arguments that only it has."""
    constants = {"HALF": low.graph.buffer(matrix).dtype is DType.F16, "W": low.choice.lanes}
    if node.attrs.keys() & {"wanted", "lookup", "n_used"}:
        return (each[0], each[1] | constants), {}
    return (sorted_[0], sorted_[1] | constants), {"order": _order(low, node)}


def _read(low: CpuLowering, node: Node, buffers: tuple[int, ...]) -> tuple[Any, ...]:
    """What a node's operation reads; the order of uses among it, where there is one."""
    return (*buffers, *(key for key in [("order", _listed(node))] if key in low.out.sizes))


def _listed(node: Node) -> int:
    """The input that lists adapters."""
    return node.inputs[3 if node.op is Op.LORA_A else 4]


def _order(low: CpuLowering, node: Node) -> TempRef:
    """The step's uses by adapter, computed before the first node that asks."""
    listed = _listed(node)
    key, depth = ("order", listed), low.width(listed)
    if key not in low.out.sizes:
        low.out.sizes[key] = 4 * (low.sizes.n_rows * depth + 1)
        n_adapters = int(low.graph.buffer(node.inputs[2 if node.op is Op.LORA_A else 3]).shape[1])
        arguments = {"adapters": low.at(listed), "order": TempRef(key), "depth": depth, "n_adapters": n_adapters}
        low.emit(node, "adapters", (adapters.order, {}), OrderArgs, arguments, 1, UnitsPer.ONCE, (listed,), (key,))
    return TempRef(key)


def _quarters(low: CpuLowering, t: int) -> TempRef:
    """The memory of t before the last levels of the tree."""
    key = ("quarters", t)
    rows = low.sizes.n_logits if low.counted(t) == "n_logits" else low.sizes.n_rows
    low.out.sizes[key] = 4 * QUARTERS * rows * low.width(t)
    return TempRef(key)

"""Layer norm, activations without a gate, learned positions."""

from __future__ import annotations

from typing import Any

from zinc_rt.backends.cpu.lowering import CPU, CpuLowering
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.ir.ops.encoder import XIELU
from zinc_rt.kernels.cpu import encoder


@CPU.lowers(Op.LAYER_NORM)
def layer_norm(low: CpuLowering, single: Single) -> None:
    """Rows, or heads, with mean 0 and variance 1, times a weight, plus a bias."""
    (x, w, b), y = single.node.inputs, single.node.outputs[0]
    n_heads = int(single.node.attrs.get("n_heads", 1))
    arguments = {
        "x": low.at(x),
        "weight": low.at(w),
        "bias": low.at(b),
        "y": low.at(y),
        "n": low.width(y) // n_heads,
        "n_heads": n_heads,
        "eps": float(single.node.attrs["eps"]),
    }
    _rows(low, single, "norm", encoder.layer_norm, encoder.LayerNormArgs, arguments, units=n_heads)


@CPU.lowers(Op.ACTIVATE)
def activate(low: CpuLowering, single: Single) -> None:
    """An activation of every element."""
    attrs = attributes(single.node)
    numbers = {name: float(attrs[name]) for name in XIELU}
    arguments = {"x": low.at(single.node.inputs[0]), **_result(low, single), **numbers}
    act = str(attrs["activation"])
    _rows(low, single, act, encoder.activate, encoder.ActivationArgs, arguments, ACT=act)


@CPU.lowers(Op.ADD_POSITION)
def add_position(low: CpuLowering, single: Single) -> None:
    """Rows plus the table's row of their position."""
    x, _, table = single.node.inputs
    arguments = {"x": low.at(x), "table": low.at(table), **_result(low, single)}
    _rows(low, single, "add", encoder.add_position, encoder.RowsArgs, arguments)


def _result(low: CpuLowering, single: Single) -> dict[str, Any]:
    y = single.node.outputs[0]
    return {"y": low.at(y), "n": low.width(y)}


def _rows(
    low: CpuLowering,
    single: Single,
    kind: str,
    kernel: Any,
    struct: Any,
    arguments: dict[str, Any],
    units: int = 1,
    **constants: str,
) -> None:
    """So many units a row; of the operands only the rows come from other operations."""
    kernel_of = kernel, {"W": low.choice.lanes, **constants}
    reads, writes = (single.node.inputs[0],), (single.node.outputs[0],)
    low.emit(single.node, kind, kernel_of, struct, arguments, units, UnitsPer.ROWS, reads, writes)

"""Layer norm, activations without a gate, learned positions."""

from __future__ import annotations

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.lowering import GPU, GpuLowering
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.ir.ops.encoder import XIELU
from zinc_rt.kernels.gpu import encoder
from zinc_rt.kernels.gpu.catalogue import KernelEntry
from zinc_rt.lang.frontend import Spec
from zinc_rt.numerics import UNGATED

LAYER_NORM = KernelEntry(Spec(encoder.layer_norm, {}), ("x", "w", "b", "y", "n", "n_heads", "eps"), "n_heads, rows")
ACTIVATE = {
    act: KernelEntry(Spec(encoder.activate, {"ACT": act}), ("x", "y", "n", *XIELU), "ceil(n / 256), rows")
    for act in UNGATED
}
ADD_POSITION = KernelEntry(Spec(encoder.add_position, {}), ("x", "positions", "table", "y", "n"), "ceil(n / 256), rows")


@GPU.lowers(Op.LAYER_NORM)
def layer_norm(low: GpuLowering, single: Single) -> None:
    """Rows, or heads, with mean 0 and variance 1, times a weight, plus a bias."""
    (x, w, b), y = single.node.inputs, single.node.outputs[0]
    n_heads = int(single.node.attrs.get("n_heads", 1))
    sizes = low.width(y) // n_heads, n_heads, float(single.node.attrs["eps"])
    arguments = (low.at(x), low.at(w), low.at(b), low.at(y), *sizes)
    low.emit(single.node, LAYER_NORM, lambda s: (n_heads, s.n_rows), arguments, "n_rows", (x,), (y,))


@GPU.lowers(Op.ACTIVATE)
def activate(low: GpuLowering, single: Single) -> None:
    """An activation of every element."""
    x, y, attrs = single.node.inputs[0], single.node.outputs[0], attributes(single.node)
    width = low.width(y)
    arguments = (low.at(x), low.at(y), width, *(float(attrs[name]) for name in XIELU))
    low.emit(
        single.node,
        ACTIVATE[str(attrs["activation"])],
        lambda s: (-(-width // 256), s.n_rows),
        arguments,
        "n_rows",
        (x,),
        (y,),
    )


@GPU.lowers(Op.ADD_POSITION)
def add_position(low: GpuLowering, single: Single) -> None:
    """Rows plus the table's row of their position."""
    (x, positions, table), y = single.node.inputs, single.node.outputs[0]
    width = low.width(y)
    arguments = (low.at(x), low.at(positions), low.at(table), low.at(y), width)
    low.emit(single.node, ADD_POSITION, lambda s: (-(-width // 256), s.n_rows), arguments, "n_rows", (x,), (y,))

"""Operations of encoders: layer norm, GELU, learned positions."""

from __future__ import annotations

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.lowering import GPU, GpuLowering
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.gpu import encoder
from zinc_rt.kernels.gpu.catalogue import KernelEntry
from zinc_rt.lang.frontend import Spec

LAYER_NORM = KernelEntry(Spec(encoder.layer_norm, {}), ("x", "w", "b", "y", "n", "eps"), "rows")
GELU = {
    quick: KernelEntry(Spec(encoder.gelu_rows, {"QUICK": quick}), ("x", "y", "n"), "ceil(n / 256), rows")
    for quick in (False, True)
}
ADD_POSITION = KernelEntry(Spec(encoder.add_position, {}), ("x", "positions", "table", "y", "n"), "ceil(n / 256), rows")


@GPU.lowers(Op.LAYER_NORM)
def layer_norm(low: GpuLowering, single: Single) -> None:
    """Rows with mean 0 and variance 1, times a weight, plus a bias."""
    (x, w, b), y = single.node.inputs, single.node.outputs[0]
    arguments = (low.at(x), low.at(w), low.at(b), low.at(y), low.width(y), float(single.node.attrs["eps"]))
    low.emit(single.node, LAYER_NORM, lambda s: (s.n_rows,), arguments, "n_rows", (x,), (y,))


@GPU.lowers(Op.GELU)
def gelu(low: GpuLowering, single: Single) -> None:
    """GELU of every element."""
    x, y = single.node.inputs[0], single.node.outputs[0]
    width, entry = low.width(y), GELU[bool(attributes(single.node)["quick"])]
    arguments = (low.at(x), low.at(y), width)
    low.emit(single.node, entry, lambda s: (-(-width // 256), s.n_rows), arguments, "n_rows", (x,), (y,))


@GPU.lowers(Op.ADD_POSITION)
def add_position(low: GpuLowering, single: Single) -> None:
    """Rows plus the table's row of their position."""
    (x, positions, table), y = single.node.inputs, single.node.outputs[0]
    width = low.width(y)
    arguments = (low.at(x), low.at(positions), low.at(table), low.at(y), width)
    low.emit(single.node, ADD_POSITION, lambda s: (-(-width // 256), s.n_rows), arguments, "n_rows", (x,), (y,))

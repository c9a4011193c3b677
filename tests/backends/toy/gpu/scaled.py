"""The GPU's kernel of the operation for tests, and its lowering."""

from __future__ import annotations

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.lowering import GPU, GpuLowering
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.gpu.catalogue import KernelEntry
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import workgroup_id, workitem_id
from zinc_rt.lang.types import f32, ptr, u32


@kernel(workgroup=256)
def scale_rows(x: ptr[f32], shift: ptr[f32], y: ptr[f32], n: u32, factor: f32, SHIFT: bool):
    """y[row] = x[row] * factor + shift; ceil(n / 256) workgroups in x, a row each in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        at = workgroup_id(1) * n + i
        v = x[at] * factor
        if SHIFT:
            v = v + shift[i]
        y[at] = v


@GPU.lowers(Op.LOAD_REQUEST_STATE)
def scaled(low: GpuLowering, single: Single) -> None:
    (x, *shift), y = single.node.inputs, single.node.outputs[0]
    width, counted = low.width(y), low.counted(y)
    entry = KernelEntry(Spec(scale_rows, {"SHIFT": bool(shift)}), ("x", "shift", "y", "n", "factor"), "")
    arguments = (low.at(x), low.at(shift[0] if shift else x), low.at(y), width, attributes(single.node)["factor"])
    low.emit(single.node, entry, lambda s: (-(-width // 256), getattr(s, counted)), arguments, counted, (x,), (y,))

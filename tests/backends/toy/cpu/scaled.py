"""The CPU's kernel of the operation for tests, and its lowering."""

from __future__ import annotations

from zinc_rt.backends.cpu.lowering import CPU, CpuLowering
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.types import f32, i32, i64, ptr, struct


@struct
class ScaledArgs:
    x: ptr[f32]
    shift: ptr[f32]
    y: ptr[f32]
    n: i32
    factor: f32


@kernel
def scale_rows(a: ptr[ScaledArgs], step: ptr[StepRecord], first: i32, last: i32, SHIFT: bool):
    """Units: rows. y = x * factor + shift."""
    for row in range(first, last):
        at = i64(row) * i64(a.n)
        for i in range(a.n):
            y = a.x[at + i64(i)] * a.factor
            if SHIFT:
                y = y + a.shift[i]
            a.y[at + i64(i)] = y


@CPU.lowers(Op.LOAD_REQUEST_STATE)
def scaled(low: CpuLowering, single: Single) -> None:
    (x, *shift), y = single.node.inputs, single.node.outputs[0]
    arguments = {
        "x": low.at(x),
        "shift": low.at(shift[0]) if shift else 0,
        "y": low.at(y),
        "n": low.width(y),
        "factor": attributes(single.node)["factor"],
    }
    kernel_of = scale_rows, {"SHIFT": bool(shift)}
    low.emit(single.node, "scaled", kernel_of, ScaledArgs, arguments, 1, low.scale(y), (x,), (y,))

"""What a device must be able to compute before it gets a model: each rounding, and lanes where the kernels think."""

from __future__ import annotations

from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import (
    bitcast,
    fma,
    lane_id,
    maximum,
    minimum,
    rint,
    sqrt,
    wave_shuffle_xor,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f16, f32, f64, i32, ptr, u16, u32

WORKGROUP = 256
RESULTS = 14
"""Words of a result."""


@kernel(workgroup=WORKGROUP)
def arithmetic(x: ptr[f32], y: ptr[f32], z: ptr[f32], out: ptr[u32], n: u32):
    """out[k * n + i]: the k-th result of x[i], y[i], z[i]; n is a multiple of the workgroup."""
    item = workitem_id()
    i = workgroup_id(0) * WORKGROUP + item
    a = x[i]
    b = y[i]
    c = z[i]
    half = f16(a)
    values = (
        bitcast(a + b, u32),
        bitcast(a * b, u32),
        bitcast(a * b + c, u32),
        bitcast(fma(a, b, c), u32),
        bitcast(a / b, u32),
        bitcast(sqrt(a), u32),
        bitcast(rint(a), u32),
        bitcast(maximum(a, b), u32),
        bitcast(minimum(a, b), u32),
        u32(bitcast(half, u16)),
        bitcast(f32(bitcast(u16(i), f16)), u32),
        bitcast(i32(a), u32),
        bitcast(f32(f64(a) / f64(c)), u32),
        wave_shuffle_xor(item, 16) * 64 + lane_id(),
    )
    at: u32 = i
    for value in values:
        out[at] = value
        at += n

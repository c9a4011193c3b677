"""Activations as int8, a scale and two sums for each group of 32; what the quantised matrix products read.

q: i8[rows, groups, 32]; d: f32[rows, groups]; s: u32[rows, groups], the sum of the first 16 in the low half and that
of the last 16 in the high half, as i16 (halves with scales of their own need them apart).
"""

from __future__ import annotations

from zinc_rt.kernels.maths import INFINITY, gated
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    absolute,
    cast,
    lane_id,
    load,
    maximum,
    rint,
    select,
    splat,
    unroll,
    wave_shuffle_xor,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f32, i8, i32, ptr, u8, u32
from zinc_rt.numerics import MIN_NORMAL, QUANT_MAX


@inline
def quantize_four(v, q: ptr[u32], d: ptr[f32], s: ptr[u32], at: u32, live):
    """Store what a lane's four elements contribute; eight neighbouring lanes hold a group. at: of the four; live:
    whether they exist.
    """
    top = absolute(v[0])
    for i in unroll(1, 4):
        top = maximum(top, absolute(v[i]))
    for distance in unroll((1, 2, 4)):
        top = maximum(top, wave_shuffle_xor(top, distance))
    scale = top / QUANT_MAX
    scale = select(scale < MIN_NORMAL, 0.0, scale)
    usable = (scale > 0.0) & (scale < INFINITY)
    one: f32 = 1.0
    inverse = one / scale
    word: u32 = 0
    total: i32 = 0
    for i in unroll(4):
        n = i32(select(usable, rint(v[i] * inverse), 0.0))
        total += n
        word |= (u32(n) & 255) << (8 * i)
    for distance in unroll((1, 2)):
        total += wave_shuffle_xor(total, distance)
    other = wave_shuffle_xor(total, 4)
    if live:
        q[at] = word
        if at & 7 == 0:
            d[at >> 3] = scale
            s[at >> 3] = (u32(total) & 0xFFFF) | (u32(other) << 16)


@inline
def quantize_one(v, q: ptr[u8], d: ptr[f32], s: ptr[u32], live):
    """Store a lane's element, where the 32 lanes of the wave hold a group; q: of the element; d, s: of the group."""
    top = absolute(v)
    for distance in unroll((1, 2, 4, 8, 16)):
        top = maximum(top, wave_shuffle_xor(top, distance))
    scale = top / QUANT_MAX
    scale = select(scale < MIN_NORMAL, 0.0, scale)
    usable = (scale > 0.0) & (scale < INFINITY)
    one: f32 = 1.0
    n = i32(select(usable, rint(v * (one / scale)), 0.0))
    total: i32 = n
    for distance in unroll((1, 2, 4, 8)):
        total += wave_shuffle_xor(total, distance)
    other = wave_shuffle_xor(total, 16)
    if live:
        q[0] = u8(u32(n) & 255)
        if lane_id() == 0:
            d[0] = scale
            s[0] = (u32(total) & 0xFFFF) | (u32(other) << 16)


@kernel(workgroup=256)
def quantize(x: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32):
    """Quantise n elements of x: whole groups, all rows in a row. A workgroup does 1024."""
    at = workgroup_id(0) * 256 + workitem_id()
    live = at < n >> 2
    # Lanes beyond the end take the first elements: all take part in the exchanges.
    v = load(x, select(live, at, at - at) * 4, lanes=4, align=16)
    quantize_four(v, cast(q, ptr[u32]), d, s, at, live)


@kernel(workgroup=256)
def swiglu_quantized(
    gate: ptr[f32], up: ptr[f32], q: ptr[i8], d: ptr[f32], s: ptr[u32], n: u32, alpha: f32, limit: f32, ACT: str
):
    """activation(gate) * up as `quantize` stores it, n elements: whole groups. A workgroup does 1024. See `gated`."""
    at = workgroup_id(0) * 256 + workitem_id()
    live = at < n >> 2
    here = select(live, at, at - at) * 4
    v = gated(
        load(gate, here, lanes=4, align=16), load(up, here, lanes=4, align=16), splat(alpha, 4), splat(limit, 4), ACT
    )
    quantize_four(v, cast(q, ptr[u32]), d, s, at, live)

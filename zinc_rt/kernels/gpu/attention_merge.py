"""What becomes of attention's splits: a result of each head, as floats or as int8, times a gate where there is one."""

from __future__ import annotations

from zinc_rt.kernels.gpu.quantize import quantize_four
from zinc_rt.kernels.maths import exp, sigmoid
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import first_lane, lane_id, load, maximum, select, splat, store, workitem_id
from zinc_rt.lang.types import f32, ptr, u32, u64
from zinc_rt.numerics import TREE_LANES

WAVES = 8
"""Of a workgroup. Each does 128 elements of a head at a time."""


@inline
def merge_heads(a, row: u32, kv_head: u32, splits: u32, G: int, VALUE: int, SINKS: bool, GATED: bool, PACKED: bool):
    """y of the G heads of a row and a key-value head; see `attention.GpuAttentionArgs`."""
    FOURS = VALUE // 4
    PARTS = -(-FOURS // TREE_LANES)
    heads = a.n_kv * G
    for item in range(first_lane(workitem_id() >> 5), u32(G * PARTS), WAVES):
        g = item // PARTS
        head = kv_head * G + g
        d = (item - g * PARTS) * TREE_LANES + lane_id()
        live = d < FOURS
        at = select(live, d, d - d) * 4
        first = u64(row) * u64(a.max_splits) * u64(heads) + u64(head)
        tops: ptr[f32] = a.tops + first * 2
        values: ptr[f32] = a.values + first * VALUE
        best = load(tops, lanes=2)
        value = load(values, at, lanes=4, align=16)
        top: f32 = best[0]
        total: f32 = best[1]
        for s in range(u32(1), splits):
            other = load(tops, u64(s) * u64(heads * 2), lanes=2)
            others = load(values, u64(s) * u64(heads * VALUE) + u64(at), lanes=4, align=16)
            highest = maximum(top, other[0])
            old = exp(top - highest)
            new = exp(other[0] - highest)
            total = (total * old) + (other[1] * new)
            value = (value * splat(old, 4)) + (others * splat(new, 4))
            top = highest
        if SINKS:
            sink = a.sinks[head]
            if sink == sink:  # noqa: PLR0124 (not a NaN)
                highest = maximum(top, sink)
                old = exp(top - highest)
                total = (total * old) + exp(sink - highest)
                value = value * splat(old, 4)
        result = value / splat(total, 4)
        out = u64(row * heads + head) * VALUE
        if GATED:
            result = result * sigmoid(load(a.gate, out + u64(at), lanes=4, align=16))
        if PACKED:
            quantize_four(result, a.quants, a.scales, a.sums, (row * heads + head) * FOURS + d, live)
        elif live:
            store(a.y, result, out + u64(at), align=16)


@inline
def quantize_row(a, row: u32, fours: u32):
    """A row of y as int8, by a workgroup."""
    y = a.y + u64(row) * u64(fours * 4)
    for base in range(u32(0), fours, WAVES * 32):
        at = base + workitem_id()
        live = at < fours
        v = load(y, select(live, at, at - at) * 4, lanes=4, align=16)
        quantize_four(v, a.quants, a.scales, a.sums, row * fours + at, live)

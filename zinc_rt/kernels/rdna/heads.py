"""A projection's heads: norm, rotation, and their place in a buffer or in the paged cache. One wave a head.

Pages hold 16 positions: cache f16[pages, 16, heads, DIM]. table: f32[positions, 2, PAIRS], cosines, then sines.
"""

from __future__ import annotations

from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import cast, first_lane, fma, lane_id, sqrt, unroll, wave_reduce_add, workgroup_id, workitem_id
from zinc_rt.lang.types import Space, f16, f32, i32, ptr, struct, u32, u64

WAVES = 4
"""Heads of a workgroup."""


@struct
class HeadsArgs:
    """x, y: f32[rows, n_heads, DIM]; weight: f32[DIM], with NORM; cache: instead of y, with CACHE."""

    x: ptr[f32]
    y: ptr[f32]
    cache: ptr[f16]
    weight: ptr[f32]
    table: ptr[f32]
    positions: ptr[i32]  # of each row
    slots: ptr[i32]  # the row of page_table of each row
    page_table: ptr[i32]  # [n_slots, max_pages]
    max_pages: u32
    n_heads: u32
    n_rows: u32
    eps: f32


@inline
def head_scale(x: ptr[f32], eps, DIM: int):
    """The factor of the head's norm: the tree over 256 lanes, of which a wave's lane holds every 32nd."""
    acc = tuple(squares(x, first, DIM) for first in range(0, min(DIM, 256), 32))
    parts = acc
    # Pairwise at distance 128, 64 and 32: a lane's own sums; an absent one adds nothing.
    for step in unroll((4, 2, 1)):
        parts = tuple(
            parts[i] + parts[i + step] if i + step < len(parts) else parts[i] for i in range(min(step, len(parts)))
        )
    one: f32 = 1.0
    dim: f32 = float(DIM)
    return one / sqrt(wave_reduce_add(parts[0]) / dim + eps)


@inline
def squares(x: ptr[f32], first: int, DIM: int):
    """The chain over elements first + lane, and every 256th from there."""
    acc: f32 = 0.0
    for i in unroll(first, DIM, 256):
        if i + 32 <= DIM:
            v = x[lane_id() + i]
            acc = fma(v, v, acc)
        else:
            if lane_id() < DIM - i:
                v = x[lane_id() + i]
                acc = fma(v, v, acc)
    return acc


@inline
def element(x: ptr[f32], weight: ptr[f32], scale, i, NORM: bool):
    """Element i after the norm."""
    if NORM:
        return (x[i] * scale) * weight[i]
    return x[i]


@inline
def put(y: ptr[f32], cache: ptr[f16], i, value, CACHE: bool):
    """Store an element of the result."""
    if CACHE:
        cache[i] = f16(value)
    else:
        y[i] = value


@kernel(workgroup=128)
def heads(a: ptr[HeadsArgs, Space.CONSTANT], DIM: int, PAIRS: int, INTERLEAVED: bool, NORM: bool, CACHE: bool):
    """All heads of all rows, four a workgroup. PAIRS: rotated pairs of a head, 0 for none."""
    n_heads = a.n_heads
    unit = workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)
    if unit < a.n_rows * n_heads:
        row = unit // n_heads
        x: ptr[f32] = a.x + u64(unit) * DIM
        y: ptr[f32] = a.y
        cache: ptr[f16] = a.cache
        position = u32(cast(a.positions, ptr[u32, Space.CONSTANT])[row])
        if CACHE:
            slot = cast(a.slots, ptr[u32, Space.CONSTANT])[row]
            page = cast(a.page_table, ptr[u32, Space.CONSTANT])[u64(slot) * u64(a.max_pages) + u64(position >> 4)]
            place = (u64(page) * 16 + u64(position & 15)) * u64(n_heads) + u64(unit - row * n_heads)
            cache = a.cache + place * DIM
        else:
            y = a.y + u64(unit) * DIM
        scale: f32 = 1.0
        if NORM:
            scale = head_scale(x, a.eps, DIM)
        cosines = a.table + u64(position) * (2 * PAIRS)
        for start in unroll(0, PAIRS, 32):
            i = lane_id() + start
            if i < PAIRS:
                first = i * 2 if INTERLEAVED else i
                second = i * 2 + 1 if INTERLEAVED else i + PAIRS
                p = element(x, a.weight, scale, first, NORM)
                q = element(x, a.weight, scale, second, NORM)
                c = cosines[i]
                s = cosines[i + PAIRS]
                put(y, cache, first, (p * c) - (q * s), CACHE)
                put(y, cache, second, (p * s) + (q * c), CACHE)
        for start in unroll(2 * PAIRS, DIM, 32):
            i = lane_id() + start
            if i < DIM:
                put(y, cache, i, element(x, a.weight, scale, i, NORM), CACHE)

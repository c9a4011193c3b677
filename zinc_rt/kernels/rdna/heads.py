"""A projection's heads: norm, rotation, and their place in a buffer or in the paged cache. One wave a head.

Pages hold 16 positions: cache f16[pages, 16, heads, DIM]. table: f32[positions, 2, PAIRS], cosines, then sines.
"""

from __future__ import annotations

from zinc_rt.kernels.rdna.kv_quant import put_head
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    cast,
    first_lane,
    fma,
    lane_id,
    select,
    shared,
    sqrt,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f16, f32, i32, ptr, struct, u32, u64
from zinc_rt.numerics import NORM_LANES, PAGE_SHIFT, PAGE_TOKENS

WAVES = 4
"""Heads of a workgroup."""


@struct
class GpuHeadsArgs:
    """x, y: f32[rows, n_heads, DIM]; weight: f32[DIM], with WEIGHT; cache: instead of y, with CACHE."""

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
def sum_of_squares(x, DIM: int):
    """The tree over 256 lanes, of which a wave's lane holds every 32nd; in every lane. x: global memory or LDS."""
    acc = tuple(squares(x, first, DIM) for first in range(0, min(DIM, NORM_LANES), 32))
    parts = acc
    # Pairwise at distance 128, 64 and 32: a lane's own sums; an absent one adds nothing.
    for step in unroll((4, 2, 1)):
        parts = tuple(
            parts[i] + parts[i + step] if i + step < len(parts) else parts[i] for i in range(min(step, len(parts)))
        )
    return wave_reduce_add(parts[0])


@inline
def head_scale(x: ptr[f32], eps, DIM: int):
    """The factor of the head's norm."""
    one: f32 = 1.0
    dim: f32 = float(DIM)
    return one / sqrt(sum_of_squares(x, DIM) / dim + eps)


@inline
def squares(x, first: int, DIM: int):
    """The chain over elements first + lane, and every 256th from there."""
    acc: f32 = 0.0
    for i in unroll(first, DIM, NORM_LANES):
        if i + 32 <= DIM:
            v = x[lane_id() + i]
            acc = fma(v, v, acc)
        else:
            if lane_id() < DIM - i:
                v = x[lane_id() + i]
                acc = fma(v, v, acc)
    return acc


@inline
def within(i: u32, start: int, n: int):
    """i, or 0 beyond n; known to be less where a whole wave is."""
    if start + 32 <= n:
        return i
    return select(i < n, i, i - i)


@inline
def loaded(x: ptr[f32], weight: ptr[f32], i, WEIGHT: bool):
    """Element i and its weight."""
    if WEIGHT:
        return x[i], weight[i]
    return x[i], x[i]


@inline
def normed(element, scale, NORM: bool, WEIGHT: bool):
    """What the norm makes of it."""
    if WEIGHT:
        return (element[0] * scale) * element[1]
    elif NORM:
        return element[0] * scale
    return element[0]


@inline
def pair_of(i: u32, PAIRS: int, INTERLEAVED: bool):
    """The two elements of rotated pair i."""
    if INTERLEAVED:
        return i * 2, i * 2 + 1
    return i, i + PAIRS


@inline
def put(y, cache: ptr[f16], i, value, CACHE: bool):
    """Store an element of the result. y: in memory or in LDS."""
    if CACHE:
        cache[i] = f16(value)
    else:
        y[i] = value


@kernel(workgroup=128)
def heads(
    a: ptr[GpuHeadsArgs, Space.CONSTANT], DIM: int, PAIRS: int, INTERLEAVED: bool, NORM: bool, WEIGHT: bool,
    CACHE: bool,
    ROW: int,
    START: int,
    QUANT: bool = False,
):  # fmt: skip
    """All heads of all rows, four a workgroup. PAIRS: rotated pairs of a head, 0 for none; WEIGHT: whether the norm has
    weights; QUANT: into a cache of Q8_0 blocks, by way of LDS.
    """
    staged = shared(f32, WAVES * DIM) + (workitem_id() >> 5) * DIM if QUANT else a.y
    n_heads = a.n_heads
    unit = workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)
    if unit < a.n_rows * n_heads:
        row = unit // n_heads
        x: ptr[f32] = a.x + u64(unit) * DIM
        y: ptr[f32] = a.y
        cache: ptr[f16] = a.cache
        position = u32(cast(a.positions, ptr[u32, Space.CONSTANT])[row])
        if CACHE and not QUANT:
            slot = cast(a.slots, ptr[u32, Space.CONSTANT])[row]
            entry = u64(slot) * u64(a.max_pages) + u64(position >> PAGE_SHIFT)
            page = cast(a.page_table, ptr[u32, Space.CONSTANT])[entry]
            token = u64(page) * PAGE_TOKENS + u64(position & (PAGE_TOKENS - 1))
            place = token * u64(n_heads) + u64(unit - row * n_heads)
            cache = a.cache + (place * ROW + START)
        elif not QUANT:
            y = a.y + u64(unit) * DIM
        # All that comes from memory is asked for before the first of it is needed; lanes beyond the end take the first.
        cosines = a.table + u64(position) * (2 * PAIRS)
        turns = tuple(within(lane_id() + start, start, PAIRS) for start in range(0, PAIRS, 32))
        places = tuple(pair_of(i, PAIRS, INTERLEAVED) for i in turns)
        pairs = tuple((loaded(x, a.weight, pair[0], WEIGHT), loaded(x, a.weight, pair[1], WEIGHT)) for pair in places)
        angles = tuple((cosines[i], cosines[i + PAIRS]) for i in turns)
        others = tuple(
            within(lane_id() + start, start, DIM - 2 * PAIRS) + 2 * PAIRS for start in range(0, DIM - 2 * PAIRS, 32)
        )
        rest = tuple(loaded(x, a.weight, i, WEIGHT) for i in others)
        scale: f32 = 1.0
        if NORM:
            scale = head_scale(x, a.eps, DIM)
        for k in unroll(len(turns)):
            p = normed(pairs[k][0], scale, NORM, WEIGHT)
            q = normed(pairs[k][1], scale, NORM, WEIGHT)
            c = angles[k][0]
            s = angles[k][1]
            if lane_id() + k * 32 < PAIRS:
                put(staged if QUANT else y, cache, places[k][0], (p * c) - (q * s), CACHE and not QUANT)
                put(staged if QUANT else y, cache, places[k][1], (p * s) + (q * c), CACHE and not QUANT)
        for k in unroll(len(rest)):
            i = lane_id() + (2 * PAIRS + k * 32)
            if i < DIM:
                put(staged if QUANT else y, cache, i, normed(rest[k], scale, NORM, WEIGHT), CACHE and not QUANT)
    if QUANT:
        barrier()
        if unit < a.n_rows * n_heads:
            row = unit // n_heads
            position = u32(cast(a.positions, ptr[u32, Space.CONSTANT])[row])
            slot = cast(a.slots, ptr[u32, Space.CONSTANT])[row]
            entry = u64(slot) * u64(a.max_pages) + u64(position >> PAGE_SHIFT)
            page = cast(a.page_table, ptr[u32, Space.CONSTANT])[entry]
            token = position & (PAGE_TOKENS - 1)
            put_head(a.cache, page, token, n_heads, unit - row * n_heads, staged, DIM, ROW, START)

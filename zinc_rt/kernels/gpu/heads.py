"""A projection's heads: norm, rotation, and their place in a buffer or in the paged cache. One wave a head.

Pages hold 16 positions: cache f16[pages, 16, heads, DIM]. table: f32[positions, 2, PAIRS], cosines, then sines.

FORM is (DIM, PAIRS, INTERLEAVED, NORM, WEIGHT, CACHE, ROW, START, BLOCKS, PACKED, BEGIN, EVERY). PAIRS: rotated pairs
of a head, from element BEGIN on, 0 for none; WEIGHT: whether the norm has weights; CACHE: into the cache, as elements
START .. of heads of ROW elements; BLOCKS: the cache holds Q8_0 blocks; PACKED: as `quantize` stores rows. The last two
go by way of LDS. EVERY: into the cache, only rows that end a block of so many positions.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.kv_quant import put_head
from zinc_rt.kernels.gpu.quantize import quantize_one
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
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
from zinc_rt.lang.types import Space, f16, f32, i32, ptr, struct, u8, u32, u64
from zinc_rt.numerics import GROUP, NORM_LANES, PAGE_SHIFT, PAGE_TOKENS

WAVES = 4
"""Heads of a workgroup."""


@struct
class GpuHeadsArgs:
    """x, y: f32[rows, n_heads, DIM]; weight: f32[DIM], with WEIGHT; cache: instead of y, with CACHE; quants, scales,
    sums: instead of y, with PACKED; counters: u32[blocks, n_heads], where a product does the heads.
    """

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
    quants: ptr[u8]
    scales: ptr[f32]
    sums: ptr[u32]
    counters: ptr[u32]


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
def pair_of(i: u32, PAIRS: int, INTERLEAVED: bool, BEGIN: int):
    """The two elements of rotated pair i."""
    if INTERLEAVED:
        return i * 2 + BEGIN, i * 2 + (BEGIN + 1)
    return i + BEGIN, i + (BEGIN + PAIRS)


@inline
def other_of(i: u32, PAIRS: int, BEGIN: int):
    """Element i of those that are not rotated."""
    if BEGIN == 0:
        return i + 2 * PAIRS
    return select(i < BEGIN, i, i + 2 * PAIRS)


@inline
def put(y, cache: ptr[f16], i, value, CACHE: bool):
    """Store an element of the result. y: in memory or in LDS."""
    if CACHE:
        cache[i] = f16(value)
    else:
        y[i] = value


@inline
def position_of(a, row: u32, FORM: tuple):
    """A row's position and its slot; 0 for what is not needed."""
    _, PAIRS, _, _, _, CACHE, _, _, _, _, _, _ = FORM
    if CACHE:
        return u32(a.positions[row]), u32(a.slots[row])
    elif PAIRS > 0:
        return u32(a.positions[row]), 0
    return 0, 0


@inline
def where_of(a, found, FORM: tuple):
    """The position, the page where the heads go, and the place in it. found: see `position_of`."""
    position, slot = found
    if FORM[5]:
        entry = u64(slot) * u64(a.max_pages) + u64(position >> PAGE_SHIFT)
        return position, u32(a.page_table[entry]), position & (PAGE_TOKENS - 1)
    return position, 0, 0


@inline
def place_of(a, row: u32, head: u32, where, staged, FORM: tuple):
    """Where the elements of a head go, as floats and in a cache."""
    DIM, _, _, _, _, CACHE, ROW, START, BLOCKS, PACKED, _, EVERY = FORM
    if BLOCKS or PACKED:
        return staged, a.cache
    elif CACHE:
        PER_PAGE = max(1, PAGE_TOKENS // EVERY)
        entry = where[2] * PER_PAGE >> PAGE_SHIFT
        place = (u64(where[1]) * PER_PAGE + u64(entry)) * u64(a.n_heads) + u64(head)
        return a.y, a.cache + (place * ROW + START)
    return a.y + u64(row * a.n_heads + head) * DIM, a.cache


@inline
def angles_of(a, position, turns, PAIRS: int):
    """Cosines and sines of the pairs that this lane turns."""
    if PAIRS == 0:
        return ()
    cosines = a.table + u64(position) * (2 * PAIRS)
    return tuple((cosines[i], cosines[i + PAIRS]) for i in turns)


@inline
def do_head(a, row: u32, head: u32, where, staged, FORM: tuple):
    """A head of a row, by a wave. where: see `where_of`; staged: LDS for its elements."""
    DIM, PAIRS, INTERLEAVED, NORM, WEIGHT, CACHE, _, _, BLOCKS, _, BEGIN, _ = FORM
    STORED = CACHE and not BLOCKS
    x: ptr[f32] = a.x + u64(row * a.n_heads + head) * DIM
    y, cache = place_of(a, row, head, where, staged, FORM)
    # All that comes from memory is asked for before the first of it is needed; lanes beyond the end take the first.
    turns = tuple(within(lane_id() + start, start, PAIRS) for start in range(0, PAIRS, 32))
    places = tuple(pair_of(i, PAIRS, INTERLEAVED, BEGIN) for i in turns)
    pairs = tuple((loaded(x, a.weight, pair[0], WEIGHT), loaded(x, a.weight, pair[1], WEIGHT)) for pair in places)
    angles = angles_of(a, where[0], turns, PAIRS)
    others = tuple(
        other_of(within(lane_id() + start, start, DIM - 2 * PAIRS), PAIRS, BEGIN)
        for start in range(0, DIM - 2 * PAIRS, 32)
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
            put(y, cache, places[k][0], (p * c) - (q * s), STORED)
            put(y, cache, places[k][1], (p * s) + (q * c), STORED)
    for k in unroll(len(rest)):
        if lane_id() + k * 32 < DIM - 2 * PAIRS:
            put(y, cache, others[k], normed(rest[k], scale, NORM, WEIGHT), STORED)


@inline
def put_staged(a, row: u32, head: u32, where, staged, FORM: tuple):
    """A head from LDS to a cache of blocks, or to a buffer as int8."""
    DIM, _, _, _, _, _, ROW, START, BLOCKS, _, _, _ = FORM
    if BLOCKS:
        put_head(a.cache, where[1], where[2], a.n_heads, head, staged, DIM, ROW, START)
    else:
        first = (row * a.n_heads + head) * (DIM // GROUP)
        for g in unroll(DIM // GROUP):
            at = first + g
            quants = a.quants + u64(at * GROUP + lane_id())
            quantize_one(staged[lane_id() + g * GROUP], quants, a.scales + u64(at), a.sums + u64(at), True)


@kernel(workgroup=128)
def heads(a: ptr[GpuHeadsArgs, Space.CONSTANT], FORM: tuple):
    """All heads of all rows, four a workgroup."""
    DIM, _, _, _, _, _, _, _, BLOCKS, PACKED, _, EVERY = FORM
    staged = shared(f32, WAVES * DIM) + (workitem_id() >> 5) * DIM if BLOCKS or PACKED else a.y
    unit = workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)
    row = unit // a.n_heads
    head = unit - row * a.n_heads
    live = row < a.n_rows
    where = where_of(a, position_of(a, select(live, row, row - row), FORM), FORM)
    if EVERY > 1:
        live = live & ((where[0] + 1) % EVERY == 0)
    if live:
        do_head(a, row, head, where, staged, FORM)
    if BLOCKS or PACKED:
        barrier()
        if live:
            put_staged(a, row, head, where, staged, FORM)

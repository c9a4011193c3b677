"""Keys of blocks of positions, and attention over them beside a window; see `zinc_rt.ir.ops.blocks`."""

from __future__ import annotations

from zinc_rt.kernels.gpu.attention import clamped, greatest, scores_of
from zinc_rt.kernels.gpu.recurrent import CHANNELS, first_row
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.gpu.waves import wave_max
from zinc_rt.kernels.maths import INFINITY, exp, gather_step
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    concat,
    first_lane,
    fma,
    lane_id,
    load,
    maximum,
    regs,
    select,
    shared,
    store,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f16, f32, i32, ptr, struct, u32, u64
from zinc_rt.numerics import LEAST_TOP, PAGE_SHIFT, PAGE_TOKENS, SPLIT, SPLIT_SHIFT, TREE_LANES

UNSEEN = 0xFFFFFFFF
"""In place of the key of a lane that has none."""


@struct
class GpuPoolArgs:
    """values, scores: f32[rows, width]; offsets: f32[BLOCK, width]; state: f32[slots, 3, n], with OVERLAP 6; y:
    f32[rows, n]; width: n, with OVERLAP twice that. by_row: as in `GpuConvArgs`.
    """

    values: ptr[f32]
    scores: ptr[f32]
    offsets: ptr[f32]
    state: ptr[f32]
    y: ptr[f32]
    positions: ptr[i32]
    slots: ptr[i32]
    n_rows: u32
    n: u32
    by_row: u32


@struct
class GpuBlockAttentionArgs:
    """q, y: f32[rows, HEADS, DIM]; keys: f16[pages, 16, DIM]; block_keys: f16[pages, entries, DIM], with BLOCK; chosen:
    i32[rows, max_pages], with CHOSEN; sinks: f32[HEADS].
    """

    q: ptr[f32]
    keys: ptr[f16]
    block_keys: ptr[f16]
    chosen: ptr[i32]
    sinks: ptr[f32]
    y: ptr[f32]
    positions: ptr[i32]
    slots: ptr[i32]
    page_table: ptr[i32]
    max_pages: u32
    window: u32
    scale: f32


@kernel(workgroup=256)
def pool_blocks(a: ptr[GpuPoolArgs, Space.CONSTANT], BLOCK: int, OVERLAP: bool):
    """Workgroups: ceil(n / 256) in x, rows or slots in y."""
    PARTS = 2 if OVERLAP else 1
    channel = workgroup_id(0) * CHANNELS + workitem_id()
    n, n_rows = a.n, a.n_rows
    slots, positions = unchanged(a.slots), unchanged(a.positions)
    slot, first = first_row(a, workgroup_id(1))
    if first < n_rows:
        if channel < n:
            state = a.state + u64(slot) * u64(n * (3 * PARTS)) + u64(channel)
            own = regs(f32, 3)
            coming = regs(f32, 3)
            for i in unroll(3):
                own[i] = state[n * i]
                if OVERLAP:
                    coming[i] = state[n * (3 + i)]
            mine = channel + n if OVERLAP else channel
            for row in range(first, n_rows):
                if slots[row] == slot:
                    position = positions[row]
                    place = position - position // BLOCK * BLOCK
                    if place == 0:
                        fresh = position == 0
                        for i in unroll(3):
                            empty: f32 = LEAST_TOP if i == 0 else 0.0
                            own[i] = empty
                            if OVERLAP:
                                own[i] = select(fresh, empty, coming[i])
                                coming[i] = empty
                    line = u64(row) * u64(n * PARTS)
                    added = place * (n * PARTS)
                    score = a.scores[line + u64(mine)] + a.offsets[added + mine]
                    after = gather_step(own, a.values[line + u64(mine)], score)
                    for i in unroll(3):
                        own[i] = after[i]
                    if OVERLAP:
                        score = a.scores[line + u64(channel)] + a.offsets[added + channel]
                        after = gather_step(coming, a.values[line + u64(channel)], score)
                        for i in unroll(3):
                            coming[i] = after[i]
                    a.y[u64(row) * u64(n) + u64(channel)] = own[2] / own[1]
            for i in unroll(3):
                state[n * i] = own[i]
                if OVERLAP:
                    state[n * (3 + i)] = coming[i]


@inline
def add_keys(keys: ptr[f16], places, es, sums, element: u32, part: u32, G: int, DIM: int, EACH: int, PARTS: int):
    """sums[h] = the chains over the seen keys of a split, for two elements."""
    for i in range(u32(0), SPLIT):
        place = places[i]
        if place != UNSEEN:
            pair = f32(load(keys, u64(place) * DIM + u64(element), lanes=2, align=4))
            for h in unroll(EACH):
                e = es[clamped(part + h * PARTS, G) * SPLIT + i]
                for k in unroll(2):
                    sums[2 * h + k] = fma(e, pair[k], sums[2 * h + k])


@kernel(workgroup=256)
def block_attention(
    a: ptr[GpuBlockAttentionArgs, Space.CONSTANT], HEADS: int, G: int, DIM: int, BLOCK: int, CHOSEN: bool
):
    """Workgroups: G heads each in x, rows in y. BLOCK: positions of a block, 0 for none. DIM: a multiple of 8 up to
    512. A workgroup goes through the window, then through all blocks, 256 keys at a time.
    """
    ACROSS = DIM // 2
    PARTS = 256 // ACROSS
    EACH = -(-G // PARTS)
    PER_PAGE = max(1, PAGE_TOKENS // BLOCK) if BLOCK > 0 else PAGE_TOKENS
    es = shared(f32, G * SPLIT)
    tops = shared(f32, G * 8)
    totals = shared(f32, G)
    found = shared(f32, 8)
    places = shared(u32, SPLIT)
    row = workgroup_id(1)
    first = u64(row) * HEADS + u64(workgroup_id(0) * G)
    length = unchanged(a.positions)[row] + 1
    pages = unchanged(a.page_table) + u64(unchanged(a.slots)[row]) * u64(a.max_pages)
    begin = select(length > a.window, length - a.window, length - length)
    near = (length - begin + (SPLIT - 1)) >> SPLIT_SHIFT
    lists: u32 = near
    if BLOCK > 0:
        lists = near + ((length // BLOCK + (SPLIT - 1)) >> SPLIT_SHIFT)
    at = workitem_id()
    wave = first_lane(at >> 5)
    part = at // ACROSS
    element = (at - part * ACROSS) * 2
    values = regs(f32, 2 * EACH)
    top = regs(f32, EACH)
    total = regs(f32, EACH)
    for s in range(u32(0), lists):
        position: u32 = begin + s * SPLIT + at
        keys: ptr[f16] = a.keys
        if BLOCK > 0:
            if s >= near:
                position = ((s - near) * SPLIT + at) * BLOCK + (BLOCK - 1)
                keys = a.block_keys
        live = position < length
        here = select(live, position, length - 1)
        token = here & (PAGE_TOKENS - 1)
        place: u32 = pages[here >> PAGE_SHIFT] * PAGE_TOKENS + token
        if BLOCK > 0:
            if s >= near:
                place = pages[here >> PAGE_SHIFT] * PER_PAGE + (token * PER_PAGE >> PAGE_SHIFT)
        if CHOSEN:
            word = u32(a.chosen[u64(row) * u64(a.max_pages) + u64(here >> PAGE_SHIFT)])
            live = live & ((s < near) | ((word >> token) & 1 != 0))
        scores = regs(f32, G)
        scores_of(keys + u64(place) * DIM, a.q + first * DIM, scores, G, DIM)
        places[at] = select(live, place, UNSEEN)
        one: f32 = 1.0
        one = wave_max(select(live, one, 0.0))
        if lane_id() == 0:
            found[wave] = one
        for g in unroll(G):
            scores[g] = select(live, scores[g] * a.scale, -INFINITY)
            highest = wave_max(scores[g])
            if lane_id() == 0:
                tops[g * 8 + wave] = highest
        barrier()
        for g in unroll(G):
            e = exp(select(live, scores[g] - greatest(tops, g, True), 0.0))
            es[g * SPLIT + at] = select(live, e, 0.0)
        any_seen: f32 = found[0]
        for w in unroll(1, 8):
            any_seen = maximum(any_seen, found[w])
        barrier()
        for g in range(wave, u32(G), 8):
            sum_of_es: f32 = 0.0
            for i in unroll(0, SPLIT, TREE_LANES):
                sum_of_es += es[g * SPLIT + lane_id() + i]
            sum_of_es = wave_reduce_add(sum_of_es)
            if lane_id() == 0:
                totals[g] = sum_of_es
        barrier()
        if part < PARTS and part < G and any_seen > 0.0:
            sums = regs(f32, 2 * EACH)
            add_keys(keys, places, es, sums, element, part, G, DIM, EACH, PARTS)
            for h in unroll(EACH):
                g = clamped(part + h * PARTS, G)
                own: f32 = greatest(tops, g, True)
                highest = maximum(top[h], own)
                old = exp(top[h] - highest)
                new = exp(own - highest)
                if s == 0:
                    top[h] = own
                    total[h] = totals[g]
                    values[2 * h] = sums[2 * h]
                    values[2 * h + 1] = sums[2 * h + 1]
                else:
                    top[h] = highest
                    total[h] = (total[h] * old) + (totals[g] * new)
                    values[2 * h] = (values[2 * h] * old) + (sums[2 * h] * new)
                    values[2 * h + 1] = (values[2 * h + 1] * old) + (sums[2 * h + 1] * new)
        barrier()
    if part < PARTS and part < G:
        for h in unroll(EACH):
            g = part + h * PARTS
            if g < G:
                sink = a.sinks[workgroup_id(0) * G + g]
                if sink == sink:  # noqa: PLR0124 (not a NaN)
                    highest = maximum(top[h], sink)
                    old = exp(top[h] - highest)
                    total[h] = (total[h] * old) + exp(sink - highest)
                    values[2 * h] = values[2 * h] * old
                    values[2 * h + 1] = values[2 * h + 1] * old
                pair = concat(values[2 * h] / total[h], values[2 * h + 1] / total[h])
                store(a.y, pair, (first + u64(g)) * DIM + u64(element), align=8)

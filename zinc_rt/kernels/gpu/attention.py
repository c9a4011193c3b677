"""Attention over the paged cache: one workgroup a (row, key-value head, split of 256 positions). The last of a row's
and a head's merges them.

Lanes are positions for the scores and pairs of elements for the weighted values. The query heads of a key-value head
are worked on together, so each key is loaded once, and each value once for every 256 / (VALUE / 2) heads. Pages hold 16
positions: caches f16[pages, 16, n_kv, DIM] and [.., VALUE].

With a window, workgroups are the splits from the first on that the row sees: what they leave for the merge has room for
those alone.

Constants: G query heads of a key-value head; DIM elements of a key, of which the last ROPE have their queries in
`q_rope`, and then the first VALUE are the value; VALUE elements of a value; WINDOW, CAP, SINKS: whether there are such;
PACKED: whether y is int8 as `quantize` has it; GATED: whether it is multiplied by sigmoid(gate); CHOSEN: whether rows
see chosen positions.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.arrival import is_last
from zinc_rt.kernels.gpu.kv_quant import (
    FEW,
    MANY,
    add_values,
    next_portion,
    page_of,
    portion,
    quantized_scores,
    weigh_quantized,
)
from zinc_rt.kernels.gpu.quantize import quantize_four
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.gpu.waves import wave_max
from zinc_rt.kernels.maths import INFINITY, exp, sigmoid, tanh
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
    schedule_barrier,
    select,
    shared,
    splat,
    store,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f16, f32, i32, ptr, struct, u32, u64
from zinc_rt.numerics import GROUP, LEAST_TOP, PAGE_SHIFT, PAGE_TOKENS, PAGES_OF_SPLIT, SPLIT, SPLIT_SHIFT, TREE_LANES

WAVES = 8
"""Of a workgroup. Each does 128 elements of a head at a time."""

WIDEST = 64
"""Elements of a key that a lane loads at once."""


@struct
class GpuAttentionArgs:
    """q: f32[rows, heads, DIM - ROPE]; q_rope: f32[rows, heads, ROPE]; y: f32[rows, heads, VALUE].

    values: f32[rows, max_splits, heads, VALUE] and tops: f32[rows, max_splits, heads, 2] (the greatest score, the sum
    of exponentials) are what splits leave for the merge; counters: u32[rows, n_kv]; sinks: f32[heads], with SINKS;
    window: positions that a row sees.
    """

    q: ptr[f32]
    q_rope: ptr[f32]
    k_cache: ptr[f16]
    v_cache: ptr[f16]
    y: ptr[f32]
    values: ptr[f32]
    tops: ptr[f32]
    sinks: ptr[f32]
    counters: ptr[u32]
    quants: ptr[u32]  # with PACKED, as scales and sums
    scales: ptr[f32]
    sums: ptr[u32]
    positions: ptr[i32]  # of each row
    slots: ptr[i32]  # the row of page_table of each row
    page_table: ptr[i32]  # [n_slots, max_pages]
    max_pages: u32
    max_splits: u32
    n_kv: u32
    window: u32
    scale: f32
    softcap: f32
    gate: ptr[f32]  # as y, with GATED
    own: ptr[i32]  # with REACH: the position of each row, where `positions` are the last of the sequences
    q_scales: ptr[f32]  # with QUANT: q and q_rope are int8 then, with a scale for each 32
    rope_scales: ptr[f32]
    row_counters: ptr[u32]  # of each row, with WHOLE
    chosen: ptr[i32]  # [rows, max_pages], with CHOSEN: bits of the positions that rows see
    slopes: ptr[f32]  # of each head, with SLOPES and REACH


@inline
def range_of(a, row: u32, WINDOW: bool, REACH: bool, CHUNK: bool):
    """How many positions lie up to the last one that a row sees, and the first one that it sees.

    REACH: it sees `window` positions before and behind its own. CHUNK: those of its chunk of `window` positions, a
    multiple of SPLIT.
    """
    length = unchanged(a.positions)[row] + 1
    first: u32 = 0
    if REACH:
        own = unchanged(a.own)[row]
        behind = own + a.window + 1
        length = select(behind < length, behind, length)
        first = select(own > a.window, own - a.window, first)
    elif WINDOW:
        first = select(length > a.window, length - a.window, first)
    elif CHUNK:
        first = (length - 1) // a.window * a.window
    return length, first


@inline
def scores_of(k: ptr[f16], q: ptr[f32], scores, G: int, DIM: int):
    """Goes on with the chains scores[g] over DIM elements of a key and of query head g."""
    CHUNK = max(c for c in range(8, WIDEST + 1, 8) if DIM % c == 0 and (c == 8 or c * G <= MANY * WIDEST))
    queries = unchanged(q, f32)
    for start in range(u32(0), DIM, CHUNK):
        keys = tuple(load(k + start, i, lanes=8, align=16) for i in range(0, CHUNK, 8))
        # All of these are asked for before the first of them is needed.
        schedule_barrier()
        STEP = min(FEW, portion(G, CHUNK))
        for head in unroll(0, G, STEP):
            next_portion(head)
            for part in unroll(CHUNK // 8):
                numbers = f32(keys[part])
                for g in unroll(head, min(head + STEP, G)):
                    for i in unroll(8):
                        query = load(queries + start, g * DIM + part * 8 + i)
                        scores[g] = fma(query, numbers[i], scores[g])


@inline
def all_quantized_scores(a, page, token: u32, kv_head: u32, head: u64, scores, G: int, DIM: int, ROPE: int):
    """The same over a whole key of a cache of blocks."""
    FIRST = DIM - ROPE
    width = a.n_kv * DIM
    quants = page_of(a.k_cache, page, width)
    at = (token * a.n_kv + kv_head) * DIM
    words, scales = a.q + head * (FIRST // 4), a.q_scales + head * (FIRST // GROUP)
    quantized_scores(quants, width, at, words, scales, scores, G, FIRST)
    if ROPE > 0:
        words, scales = a.q_rope + head * (ROPE // 4), a.rope_scales + head * (ROPE // GROUP)
        quantized_scores(quants, width, at + FIRST, words, scales, scores, G, ROPE)


@inline
def values_of(v: ptr[f16], stride: u32, n: int):
    """Two elements of n positions' values; v: the first position's."""
    return tuple(load(v + i * stride, lanes=2, align=4) for i in range(n))


@kernel(workgroup=256)
def attention(
    a: ptr[GpuAttentionArgs, Space.CONSTANT], G: int, DIM: int, VALUE: int, ROPE: int = 0, WINDOW: bool = False,
    CAP: bool = False, REACH: bool = False, QUANT: bool = False, SINKS: bool = False, PACKED: bool = False,
    GATED: bool = False, WHOLE: bool = False, CHUNK: bool = False, CHOSEN: bool = False, SLOPES: bool = False,
):  # fmt: skip
    """Workgroups: splits in x, key-value heads in y, rows in z. DIM, ROPE and VALUE: multiples of 8, with PACKED VALUE
    of 32; VALUE up to 512. A split that its row does not reach writes nothing. QUANT: the caches hold Q8_0 blocks; then
    multiples of 32. WHOLE: y, and as int8, too, where rows but not heads are whole groups.
    """
    ACROSS = VALUE // 2
    PARTS = 256 // ACROSS
    HEADS = -(-G // PARTS)
    es = shared(f32, G * SPLIT)
    tops = shared(f32, G * 8)
    place = workgroup_id(0)
    kv_head = workgroup_id(1)
    row = workgroup_id(2)
    n_kv = a.n_kv
    length, lowest = range_of(a, row, WINDOW, REACH, CHUNK)
    split = place + (lowest >> SPLIT_SHIFT)
    if split * SPLIT < length:
        left = length - split * SPLIT
        count = select(left > SPLIT, left - left + SPLIT, left)
        begin = select(lowest > split * SPLIT, lowest - split * SPLIT, lowest - lowest)
        pages = unchanged(a.page_table) + u64(unchanged(a.slots)[row]) * u64(a.max_pages) + split * PAGES_OF_SPLIT
        at = workitem_id()
        wave = first_lane(at >> 5)
        live = at < count
        if WINDOW:
            live = (at < count) & (at >= begin)
        here = select(live, at, count - 1)
        if CHOSEN:
            words = a.chosen + (u64(row) * u64(a.max_pages) + u64(split * PAGES_OF_SPLIT))
            live = live & ((u32(words[here >> PAGE_SHIFT]) >> (here & (PAGE_TOKENS - 1))) & 1 != 0)
        # A cache has fewer than 2^32 heads in all its pages.
        head = u64(row) * u64(n_kv * G) + u64(kv_head * G)
        scores = regs(f32, G)
        if QUANT:
            all_quantized_scores(
                a, pages[here >> PAGE_SHIFT], here & (PAGE_TOKENS - 1), kv_head, head, scores, G, DIM, ROPE
            )
        else:
            token = pages[here >> PAGE_SHIFT] * PAGE_TOKENS + (here & (PAGE_TOKENS - 1))
            k = a.k_cache + u64(token * n_kv + kv_head) * DIM
            scores_of(k, a.q + head * (DIM - ROPE), scores, G, DIM - ROPE)
            if ROPE > 0:
                scores_of(k + (DIM - ROPE), a.q_rope + head * ROPE, scores, G, ROPE)
        scale = a.scale
        for g in unroll(G):
            scores[g] = scores[g] * scale
            if SLOPES:
                own, there = unchanged(a.own)[row], split * SPLIT + at
                between = f32(select(there > own, there - own, own - there))
                scores[g] = scores[g] - a.slopes[kv_head * G + g] * between
            if CAP:
                scores[g] = a.softcap * tanh(scores[g] / a.softcap)
            scores[g] = select(live, scores[g], -INFINITY)
            top = wave_max(scores[g])
            if lane_id() == 0:
                tops[g * 8 + wave] = top
        barrier()
        for g in unroll(G):
            if g % portion(G, 2 * 8) == 0:
                next_portion(g)
            top: f32 = greatest(tops, g, CHOSEN)
            # Lanes whose position is not seen take e^0, which is thrown away.
            e = exp(select(live, scores[g] - top, 0.0))
            es[g * SPLIT + at] = select(live, e, 0.0)
        barrier()
        out = (u64(row) * u64(a.max_splits) + u64(place)) * u64(n_kv * G) + u64(kv_head * G)
        for g in range(wave, u32(G), 8):
            total: f32 = 0.0
            for i in unroll(0, SPLIT, TREE_LANES):
                total += es[g * SPLIT + lane_id() + i]
            total = wave_reduce_add(total)
            top: f32 = greatest(tops, g, CHOSEN)
            if lane_id() == 0:
                store(a.tops, concat(top, total), (out + u64(g)) * 2)
        part = at // ACROSS
        element = (at - part * ACROSS) * 2
        if part < PARTS and part < G:
            sums = regs(f32, 2 * HEADS)
            # A part without a head of its own for one of its turns does the last head once more, and drops it.
            first_es = tuple(es + clamped(part + h * PARTS, G) * SPLIT for h in range(HEADS))
            if QUANT:
                base = a.k_cache if ROPE > 0 else a.v_cache
                width = DIM if ROPE > 0 else VALUE
                weigh_quantized(base, pages, first_es, sums, kv_head, element, begin, count, n_kv, HEADS, width)
            else:
                weigh_values(a, pages, first_es, sums, kv_head, element, begin, count, HEADS, DIM, VALUE, ROPE, WINDOW)
            for h in unroll(HEADS):
                g = part + h * PARTS
                if g < G:
                    store(
                        a.values, concat(sums[2 * h], sums[2 * h + 1]), (out + u64(g)) * VALUE + u64(element), align=8
                    )
        splits = ((length + (SPLIT - 1)) >> SPLIT_SHIFT) - (lowest >> SPLIT_SHIFT)
        if is_last(a.counters, row * n_kv + kv_head, splits):
            merge_heads(a, row, kv_head, splits, G, VALUE, SINKS, GATED, PACKED)
            if WHOLE:
                if is_last(a.row_counters, row, n_kv):
                    quantize_row(a, row, n_kv * (G * VALUE // 4))


@inline
def greatest(tops, g: u32, CHOSEN: bool):
    """The greatest score of a head that a split has: that of its waves' eight."""
    top: f32 = LEAST_TOP if CHOSEN else tops[g * 8]
    for w in unroll(0 if CHOSEN else 1, 8):
        top = maximum(top, tops[g * 8 + w])
    return top


@inline
def weigh_values(
    a, pages, es, sums, kv_head: u32, element: u32, begin: u32, count: u32, HEADS: int, DIM: int, VALUE: int, ROPE: int,
    WINDOW: bool,
):  # fmt: skip
    """sums[h] = the chains over the split's positions begin .. count - 1, for two elements; es: each head's weights."""
    n_kv = a.n_kv
    WIDTH = DIM if ROPE > 0 else VALUE
    stride = n_kv * WIDTH
    base = a.k_cache if ROPE > 0 else a.v_cache
    start: u32 = 0  # the first page that is seen as a whole
    if WINDOW:
        start = (begin + (PAGE_TOKENS - 1)) >> PAGE_SHIFT
        some_values(
            base, pages, es, sums, kv_head, element, begin, smaller(count, start * PAGE_TOKENS), n_kv, HEADS, WIDTH
        )
    whole = count >> PAGE_SHIFT
    if not WINDOW or start <= whole:
        if HEADS > MANY:
            for page in range(start, whole):
                v: ptr[f16] = value_at(base, pages[page], kv_head, element, n_kv, WIDTH)
                for t in range(u32(0), PAGE_TOKENS, 4):
                    add_values(values_of(v, stride, 4), tuple(p + (page * PAGE_TOKENS + t) for p in es), sums, 4, HEADS)
                    v = v + stride * 4
            start = whole
        for two in range((whole - start) >> 1):
            # Both pages' values are asked for before the first of them is needed.
            page = two * 2 + start
            first = values_of(value_at(base, pages[page], kv_head, element, n_kv, WIDTH), stride, PAGE_TOKENS)
            second = values_of(value_at(base, pages[page + 1], kv_head, element, n_kv, WIDTH), stride, PAGE_TOKENS)
            add_values(first, tuple(p + page * PAGE_TOKENS for p in es), sums, PAGE_TOKENS, HEADS)
            second_es = tuple(p + (page * PAGE_TOKENS + PAGE_TOKENS) for p in es)
            add_values(second, second_es, sums, PAGE_TOKENS, HEADS)
        if (whole - start) & 1 != 0:
            page = whole - 1
            last = values_of(value_at(base, pages[page], kv_head, element, n_kv, WIDTH), stride, PAGE_TOKENS)
            add_values(last, tuple(p + page * PAGE_TOKENS for p in es), sums, PAGE_TOKENS, HEADS)
        some_values(base, pages, es, sums, kv_head, element, whole * PAGE_TOKENS, count, n_kv, HEADS, WIDTH)


@inline
def some_values(
    base, pages, es, sums, kv_head: u32, element: u32, begin: u32, end: u32, n_kv: u32, HEADS: int, WIDTH: int
):
    """The positions begin .. end - 1 of one page: four loads before the first of them is needed, then the rest."""
    if begin < end:
        stride = n_kv * WIDTH
        token = begin & (PAGE_TOKENS - 1)
        v: ptr[f16] = value_at(base, pages[begin >> PAGE_SHIFT], kv_head, element, n_kv, WIDTH) + token * stride
        fours = end - ((end - begin) & 3)
        for i in range(begin, fours, 4):
            add_values(values_of(v, stride, 4), tuple(p + i for p in es), sums, 4, HEADS)
            v = v + stride * 4
        for i in range(fours, end):
            add_values(values_of(v, stride, 1), tuple(p + i for p in es), sums, 1, HEADS)
            v = v + stride


@inline
def smaller(a: u32, b: u32):
    """The smaller of two."""
    return select(a < b, a, b)


@inline
def clamped(x: u32, n: int):
    """x, or n - 1 where x is no less than n."""
    return select(x < n, x, x - x + (n - 1))


@inline
def value_at(base, page: u32, kv_head: u32, element: u32, n_kv: u32, WIDTH: int):
    """The value of a page's first position, from an element on."""
    return base + ((u64(page) * PAGE_TOKENS * u64(n_kv) + u64(kv_head)) * WIDTH + u64(element))


@inline
def merge_heads(a, row: u32, kv_head: u32, splits: u32, G: int, VALUE: int, SINKS: bool, GATED: bool, PACKED: bool):
    """y of the G heads of a row and a key-value head; see `GpuAttentionArgs`."""
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

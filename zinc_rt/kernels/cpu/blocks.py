"""Keys of blocks of positions, and attention over them beside a window; see `zinc_rt.ir.ops.blocks`."""

from __future__ import annotations

from zinc_rt.kernels.cpu.attention import finish, merge_split
from zinc_rt.kernels.cpu.attention_split import STATE, turned
from zinc_rt.kernels.cpu.attention_weights import weigh
from zinc_rt.kernels.cpu.packs import load_some, store_some
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.kernels.maths import INFINITY, gather_step
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, fma, load, minimum, regs, splat, store, unroll
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, struct, u32, vec
from zinc_rt.numerics import LEAST_TOP, PAGE_SHIFT, PAGE_TOKENS, SPLIT


@struct
class PoolArgs:
    """values, scores: f32[rows, width]. offsets: f32[BLOCK, width]. state: f32[slots, 3, n], with OVERLAP 6. y:
    f32[rows, n]. width: n, with OVERLAP twice that.
    """

    values: ptr[f32]
    scores: ptr[f32]
    offsets: ptr[f32]
    state: ptr[f32]
    y: ptr[f32]
    n: i32


@struct
class BlockAttentionArgs:
    """q, y: f32[rows, HEADS, DIM]. keys: f16[page, 16, DIM]. block_keys: f16[page, entries, DIM]. chosen: i32[rows,
    max_pages], with CHOSEN. sinks: f32[HEADS].
    """

    q: ptr[f32]
    keys: ptr[f16]
    block_keys: ptr[f16]
    chosen: ptr[i32]
    sinks: ptr[f32]
    y: ptr[f32]
    window: i32
    scale: f32
    softcap: f32


@kernel
def pool_blocks(
    a: ptr[PoolArgs], step: ptr[StepRecord], first: i32, last: i32, BLOCK: int, OVERLAP: bool, CHUNK: int, W: int
):
    """Units: CHUNK channels, of all rows in order."""
    n = a.n
    width = n * 2 if OVERLAP else n
    for u in range(first, last):
        end: i32 = minimum((u + 1) * CHUNK, n)
        for row in range(step.n_rows):
            position = step.positions[row]
            place = position - i32(u32(position) // BLOCK) * BLOCK
            state = a.state + i64(step.slots[row]) * (i64(width) * 3)
            values = a.values + i64(row) * i64(width)
            scores = a.scores + i64(row) * i64(width)
            offsets = a.offsets + i64(place) * i64(width)
            mine: i32 = 0  # where the channels of a row's own block begin
            if OVERLAP:
                mine = n
            for at in range(u * CHUNK, end, W):
                top: vec[f32, W] = LEAST_TOP
                total: vec[f32, W] = 0.0
                weighted: vec[f32, W] = 0.0
                if place != 0:
                    top = load_some(state, at, n, W)
                    total = load_some(state + n, at, n, W)
                    weighted = load_some(state + n * 2, at, n, W)
                if OVERLAP:
                    next_top: vec[f32, W] = LEAST_TOP
                    next_total: vec[f32, W] = 0.0
                    next_weighted: vec[f32, W] = 0.0
                    kept = state + n * 3
                    if position != 0 and place == 0:
                        top = load_some(kept, at, n, W)
                        total = load_some(kept + n, at, n, W)
                        weighted = load_some(kept + n * 2, at, n, W)
                    if place != 0:
                        next_top = load_some(kept, at, n, W)
                        next_total = load_some(kept + n, at, n, W)
                        next_weighted = load_some(kept + n * 2, at, n, W)
                    score = load_some(scores, at, n, W) + load_some(offsets, at, n, W)
                    after = gather_step((next_top, next_total, next_weighted), load_some(values, at, n, W), score)
                    for i in unroll(3):
                        store_some(kept + n * i, after[i], at, n, W)
                own_score = load_some(scores + mine, at, n, W) + load_some(offsets + mine, at, n, W)
                own = gather_step((top, total, weighted), load_some(values + mine, at, n, W), own_score)
                for i in unroll(3):
                    store_some(state + n * i, own[i], at, n, W)
                store_some(a.y + i64(row) * i64(n), own[2] / own[1], at, n, W)


@inline
def turn_entries(keys, where, tile, at: i32, DIM: int, V: int):
    """tile[element, entry] = 16 keys from entry `at` on."""
    for c in range(DIM // V):
        for first in unroll(0, PAGE_TOKENS, V):
            rows = tuple(load(keys + (where[at + first + e] + i64(c * V)), lanes=V) for e in range(V))
            columns = turned(rows, V)
            for e in unroll(V):
                store(tile, columns[e], (c * V + e) * PAGE_TOKENS + first)


@inline
def scores_of_entries(q, tile, some, sums, places, at: i32, n: i32, G: int, DIM: int, W: int):
    """sums[head, place] = the products of 16 keys and the queries of G heads, unscaled."""
    H = PAGE_TOKENS // W
    acc = regs(vec[f32, W], G * H)
    for d in range(DIM):
        k = tuple(f32(load(tile, d * PAGE_TOKENS + h * W, lanes=W)) for h in range(H))
        for g in unroll(G):
            element = splat(load(q, g * DIM + d), W)
            for h in unroll(H):
                acc[g * H + h] = fma(k[h], element, acc[g * H + h])
    here = minimum(n - at, PAGE_TOKENS)
    for g in unroll(G):
        for h in unroll(H):
            store(some, acc[g * H + h], h * W)
        for i in range(here):
            sums[g * SPLIT + places[at + i]] = some[i]


@inline
def weigh_entries(keys, where, places, sums, out, n: i32, G: int, DIM: int, V: int):
    """out[head, element] = the chains over entries of weight and key."""
    C = max(c for c in (1, 2, 4, 8) if (DIM // V) % c == 0 and (c * G <= 16 or c == 1))
    for d in range(0, DIM, V * C):
        acc = regs(vec[f32, V], G * C)
        for i in range(n):
            key = keys + (where[i] + i64(d))
            values = tuple(f32(load(key, c * V, lanes=V)) for c in range(C))
            place = places[i]
            for g in unroll(G):
                weight = splat(load(sums, g * SPLIT + place), V)
                for c in unroll(C):
                    acc[g * C + c] = fma(weight, values[c], acc[g * C + c])
        for g in unroll(G):
            for c in unroll(C):
                store(out, acc[g * C + c], g * (DIM + STATE) + d + c * V)


@inline
def one_list(
    a, keys, q, lists, buffers, n: i32, whole: i32, fresh: i32, G: int, DIM: int, W: int,
):  # fmt: skip
    """A split of `whole` keys of which n are seen, for G heads: into their states, or merged with them.

    lists: where the seen keys begin, and their places in the split. fresh: 1 where the states are empty.
    """
    where, places = lists
    sums, tile, some, state, part = buffers
    V = max(v for v in (2, 4, 8, 16) if v <= W and DIM % v == 0)
    out: ptr[f32] = part
    if fresh != 0:
        out = state
    hidden: vec[f32, W] = -INFINITY
    if n < whole:
        for i in range(0, G * SPLIT, W):
            store(sums, hidden, i)
    for i in unroll(PAGE_TOKENS):
        where[n + i] = where[0]
    for at in range(0, n, PAGE_TOKENS):
        turn_entries(keys, where, tile, at, DIM, V)
        scores_of_entries(q, tile, some, sums, places, at, n, G, DIM, W)
    for g in range(G):
        weigh(a, sums + g * SPLIT, out + g * (DIM + STATE), 0, whole, DIM, W, False, False, True)
    weigh_entries(keys, where, places, sums, out, n, G, DIM, V)
    if fresh == 0:
        for g in range(G):
            merge_split(state + g * (DIM + STATE), part + g * (DIM + STATE), DIM, W)


@kernel
def block_attention(
    a: ptr[BlockAttentionArgs], step: ptr[StepRecord], first: i32, last: i32, HEADS: int, G: int, DIM: int, BLOCK: int,
    CHOSEN: bool, W: int,
):  # fmt: skip
    """Units: (row, G heads). BLOCK: positions of a block, 0 for none."""
    PARTS = HEADS // G
    where = array(i64, SPLIT + PAGE_TOKENS, zero=False)
    places = array(i32, SPLIT, zero=False)
    sums = array(f32, G * SPLIT, zero=False)
    tile = array(f16, DIM * PAGE_TOKENS, zero=False)
    some = array(f32, PAGE_TOKENS, zero=False)
    state = array(f32, G * (DIM + STATE), zero=False)
    part = array(f32, G * (DIM + STATE), zero=False)
    for u in range(first, last):
        row = i32(u32(u) // PARTS)
        head = (u - row * PARTS) * G
        length = step.positions[row] + 1
        pages = step.page_table + i64(step.slots[row]) * i64(step.max_pages)
        q = a.q + (i64(row) * HEADS + i64(head)) * DIM
        begin: i32 = 0
        if length > a.window:
            begin = length - a.window
        fresh: i32 = 1
        for at in range(begin, length, SPLIT):
            n = minimum(length - at, SPLIT)
            for i in range(n):
                place = at + i
                page = i64(pages[place >> PAGE_SHIFT])
                where[i] = (page * PAGE_TOKENS + i64(place & (PAGE_TOKENS - 1))) * DIM
                places[i] = i
            one_list(a, a.keys, q, (where, places), (sums, tile, some, state, part), n, n, fresh, G, DIM, W)
            fresh = 0
        if BLOCK > 0:
            PER_PAGE = max(1, PAGE_TOKENS // BLOCK)
            words = a.chosen + i64(row) * i64(step.max_pages)
            blocks = i32(u32(length) // BLOCK)
            for start in range(0, blocks, SPLIT):
                whole = minimum(blocks - start, SPLIT)
                found: i32 = 0
                for i in range(whole):
                    end = (start + i) * BLOCK + (BLOCK - 1)
                    live: i32 = 1
                    if CHOSEN:
                        live = (words[end >> PAGE_SHIFT] >> (end & (PAGE_TOKENS - 1))) & 1
                    if live != 0:
                        entry = (end & (PAGE_TOKENS - 1)) * PER_PAGE >> PAGE_SHIFT
                        where[found] = (i64(pages[end >> PAGE_SHIFT]) * PER_PAGE + i64(entry)) * DIM
                        places[found] = i
                        found += 1
                if found > 0:
                    one_list(
                        a, a.block_keys, q, (where, places), (sums, tile, some, state, part), found, whole, 0, G, DIM,
                        W,
                    )  # fmt: skip
        for g in range(G):
            y = a.y + (i64(row) * HEADS + i64(head + g)) * DIM
            finish(a, state + g * (DIM + STATE), y, head + g, DIM, W, True)

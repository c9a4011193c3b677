"""Attention over the paged cache: splits of 256 positions, merged in order, and the sinks after them.

Query heads that share a key-value head are worked on together, and so are R consecutive rows of one sequence: each load
of a key or value serves all of them. That is a pass; passes of further rows follow while the split is in the cache.
`attention_split` has what happens within a split, and the constants.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.attention_split import STATE, TILE, AttentionShape, gather_queries, one_split
from zinc_rt.kernels.cpu.kv_quant import gather_quantized
from zinc_rt.kernels.cpu.structs import AttentionArgs, StepRecord
from zinc_rt.kernels.maths import exp
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, load, maximum, minimum, splat, store
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, u32
from zinc_rt.numerics import SPLIT, SPLIT_SHIFT

QUERIES = 64
"""Queries that go over a split together at most, some at a time: their states and the split stay in the cache."""


@inline
def merge_split(state, part, VALUE: int, W: int):
    """Fold a split (values, max, sum) into the state of the splits before it."""
    V = max(v for v in (1, 2, 4, 8, 16) if v <= W and VALUE % v == 0)
    top = maximum(state[VALUE], part[VALUE])
    old = exp(splat(state[VALUE] - top, 4))[0]
    new = exp(splat(part[VALUE] - top, 4))[0]
    state[VALUE] = top
    state[VALUE + 1] = (state[VALUE + 1] * old) + (part[VALUE + 1] * new)
    for d in range(0, VALUE, V):
        store(state, (load(state, d, lanes=V) * splat(old, V)) + (load(part, d, lanes=V) * splat(new, V)), d)


@inline
def add_sink(state, sink, VALUE: int, W: int):
    """Merge a sink, unless it is NaN: a split whose only exponential is 1, and whose value is zero."""
    V = max(v for v in (1, 2, 4, 8, 16) if v <= W and VALUE % v == 0)
    if sink == sink:  # noqa: PLR0124 (not a NaN)
        top = maximum(state[VALUE], sink)
        old = exp(splat(state[VALUE] - top, 4))[0]
        state[VALUE + 1] = (state[VALUE + 1] * old) + exp(splat(sink - top, 4))[0]
        for d in range(0, VALUE, V):
            store(state, load(state, d, lanes=V) * splat(old, V), d)


@inline
def finish(a, state, y, head, VALUE: int, W: int, SINKS: bool):
    """y = values / sum, after the head's sink."""
    V = max(v for v in (1, 2, 4, 8, 16) if v <= W and VALUE % v == 0)
    if SINKS:
        add_sink(state, a.sinks[head], VALUE, W)
    total = splat(state[VALUE + 1], V)
    for d in range(0, VALUE, V):
        store(y, load(state, d, lanes=V) / total, d)


@inline
def seen_by(a, step, row: i32, WINDOWED: bool, WHOLE: bool):
    """What a row sees: how many positions lie up to its last one, and the window that ends there.

    WHOLE: its sequence's, or with a window those as near behind it as before it; else up to its own.
    """
    own = step.positions[row]
    length: i32 = own + 1
    window: i32 = a.window
    if WHOLE:
        length = step.last_positions[row] + 1
        if WINDOWED:
            if own + window < length:
                length = own + window + 1
            window = length - own + window
    return length, window


@inline
def first_seen(window: i32, length: i32, WINDOWED: bool, CHUNKED: bool):
    """The first position that a row sees, whose last is `length` - 1. CHUNKED: that of its chunk of `window`."""
    first: i32 = 0
    if WINDOWED:
        if length > window:
            first = length - window
    if CHUNKED:
        first = i32(u32(length - 1) // u32(window)) * window
    return first


@inline
def gather(a, q, row: i32, kv_head: i32, R: int, S: AttentionShape):
    """The queries of R rows and G heads, as the scores want them."""
    if S.QUANT:
        gather_quantized(a, q, row, kv_head, R, S.G, S.DIM, S.ROPE, S.W)
    else:
        gather_queries(a, q, row, kv_head, R, S.G, S.DIM, S.ROPE)


@inline
def whole_rows(a, step, q, sums, tile, state, part, row: i32, passes: i32, kv_head: i32, R: int, S: AttentionShape):
    """All splits of passes * R consecutive rows of a sequence, and their output.

    Each split's keys and values serve all passes before the next split's are read.
    """
    length, window = seen_by(a, step, row, S.WINDOWED, S.WHOLE)
    pages = step.page_table + i64(step.slots[row]) * i64(step.max_pages)
    for pass_ in range(passes):
        gather(a, q + pass_ * (R * S.G * S.DIM), row + pass_ * R, kv_head, R, S)
    longest = length + (passes * R - 1)
    begin = first_seen(window, length, S.WINDOWED, S.CHUNKED) >> SPLIT_SHIFT
    for s in range(begin, (longest + (SPLIT - 1)) >> SPLIT_SHIFT):
        for pass_ in range(passes):
            seen = length + pass_ * R
            start = first_seen(window, seen, S.WINDOWED, S.CHUNKED) >> SPLIT_SHIFT
            if s >= start and s * SPLIT < seen + (R - 1):
                states = state + pass_ * (R * S.G * (S.VALUE + STATE))
                target: ptr[f32] = part
                if s == start:
                    target = states
                queries = q + pass_ * (R * S.G * S.DIM)
                one_split(
                    a,
                    pages,
                    queries,
                    target,
                    sums,
                    tile,
                    row + pass_ * R,
                    step.max_pages,
                    kv_head,
                    s,
                    seen,
                    window,
                    R,
                    S,
                )
                if s > start:
                    join_split(states, part, s, seen, window, R, S)
    n_heads = a.n_kv * S.G
    for i in range(passes * (R * S.G)):
        r = i32(u32(i) // S.G)
        head = kv_head * S.G + i - r * S.G
        y = a.y + (i64(row + r) * i64(n_heads) + i64(head)) * S.VALUE
        finish(a, state + i * (S.VALUE + STATE), y, head, S.VALUE, S.W, S.SINKS)


@inline
def join_split(states, part, s: i32, length: i32, window: i32, R: int, S: AttentionShape):
    """Fold split s of R rows, the first of which sees positions up to `length` - 1, into their states."""
    for i in range(R * S.G):
        r = i32(u32(i) // S.G)
        state = states + i * (S.VALUE + STATE)
        if length + r > s * SPLIT:
            # Of rows that share a window's edge with a split's, the later ones begin with the later split.
            if first_seen(window, length + r, S.WINDOWED, S.CHUNKED) >= s * SPLIT:
                for d in range(S.VALUE + 2):
                    state[d] = part[i * (S.VALUE + STATE) + d]
            else:
                merge_split(state, part + i * (S.VALUE + STATE), S.VALUE, S.W)


@inline
def following(a, step, row: i32, end: i32, WHOLE: bool, CHUNKED: bool):
    """How many rows from `row` on, before `end`, are consecutive positions of one sequence, each of which sees one more
    than the one before, or of one chunk of it.
    """
    n: i32 = 1
    while (
        row + n < end
        and step.slots[row + n] == step.slots[row]
        and step.positions[row + n] == step.positions[row] + n
        and (not CHUNKED or i32(u32(step.positions[row + n]) % u32(a.window)) != 0)
        and (not WHOLE or step.last_positions[row + n] == step.last_positions[row] + n)
    ):
        n += 1
    return n


@kernel
def attention(a: ptr[AttentionArgs], step: ptr[StepRecord], first: i32, last: i32, R: int, S: AttentionShape):
    """Units: (R rows, key-value head), or (row, key-value head, split) where the step splits; then `merge` follows."""
    n_kv = a.n_kv
    PASSES = max(1, QUERIES // (R * S.G))
    q = array(f32, PASSES * R * S.G * S.DIM, zero=False)
    sums = array(f32, R * S.G * SPLIT, zero=False)
    tile = array(f32 if S.QUANT else f16, TILE if S.LATENT or S.QUANT else 1, zero=False)
    state = array(f32, PASSES * R * S.G * (S.VALUE + STATE), zero=False)
    part = array(f32, R * S.G * (S.VALUE + STATE), zero=False)
    n_splits = step.n_splits
    if n_splits != 0:
        n_heads = n_kv * S.G
        for u in range(first, last):
            unit = i32(u32(u) // u32(n_splits))
            s = u - unit * n_splits
            row = i32(u32(unit) // u32(n_kv))
            kv_head = unit - row * n_kv
            length, window = seen_by(a, step, row, S.WINDOWED, S.WHOLE)
            if s * SPLIT < length and (s + 1) * SPLIT > first_seen(window, length, S.WINDOWED, S.CHUNKED):
                pages = step.page_table + i64(step.slots[row]) * i64(step.max_pages)
                at = (i64(row) * i64(a.max_splits) + i64(s)) * i64(n_heads) + i64(kv_head * S.G)
                out = a.partial + at * (S.VALUE + STATE)
                gather(a, q, row, kv_head, 1, S)
                one_split(a, pages, q, out, sums, tile, row, step.max_pages, kv_head, s, length, window, 1, S)
    else:
        # Units of one key-value head follow each other: those of a claim share its keys and values.
        blocks = i32(u32(step.n_rows + (R - 1)) // R)
        u: i32 = first
        while u < last:
            kv_head = i32(u32(u) // u32(blocks))
            block = u - kv_head * blocks
            units: i32 = minimum(minimum(last - u, blocks - block), PASSES)
            row: i32 = block * R
            end: i32 = minimum(row + units * R, step.n_rows)
            passes = i32(u32(following(a, step, row, end, S.WHOLE, S.CHUNKED)) // R)
            if passes > 0:
                whole_rows(a, step, q, sums, tile, state, part, row, passes, kv_head, R, S)
                u += passes
            # A run of rows is a pass at least where a pass is one row.
            if R > 1:
                if passes == 0:
                    end = minimum(row + R, end)
                    while row < end:
                        whole_rows(a, step, q, sums, tile, state, part, row, 1, kv_head, 1, S)
                        row += 1
                    u += 1


@kernel
def merge(
    a: ptr[AttentionArgs], step: ptr[StepRecord], first: i32, last: i32, G: int, VALUE: int, W: int, WINDOWED: bool,
    CHUNKED: bool, SINKS: bool, WHOLE: bool,
):  # fmt: skip
    """Units: (row, head) of a step whose attention was split up."""
    n_heads = a.n_kv * G
    for u in range(first, last):
        row = i32(u32(u) // u32(n_heads))
        head = u - row * n_heads
        length, window = seen_by(a, step, row, WINDOWED, WHOLE)
        start = first_seen(window, length, WINDOWED, CHUNKED) >> SPLIT_SHIFT
        splits = (length + (SPLIT - 1)) >> SPLIT_SHIFT
        stride = i64(n_heads) * (VALUE + STATE)
        partial = a.partial + ((i64(row) * i64(a.max_splits)) * i64(n_heads) + i64(head)) * (VALUE + STATE)
        state = partial + i64(start) * stride
        for s in range(start + 1, splits):
            merge_split(state, partial + i64(s) * stride, VALUE, W)
        finish(a, state, a.y + i64(u) * VALUE, head, VALUE, W, SINKS)

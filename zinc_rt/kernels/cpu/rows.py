"""Operations on what comes with the rows of one step: rotation by own angles, attention without a cache, given rows.

Attention goes over splits of 256 rows, as attention over a cache does, and gives the same bits for the same float32
keys and values. A unit is a head and `BLOCK` rows; the keys of a split are turned about once for all of them.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.attention import merge_split
from zinc_rt.kernels.cpu.attention_split import STATE, turned
from zinc_rt.kernels.cpu.attention_weights import weigh
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, fma, load, minimum, regs, splat, store, unroll
from zinc_rt.lang.types import f32, i32, i64, ptr, struct, u32, vec
from zinc_rt.numerics import SPLIT

BLOCK = 256
"""Rows of a unit of attention."""


NEAR_ROWS = 128
"""Rows whose values stay in the first cache."""


@struct
class RotateArgs:
    """table: f32[n_rows, tables, pairs, 2], cosine and sine."""

    x: ptr[f32]
    table: ptr[f32]
    y: ptr[f32]
    n_heads: i32


@struct
class RowAttentionArgs:
    """q, k, v, y: f32[n_rows, n_heads, DIM]. first, last: the rows that each row sees."""

    q: ptr[f32]
    k: ptr[f32]
    v: ptr[f32]
    first: ptr[i32]
    last: ptr[i32]
    y: ptr[f32]
    n_heads: i32
    scale: f32


@struct
class GivenRowsArgs:
    """x, y: f32[n_rows, n]. given: f32[n_rows, n_given]. is_given: i32[n_rows]. start: of the part of a given row."""

    x: ptr[f32]
    given: ptr[f32]
    is_given: ptr[i32]
    y: ptr[f32]
    n: i32
    n_given: i32
    start: i32


@struct
class JoinArgs:
    """x: f32[n_rows, n_heads, n_x]. tail: f32[n_rows, n_tails, n_tail]. y: f32[n_rows, n_heads, n_x + n_tail]."""

    x: ptr[f32]
    tail: ptr[f32]
    y: ptr[f32]
    n_heads: i32
    n_tails: i32
    n_x: i32
    n_tail: i32


@kernel
def join_heads(a: ptr[JoinArgs], step: ptr[StepRecord], first: i32, last: i32):
    """Units: rows. Each head with its tail behind it."""
    shared_by = i32(u32(a.n_heads) // u32(a.n_tails))
    for row in range(first, last):
        for head in range(a.n_heads):
            at = i64(row) * i64(a.n_heads) + i64(head)
            own = i64(row) * i64(a.n_tails) + i64(u32(head) // u32(shared_by))
            x = a.x + at * i64(a.n_x)
            tail = a.tail + own * i64(a.n_tail)
            y = a.y + at * i64(a.n_x + a.n_tail)
            for i in range(a.n_x):
                y[i] = x[i]
            for i in range(a.n_tail):
                y[a.n_x + i] = tail[i]


@kernel
def given_rows(a: ptr[GivenRowsArgs], step: ptr[StepRecord], first: i32, last: i32, ADD: bool):
    """Units: rows. A row is x's, or the part of the given one, which may be added to x's."""
    for row in range(first, last):
        x = a.x + i64(row) * i64(a.n)
        y = a.y + i64(row) * i64(a.n)
        part = a.given + (i64(row) * i64(a.n_given) + i64(a.start))
        if a.is_given[row] != 0:
            for i in range(a.n):
                y[i] = x[i] + part[i] if ADD else part[i]
        else:
            for i in range(a.n):
                y[i] = x[i]


@kernel
def rotate(
    a: ptr[RotateArgs], step: ptr[StepRecord], first: i32, last: i32, DIM: int, PAIRS: int, TABLES: int,
    INTERLEAVED: bool,
):  # fmt: skip
    """Units: rows. The first 2 * PAIRS elements of each head are rotated, the others stay."""
    for row in range(first, last):
        for head in range(a.n_heads):
            table = a.table + (i64(row) * TABLES + i64(i32(u32(head) % TABLES))) * (2 * PAIRS)
            at = (i64(row) * i64(a.n_heads) + i64(head)) * DIM
            x = a.x + at
            y = a.y + at
            for pair in range(PAIRS):
                i: i32 = pair
                j: i32 = pair + PAIRS
                if INTERLEAVED:
                    i = 2 * pair
                    j = i + 1
                cos = table[2 * pair]
                sin = table[2 * pair + 1]
                p = x[i]
                q = x[j]
                y[i] = p * cos - q * sin
                y[j] = p * sin + q * cos
            for d in range(2 * PAIRS, DIM):
                y[d] = x[d]


@inline
def turn_keys(k: ptr[f32], stride: i64, n: i32, keys, DIM: int, V: int, NEAR: int):
    """keys[r // NEAR, element, r % NEAR] = the keys of rows r below n, and what was there in other places."""
    whole = n & -V
    for r in range(0, whole, V):
        place = r
        for d in range(0, DIM, V):
            source = k + (i64(r) * stride + i64(d))
            columns = turned(tuple(load(source, i * stride, lanes=V) for i in range(V)), V)
            for i in unroll(V):
                store(keys, columns[i], place + (d + i) * SPLIT)
    for r in range(whole, n):
        place = r
        for d in range(DIM):
            keys[place + d * SPLIT] = k[i64(r) * stride + i64(d)]


@inline
def scores(q, keys, sums, at: i32, R: int, DIM: int, W: int, C: int):
    """sums[query, at ...] = products of R queries q[element, query] and the keys [element, row] of C * W rows."""
    acc = regs(vec[f32, W], R * C)
    for d in range(DIM):
        k = tuple(load(keys, d * SPLIT + c * W, lanes=W) for c in range(C))
        for i in unroll(R):
            query = splat(load(q, d * R + i), W)
            for c in unroll(C):
                acc[i * C + c] = fma(k[c], query, acc[i * C + c])
    for i in unroll(R):
        for c in unroll(C):
            store(sums, acc[i * C + c], i * SPLIT + at + c * W)


@inline
def values(v, sums, out, at: i32, end: i32, R: int, DIM: int, V: int, C: int):
    """out[query, element] = the chains over rows at ... end - 1 of weight and value, after those over the rows before.

    v: values f32[SPLIT, DIM].
    """
    for d in range(0, DIM, V * C):
        acc = regs(vec[f32, V], R * C)
        if at > 0:
            for i in unroll(R):
                for c in unroll(C):
                    acc[i * C + c] = load(out, i * (DIM + STATE) + d + c * V, lanes=V)
        row = v + (at * DIM + d)
        for t in range(at, end):
            value = tuple(load(row, c * V, lanes=V) for c in range(C))
            for i in unroll(R):
                weight = splat(load(sums, i * SPLIT + t), V)
                for c in unroll(C):
                    acc[i * C + c] = fma(weight, value[c], acc[i * C + c])
            row = row + DIM
        for i in unroll(R):
            for c in unroll(C):
                store(out, acc[i * C + c], i * (DIM + STATE) + d + c * V)


@kernel
def row_attention(a: ptr[RowAttentionArgs], step: ptr[StepRecord], first: i32, last: i32, DIM: int, W: int, R: int):
    """Units: (head, BLOCK rows).

    All rows of a unit go by a few keys, and later by a few values, before the next ones do: those few stay in the first
    cache, however far apart the rows of a step lie.
    """
    V = max(v for v in (1, 2, 4, 8, 16) if v <= W and DIM % v == 0)
    VECTORS = 2 if W == 8 else 4
    C = max(c for c in (1, 2, 4) if (DIM // V) % c == 0 and c <= VECTORS)
    ROWS = -(-BLOCK // R) * R
    keys = array(f32, DIM * SPLIT)
    own_values = array(f32, DIM * SPLIT, zero=False)
    q = array(f32, DIM * ROWS, zero=False)
    sums = array(f32, ROWS * SPLIT, zero=False)
    part = array(f32, ROWS * (DIM + STATE), zero=False)
    state = array(f32, ROWS * (DIM + STATE), zero=False)
    stride = i64(a.n_heads) * DIM
    blocks = i32(u32(step.n_rows + (BLOCK - 1)) // BLOCK)
    for u in range(first, last):
        head = i32(u32(u) // u32(blocks))
        row: i32 = (u - head * blocks) * BLOCK
        end = minimum(row + BLOCK, step.n_rows)
        at_head = i64(head) * DIM
        while row < end:
            begin = a.first[row]
            length = a.last[row] + 1 - begin
            n: i32 = 1  # rows that see the same
            while row + n < end and a.first[row + n] == begin and a.last[row + n] + 1 - begin == length:
                n += 1
            for r in range(0, n, R):
                for i in unroll(R):  # behind the last row it comes again
                    query = a.q + (i64(row + minimum(r + i, n - 1)) * stride + at_head)
                    for d in range(DIM):
                        q[r * DIM + d * R + i] = query[d]
            for start in range(0, length, SPLIT):
                count = minimum(length - start, SPLIT)
                source = i64(begin + start) * stride + at_head
                turn_keys(a.k + source, stride, count, keys, DIM, V, VECTORS * W)
                for t in range(count):
                    for d in range(0, DIM, V):
                        store(own_values, load(a.v + (source + i64(t) * stride), d, lanes=V), t * DIM + d)
                out: ptr[f32] = part
                if start == 0:
                    out = state
                for at in range(0, count, VECTORS * W):
                    for r in range(0, n, R):
                        scores(q + r * DIM, keys + at, sums + r * SPLIT, at, R, DIM, W, VECTORS)
                for r in range(n):
                    weigh(a, sums + r * SPLIT, out + r * (DIM + STATE), 0, count, DIM, W, False, False)
                for at in range(0, count, NEAR_ROWS):
                    stop = minimum(at + NEAR_ROWS, count)
                    for r in range(0, n, R):
                        values(own_values, sums + r * SPLIT, out + r * (DIM + STATE), at, stop, R, DIM, V, C)
                if start > 0:
                    for r in range(n):
                        merge_split(state + r * (DIM + STATE), part + r * (DIM + STATE), DIM, W)
            for i in range(n):
                done = state + i * (DIM + STATE)
                y = a.y + (i64(row + i) * stride + at_head)
                total = splat(done[DIM + 1], V)
                for d in range(0, DIM, V):
                    store(y, load(done, d, lanes=V) / total, d)
            row += n

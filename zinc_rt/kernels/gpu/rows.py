"""Operations on what comes with the rows of one step: rotation by own angles, attention among rows, given rows."""

from __future__ import annotations

from zinc_rt.kernels.maths import INFINITY, exp
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import barrier, fma, maximum, shared, workgroup_id, workitem_id
from zinc_rt.lang.types import f32, i32, ptr, u32, u64
from zinc_rt.numerics import SPLIT, TREE_LANES


@kernel(workgroup=256)
def rotate(x: ptr[f32], table: ptr[f32], y: ptr[f32], n: u32, DIM: int, PAIRS: int, TABLES: int, INTERLEAVED: bool):
    """y = rows of n elements, the first 2 * PAIRS of each head of DIM rotated; table: f32[rows, TABLES, PAIRS, 2],
    cosine and sine. ceil(n / 256) workgroups in x, a row each in y.
    """
    i = workgroup_id(0) * 256 + workitem_id()
    row = u64(workgroup_id(1))
    if i < n:
        at = row * u64(n) + u64(i)
        d = i % DIM
        if d < 2 * PAIRS:
            pair: u32 = d
            other: u64 = at
            second: i32 = 0
            if INTERLEAVED:
                pair = d >> 1
                second = i32(d & 1)
                other = at ^ 1 if DIM % 2 == 0 else at + u64(1 - 2 * second)
            else:
                if d >= PAIRS:
                    pair = d - PAIRS
                    second = 1
                    other = at - PAIRS
                else:
                    other = at + PAIRS
            turn = (row * TABLES + u64(i // DIM % TABLES)) * (2 * PAIRS) + u64(2 * pair)
            cos = table[turn]
            sin = table[turn + 1]
            own = x[at]
            if second != 0:
                y[at] = x[other] * sin + own * cos
            else:
                y[at] = own * cos - x[other] * sin
        else:
            y[at] = x[at]


@kernel(workgroup=256)
def join_heads(x: ptr[f32], tail: ptr[f32], y: ptr[f32], n_heads: u32, n_tails: u32, n_x: u32, n_tail: u32):
    """y = f32[rows, n_heads, n_x + n_tail], each head of x with its tail behind it; tails are shared by as many heads
    each. ceil(n_heads * (n_x + n_tail) / 256) workgroups in x, a row each in y.
    """
    i = workgroup_id(0) * 256 + workitem_id()
    row = u64(workgroup_id(1))
    width = n_x + n_tail
    if i < n_heads * width:
        head = i // width
        d = i - head * width
        at = row * u64(n_heads * width) + u64(i)
        if d < n_x:
            y[at] = x[(row * u64(n_heads) + u64(head)) * u64(n_x) + u64(d)]
        else:
            own = head // (n_heads // n_tails)
            y[at] = tail[(row * u64(n_tails) + u64(own)) * u64(n_tail) + u64(d - n_x)]


@kernel(workgroup=256)
def given_rows(
    x: ptr[f32], given: ptr[f32], is_given: ptr[i32], y: ptr[f32], n: u32, n_given: u32, start: u32, ADD: bool
):
    """y = x, f32[rows, n]; where `is_given` is not 0 the elements of given, f32[rows, n_given], from `start` on, or x
    plus them. ceil(n / 256) workgroups in x, a row each in y.
    """
    i = workgroup_id(0) * 256 + workitem_id()
    row = u64(workgroup_id(1))
    if i < n:
        at = row * u64(n) + u64(i)
        value: f32 = x[at]
        if is_given[row] != 0:
            part = given[row * u64(n_given) + u64(start + i)]
            value = value + part if ADD else part
        y[at] = value


@inline
def highest(part, x: f32):
    """The greatest of 256 lanes' numbers, in every lane; NaN counts for nothing. part: LDS, f32[256]."""
    at = workitem_id()
    part[at] = x
    barrier()
    top: f32 = -INFINITY
    for i in range(256):
        if part[i] > top:
            top = part[i]
    barrier()
    return top


@kernel(workgroup=256)
def row_attention(
    q: ptr[f32], k: ptr[f32], v: ptr[f32], first: ptr[i32], last: ptr[i32], y: ptr[f32], n_heads: u32, scale: f32,
    DIM: int,
):  # fmt: skip
    """y[row, head] = attention of f32[rows, n_heads, DIM] among rows first[row] .. last[row]; a workgroup a row and
    head. A lane has a row's score, then an element of the output, of each split of 256 rows.
    """
    query = shared(f32, DIM)
    weights = shared(f32, SPLIT)
    lanes = shared(f32, TREE_LANES)
    lane = workitem_id()
    row = workgroup_id(1)
    head = workgroup_id(0)
    stride = u64(n_heads) * DIM
    own = u64(row) * stride + u64(head) * DIM
    for d in range(lane, DIM, 256):
        query[d] = q[own + u64(d)]
    barrier()
    begin = first[row]
    length = last[row] + 1 - begin
    top: f32 = 0.0
    total: f32 = 0.0
    acc: f32 = 0.0
    for start in range(0, length, SPLIT):
        count: i32 = length - start
        if count > SPLIT:
            count = SPLIT
        source = u64(begin + start) * stride + u64(head) * DIM
        score: f32 = -INFINITY
        live = i32(lane) < count
        if live:
            key = source + u64(lane) * stride
            score = 0.0
            for d in range(DIM):
                score = fma(query[d], k[key + u64(d)], score)
            score = score * scale
        m = highest(weights, score)
        e: f32 = 0.0
        if live:
            e = exp(score - m)
        weights[lane] = e
        barrier()
        if lane < TREE_LANES:
            part: f32 = 0.0
            for i in range(lane, SPLIT, TREE_LANES):
                part = part + weights[i]
            lanes[lane] = part
        barrier()
        s = tree_sum(lanes)
        o: f32 = 0.0
        if lane < DIM:
            for t in range(count):
                o = fma(weights[t], v[source + u64(t) * stride + u64(lane)], o)
        barrier()
        if start == 0:
            top = m
            total = s
            acc = o
        else:
            merged = maximum(top, m)
            old = exp(top - merged)
            new = exp(m - merged)
            total = (total * old) + (s * new)
            acc = (acc * old) + (o * new)
            top = merged
    if lane < DIM:
        y[own + u64(lane)] = acc / total


@inline
def tree_sum(lanes):
    """The sum of `TREE_LANES` numbers, pairwise at distance 16 ... 1, the same in every lane of the workgroup."""
    half: u32 = TREE_LANES >> 1
    at = workitem_id()
    while half > 0:
        if at < half:
            lanes[at] = lanes[at] + lanes[at + half]
        barrier()
        half = half >> 1
    return lanes[0]

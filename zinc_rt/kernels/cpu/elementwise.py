"""Additions, products, factors, soft caps, clamps, argmax, and the plain read that measures memory bandwidth."""

from __future__ import annotations

from zinc_rt.kernels.cpu.packs import load_some, not_null, store_some
from zinc_rt.kernels.cpu.structs import AddArgs, ArgmaxArgs, MulArgs, ScaleArgs, StepRecord, SumArgs
from zinc_rt.kernels.maths import INFINITY, clamp, sigmoid, tanh
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import (
    cast,
    iota,
    load,
    prefetch,
    reduce_add,
    regs,
    select,
    splat,
    unroll,
)
from zinc_rt.lang.types import f32, i32, i64, ptr, u32, vec


@kernel
def add(a: ptr[AddArgs], step: ptr[StepRecord], first: i32, last: i32, W: int):
    """Units: rows. y = a + b."""
    n = a.n
    for row in range(first, last):
        offset = i64(row) * i64(n)
        b: ptr[f32] = a.b
        if a.repeat == 0:
            b = b + offset
        for at in range(0, n, W):
            store_some(a.y + offset, load_some(a.a + offset, at, n, W) + load_some(b, at, n, W), at, n, W)


@kernel
def scale(a: ptr[ScaleArgs], step: ptr[StepRecord], first: i32, last: i32, W: int, CHUNK: int, WHAT: str):
    """Units: stretches of CHUNK elements of a row (the last may be short), row after row."""
    n = a.n
    chunks = i32(u32(n + (CHUNK - 1)) // CHUNK)
    row = i32(u32(first) // u32(chunks))
    part: i32 = first - row * chunks
    for u in range(first, last):
        offset = i64(row) * i64(n)
        end: i32 = (part + 1) * CHUNK
        if end > n:
            end = n
        number: f32 = a.number
        if not_null(a.factors):
            number = a.factors[step.positions[row]]
        by = splat(number, W)
        for at in range(part * CHUNK, end, W):
            v = load_some(a.x + offset, at, n, W)
            if WHAT == "softcap":
                v = by * tanh(v / by)
            elif WHAT == "clamp":
                v = clamp(v, by, splat(a.high, W))
            else:
                v = v * by
            store_some(a.y + offset, v, at, n, W)
        part += 1
        if part == chunks:
            part = 0
            row += 1


@kernel
def multiply(a: ptr[MulArgs], step: ptr[StepRecord], first: i32, last: i32, GATED: bool, HEADS: bool, W: int):
    """Units: rows, or the heads of rows where HEADS. y = a * b, or a * sigmoid(b)."""
    if HEADS:
        for head in range(first, last):
            by = splat(a.b[head], W)
            if GATED:
                by = sigmoid(by)
            start = i64(head) * i64(a.dim)
            for at in range(0, a.dim, W):
                store_some(a.y + start, load_some(a.a + start, at, a.dim, W) * by, at, a.dim, W)
    else:
        n = a.n
        for row in range(first, last):
            offset = i64(row) * i64(n)
            for at in range(0, n, W):
                b = load_some(a.b + offset, at, n, W)
                if GATED:
                    b = sigmoid(b)
                store_some(a.y + offset, load_some(a.a + offset, at, n, W) * b, at, n, W)


@kernel
def argmax(a: ptr[ArgmaxArgs], step: ptr[StepRecord], first: i32, last: i32, W: int):
    """Units: rows. NaN is smaller than every number; ties go to the lowest index; nothing but NaN gives 0."""
    n = a.n
    for row in range(first, last):
        x = a.x + i64(row) * i64(n)
        best: vec[f32, W] = -INFINITY
        where: vec[i32, W] = 0x7FFFFFFF
        now: vec[i32, W] = iota(i32, W)
        whole = n - (n & (W - 1))
        for at in range(0, whole, W):
            v = load(x, at, lanes=W)
            # -inf is taken only where nothing has been: the first of them goes before any NaN.
            better = (v > best) | ((v == best) & (where == 0x7FFFFFFF))
            best = select(better, v, best)
            where = select(better, now, where)
            now = now + W
        top: f32 = -INFINITY
        index: i32 = 0x7FFFFFFF
        for j in unroll(W):
            v = best[j]
            i = where[j]
            if i != 0x7FFFFFFF and (v > top or index == 0x7FFFFFFF or (v == top and i < index)):
                top = v
                index = i
        for j in range(whole, n):
            v = x[j]
            if v > top or (v == top and index == 0x7FFFFFFF):
                top = v
                index = j
        if index == 0x7FFFFFFF:
            index = 0
        a.y[row] = index


@kernel
def read_sum(a: ptr[SumArgs], step: ptr[StepRecord], first: i32, last: i32, W: int, AHEAD: int):
    """Units: stretches of memory. y[unit] = the sum of its 32-bit words, as fast as memory gives them."""
    for u in range(first, last):
        p = a.x + i64(u) * a.chunk
        acc = regs(vec[i32, W], 8)
        for at in range(i64(0), a.chunk, 8 * 4 * W):
            if AHEAD > 0:
                for i in unroll(0, 8 * 4 * W, 64):
                    prefetch(p, at + (AHEAD + i))
            for i in unroll(8):
                acc[i] = acc[i] + load(cast(p + (at + i * 4 * W), ptr[i32]), lanes=W)
        total = acc[0]
        for i in unroll(1, 8):
            total = total + acc[i]
        a.y[u] = i64(reduce_add(total))

"""Attention over the paged cache: splits of 256 positions, merged in order."""

from __future__ import annotations

from zinc_rt.kernels.cpu.maths import INFINITY, exp
from zinc_rt.kernels.cpu.structs import AttentionArgs, Step
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    array,
    fma,
    iota,
    load,
    maximum,
    reduce_add,
    reduce_max,
    regs,
    select,
    splat,
    store,
    unroll,
    zeros,
)  # fmt: skip
from zinc_rt.lang.types import f32, i32, i64, ptr, u32, vec


@inline
def one_split(a, pages, q, out, sums, kv_head: i32, start: i32, count: i32, G: int, DIM: int, W: int):
    """One split for the G heads that share a key-value head.

    pages: the sequence's page numbers; q: f32[G, DIM]; positions start … start + count - 1. Writes the weighted values
    to out f32[G, DIM + 16] and each head's max and sum to its places DIM and DIM + 1. sums: scratch f32[G, 256].
    """
    H = 16 // W
    n_kv = a.n_kv
    scale = splat(a.scale, W)
    top = regs(vec[f32, W], G)
    for g in unroll(G):
        top[g] = zeros(vec[f32, W]) - INFINITY
    n_pages = (count + 15) >> 4
    first_page = start >> 4
    for p in range(n_pages):
        page = pages[first_page + p]
        k = a.k_cache + (i64(page) * i64(n_kv) + i64(kv_head)) * (16 * DIM)
        acc = regs(vec[f32, W], G * H)
        for d in range(0, DIM, 4):
            for e in unroll(4):
                if DIM % 4 == 0 or d + e < DIM:
                    for h in unroll(H):
                        keys = f32(load(k, (d + e) * 16 + h * W, lanes=W))
                        for g in unroll(G):
                            acc[g * H + h] = fma(splat(load(q, g * DIM + d + e), W), keys, acc[g * H + h])
        for h in unroll(H):
            live = iota(i32, W) < splat(count - p * 16 - h * W, W)
            for g in unroll(G):
                score = select(live, acc[g * H + h] * scale, -INFINITY)
                store(sums, score, g * 256 + p * 16 + h * W)
                top[g] = maximum(top[g], score)
    for g in unroll(G):
        m = reduce_max(top[g])
        lane = regs(vec[f32, W], 2 * H)
        for p in range(0, n_pages, 2):
            for half in unroll(2):
                if p + half < n_pages:
                    for h in unroll(H):
                        at = (p + half) * 16 + h * W
                        live = iota(i32, W) < splat(count - at, W)
                        e = exp(load(sums, g * 256 + at, lanes=W) - splat(m, W))
                        e = select(live, e, 0.0)
                        store(sums, e, g * 256 + at)
                        lane[half * H + h] = lane[half * H + h] + e
        for half in unroll(tuple(h for h in (4, 2, 1) if h <= H)):
            for h in unroll(half):
                lane[h] = lane[h] + lane[h + half]
        out[g * (DIM + 16) + DIM] = m
        out[g * (DIM + 16) + DIM + 1] = reduce_add(lane[0])
    V = W if DIM % W == 0 else 1
    C = max(c for c in (1, 2, 4, 8) if (DIM // V) % c == 0 and (c * G <= 16 or c == 1))
    for d in range(0, DIM, V * C):
        acc = regs(vec[f32, V], G * C)
        for p in range(n_pages):
            page = pages[first_page + p]
            v = a.v_cache + ((i64(page) * i64(n_kv) + i64(kv_head)) * (16 * DIM) + i64(d))
            tokens: i32 = count - p * 16
            if tokens > 16:
                tokens = 16
            for t in range(tokens):
                for c in unroll(C):
                    values = f32(load(v, t * DIM + c * V, lanes=V))
                    for g in unroll(G):
                        weight = splat(load(sums, g * 256 + p * 16 + t), V)
                        acc[g * C + c] = fma(weight, values, acc[g * C + c])
        for g in unroll(G):
            for c in unroll(C):
                store(out, acc[g * C + c], g * (DIM + 16) + d + c * V)


@inline
def merge_split(state, part, DIM: int):
    """Fold a split (values, max, sum) into the state of the splits before it."""
    V = 16 if DIM % 16 == 0 else 1
    top = maximum(state[DIM], part[DIM])
    old = exp(splat(state[DIM] - top, 4))[0]
    new = exp(splat(part[DIM] - top, 4))[0]
    state[DIM] = top
    state[DIM + 1] = (state[DIM + 1] * old) + (part[DIM + 1] * new)
    for d in range(0, DIM, V):
        store(state, (load(state, d, lanes=V) * splat(old, V)) + (load(part, d, lanes=V) * splat(new, V)), d)


@inline
def finish(state, y, DIM: int):
    """y = values / sum."""
    V = 16 if DIM % 16 == 0 else 1
    total = splat(state[DIM + 1], V)
    for d in range(0, DIM, V):
        store(y, load(state, d, lanes=V) / total, d)


@kernel
def attention(a: ptr[AttentionArgs], step: ptr[Step], first: i32, last: i32, G: int, DIM: int, W: int):
    """Units: (row, key-value head), or (row, key-value head, split) where the step splits; then `merge` follows."""
    n_kv = a.n_kv
    sums = array(f32, G * 256)
    state = array(f32, G * (DIM + 16))
    part = array(f32, G * (DIM + 16))
    split_up = step.n_splits != 0
    per_head: i32 = 1
    if split_up:
        per_head = step.n_splits
    for u in range(first, last):
        unit = i32(u32(u) // u32(per_head))
        only = u - unit * per_head
        row = i32(u32(unit) // u32(n_kv))
        kv_head = unit - row * n_kv
        length = step.positions[row] + 1
        pages = step.page_table + i64(step.slots[row]) * i64(step.max_pages)
        n_heads = n_kv * G
        head_at = (i64(row) * i64(n_heads) + i64(kv_head * G)) * DIM
        q = a.q + head_at
        begin: i32 = 0
        end: i32 = (length + 255) >> 8
        if split_up:
            begin = only
            if only + 1 < end:
                end = only + 1
        for s in range(begin, end):
            count: i32 = length - s * 256
            if count > 256:
                count = 256
            if split_up:
                at = (i64(row) * i64(a.max_splits) + i64(s)) * i64(n_heads) + i64(kv_head * G)
                one_split(a, pages, q, a.partial + at * (DIM + 16), sums, kv_head, s * 256, count, G, DIM, W)
            else:
                target: ptr[f32] = part
                if s == 0:
                    target = state
                one_split(a, pages, q, target, sums, kv_head, s * 256, count, G, DIM, W)
                if s > 0:
                    for g in range(G):
                        merge_split(state + g * (DIM + 16), part + g * (DIM + 16), DIM)
        if not split_up:
            for g in range(G):
                finish(state + g * (DIM + 16), a.y + (head_at + i64(g * DIM)), DIM)


@kernel
def merge(a: ptr[AttentionArgs], step: ptr[Step], first: i32, last: i32, G: int, DIM: int):
    """Units: (row, head) of a step whose attention was split up."""
    n_heads = a.n_kv * G
    for u in range(first, last):
        row = i32(u32(u) // u32(n_heads))
        head = u - row * n_heads
        splits = (step.positions[row] + 256) >> 8
        stride = i64(n_heads) * (DIM + 16)
        state = a.partial + ((i64(row) * i64(a.max_splits)) * i64(n_heads) + i64(head)) * (DIM + 16)
        for s in range(1, splits):
            merge_split(state, state + i64(s) * stride, DIM)
        finish(state, a.y + i64(u) * DIM, DIM)

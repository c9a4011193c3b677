"""Several residual streams in place of one, and the rows that hashes of tokens name; see `ir.ops.streams`, `ngrams`."""

from __future__ import annotations

from zinc_rt.kernels.cpu.encoder import tree
from zinc_rt.kernels.cpu.packs import load_some, padded, rms_scale, store_some
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.kernels.maths import exp, sigmoid
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import absolute, array, fma, load, maximum, regs, splat, sqrt, unroll
from zinc_rt.lang.types import f32, i32, i64, ptr, struct, u32, u64, vec
from zinc_rt.numerics import NORM_LANES


@struct
class StreamArgs:
    """x, key: f32[rows, STREAMS, n]. y, out: rows or streams. gates: f32[rows, STREAMS]; mix: f32[rows, STREAMS,
    STREAMS].
    """

    x: ptr[f32]
    key: ptr[f32]
    weight: ptr[f32]
    y: ptr[f32]
    gates: ptr[f32]
    mix: ptr[f32]
    out: ptr[f32]
    n: i32
    eps: f32
    scale: f32


@struct
class NgramArgs:
    """numbers: u64, as `ir.ops.ngrams.as_constant` stores them. state: f32[slots, NGRAM - 1]. y: i32[rows, heads]."""

    numbers: ptr[u64]
    state: ptr[f32]
    y: ptr[i32]
    n_heads: i32
    eos: i32


@kernel
def stream_norm(a: ptr[StreamArgs], step: ptr[StepRecord], first: i32, last: i32, STREAMS: int, W: int):
    """Units: (row, stream)."""
    n = a.n
    for u in range(first, last):
        stream = u - i32(u32(u) // STREAMS) * STREAMS
        x = a.x + i64(u) * i64(n)
        out = a.out + i64(u) * i64(n)
        weight = a.weight + i64(stream) * i64(n)
        scale = splat(rms_scale(x, n, a.eps, W), W)
        for at in range(0, n, W):
            store_some(out, (load_some(x, at, n, W) * scale) * load_some(weight, at, n, W), at, n, W)


@kernel
def stream_sum(a: ptr[StreamArgs], step: ptr[StepRecord], first: i32, last: i32, STREAMS: int, WEIGHTED: bool, W: int):
    """Units: rows."""
    n = a.n
    for row in range(first, last):
        x = a.x + i64(row) * (i64(n) * STREAMS)
        gates = a.gates + i64(row) * STREAMS
        out = a.out + i64(row) * i64(n)
        for at in range(0, n, W):
            total: vec[f32, W] = 0.0
            for s in unroll(STREAMS):
                v = load_some(x + i64(n) * s, at, n, W)
                if WEIGHTED:
                    total = fma(v, splat(gates[s], W), total)
                else:
                    total = total + v
            if not WEIGHTED:
                total = total * (1.0 / STREAMS)
            store_some(out, total, at, n, W)


@kernel
def stream_copy(a: ptr[StreamArgs], step: ptr[StepRecord], first: i32, last: i32, STREAMS: int, W: int):
    """Units: rows."""
    n = a.n
    for row in range(first, last):
        y = a.y + i64(row) * i64(n)
        out = a.out + i64(row) * (i64(n) * STREAMS)
        for s in range(STREAMS):
            for at in range(0, n, W):
                store_some(out + i64(n) * i64(s), load_some(y, at, n, W), at, n, W)


@kernel
def stream_add(
    a: ptr[StreamArgs], step: ptr[StepRecord], first: i32, last: i32, STREAMS: int, OPENED: bool, MIXED: bool, W: int
):
    """Units: rows. OPENED: gates go through a sigmoid first."""
    n = a.n
    factors = array(f32, STREAMS, zero=False)
    for row in range(first, last):
        x = a.x + i64(row) * (i64(n) * STREAMS)
        y = a.y + i64(row) * i64(n)
        out = a.out + i64(row) * (i64(n) * STREAMS)
        mix = a.mix + i64(row) * (STREAMS * STREAMS)
        for s in range(STREAMS):
            gate: f32 = a.gates[i64(row) * STREAMS + i64(s)]
            if OPENED:
                gate = sigmoid(splat(gate * a.scale, 4))[0] * 2.0
            factors[s] = gate
        for at in range(0, n, W):
            own = load_some(y, at, n, W)
            for d in unroll(STREAMS):
                kept: vec[f32, W] = 0.0
                if MIXED:
                    for s in unroll(STREAMS):
                        share = splat(mix[s * STREAMS + d], W)
                        kept = fma(load_some(x + i64(n) * s, at, n, W), share, kept)
                else:
                    kept = load_some(x + i64(n) * d, at, n, W)
                store_some(out + i64(n) * d, fma(own, splat(factors[d], W), kept), at, n, W)


@kernel
def stream_mix(a: ptr[StreamArgs], step: ptr[StepRecord], first: i32, last: i32, STREAMS: int, ITERATIONS: int, W: int):
    """Units: rows. x: logits, key: what is added to them, weight: their factors. Writes out, and with ITERATIONS gates
    and mix.
    """
    N = STREAMS
    WIDTH = N * (2 + N) if ITERATIONS > 0 else N
    shares = array(f32, N * N, zero=False)
    for row in range(first, last):
        x = a.x + i64(row) * WIDTH
        for s in range(N):
            a.out[i64(row) * N + i64(s)] = sigmoid(splat(fma(x[s], a.weight[0], a.key[s]), 4))[0] + a.eps
        if ITERATIONS > 0:
            for s in range(N):
                opened = sigmoid(splat(fma(x[N + s], a.weight[1], a.key[N + s]), 4))[0]
                a.gates[i64(row) * N + i64(s)] = opened * 2.0
            for i in range(N * N):
                shares[i] = fma(x[2 * N + i], a.weight[2], a.key[2 * N + i])
            for s in range(N):
                top: f32 = shares[s * N]
                for d in range(1, N):
                    top = maximum(top, shares[s * N + d])
                for d in range(N):
                    shares[s * N + d] = exp(splat(shares[s * N + d] - top, 4))[0]
            divide_by_sums(shares, 0.0, N, N, 1)
            for i in range(N * N):
                shares[i] = shares[i] + a.eps
            divide_by_sums(shares, a.eps, N, 1, N)
            for _ in range(ITERATIONS - 1):
                divide_by_sums(shares, a.eps, N, N, 1)
                divide_by_sums(shares, a.eps, N, 1, N)
            for i in range(N * N):
                a.mix[i64(row) * (N * N) + i64(i)] = shares[i]


@inline
def divide_by_sums(shares, eps: f32, N: int, LINE: int, NEXT: int):
    """Each of N lines by its sum and eps. LINE: from one line to the next; NEXT: from one element to the next."""
    for i in range(N):
        total: f32 = 0.0
        for j in range(N):
            total = total + shares[i * LINE + j * NEXT]
        total = total + eps
        for j in range(N):
            shares[i * LINE + j * NEXT] = shares[i * LINE + j * NEXT] / total


@inline
def products(x: ptr[f32], y: ptr[f32], n: i32, W: int):
    """The sum of products by the tree over `NORM_LANES` lanes."""
    lane = regs(vec[f32, W], NORM_LANES // W)
    first = array(f32, NORM_LANES, zero=False)
    second = array(f32, NORM_LANES, zero=False)
    for at in range(0, n, NORM_LANES):
        p = padded(x, at, n, first, NORM_LANES, W)
        q = padded(y, at, n, second, NORM_LANES, W)
        for i in unroll(NORM_LANES // W):
            lane[i] = fma(load(p, i * W, lanes=W), load(q, i * W, lanes=W), lane[i])
    return tree(lane, W)


@kernel
def stream_gate(a: ptr[StreamArgs], step: ptr[StepRecord], first: i32, last: i32, STREAMS: int, LEAST: float, W: int):
    """Units: (row, stream). LEAST: what the root is taken of at the least."""
    n = a.n
    for u in range(first, last):
        row = i32(u32(u) // STREAMS)
        s = products(a.key + i64(u) * i64(n), a.x + i64(u) * i64(n), n, W) * a.scale
        root = sqrt(maximum(absolute(s), LEAST))
        signed: f32 = 0.0
        if s > 0.0:
            signed = root
        if s < 0.0:
            signed = -root
        if s != s:  # noqa: PLR0124 (a NaN)
            signed = 0.0
        gate = splat(sigmoid(splat(signed, 4))[0], W)
        y = a.y + i64(row) * i64(n)
        out = a.out + i64(u) * i64(n)
        for at in range(0, n, W):
            store_some(out, load_some(y, at, n, W) * gate, at, n, W)


@kernel
def ngram_ids(a: ptr[NgramArgs], step: ptr[StepRecord], first: i32, last: i32, NGRAM: int):
    """One unit: a sequence's rows follow each other."""
    own = array(u64, NGRAM)
    share = i32(u32(a.n_heads) // (NGRAM - 1))
    sizes = a.numbers + (i64(a.n_heads) + NGRAM)
    for _ in range(first, last):
        for row in range(step.n_rows):
            state = a.state + i64(step.slots[row]) * (NGRAM - 1)
            fresh = step.positions[row] == 0
            token: i32 = step.token_ids[row]
            own[0] = u64(u32(token))
            ended: i32 = 0
            for j in range(1, NGRAM):
                before: i32 = a.eos
                if not fresh:
                    before = i32(state[j - 1])
                if before == a.eos:
                    ended = 1
                state[j - 1] = f32(token)
                token = before
                if ended != 0:
                    before = a.eos
                own[j] = u64(u32(before))
            mixed: u64 = own[0] * a.numbers[0]
            for m in range(1, NGRAM):
                mixed = mixed ^ (own[m] * a.numbers[m])
                for head in range((m - 1) * share, m * share):
                    row_of_table = mixed % sizes[head] + a.numbers[i64(head) + NGRAM]
                    a.y[i64(row) * i64(a.n_heads) + i64(head)] = i32(row_of_table)

"""Several residual streams in place of one, and the rows that hashes of tokens name; see `ir.ops.streams`, `ngrams`."""

from __future__ import annotations

from zinc_rt.kernels.gpu.norm import sum_of_lanes
from zinc_rt.kernels.gpu.recurrent import first_row
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.maths import exp, sigmoid
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import absolute, fma, maximum, regs, select, shared, sqrt, unroll, workgroup_id, workitem_id
from zinc_rt.lang.types import Space, f32, i32, ptr, struct, u32, u64
from zinc_rt.numerics import NORM_LANES


@struct
class GpuNgramArgs:
    """numbers: u64, as `ir.ops.ngrams.as_constant` stores them. state: f32[slots, NGRAM - 1]. y: i32[rows, heads].
    by_row: as in `GpuConvArgs`.
    """

    numbers: ptr[u32]
    state: ptr[f32]
    y: ptr[i32]
    token_ids: ptr[i32]
    positions: ptr[i32]
    slots: ptr[i32]
    n_rows: u32
    by_row: u32
    eos: u32


@kernel(workgroup=256)
def stream_norm(x: ptr[f32], w: ptr[f32], y: ptr[f32], n: u32, eps: f32, STREAMS: int):
    """Workgroups: streams in x, rows in y. Each stream's norm, by its part of w."""
    part = shared(f32, NORM_LANES + 1)
    stream = workgroup_id(0)
    at = (u64(workgroup_id(1)) * STREAMS + u64(stream)) * u64(n)
    weight = w + u64(stream) * u64(n)
    acc: f32 = 0.0
    for i in range(workitem_id(), n, NORM_LANES):
        v = x[at + u64(i)]
        acc = fma(v, v, acc)
    one: f32 = 1.0
    scale = one / sqrt(sum_of_lanes(part, acc) / f32(n) + eps)
    for i in range(workitem_id(), n, NORM_LANES):
        y[at + u64(i)] = (x[at + u64(i)] * scale) * weight[i]


@kernel(workgroup=256)
def stream_sum(x: ptr[f32], gates: ptr[f32], y: ptr[f32], n: u32, STREAMS: int, WEIGHTED: bool):
    """Workgroups: ceil(n / 256) in x, rows in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        row = u64(workgroup_id(1))
        at = row * STREAMS * u64(n) + u64(i)
        total: f32 = 0.0
        for s in unroll(STREAMS):
            v = x[at + u64(n) * s]
            if WEIGHTED:
                total = fma(v, gates[row * STREAMS + s], total)
            else:
                total = total + v
        if not WEIGHTED:
            total = total * (1.0 / STREAMS)
        y[row * u64(n) + u64(i)] = total


@kernel(workgroup=256)
def stream_copy(y: ptr[f32], out: ptr[f32], n: u32, STREAMS: int):
    """Workgroups: ceil(n / 256) in x, rows in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        row = u64(workgroup_id(1))
        v = y[row * u64(n) + u64(i)]
        for s in unroll(STREAMS):
            out[(row * STREAMS + s) * u64(n) + u64(i)] = v


@kernel(workgroup=256)
def stream_add(
    y: ptr[f32], x: ptr[f32], gates: ptr[f32], mix: ptr[f32], out: ptr[f32], n: u32, scale: f32, STREAMS: int,
    OPENED: bool, MIXED: bool,
):  # fmt: skip
    """Workgroups: ceil(n / 256) in x, rows in y. OPENED: gates go through a sigmoid first."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        row = u64(workgroup_id(1))
        own = y[row * u64(n) + u64(i)]
        streams = tuple(x[(row * STREAMS + s) * u64(n) + u64(i)] for s in range(STREAMS))
        for d in unroll(STREAMS):
            gate: f32 = gates[row * STREAMS + d]
            if OPENED:
                gate = sigmoid(gate * scale) * 2.0
            kept: f32 = 0.0
            if MIXED:
                for s in unroll(STREAMS):
                    kept = fma(streams[s], mix[(row * STREAMS + s) * STREAMS + d], kept)
            else:
                kept = streams[d]
            out[(row * STREAMS + d) * u64(n) + u64(i)] = fma(own, gate, kept)


@kernel(workgroup=32)
def stream_mix(
    logits: ptr[f32], base: ptr[f32], scale: ptr[f32], reads: ptr[f32], writes: ptr[f32], mix: ptr[f32], n_rows: u32,
    eps: f32, STREAMS: int, ITERATIONS: int,
):  # fmt: skip
    """Workgroups: ceil(rows / 32); a lane has a row. Without ITERATIONS there are reads alone."""
    N = STREAMS
    WIDTH = N * (2 + N) if ITERATIONS > 0 else N
    row = workgroup_id(0) * 32 + workitem_id()
    if row < n_rows:
        x = logits + u64(row) * WIDTH
        for s in unroll(N):
            reads[u64(row) * N + s] = sigmoid(fma(x[s], scale[0], base[s])) + eps
        if ITERATIONS > 0:
            for s in unroll(N):
                writes[u64(row) * N + s] = sigmoid(fma(x[N + s], scale[1], base[N + s])) * 2.0
            shares = regs(f32, N * N)
            for i in unroll(N * N):
                shares[i] = fma(x[2 * N + i], scale[2], base[2 * N + i])
            for s in unroll(N):
                top: f32 = shares[s * N]
                for d in unroll(1, N):
                    top = maximum(top, shares[s * N + d])
                for d in unroll(N):
                    shares[s * N + d] = exp(shares[s * N + d] - top)
            divide_by_sums(shares, 0.0, N, N, 1)
            for i in unroll(N * N):
                shares[i] = shares[i] + eps
            divide_by_sums(shares, eps, N, 1, N)
            for _ in range(ITERATIONS - 1):
                divide_by_sums(shares, eps, N, N, 1)
                divide_by_sums(shares, eps, N, 1, N)
            for i in unroll(N * N):
                mix[u64(row) * (N * N) + i] = shares[i]


@inline
def divide_by_sums(shares, eps: f32, N: int, LINE: int, NEXT: int):
    """Each of N lines by its sum and eps. LINE: from one line to the next; NEXT: from one element to the next."""
    for i in unroll(N):
        total: f32 = 0.0
        for j in unroll(N):
            total = total + shares[i * LINE + j * NEXT]
        total = total + eps
        for j in unroll(N):
            shares[i * LINE + j * NEXT] = shares[i * LINE + j * NEXT] / total


@kernel(workgroup=256)
def stream_gate(
    key: ptr[f32], query: ptr[f32], value: ptr[f32], out: ptr[f32], n: u32, scale: f32, STREAMS: int, LEAST: float
):
    """Workgroups: streams in x, rows in y. LEAST: what the root is taken of at the least."""
    part = shared(f32, NORM_LANES + 1)
    row = u64(workgroup_id(1))
    at = (row * STREAMS + u64(workgroup_id(0))) * u64(n)
    acc: f32 = 0.0
    for i in range(workitem_id(), n, NORM_LANES):
        acc = fma(key[at + u64(i)], query[at + u64(i)], acc)
    s = sum_of_lanes(part, acc) * scale
    root = sqrt(maximum(absolute(s), LEAST))
    signed = select(s > 0.0, root, select(s < 0.0, -root, 0.0))
    gate = sigmoid(signed)
    for i in range(workitem_id(), n, NORM_LANES):
        out[at + u64(i)] = value[row * u64(n) + u64(i)] * gate


@inline
def product(numbers, j: u32, token: u32):
    """The low and the high half of a token times number j, modulo 2^64."""
    number = u64(numbers[j * 2]) | (u64(numbers[j * 2 + 1]) << 32)
    whole = number * u64(token)
    return u32(whole), u32(whole >> 32)


@inline
def remainder(word: u32, size: u32, rest: u32):
    """(rest * 2^32 + word) % size."""
    out: u64 = u64(rest)  # wider than needed: in SPIR-V LLVM has a function for words that shift into each other
    bits: u32 = word
    most = u64(size)
    for _ in range(32):
        out = (out << 1) | u64(bits >> 31)
        bits = bits << 1
        out = select(out >= most, out - most, out)
    return u32(out)


@kernel(workgroup=32)
def ngram_ids(a: ptr[GpuNgramArgs, Space.CONSTANT], NGRAM: int, HEADS: int):
    """Workgroups: rows or slots. Lanes are heads of the table; every one goes through all rows of the sequence.

    Remainders are formed bit by bit: numbers of rows are below 2^31.
    """
    SHARE = HEADS // (NGRAM - 1)
    slots, positions, tokens = unchanged(a.slots), unchanged(a.positions), unchanged(a.token_ids)
    n_rows = a.n_rows
    slot, first = first_row(a, workgroup_id(0))
    if first < n_rows:
        state = a.state + u64(slot) * (NGRAM - 1)
        before = regs(u32, NGRAM - 1)
        for j in unroll(NGRAM - 1):
            before[j] = a.eos
        if positions[first] != 0:
            for j in unroll(NGRAM - 1):
                before[j] = u32(state[j])
        for row in range(first, n_rows):
            if slots[row] == slot:
                token = tokens[row]
                if positions[row] == 0:
                    for j in unroll(NGRAM - 1):
                        before[j] = a.eos
                for head in range(workitem_id(), u32(HEADS), 32):
                    low, high = product(a.numbers, 0, token)
                    ended: u32 = 0
                    for j in unroll(1, NGRAM):
                        ended = select(before[j - 1] == a.eos, ended - ended + 1, ended)
                        own = select(ended == 1, a.eos, before[j - 1])
                        more_low, more_high = product(a.numbers, j, own)
                        # A head of n-grams of m tokens takes the first m products.
                        live = head >= (j - 1) * SHARE
                        low = select(live, low ^ more_low, low)
                        high = select(live, high ^ more_high, high)
                    size = a.numbers[(NGRAM + HEADS + head) * 2]
                    rest = remainder(high, size, low - low)
                    rest = remainder(low, size, rest)
                    a.y[u64(row) * HEADS + u64(head)] = i32(rest + a.numbers[(NGRAM + head) * 2])
                for j in unroll(NGRAM - 2, 0, -1):
                    before[j] = before[j - 1]
                before[0] = token
        if workitem_id() == 0:
            for j in unroll(NGRAM - 1):
                state[j] = f32(before[j])

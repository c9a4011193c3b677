"""Recurrent layers: convolution, the gated delta rule, the selective scan, gated norms.

A unit is some channels or a head, and takes all rows of the step in order: a sequence goes from position to position
with its state in the processor's cache.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.packs import load_some, not_null, one_over, rms_scale, square_sum, store_some
from zinc_rt.kernels.cpu.structs import Conv1dArgs, DeltaNetArgs, GatedNormArgs, ScanArgs, StepRecord
from zinc_rt.kernels.maths import exp, sigmoid, silu, softplus
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, fma, load, prefetch, regs, splat, sqrt, store, unroll, zeros
from zinc_rt.lang.types import f32, i32, i64, ptr, u32, vec
from zinc_rt.numerics import SCAN_BLOCK

ROWS = 8
"""Rows that take turns over a part of a head's state."""


@kernel
def conv1d(
    a: ptr[Conv1dArgs], step: ptr[StepRecord], first: i32, last: i32, TAPS: int, GATED: bool, APART: bool, CHUNK: int,
    W: int,
):  # fmt: skip
    """Units: CHUNK channels; with APART, of each third in turn."""
    channels = a.n
    n: i32 = channels
    if APART:
        n = i32(u32(channels) // 3)
    for u in range(first, last):
        begin: i32 = u * CHUNK
        start: i32 = 0
        source: ptr[f32] = a.x
        if APART:
            chunks = i32(u32(n + (CHUNK - 1)) // CHUNK)
            third = i32(u32(u) // u32(chunks))
            begin = (u - third * chunks) * CHUNK
            start = third * n
            if third == 1:
                source = a.x1
            if third == 2:
                source = a.x2
        end: i32 = begin + CHUNK
        if end > n:
            end = n
        taps = a.taps + start
        for row in range(step.n_rows):
            fresh = step.positions[row] == 0
            x = source + i64(row) * i64(n)
            y = a.y + (i64(row) * i64(channels) + i64(start))
            state = a.state + (i64(step.slots[row]) * (i64(channels) * (TAPS - 1)) + i64(start))
            for at in range(begin, end, W):
                acc: vec[f32, W] = 0.0
                for j in unroll(TAPS - 1):
                    past: vec[f32, W] = 0.0
                    if not fresh:
                        past = load_some(state + i64(channels) * j, at, n, W)
                    if j > 0:
                        store_some(state + i64(channels) * (j - 1), past, at, n, W)
                    acc = fma(past, load_some(taps + i64(channels) * j, at, n, W), acc)
                now = load_some(x, at, n, W)
                store_some(state + i64(channels) * (TAPS - 2), now, at, n, W)
                acc = fma(now, load_some(taps + i64(channels) * (TAPS - 1), at, n, W), acc)
                if not_null(a.bias):
                    acc = acc + load_some(a.bias, at, n, W)
                if GATED:
                    acc = silu(acc)
                store_some(y, acc, at, n, W)


@inline
def unit_head(x: ptr[f32], out: ptr[f32], eps: f32, factor: f32, DIM: int, V: int, W: int):
    """out = x / sqrt(its sum of squares + eps), times a factor."""
    scale = splat(one_over(sqrt(square_sum(x, DIM, W) + eps)), V)
    for i in unroll(0, DIM, V):
        store(out, (load(x, i, lanes=V) * scale) * splat(factor, V), i)


@inline
def delta_rule(
    s: ptr[f32], q: ptr[f32], k: ptr[f32], v: ptr[f32], y: ptr[f32], factors: ptr[f32], FAR: bool, CHANNELS: bool,
    DIM: int, C: int, V: int,
):  # fmt: skip
    """One position of C * V of a head's values; s: its state f32[key][value], in the cache at the second pass.

    factors: the strength, then the decay, of each key with CHANNELS. FAR: in memory at the first pass.
    """
    strength = splat(factors[0], V)
    g = splat(factors[1], V)
    r = regs(vec[f32, V], C)
    for i in range(DIM):
        key = splat(load(k, i), V)
        if CHANNELS:
            g = splat(load(factors, i + 1), V)
        line = s + i * DIM
        if FAR:
            for c in unroll(0, C * V, 16):
                prefetch(line, c + 8 * DIM, write=True)
        for c in unroll(C):
            r[c] = fma(load(line, c * V, lanes=V) * g, key, r[c])
    d = tuple(strength * (load(v, c * V, lanes=V) - r[c]) for c in range(C))
    o = regs(vec[f32, V], C)
    for i in range(DIM):
        key = splat(load(k, i), V)
        query = splat(load(q, i), V)
        if CHANNELS:
            g = splat(load(factors, i + 1), V)
        line = s + i * DIM
        for c in unroll(C):
            new = fma(key, d[c], load(line, c * V, lanes=V) * g)
            store(line, new, c * V)
            o[c] = fma(new, query, o[c])
    for c in unroll(C):
        store(y, o[c], c * V)


@inline
def prepare_row(
    a, row: i32, h: i32, key_head: i32, q, k, factors, CHANNELS: bool, BOUNDED: bool, DIM: int, V: int, W: int
):
    """The unit vectors of a row's query and key, and its factors as `delta_rule` reads them."""
    one: f32 = 1.0
    u = a.u + i64(row) * (i64(2 * a.n_k + a.n_v) * DIM)
    unit_head(u + key_head * DIM, q, a.eps, a.scale, DIM, V, W)
    unit_head(u + (a.n_k + key_head) * DIM, k, a.eps, one, DIM, V, W)
    at = i64(row) * i64(a.n_v) + i64(h)
    factors[0] = sigmoid(splat(a.beta[at], 4))[0]
    if CHANNELS:
        for i in range(0, DIM, V):
            x = load(a.alpha + at * DIM, i, lanes=V) + load(a.dt_bias + i64(h) * DIM, i, lanes=V)
            if BOUNDED:
                rate = splat(a.lower_bound, V) * sigmoid(splat(a.a[h], V) * x)
            else:
                rate = splat(a.a[h], V) * softplus(x)
            store(factors, exp(rate), i + 1)
    else:
        rate = splat(a.a[h], 4) * softplus(splat(a.alpha[at] + a.dt_bias[h], 4))
        factors[1] = exp(rate)[0]


@inline
def some_values(a, step, row: i32, h: i32, j: i32, q, k, factors, FAR: bool, CHANNELS: bool, DIM: int, C: int, V: int):
    """One row of C * V values from value j on. A sequence begins with a state of zeros."""
    n_v = a.n_v
    s = a.state + ((i64(step.slots[row]) * i64(n_v) + i64(h)) * (DIM * DIM) + i64(j))
    if step.positions[row] == 0:
        for i in range(DIM):
            for c in unroll(C):
                store(s + i * DIM, zeros(vec[f32, V]), c * V)
    v = a.u + (i64(row) * (i64(2 * a.n_k + n_v) * DIM) + i64((2 * a.n_k + h) * DIM + j))
    y = a.y + ((i64(row) * i64(n_v) + i64(h)) * DIM + i64(j))
    delta_rule(s, q, k, v, y, factors, FAR, CHANNELS, DIM, C, V)


@kernel
def delta_net(
    a: ptr[DeltaNetArgs], step: ptr[StepRecord], first: i32, last: i32, DIM: int, CHANNELS: bool, BOUNDED: bool,
    WIDE: int, NARROW: int, W: int,
):  # fmt: skip
    """Units: value heads. CHANNELS: each key channel has a decay, with a lower bound where BOUNDED. WIDE, NARROW:
    vectors of values that are worked on at once.

    A single row reads its state through, once. Several rows take turns over part of the values, whose states stay in
    the first-level cache meanwhile.
    """
    V = max(w for w in (1, 2, 4, 8, 16) if w <= W and DIM % w == 0)
    N = tuple(max(c for c in (1, 2, 4, 8) if c <= most and (DIM // V) % c == 0) for most in (WIDE, NARROW))
    n_rows = step.n_rows
    q = array(f32, ROWS * DIM, zero=False)
    k = array(f32, ROWS * DIM, zero=False)
    FACTORS = 1 + DIM if CHANNELS else 2
    factors = array(f32, ROWS * FACTORS, zero=False)
    for h in range(first, last):
        key_head: i32 = 0
        if a.share == 0:
            key_head = h - i32(u32(h) // u32(a.n_k)) * a.n_k
        else:
            key_head = i32(u32(h) // u32(a.share))
        for start in range(0, n_rows, ROWS):
            count: i32 = n_rows - start
            if count > ROWS:
                count = ROWS
            for r in range(count):
                prepare_row(
                    a, start + r, h, key_head, q + r * DIM, k + r * DIM, factors + r * FACTORS, CHANNELS, BOUNDED, DIM,
                    V, W,
                )  # fmt: skip
            if count == 1:
                for j in range(0, DIM, N[0] * V):
                    some_values(a, step, start, h, j, q, k, factors, True, CHANNELS, DIM, N[0], V)
            else:
                for j in range(0, DIM, N[1] * V):
                    for r in range(count):
                        some_values(
                            a, step, start + r, h, j, q + r * DIM, k + r * DIM, factors + r * FACTORS, False, CHANNELS,
                            DIM, N[1], V,
                        )  # fmt: skip


@inline
def scan_row(
    s: ptr[f32], x: ptr[f32], b: ptr[f32], c: ptr[f32], y: ptr[f32], dt, decay, d, a: ptr[f32], FAR: bool, STATE: int,
    DIM: int, CHANNELS: bool, C: int, V: int,
):  # fmt: skip
    """One position of C * V elements of a head; s: their state f32[n][DIM]. dt, decay, d: a vector for each V elements;
    a: what decays come from, with CHANNELS. FAR: the state is in memory.
    """
    added = tuple(dt[i] * load(x, i * V, lanes=V) for i in range(C))
    total = regs(vec[f32, V], C)
    for block in unroll(0, STATE, SCAN_BLOCK):
        out = regs(vec[f32, V], C)
        for n in range(block, min(block + SCAN_BLOCK, STATE)):
            writes = splat(load(b, n), V)
            reads = splat(load(c, n), V)
            line = s + n * DIM
            if FAR:
                for i in unroll(0, C * V, 16):
                    prefetch(line, i + 8 * DIM, write=True)
            for i in unroll(C):
                g = decay[i]
                if CHANNELS:
                    g = exp(load(a + n * DIM, i * V, lanes=V) * dt[i])
                new = fma(writes, added[i], load(line, i * V, lanes=V) * g)
                store(line, new, i * V)
                out[i] = fma(new, reads, out[i])
        for i in unroll(C):
            total[i] = out[i] if block == 0 else total[i] + out[i]
    for i in unroll(C):
        store(y, fma(d[i], load(x, i * V, lanes=V), total[i]), i * V)


@inline
def step_sizes(a, row: i32, h: i32, j: i32, out: ptr[f32], DIM: int, CHANNELS: bool, C: int, V: int):
    """What `scan_rates` reads of a row: the step sizes of C * V channels, or that of a head and its decay."""
    if CHANNELS:
        for i in unroll(0, C * V, V):
            raw = load(a.dt + (i64(row) * DIM + i64(j)), i, lanes=V)
            store(out, softplus(raw), i)
    else:
        dt = softplus(splat(a.dt[i64(row) * i64(a.n_heads) + i64(h)] + a.dt_bias[h], 4))
        out[0] = dt[0]
        out[1] = exp(splat(a.a[h], 4) * dt)[0]


@inline
def scan_some(a, step, row: i32, h: i32, j: i32, rates: ptr[f32], FAR: bool, STATE: int, DIM: int, CHANNELS: bool,
              C: int, V: int):  # fmt: skip
    """One row of C * V elements of a head from element j on. A sequence begins with a state of zeros."""
    s = a.state + ((i64(step.slots[row]) * i64(a.n_heads) + i64(h)) * (STATE * DIM) + i64(j))
    if step.positions[row] == 0:
        for n in range(STATE):
            for i in unroll(C):
                store(s + n * DIM, zeros(vec[f32, V]), i * V)
    group = i64(u32(h) // u32(a.share)) * STATE
    x = a.x + (i64(row) * i64(a.n_x) + i64(h * DIM + j))
    b = a.b + (i64(row) * i64(a.n_b) + group)
    c = a.c + (i64(row) * i64(a.n_b) + group)
    y = a.y + ((i64(row) * i64(a.n_heads) + i64(h)) * DIM + i64(j))
    if CHANNELS:
        dt = tuple(load(rates, i * V, lanes=V) for i in range(C))
        d = tuple(load(a.d + j, i * V, lanes=V) for i in range(C))
        scan_row(s, x, b, c, y, dt, dt, d, a.a + j, FAR, STATE, DIM, True, C, V)
    else:
        dt = tuple(splat(rates[0], V) for i in range(C))
        decay = tuple(splat(rates[1], V) for i in range(C))
        d = tuple(splat(a.d[h], V) for i in range(C))
        scan_row(s, x, b, c, y, dt, decay, d, a.a, FAR, STATE, DIM, False, C, V)


@kernel
def scan(
    a: ptr[ScanArgs], step: ptr[StepRecord], first: i32, last: i32, STATE: int, DIM: int, CHANNELS: bool, SLICE: int,
    NARROW: int, W: int,
):  # fmt: skip
    """Units: SLICE elements of a head, a power of two. With CHANNELS each element has a step size and decays.

    A single row reads its state through, once. Several rows take turns over NARROW elements, whose states stay in the
    first-level cache meanwhile.
    """
    V = min(W, SLICE)
    C = tuple(max(1, n // V) for n in (SLICE, NARROW))
    n_rows = step.n_rows
    rates = array(f32, ROWS * max(2, SLICE), zero=False)
    for u in range(first, last):
        h = i32(u32(u) // (DIM // SLICE))
        at = (u - h * (DIM // SLICE)) * SLICE
        if n_rows == 1:
            step_sizes(a, 0, h, at, rates, DIM, CHANNELS, C[0], V)
            scan_some(a, step, 0, h, at, rates, True, STATE, DIM, CHANNELS, C[0], V)
        else:
            for start in range(0, n_rows, ROWS):
                count: i32 = n_rows - start
                if count > ROWS:
                    count = ROWS
                for r in range(count):
                    step_sizes(a, start + r, h, at, rates + r * max(2, SLICE), DIM, CHANNELS, C[0], V)
                for j in range(0, SLICE, C[1] * V):
                    for r in range(count):
                        offset: i32 = r * max(2, SLICE)
                        if CHANNELS:
                            offset = offset + j
                        scan_some(a, step, start + r, h, at + j, rates + offset, False, STATE, DIM, CHANNELS, C[1], V)


@kernel
def gated_norm(
    a: ptr[GatedNormArgs], step: ptr[StepRecord], first: i32, last: i32, DIM: int, FIRST: bool, SIGMOID: bool, W: int
):  # fmt: skip
    """Units: heads, row after row. y = norm(o) * weight * silu(z), or sigmoid(z); with FIRST, norm(o * silu(z)) *
    weight.
    """
    V = max(w for w in (1, 2, 4, 8, 16) if w <= W and DIM % w == 0)
    for u in range(first, last):
        o = a.o + i64(u) * DIM
        z = a.z + i64(u) * DIM
        y = a.y + i64(u) * DIM
        if FIRST:
            for i in range(0, DIM, V):
                store(y, load(o, i, lanes=V) * silu(load(z, i, lanes=V)), i)
            own = a.weight + i64(u - i32(u32(u) // u32(a.n_heads)) * a.n_heads) * DIM
            factor = splat(rms_scale(y, DIM, a.eps, W), V)
            for i in range(0, DIM, V):
                store(y, (load(y, i, lanes=V) * factor) * load(own, i, lanes=V), i)
            continue
        scale = splat(rms_scale(o, DIM, a.eps, W), V)
        for i in range(0, DIM, V):
            gate = load(z, i, lanes=V)
            gate = sigmoid(gate) if SIGMOID else silu(gate)
            store(y, ((load(o, i, lanes=V) * scale) * load(a.weight, i, lanes=V)) * gate, i)

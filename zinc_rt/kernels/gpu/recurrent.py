"""Causal convolutions and the gated delta rule, with state for each sequence; rows of a sequence one after another.

A workgroup belongs to a sequence. Which one, its number in y says: the row of the step where that is the first of its
sequence (few rows), or the slot (few slots); a workgroup without rows ends at once.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.heads import head_scale, sum_of_squares
from zinc_rt.kernels.gpu.quantize import quantize_one
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.maths import exp, sigmoid, silu, softplus
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    first_lane,
    fma,
    lane_id,
    load,
    regs,
    select,
    shared,
    sqrt,
    static_assert,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f32, i32, ptr, struct, u8, u32, u64
from zinc_rt.numerics import GROUP, GROUP_SHIFT

CHANNELS = 256
"""Channels of a workgroup of the convolution."""
MOST_TAPS = 16
MOST_HEAD_DIM = 256
IN_REGISTERS = 128
"""Elements of a head up to which a lane keeps its column of the state in registers; beyond, it lies in LDS."""
FEW_VALUES = 32
"""Values of a workgroup whose state lies in LDS."""


@struct
class GpuConvArgs:
    """x, y: f32[rows, channels]; weight: f32[channels, TAPS]; state: f32[n_slots, TAPS - 1, channels]; bias:
    f32[channels], with BIAS; by_row: 1 where workgroups belong to rows, 0 to slots. With APART, x, x1, x2 are a third
    of the channels each.
    """

    x: ptr[f32]
    x1: ptr[f32]
    x2: ptr[f32]
    weight: ptr[f32]
    state: ptr[f32]
    bias: ptr[f32]
    y: ptr[f32]
    positions: ptr[i32]
    slots: ptr[i32]
    n_rows: u32
    n_channels: u32
    by_row: u32


@inline
def first_row(a, place: u32):
    """The sequence's slot and its first row, or n_rows where this workgroup has none."""
    slots = unchanged(a.slots)
    slot: u32 = place
    row: u32 = 0
    if a.by_row != 0:
        slot = slots[place]
    while row < a.n_rows and slots[row] != slot:
        row += 1
    if a.by_row != 0 and row != place:
        row = a.n_rows
    return slot, row


@inline
def convolved(window, taps, present: f32, extra: f32, KEPT: int, BIAS: bool, GATED: bool):
    """A channel's convolution at one position; the window of its last KEPT inputs moves on."""
    acc: f32 = 0.0
    for i in unroll(KEPT):
        acc = fma(taps[i], window[i], acc)
    acc = fma(taps[KEPT], present, acc)
    if BIAS:
        acc = acc + extra
    if GATED:
        acc = silu(acc)
    for i in unroll(KEPT - 1):
        window[i] = window[i + 1]
    window[KEPT - 1] = present
    return acc


@kernel(workgroup=256)
def conv1d(a: ptr[GpuConvArgs, Space.CONSTANT], TAPS: int, GATED: bool, BIAS: bool, APART: bool):
    """Workgroups: ceil(channels / 256) in x, rows or slots in y."""
    KEPT = TAPS - 1
    channel = workgroup_id(0) * CHANNELS + workitem_id()
    n, n_rows = a.n_channels, a.n_rows
    slots, positions = unchanged(a.slots), unchanged(a.positions)
    slot, first = first_row(a, workgroup_id(1))
    if first < n_rows:
        if channel < n:
            weights = tuple(a.weight[channel * TAPS + i] for i in range(TAPS))
            extra = a.bias[channel] if BIAS else 0.0
            state = a.state + u64(slot) * u64(n * KEPT) + u64(channel)
            source, width, place = a.x, n, channel
            if APART:
                width = n // 3
                if channel >= width:
                    source, place = a.x1, channel - width
                if channel >= width * 2:
                    source, place = a.x2, channel - width * 2
            window = regs(f32, KEPT)
            if positions[first] != 0:
                for i in unroll(KEPT):
                    window[i] = state[i * n]
            for row in range(first, n_rows):
                if slots[row] == slot:
                    if positions[row] == 0:
                        for i in unroll(KEPT):
                            window[i] = 0.0
                    present = source[u64(row) * u64(width) + u64(place)]
                    a.y[u64(row) * u64(n) + u64(channel)] = convolved(
                        window, weights, present, extra, KEPT, BIAS, GATED
                    )
            for i in unroll(KEPT):
                state[i * n] = window[i]


@struct
class GpuDeltaArgs:
    """u: f32[rows, (2 n_k + n_v) * DIM], heads of q, of k, of v; alpha, beta: f32[rows, n_v]; decay, dt_bias: f32[n_v];
    state: f32[n_slots, n_v, DIM, DIM]. y: f32[rows, n_v * DIM], or q, d, s as `quantize` has them. The norm behind it,
    with a gate: z as y, weight: f32[DIM]. by_row: as in `GpuConvArgs`; by_block: 1 where value head h has key head
    h // (n_v / n_k), 0 where it has h % n_k. With decays of channels: alpha: f32[rows, n_v, DIM], dt_bias: f32[n_v,
    DIM]; lower_bound: of their logarithms, where these are bounded.
    """

    u: ptr[f32]
    alpha: ptr[f32]
    beta: ptr[f32]
    decay: ptr[f32]
    dt_bias: ptr[f32]
    state: ptr[f32]
    z: ptr[f32]
    weight: ptr[f32]
    y: ptr[f32]
    q: ptr[u8]
    d: ptr[f32]
    s: ptr[u32]
    positions: ptr[i32]
    slots: ptr[i32]
    n_rows: u32
    n_k: u32
    n_v: u32
    by_row: u32
    by_block: u32
    eps: f32
    norm_eps: f32
    query_scale: f32
    lower_bound: f32


@inline
def unit_scale(x, eps, DIM: int):
    """What makes a head's length 1."""
    one: f32 = 1.0
    return one / sqrt(sum_of_squares(x, DIM) + eps)


@inline
def directions(a, q, k, row: u32, key_head: u32, DIM: int, LANES: int):
    """A row's query and key to LDS, both of length 1, the query scaled."""
    width = (a.n_k * 2 + a.n_v) * DIM
    queries: ptr[f32] = a.u + u64(row) * u64(width) + u64(key_head * DIM)
    keys: ptr[f32] = queries + a.n_k * DIM
    query_unit = unit_scale(queries, a.eps, DIM)
    key_unit = unit_scale(keys, a.eps, DIM)
    for start in unroll(0, DIM, LANES):
        i = workitem_id() + start
        if i < DIM:
            q[i] = (queries[i] * query_unit) * a.query_scale
            k[i] = keys[i] * key_unit


@inline
def four(p, i: int, DIM: int):
    """Elements i … i + 3 of what lies in LDS, those that there are."""
    if i + 4 <= DIM:
        v = load(p, i, lanes=4, align=16)
        return tuple(v[j] for j in range(4))
    return tuple(p[i + j] for j in range(DIM - i))


@inline
def held_step(held, q, k, v, g, b, DIM: int, DECAY: str):
    """One row on a column of the state in registers; its output. g: the decay, or those of all keys in LDS."""
    r: f32 = 0.0
    for i in unroll(0, DIM, 4):
        ks = four(k, i, DIM)
        gs = (g, g, g, g) if DECAY == "head" else four(g, i, DIM)
        for j in unroll(len(ks)):
            held[i + j] = gs[j] * held[i + j]
            r = fma(held[i + j], ks[j], r)
    d = b * (v - r)
    # Or else the compiler keeps the keys, in as many registers as the state takes.
    barrier()
    o: f32 = 0.0
    for i in unroll(0, DIM, 4):
        ks, qs = four(k, i, DIM), four(q, i, DIM)
        for j in unroll(len(ks)):
            held[i + j] = fma(ks[j], d, held[i + j])
            o = fma(held[i + j], qs[j], o)
    return o


@inline
def local_step(column, q, k, v, g, b, DIM: int, DECAY: str):
    """The same on a column in LDS, its elements `FEW_VALUES` apart."""
    r: f32 = 0.0
    for i in range(u32(0), u32(DIM)):
        x = (g if DECAY == "head" else g[i]) * column[i * FEW_VALUES]
        column[i * FEW_VALUES] = x
        r = fma(x, k[i], r)
    d = b * (v - r)
    o: f32 = 0.0
    for i in range(u32(0), u32(DIM)):
        x = fma(k[i], d, column[i * FEW_VALUES])
        column[i * FEW_VALUES] = x
        o = fma(x, q[i], o)
    return o


@inline
def rates(a, decays, row: u32, head: u32, DIM: int, LANES: int, DECAY: str):
    """How much of the state stays, and how strongly the row writes. decays: LDS for those of channels."""
    at = u64(row) * u64(a.n_v) + u64(head)
    factor = unchanged(a.decay, f32)[head]
    strength = sigmoid(unchanged(a.beta, f32)[at])
    if DECAY == "head":
        x = unchanged(a.alpha, f32)[at] + unchanged(a.dt_bias, f32)[head]
        return exp(factor * softplus(x)), strength
    for start in unroll(0, DIM, LANES):
        i = workitem_id() + start
        if i < DIM:
            x = a.alpha[at * DIM + u64(i)] + a.dt_bias[head * DIM + i]
            decays[i] = exp(factor * softplus(x) if DECAY == "channel" else a.lower_bound * sigmoid(factor * x))
    return decays, strength


@inline
def put_output(a, outs, o, row: u32, head: u32, value: u32, DIM: int, NORM: str, PACKED: bool):
    """A value of a row's output, normed and gated by z where that follows. outs: LDS of DIM elements."""
    at = u64(row) * u64(a.n_v * DIM) + u64(head * DIM + value)
    live = value < DIM
    result: f32 = o
    if NORM:
        if live:
            outs[value] = o
        here = select(live, value, value - value)
        z = a.z[u64(row) * u64(a.n_v * DIM) + u64(head * DIM + here)]
        weight = a.weight[here]
        barrier()
        one: f32 = 1.0
        dim: f32 = float(DIM)
        scale = one / sqrt(sum_of_squares(outs, DIM) / dim + a.norm_eps)
        result = ((o * scale) * weight) * (silu(z) if NORM == "silu" else sigmoid(z))
    if PACKED:
        group = at >> GROUP_SHIFT
        quantize_one(result, a.q + at, a.d + group, a.s + group, live)
    else:
        if live:
            a.y[at] = result


@inline
def delta_rows(a, DIM: int, LANES: int, NORM: str, PACKED: bool, DECAY: str):
    """The work of `delta_net_*`: LANES values of a head of a sequence. NORM: the activation of the gate behind the norm
    that follows; "" for none. DECAY: "head", or for those of channels "channel", "bounded".
    """
    static_assert(DIM <= MOST_HEAD_DIM, f"heads of {DIM} elements: delta_net does {MOST_HEAD_DIM}")
    static_assert(not PACKED or DIM % GROUP == 0, f"heads of {DIM} elements are no whole groups")
    HELD = DIM <= IN_REGISTERS
    n_rows = a.n_rows
    slots, positions = unchanged(a.slots), unchanged(a.positions)
    head = workgroup_id(0)
    value = workgroup_id(2) * LANES + workitem_id()
    # q and k of a row lie in one half while the waves that are behind still read the other.
    queries = shared(f32, 2 * DIM)
    keys = shared(f32, 2 * DIM)
    decays = shared(f32, 1 if DECAY == "head" else 2 * DIM)
    outs = shared(f32, 2 * DIM if NORM else 1)
    columns = shared(f32, 1 if HELD else DIM * FEW_VALUES)
    column = columns + workitem_id()
    slot, first = first_row(a, workgroup_id(1))
    if first < n_rows:
        key_head = head // (a.n_v // a.n_k) if a.by_block != 0 else head % a.n_k
        inside = select(value < DIM, value, value - value)
        state: ptr[f32] = a.state + (u64(slot) * u64(a.n_v) + u64(head)) * (DIM * DIM) + u64(inside)
        held = regs(f32, DIM if HELD else 1)
        if positions[first] != 0:
            for i in unroll(DIM):
                if HELD:
                    held[i] = state[i * DIM]
                else:
                    column[i * FEW_VALUES] = state[i * DIM]
        half: u32 = 0
        for row in range(first, n_rows):
            if slots[row] == slot:
                if positions[row] == 0:
                    for i in unroll(DIM):
                        if HELD:
                            held[i] = 0.0
                        else:
                            column[i * FEW_VALUES] = 0.0
                q, k = queries + half * DIM, keys + half * DIM
                directions(a, q, k, row, key_head, DIM, LANES)
                v = a.u[u64(row) * u64((a.n_k * 2 + a.n_v) * DIM) + u64((a.n_k * 2 + head) * DIM + inside)]
                g, b = rates(a, decays + (half - half if DECAY == "head" else half * DIM), row, head, DIM, LANES, DECAY)
                barrier()
                o: f32 = 0.0
                if HELD:
                    o = held_step(held, q, k, v, g, b, DIM, DECAY)
                else:
                    o = local_step(column, q, k, v, g, b, DIM, DECAY)
                put_output(a, outs + (half * DIM if NORM else half - half), o, row, head, value, DIM, NORM, PACKED)
                half = half ^ 1
        if value < DIM:
            for i in unroll(DIM):
                state[i * DIM] = held[i] if HELD else column[i * FEW_VALUES]


@kernel(workgroup=32)
def delta_net_32(a: ptr[GpuDeltaArgs, Space.CONSTANT], DIM: int, NORM: str, PACKED: bool, DECAY: str):
    """Heads of up to 32 elements, or of more than 128: heads in x, rows or slots in y, ceil(DIM / 32) in z."""
    static_assert(not NORM or DIM <= FEW_VALUES, "the norm needs all values of a head in one workgroup")
    delta_rows(a, DIM, 32, NORM, PACKED, DECAY)


@kernel(workgroup=64)
def delta_net_64(a: ptr[GpuDeltaArgs, Space.CONSTANT], DIM: int, NORM: str, PACKED: bool, DECAY: str):
    """Heads of up to 64 elements: heads in x, rows or slots in y."""
    delta_rows(a, DIM, 64, NORM, PACKED, DECAY)


@kernel(workgroup=128)
def delta_net_128(a: ptr[GpuDeltaArgs, Space.CONSTANT], DIM: int, NORM: str, PACKED: bool, DECAY: str):
    """Heads of up to 128 elements: heads in x, rows or slots in y."""
    delta_rows(a, DIM, 128, NORM, PACKED, DECAY)


@kernel(workgroup=128)
def gated_norm(o: ptr[f32], z: ptr[f32], weight: ptr[f32], y: ptr[f32], n_heads: u32, eps: f32, DIM: int, ACT: str):
    """y = norm(o) * weight * silu(z), or sigmoid(z), of n_heads heads of all rows, a wave a head, four a workgroup."""
    head = workgroup_id(0) * 4 + first_lane(workitem_id() >> 5)
    if head < n_heads:
        x: ptr[f32] = o + u64(head) * DIM
        scale = head_scale(x, eps, DIM)
        for start in unroll(0, DIM, 32):
            i = lane_id() + start
            if i < DIM:
                at = u64(head) * DIM + u64(i)
                y[at] = ((o[at] * scale) * weight[i]) * (silu(z[at]) if ACT == "silu" else sigmoid(z[at]))

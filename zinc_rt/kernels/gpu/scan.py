"""Selective scans, with state for each sequence, and the norm behind a gate.

A workgroup belongs to a sequence, as in `recurrent`. A wave has 32 elements of a head, and of their state a block of
`SCAN_BLOCK`, which it keeps in registers from row to row: so the waves of a head's blocks share the sum over its state.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.norm import sum_of_lanes
from zinc_rt.kernels.gpu.recurrent import first_row
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.maths import exp, silu, softplus
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    first_lane,
    fma,
    lane_id,
    regs,
    select,
    shared,
    sqrt,
    static_assert,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f32, i32, ptr, struct, u32, u64
from zinc_rt.numerics import NORM_LANES, SCAN_BLOCK

WAVES = 8
"""Of a workgroup."""
MOST_STATE = WAVES * SCAN_BLOCK
"""Elements of a channel's state."""


@struct
class GpuScanArgs:
    """x: f32[rows, width], of a row its heads, what its groups write, what they read; y: f32[rows, n_heads, DIM];
    state: f32[n_slots, n_heads, STATE, DIM]; dt: f32[rows, n_heads]; decay, dt_bias, d: f32[n_heads]. share: heads in
    a row that share a group; by_row: as in `recurrent.GpuConvArgs`.

    With CHANNELS x: f32[rows, DIM]; b, c: f32[rows, STATE]; dt: f32[rows, DIM]; decay: f32[STATE + 1, DIM], d the last.
    """

    x: ptr[f32]
    b: ptr[f32]
    c: ptr[f32]
    dt: ptr[f32]
    decay: ptr[f32]
    dt_bias: ptr[f32]
    d: ptr[f32]
    state: ptr[f32]
    y: ptr[f32]
    positions: ptr[i32]
    slots: ptr[i32]
    n_rows: u32
    width: u32
    n_heads: u32
    share: u32
    by_row: u32


@inline
def step_size(a, row: u32, head: u32, value: u32, DIM: int, CHANNELS: bool):
    """dt of a row's element, and how much of the state stays where that is one number for a head."""
    if CHANNELS:
        dt = softplus(a.dt[u64(row) * DIM + u64(value)])
        return dt, dt
    here = softplus(unchanged(a.dt, f32)[u64(row) * u64(a.n_heads) + u64(head)] + unchanged(a.dt_bias, f32)[head])
    return here, exp(unchanged(a.decay, f32)[head] * here)


@inline
def block_step(held, a, row: u32, group: u32, start: u32, value: u32, dt, stays, added, DIM: int, STATE: int,
               CHANNELS: bool):  # fmt: skip
    """One row on an element's block of the state, from `start` on; the sum that the block gives."""
    writes, reads = written_and_read(a, row, group, start, DIM, STATE, CHANNELS)
    r: f32 = 0.0
    for i in unroll(min(SCAN_BLOCK, STATE)):
        n = start + i
        now = writes[i], reads[i]
        if STATE % min(SCAN_BLOCK, STATE) == 0:
            held[i], r = element_step(held[i], a, n, value, dt, stays, added, now, r, DIM, CHANNELS)
        else:
            if n < STATE:
                held[i], r = element_step(held[i], a, n, value, dt, stays, added, now, r, DIM, CHANNELS)
    return r


@inline
def written_and_read(a, row: u32, group: u32, start: u32, DIM: int, STATE: int, CHANNELS: bool):
    """What a row writes to the state's elements from `start` on, and what it reads of them."""
    if CHANNELS:
        at = u64(row) * STATE + u64(start)
        return unchanged(a.b, f32) + at, unchanged(a.c, f32) + at
    inner = a.n_heads * DIM
    writes = unchanged(a.x, f32) + (u64(row) * u64(a.width) + u64(inner + group * STATE + start))
    return writes, writes + a.n_heads // a.share * STATE


@inline
def element_step(old, a, n: u32, value: u32, dt, stays, added, now, r, DIM: int, CHANNELS: bool):
    """One element of the state, n, and the sum with what is read of it. now: what writes to it, and what reads it."""
    keep = stays
    if CHANNELS:
        keep = exp(a.decay[n * DIM + value] * dt)
    new = fma(now[0], added, keep * old)
    return new, fma(new, now[1], r)


@kernel(workgroup=256)
def scan(a: ptr[GpuScanArgs, Space.CONSTANT], DIM: int, STATE: int, CHANNELS: bool):
    """Workgroups: the units of `scan_units` in x, rows or slots in y. A unit: 32 elements of a head."""
    static_assert(STATE <= MOST_STATE, f"states of {STATE} elements: the scan does {MOST_STATE}")
    BLOCKS = -(-STATE // SCAN_BLOCK)
    HELD = min(SCAN_BLOCK, STATE)
    WHOLE = STATE % HELD == 0
    UNITS = WAVES // BLOCKS
    PIECES = -(-DIM // 32)
    n_rows = a.n_rows
    slots, positions = unchanged(a.slots), unchanged(a.positions)
    wave = first_lane(workitem_id() >> 5)
    mine = wave // BLOCKS
    block = wave - mine * BLOCKS
    number = workgroup_id(0) * UNITS + mine
    live = mine < UNITS and number < a.n_heads * PIECES
    unit = select(live, number, number - number)
    head = unit // PIECES
    value = (unit - head * PIECES) * 32 + lane_id()
    inside = select(value < DIM, value, value - value)
    parts = shared(f32, 2 * 32 * WAVES)
    slot, first = first_row(a, workgroup_id(1))
    if first < n_rows:
        group = head // a.share
        start = block * SCAN_BLOCK
        state: ptr[f32] = a.state + (
            (u64(slot) * u64(a.n_heads) + u64(head)) * (STATE * DIM) + u64(start * DIM + inside)
        )
        skip = a.decay[STATE * DIM + inside] if CHANNELS else unchanged(a.d, f32)[head]
        held = regs(f32, HELD)
        if positions[first] != 0:
            for i in unroll(HELD):
                if WHOLE:
                    held[i] = state[i * DIM]
                else:
                    if start + i < STATE:
                        held[i] = state[i * DIM]
        half: u32 = 0
        for row in range(first, n_rows):
            if slots[row] == slot:
                if positions[row] == 0:
                    for i in unroll(HELD):
                        held[i] = 0.0
                dt, stays = step_size(a, row, head, inside, DIM, CHANNELS)
                x = a.x[u64(row) * u64(a.width) + u64(head * DIM + inside)]
                r = block_step(held, a, row, group, start, inside, dt, stays, dt * x, DIM, STATE, CHANNELS)
                if BLOCKS > 1:
                    sums = parts + half * (32 * WAVES) + workitem_id()
                    sums[0] = r
                    barrier()
                    if block == 0:
                        for k in unroll(1, BLOCKS):
                            r = r + sums[k * 32]
                    half = half ^ 1
                if block == 0 and live and value < DIM:
                    a.y[(u64(row) * u64(a.n_heads) + u64(head)) * DIM + u64(value)] = fma(skip, x, r)
        if live and value < DIM:
            for i in unroll(HELD):
                if WHOLE:
                    state[i * DIM] = held[i]
                else:
                    if start + i < STATE:
                        state[i * DIM] = held[i]


@kernel(workgroup=256)
def gate_first_norm(o: ptr[f32], z: ptr[f32], weight: ptr[f32], y: ptr[f32], n_heads: u32, eps: f32, DIM: int):
    """y = norm(o * silu(z)) * weight, each head with weights of its own: heads in x, rows in y."""
    part = shared(f32, NORM_LANES + 1)
    head = workgroup_id(0)
    start = (u64(workgroup_id(1)) * u64(n_heads) + u64(head)) * DIM
    own = weight + u64(head) * DIM
    acc: f32 = 0.0
    for i in range(workitem_id(), u32(DIM), NORM_LANES):
        v = o[start + u64(i)] * silu(z[start + u64(i)])
        acc = fma(v, v, acc)
    one: f32 = 1.0
    dim: f32 = float(DIM)
    scale = one / sqrt(sum_of_lanes(part, acc) / dim + eps)
    for i in range(workitem_id(), u32(DIM), NORM_LANES):
        v = o[start + u64(i)] * silu(z[start + u64(i)])
        y[start + u64(i)] = (v * scale) * own[i]

"""Products whose results are the channels of a causal convolution, in steps of so few rows that one block has them all:
the wave that has a channel's products convolves them.
"""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.gpu.epilogue import WAVES
from zinc_rt.kernels.gpu.matvec import add_all_chains, add_all_groups, lines_of
from zinc_rt.kernels.gpu.recurrent import GpuConvArgs, convolved
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    first_lane,
    lane_id,
    regs,
    select,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f32, i8, ptr, u8, u32, u64


@inline
def row_or_last(a, m: int):
    """Row m, or the last one where the step has fewer."""
    last = a.n_rows - 1
    return select(last < m, last, last - last + m)


@inline
def sequence_of(a, M: int):
    """The slot of the row of this lane's number, and whether it is the first row of its sequence."""
    lane = lane_id()
    live = lane < a.n_rows
    slot = a.slots[select(live, lane, lane - lane)]
    for m in unroll(M):
        live = live & ((lane <= m) | (a.slots[row_or_last(a, m)] != slot))
    return slot, live


@inline
def kept_of(a, channel: u32, slot, live, TAPS: int):
    """A channel's weights, its bias, and its inputs before the step."""
    n = a.n_channels
    taps = tuple(a.weight[channel * TAPS + i] for i in range(TAPS))
    state = a.state + u64(u32(slot)) * u64(n * (TAPS - 1)) + u64(channel)
    window = regs(f32, TAPS - 1)
    if live:
        for i in unroll(TAPS - 1):
            window[i] = state[i * n]
    return taps, state, window


@inline
def convolve(a, sums, kept, channel: u32, slot, live, FIRST: int, M: int, TAPS: int, GATED: bool, BIAS: bool):
    """A channel of all rows of a sequence, by the lane of its first one. sums: all lanes' parts of the products."""
    KEPT = TAPS - 1
    taps, state, window = kept
    slots, positions = unchanged(a.slots), unchanged(a.positions)
    extra = a.bias[channel] if BIAS else 0.0
    for m in unroll(M):
        present = wave_reduce_add(sums[FIRST + m])
        row = row_or_last(a, m)
        if live & (m < a.n_rows) & (slots[row] == u32(slot)):
            if positions[row] == 0:
                for i in unroll(KEPT):
                    window[i] = 0.0
            y = convolved(window, taps, present, extra, KEPT, BIAS, GATED)
            a.y[u64(row) * u64(a.n_channels) + u64(channel)] = y
    if live:
        for i in unroll(KEPT):
            state[i * a.n_channels] = window[i]


@inline
def conv_of_products(
    w, q, d, s, n_units, a, FMT: str, M: int, EACH: int, TAPS: int, GATED: bool, BIAS: bool, FLOAT: bool
):
    """The work of `matvec_conv` and `matvec_float_conv`; q: the activations."""
    F = format_of(FMT)
    channel = (workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)) * EACH
    n = a.n_channels
    if channel < n:
        slot, live = sequence_of(a, M)
        # What the convolution of a channel needs is asked for before its weights; of several registers are too few.
        early = (kept_of(a, channel, slot, live, TAPS),) if EACH == 1 else ()
        sums = regs(f32, EACH * M)
        if FLOAT:
            add_all_chains(
                lines_of(w, channel, n, n_units * F.block_bytes, EACH), q, sums, n_units, n_units, (FMT,) * EACH, M
            )
        else:
            lines = lines_of(w, channel, n, (n_units >> F.group_shift) * F.block_bytes, EACH)
            add_all_groups(lines, (q, d, s), sums, n_units, n_units, 2 if M == 1 else 1, (FMT,) * EACH, M)
        for r in unroll(EACH):
            if channel + r < n:
                kept = early[0] if EACH == 1 else kept_of(a, channel + r, slot, live, TAPS)
                convolve(a, sums, kept, channel + r, slot, live, r * M, M, TAPS, GATED, BIAS)


@kernel(workgroup=256)
def matvec_conv(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], n_groups: u32, a: ptr[GpuConvArgs, Space.CONSTANT], FMT: str,
    M: int, EACH: int, TAPS: int, GATED: bool, BIAS: bool,
):  # fmt: skip
    """As `matvec`, EACH channels a wave, and then `conv1d` of what it makes. The step has at most M rows."""
    conv_of_products(w, q, d, s, n_groups, a, FMT, M, EACH, TAPS, GATED, BIAS, False)


@kernel(workgroup=256)
def matvec_float_conv(
    w: ptr[u8], x: ptr[f32], n: u32, a: ptr[GpuConvArgs, Space.CONSTANT], FMT: str, M: int, EACH: int, TAPS: int,
    GATED: bool, BIAS: bool,
):  # fmt: skip
    """As `matvec_conv` for float weights."""
    conv_of_products(w, x, x, x, n, a, FMT, M, EACH, TAPS, GATED, BIAS, True)

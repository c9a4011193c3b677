"""Products whose results are the channels of a causal convolution, in steps of so few rows that one block has them all:
the wave that has a channel's products convolves them.
"""

from __future__ import annotations

from zinc_rt.kernels.maths import silu
from zinc_rt.kernels.rdna.recurrent import GpuConvArgs, unchanged
from zinc_rt.kernels.rdna.tails import WAVES, add_blocks, add_floats
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    first_lane,
    fma,
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
def convolve(a, sums, window, taps, channel: u32, slot, live, M: int, TAPS: int, GATED: bool, BIAS: bool):
    """A channel of all rows of a sequence, by the lane of its first one. sums: all lanes' parts of the products."""
    KEPT = TAPS - 1
    slots, positions = unchanged(a.slots), unchanged(a.positions)
    extra = a.bias[channel] if BIAS else 0.0
    for m in unroll(M):
        present = wave_reduce_add(sums[m])
        row = row_or_last(a, m)
        if live & (m < a.n_rows) & (slots[row] == u32(slot)):
            if positions[row] == 0:
                for i in unroll(KEPT):
                    window[i] = 0.0
            acc: f32 = 0.0
            for i in unroll(KEPT):
                acc = fma(taps[i], window[i], acc)
            acc = fma(taps[KEPT], present, acc)
            if BIAS:
                acc = acc + extra
            if GATED:
                acc = silu(acc)
            a.y[u64(row) * u64(a.n_channels) + u64(channel)] = acc
            for i in unroll(KEPT - 1):
                window[i] = window[i + 1]
            window[KEPT - 1] = present


@inline
def conv_of_products(w, q, d, s, n_units, a, FMT: str, M: int, TAPS: int, GATED: bool, BIAS: bool, FLOAT: bool):
    """The work of `matvec_conv` and `matvec_float_conv`; q: the activations."""
    KEPT = TAPS - 1
    channel = workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)
    n = a.n_channels
    if channel < n:
        # What the convolution needs is asked for before the weights of the product.
        slot, live = sequence_of(a, M)
        taps = tuple(a.weight[channel * TAPS + i] for i in range(TAPS))
        state = a.state + u64(u32(slot)) * u64(n * KEPT) + u64(channel)
        window = regs(f32, KEPT)
        if live:
            for i in unroll(KEPT):
                window[i] = state[i * n]
        sums = regs(f32, M)
        if FLOAT:
            add_floats(w, q, sums, u32(0), channel, n_units, FMT, M)
        else:
            add_blocks(w, q, d, s, sums, u32(0), channel, n_units, FMT, M)
        convolve(a, sums, window, taps, channel, slot, live, M, TAPS, GATED, BIAS)
        if live:
            for i in unroll(KEPT):
                state[i * n] = window[i]


@kernel(workgroup=256)
def matvec_conv(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], n_groups: u32, a: ptr[GpuConvArgs, Space.CONSTANT], FMT: str,
    M: int, TAPS: int, GATED: bool, BIAS: bool,
):  # fmt: skip
    """As `matvec`, eight channels a workgroup, and then `conv1d` of what it makes. The step has at most M rows."""
    conv_of_products(w, q, d, s, n_groups, a, FMT, M, TAPS, GATED, BIAS, False)


@kernel(workgroup=256)
def matvec_float_conv(
    w: ptr[u8], x: ptr[f32], n: u32, a: ptr[GpuConvArgs, Space.CONSTANT], FMT: str, M: int, TAPS: int, GATED: bool,
    BIAS: bool,
):  # fmt: skip
    """As `matvec_conv` for float weights."""
    conv_of_products(w, x, x, x, n, a, FMT, M, TAPS, GATED, BIAS, True)

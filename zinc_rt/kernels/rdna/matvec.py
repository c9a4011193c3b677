"""Matrix times few rows of activations, the work of a decode step: one wave a row of weights, one lane a group."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.formats.kinds import Kind
from zinc_rt.kernels.rdna.groups import group_value, group_weights
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    bitcast,
    cast,
    first_lane,
    fma,
    lane_id,
    load,
    regs,
    select,
    static_assert,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f16, f32, i8, ptr, u8, u16, u32, u64
from zinc_rt.numerics import GROUP, GROUP_SHIFT, TREE_LANES

WAVES = 4
"""Rows of a workgroup."""


@inline
def wave_row():
    """The row of this wave, the same in all lanes."""
    return workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)


@inline
def add_groups(line, q, d, s, sums, base: u32, n_groups: u32, STEPS: int, FMT: str, M: int):
    """sums[m] += v_g of this lane's groups base + lane, 32 further, … STEPS times; groups beyond the end count as 0."""
    # What comes from memory is asked for before the first of it is needed.
    at = tuple(base + i * TREE_LANES + lane_id() for i in range(STEPS))
    groups = tuple(select(g < n_groups, g, n_groups - 1) for g in at)
    weights = tuple(group_weights(line, g, FMT) for g in groups)
    for i in unroll(STEPS):
        for m in unroll(M):
            x = (q + m * n_groups * GROUP, d + m * n_groups, s + m * n_groups)
            sums[m] = sums[m] + select(at[i] < n_groups, group_value(weights[i], x, groups[i], FMT), 0.0)


@inline
def add_all_groups(line, q, d, s, sums, n_groups: u32, STEPS: int, FMT: str, M: int):
    """sums[m] += v_g of all groups of this lane in a row of weights."""
    many: u32 = 0
    if STEPS > 1:
        while many + TREE_LANES * STEPS <= n_groups:
            add_groups(line, q, d, s, sums, many, n_groups, STEPS, FMT, M)
            many += TREE_LANES * STEPS
    for base in range(many, n_groups, TREE_LANES):
        add_groups(line, q, d, s, sums, base, n_groups, 1, FMT, M)


@inline
def row_of_groups(w, q, d, s, y, bias, n_groups, n_rows, FMT: str, M: int, STEPS: int, BIAS: bool):
    """The work of `matvec` and `matvec_bias`."""
    F = format_of(FMT)
    row = wave_row()
    if row < n_rows:
        block = workgroup_id(1) * M
        q = q + u64(block) * u64(n_groups * GROUP)
        d = d + u64(block) * u64(n_groups)
        s = s + u64(block) * u64(n_groups)
        y = y + u64(block) * u64(n_rows)
        line = w + u64(row) * u64((n_groups >> F.group_shift) * F.block_bytes)
        extra = bias[row] if BIAS else 0.0  # asked for before the weights, not behind them
        sums = regs(f32, M)
        add_all_groups(line, q, d, s, sums, n_groups, STEPS, FMT, M)
        for m in unroll(M):
            total = wave_reduce_add(sums[m])
            if lane_id() == 0:
                y[m * n_rows + row] = total + extra if BIAS else total


@inline
def floats_at(row: ptr[u8], group: u32, first: int, FMT: str):
    """Eight weights of a group from element `first` on, as a tuple."""
    F = format_of(FMT)
    p = row + group * F.group_bytes
    if F.kind == Kind.F32:
        parts = tuple(load(cast(p, ptr[f32]), first + i, lanes=4) for i in (0, 4))
        return tuple(parts[i // 4][i % 4] for i in range(8))
    if F.kind == Kind.F16:
        wide = f32(load(cast(p, ptr[f16]), first, lanes=8))
        return tuple(wide[i] for i in range(8))
    static_assert(F.kind == Kind.BF16, f"format {FMT}: floats_at does not know numbers of kind {F.kind!s}")
    pairs = load(cast(p, ptr[u32]), first // 2, lanes=4, align=2)
    return tuple(bitcast(pairs[i // 2] & 0xFFFF0000 if i % 2 else pairs[i // 2] << 16, f32) for i in range(8))


@inline
def float_at(row: ptr[u8], i: u32, FMT: str):
    """One weight."""
    F = format_of(FMT)
    if F.kind == Kind.F32:
        return load(cast(row, ptr[f32]), i)
    if F.kind == Kind.F16:
        return f32(load(cast(row, ptr[f16]), i))
    static_assert(F.kind == Kind.BF16, f"format {FMT}: float_at does not know numbers of kind {F.kind!s}")
    return bitcast(u32(load(cast(row, ptr[u16]), i)) << 16, f32)


@inline
def add_chains(line, x, sums, group: u32, n: u32, FMT: str, M: int):
    """sums[m] += the chain over a group of a row of n float weights."""
    chains = regs(f32, M)
    if group * GROUP + GROUP <= n:
        for first in unroll(0, GROUP, 8):
            weights = floats_at(line, group, first, FMT)
            for m in unroll(M):
                v = x + m * n + group * GROUP
                parts = tuple(load(v, first + i, lanes=4) for i in (0, 4))
                for i in unroll(8):
                    chains[m] = fma(weights[i], parts[i // 4][i % 4], chains[m])
    else:
        for i in range(group * GROUP, n):
            for m in unroll(M):
                chains[m] = fma(float_at(line, i, FMT), load(x + m * n, i), chains[m])
    for m in unroll(M):
        sums[m] = sums[m] + chains[m]


@inline
def row_of_floats(w, x, y, bias, n, n_rows, FMT: str, M: int, BIAS: bool):
    """The work of `matvec_float` and `matvec_float_bias`."""
    row = wave_row()
    if row < n_rows:
        block = workgroup_id(1) * M
        x = x + u64(block) * u64(n)
        y = y + u64(block) * u64(n_rows)
        line = w + u64(row) * u64(n * format_of(FMT).block_bytes)
        extra = bias[row] if BIAS else 0.0
        sums = regs(f32, M)
        for group in range(lane_id(), (n + (GROUP - 1)) >> GROUP_SHIFT, TREE_LANES):
            add_chains(line, x, sums, group, n, FMT, M)
        for m in unroll(M):
            total = wave_reduce_add(sums[m])
            if lane_id() == 0:
                y[m * n_rows + row] = total + extra if BIAS else total


@kernel(workgroup=128)
def matvec(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], y: ptr[f32], n_groups: u32, n_rows: u32, FMT: str, M: int = 1,
    STEPS: int = 2,
):  # fmt: skip
    """y[m, row] = W times row m of quantised activations (see `quantize`); four rows of W a workgroup in x, M rows of
    activations in y: all M of the last one are read and written, so there must be room for them.

    STEPS: groups of a lane that are loaded together.
    """
    row_of_groups(w, q, d, s, y, y, n_groups, n_rows, FMT, M, STEPS, BIAS=False)


@kernel(workgroup=128)
def matvec_bias(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], bias: ptr[f32], y: ptr[f32], n_groups: u32, n_rows: u32, FMT: str,
    M: int = 1, STEPS: int = 2,
):  # fmt: skip
    """As `matvec`, plus bias[row]."""
    row_of_groups(w, q, d, s, y, bias, n_groups, n_rows, FMT, M, STEPS, BIAS=True)


@kernel(workgroup=128)
def matvec_float(w: ptr[u8], x: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, M: int = 1):
    """As `matvec` for F32, F16 and BF16 weights and rows of n floats; a lane chains a group's products in order."""
    row_of_floats(w, x, y, y, n, n_rows, FMT, M, BIAS=False)


@kernel(workgroup=128)
def matvec_float_bias(w: ptr[u8], x: ptr[f32], bias: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, M: int = 1):
    """As `matvec_float`, plus bias[row]."""
    row_of_floats(w, x, y, bias, n, n_rows, FMT, M, BIAS=True)

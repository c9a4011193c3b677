"""Parts of rows of activations times a matrix each: one wave a row of a matrix, one lane a group."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.rdna.groups import group_value, group_weights
from zinc_rt.kernels.rdna.matvec import float_at, floats_at, wave_row
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import fma, lane_id, load, regs, select, unroll, wave_reduce_add, workgroup_id
from zinc_rt.lang.types import f32, i8, ptr, u8, u32, u64
from zinc_rt.numerics import GROUP, GROUP_SHIFT, TREE_LANES


@kernel(workgroup=128)
def grouped_matvec(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], y: ptr[f32], n_groups: u32, n_rows: u32, parts: u32, FMT: str,
    M: int = 1,
):  # fmt: skip
    """As `matvec` for rows of `parts` stretches of n_groups groups; workgroups in z are parts."""
    F = format_of(FMT)
    row = wave_row()
    part = workgroup_id(2)
    if row < n_rows:
        across = n_groups * parts
        block = workgroup_id(1) * M
        first = u64(block) * u64(across) + u64(part * n_groups)
        y = y + (u64(block) * u64(n_rows * parts) + u64(part * n_rows))
        line = w + u64(part * n_rows + row) * u64((n_groups >> F.group_shift) * F.block_bytes)
        sums = regs(f32, M)
        for base in range(u32(0), n_groups, TREE_LANES):
            at = base + lane_id()
            group = select(at < n_groups, at, n_groups - 1)
            weights = group_weights(line, group, FMT)
            for m in unroll(M):
                place = first + u64(m * across)
                x = (q + place * GROUP, d + place, s + place)
                sums[m] = sums[m] + select(at < n_groups, group_value(weights, x, group, FMT), 0.0)
        for m in unroll(M):
            total = wave_reduce_add(sums[m])
            if lane_id() == 0:
                y[m * n_rows * parts + row] = total


@kernel(workgroup=128)
def grouped_matvec_float(w: ptr[u8], x: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, parts: u32, FMT: str, M: int = 1):
    """As `grouped_matvec` for F32, F16 and BF16 weights and stretches of n floats."""
    row = wave_row()
    part = workgroup_id(2)
    if row < n_rows:
        across = n * parts
        block = workgroup_id(1) * M
        x = x + (u64(block) * u64(across) + u64(part * n))
        y = y + (u64(block) * u64(n_rows * parts) + u64(part * n_rows))
        line = w + u64(part * n_rows + row) * u64(n * format_of(FMT).block_bytes)
        sums = regs(f32, M)
        for group in range(lane_id(), (n + (GROUP - 1)) >> GROUP_SHIFT, TREE_LANES):
            chains = regs(f32, M)
            if group * GROUP + GROUP <= n:
                for first in unroll(0, GROUP, 8):
                    weights = floats_at(line, group, first, FMT)
                    for m in unroll(M):
                        for i in unroll(8):
                            v = load(x + m * across + group * GROUP, first + i)
                            chains[m] = fma(weights[i], v, chains[m])
            else:
                for i in range(group * GROUP, n):
                    for m in unroll(M):
                        chains[m] = fma(float_at(line, i, FMT), load(x + m * across, i), chains[m])
            for m in unroll(M):
                sums[m] = sums[m] + chains[m]
        for m in unroll(M):
            total = wave_reduce_add(sums[m])
            if lane_id() == 0:
                y[m * n_rows * parts + row] = total

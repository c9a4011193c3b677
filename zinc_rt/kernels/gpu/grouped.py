"""Parts of rows of activations times a matrix each: one wave a row of a matrix, one lane a group."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.gpu.matvec import add_all_chains, add_all_groups, store_sums, wave_row
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import regs, workgroup_id
from zinc_rt.lang.types import f32, i8, ptr, u8, u32, u64
from zinc_rt.numerics import GROUP


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
        x = (q + first * GROUP, d + first, s + first)
        add_all_groups((line,), x, sums, n_groups, across, 1, (FMT,), M)
        store_sums(y, sums, row, n_rows, n_rows * parts, 0.0, 1, M, BIAS=False)


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
        add_all_chains((line,), x, sums, n, across, (FMT,), M)
        store_sums(y, sums, row, n_rows, n_rows * parts, 0.0, 1, M, BIAS=False)

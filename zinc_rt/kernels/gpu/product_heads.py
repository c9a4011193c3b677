"""Products whose results are heads, with the work on these heads: norm, rotation, and storing to a buffer or the cache.

A wave has EACH rows of weights, so a workgroup eight times as many elements of a head. The last one to arrive of a head
does the head, a wave for each row of activations.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.arrival import is_last
from zinc_rt.kernels.gpu.epilogue import WAVES
from zinc_rt.kernels.gpu.heads import GpuHeadsArgs, do_head, position_of, put_staged, where_of
from zinc_rt.kernels.gpu.matvec import rows_of_groups
from zinc_rt.kernels.gpu.shared_rows import float_rows
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import barrier, first_lane, select, shared, static_assert, workgroup_id, workitem_id
from zinc_rt.lang.types import Space, f32, i8, ptr, u8, u32


@inline
def row_of_wave(M: int):
    """The row of activations whose head this wave does, where there is one, and the wave's number."""
    wave = first_lane(workitem_id() >> 5)
    return workgroup_id(1) * M + wave, wave


@inline
def position_before(a, M: int, FORM: tuple):
    """`position_of` the row of this wave, of the last row where there is none; asked for before the weights."""
    row, _ = row_of_wave(M)
    last = a.n_rows - 1
    return position_of(a, select(row < last, row, last), FORM)


@inline
def heads_behind(a, b, found, M: int, EACH: int, FORM: tuple, SECOND: tuple):
    """The head that this workgroup's rows belong to, by the last workgroup of it; with SECOND another thing is made of
    it, too. Products of the step's last block that no row of the step has are left alone.
    """
    static_assert(FORM[0] % (WAVES * EACH) == 0, f"heads of {FORM[0]} elements are no whole workgroups")
    static_assert(M <= WAVES, f"blocks of {M} rows are more than a workgroup has waves")
    parts = FORM[0] // (WAVES * EACH)
    head = workgroup_id(0) // parts
    where = where_of(a, found, FORM)  # asked for before the workgroup arrives
    if is_last(a.counters, workgroup_id(1) * a.n_heads + head, u32(parts)):
        finish_head(a, head, where, M, FORM)
        if len(SECOND) > 0:
            finish_head(b, head, where_of(b, position_before(b, M, SECOND), SECOND), M, SECOND)


@inline
def finish_head(a, head: u32, where, M: int, FORM: tuple):
    """A head of M rows, a wave for each."""
    DIM, _, _, _, _, _, _, _, BLOCKS, PACKED, _, EVERY = FORM
    static_assert(EVERY == 1, "products write all of their rows")
    row, wave = row_of_wave(M)
    staged = shared(f32, M * DIM) + wave * DIM if BLOCKS or PACKED else a.y
    live = (wave < M) & (row < a.n_rows)
    if live:
        do_head(a, row, head, where, staged, FORM)
    if BLOCKS or PACKED:
        barrier()
        if live:
            put_staged(a, row, head, where, staged, FORM)


@kernel(workgroup=256)
def matvec_heads(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], n_groups: u32, n_rows: u32,
    a: ptr[GpuHeadsArgs, Space.CONSTANT], b: ptr[GpuHeadsArgs, Space.CONSTANT], FMT: str, M: int, EACH: int,
    STEPS: int, FORM: tuple, SECOND: tuple = (),
):  # fmt: skip
    """As `matvec` into a.x, eight waves a workgroup, each with EACH rows of W, and then their heads. b: what else is
    made of them, with SECOND.
    """
    found = position_before(a, M, FORM)
    row = (workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)) * EACH
    rows_of_groups(w, q, d, s, a.x, a.x, n_groups, n_rows, row, FMT, M, STEPS, False, EACH)
    heads_behind(a, b, found, M, EACH, FORM, SECOND)


@kernel(workgroup=256)
def matvec_bias_heads(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], bias: ptr[f32], n_groups: u32, n_rows: u32,
    a: ptr[GpuHeadsArgs, Space.CONSTANT], b: ptr[GpuHeadsArgs, Space.CONSTANT], FMT: str, M: int, EACH: int,
    STEPS: int, FORM: tuple, SECOND: tuple = (),
):  # fmt: skip
    """As `matvec_heads`, plus bias[row]."""
    found = position_before(a, M, FORM)
    row = (workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)) * EACH
    rows_of_groups(w, q, d, s, a.x, bias, n_groups, n_rows, row, FMT, M, STEPS, True, EACH)
    heads_behind(a, b, found, M, EACH, FORM, SECOND)


@kernel(workgroup=256)
def matvec_float_heads(
    w: ptr[u8], x: ptr[f32], n: u32, n_rows: u32, a: ptr[GpuHeadsArgs, Space.CONSTANT],
    b: ptr[GpuHeadsArgs, Space.CONSTANT], FMT: str, M: int, EACH: int, FORM: tuple, SECOND: tuple = (),
):  # fmt: skip
    """As `matvec_heads` for float weights."""
    found = position_before(a, M, FORM)
    row = (workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)) * EACH
    float_rows(w, x, a.x, a.x, n, n_rows, row, FMT, M, False, EACH)
    heads_behind(a, b, found, M, EACH, FORM, SECOND)


@kernel(workgroup=256)
def matvec_float_bias_heads(
    w: ptr[u8], x: ptr[f32], bias: ptr[f32], n: u32, n_rows: u32, a: ptr[GpuHeadsArgs, Space.CONSTANT],
    b: ptr[GpuHeadsArgs, Space.CONSTANT], FMT: str, M: int, EACH: int, FORM: tuple, SECOND: tuple = (),
):  # fmt: skip
    """As `matvec_float_heads`, plus bias[row]."""
    found = position_before(a, M, FORM)
    row = (workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)) * EACH
    float_rows(w, x, a.x, bias, n, n_rows, row, FMT, M, True, EACH)
    heads_behind(a, b, found, M, EACH, FORM, SECOND)

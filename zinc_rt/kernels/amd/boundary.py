"""The kernels of `TokenBoundary`: small, their arguments in scalar registers as the seed's.

s0-s1 the input's address, s2-s3 the output's, s4-s5 that of the weights, s6 columns, s7 rows; where a kernel has no
use for one of the addresses, it is there all the same. Rows of weights lie one after the other.
"""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.amd.float_dot import row_product
from zinc_rt.kernels.gpu.waves import NOWHERE, better, wave_best
from zinc_rt.kernels.maths import INFINITY
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import bitcast, lane_id, select, unroll, wave_shuffle_xor, workgroup_id, workitem_id
from zinc_rt.lang.types import f32, ptr, u8, u32, u64
from zinc_rt.numerics import GROUP_SHIFT


@kernel
def copy(x: ptr[u32], y: ptr[u32], n: u32):
    """y = x, n dwords; a group copies 32."""
    i = workgroup_id(0) * 32 + lane_id()
    if i < n:
        y[i] = x[i]


@kernel(workgroup=1)
def argmax_top2(unused: ptr[u32], y: ptr[u32], key0: u32, key1: u32, token0: u32, token1: u32):
    """y[0] = the token of the greater key; of equal ones, token0."""
    if key0 >= key1:
        y[0] = token0
    else:
        y[0] = token1


@kernel
def argmax_keys(x: ptr[u32], y: ptr[u32], rows: u32, start: u32):
    """y[0] = start + the place of the first greatest key, y[1] = that key; one wave, `rows` above 0."""
    best: u32 = 0
    where: u32 = NOWHERE
    for i in range(lane_id(), rows, 32):
        key = x[i]
        take = (key > best) | ((key == best) & (i < where))
        best = select(take, key, best)
        where = select(take, i, where)
    for distance in unroll((16, 8, 4, 2, 1)):
        key = wave_shuffle_xor(best, distance)
        i = wave_shuffle_xor(where, distance)
        take = (key > best) | ((key == best) & (i < where))
        best = select(take, key, best)
        where = select(take, i, where)
    if lane_id() == 0:
        y[0] = start + where
        y[1] = best


@kernel(workgroup=1)
def rms_norm_element0(x: ptr[f32], y: ptr[f32]):
    """x: hidden, inverse of the root of the mean square, weight. y[0] = their product from the left."""
    y[0] = (x[0] * x[1]) * x[2]


@kernel(workgroup=1)
def dmmv_serial(x: ptr[f32], y: ptr[f32], w: ptr[u8], cols: u32, rows: u32, FMT: str):
    """y[row] for all rows, by one work-item."""
    groups = cols >> GROUP_SHIFT
    for row in range(rows):
        y[row] = row_product(w + u64(row) * u64(groups * format_of(FMT).group_bytes), x, groups, FMT)


@kernel(workgroup=64, wave=64)
def dmmv_rows(x: ptr[f32], y: ptr[f32], w: ptr[u8], cols: u32, rows: u32, FMT: str):
    """y[row], a lane for each row, 64 rows to a group."""
    groups = cols >> GROUP_SHIFT
    row = workgroup_id(0) * 64 + workitem_id()
    if row < rows:
        y[row] = row_product(w + u64(row) * u64(groups * format_of(FMT).group_bytes), x, groups, FMT)


@kernel(workgroup=64, wave=64)
def dmmv_two_ranges(
    x: ptr[f32], y: ptr[f32], w: ptr[u8], cols: u32, rows: u32, second: ptr[u8], second_rows: u32, FMT: str
):
    """As `dmmv_rows` for two ranges of rows that lie apart (s8-s9: the second's address, s10: its rows); y has the
    first's products, then the second's.
    """
    groups = cols >> GROUP_SHIFT
    row = workgroup_id(0) * 64 + workitem_id()
    if row < rows + second_rows:
        here: ptr[u8] = w
        at: u32 = row
        if row >= rows:
            here = second
            at = row - rows
        y[row] = row_product(here + u64(at) * u64(groups * format_of(FMT).group_bytes), x, groups, FMT)


@kernel
def dmmv_argmax(x: ptr[f32], y: ptr[u32], w: ptr[u8], cols: u32, rows: u32, FMT: str):
    """y[0] = the row of the greatest product, y[1] = the bits of that product; one wave, a lane for each row.

    The first of equal ones; row 0 and −infinity where nothing is greater than that.
    """
    groups = cols >> GROUP_SHIFT
    best: f32 = -INFINITY
    where: u32 = NOWHERE
    for row in range(lane_id(), rows, 32):
        v = row_product(w + u64(row) * u64(groups * format_of(FMT).group_bytes), x, groups, FMT)
        take = better(v, row, best, where)
        best = select(take, v, best)
        where = select(take, row, where)
    top, at = wave_best(best, where)
    if lane_id() == 0:
        # −infinity is what a row must exceed: one that has no more does not count as found.
        y[0] = select(top == -INFINITY, at - at, at)
        y[1] = bitcast(top, u32)

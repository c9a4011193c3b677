"""Activations as matrix instructions read them: for 128 rows and a group of 32 a slab of bytes, in the order of sums.

A slab holds the quants of 8 x 16 rows, each 16 as a fragment (`fragments`), then f32[128] of each: scales, sums of all
quants, sums of the first 16. Slabs stand in the order of visits (`reduction_order`): those of a lane's groups l,
l + 32, …, lane by lane. Every lane has as many slabs as any, and what lies beyond the last group or the last row is 0.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.fragments import WORDS, pair_place, two_pairs
from zinc_rt.kernels.gpu.reduction_order import chain_length, lane_of
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import cast, store, workgroup_id, workitem_id, zeros
from zinc_rt.lang.types import f32, i8, i32, ptr, u8, u32, u64, vec
from zinc_rt.numerics import GROUP, TREE_LANES

SLAB_ROWS = 128
SLAB_QUANTS = SLAB_ROWS * GROUP
"""Bytes of quants."""
SLAB_BYTES = SLAB_QUANTS + 3 * 4 * SLAB_ROWS


def slabs_of(n_groups: int) -> int:
    """Slabs of 128 rows."""
    return -(-n_groups // TREE_LANES) * TREE_LANES


@kernel(workgroup=256)
def arrange(q: ptr[i8], d: ptr[f32], s: ptr[u32], x: ptr[u8], n_groups: u32, n_rows: u32):
    """Slabs of rows as `quantize` stores them; workgroups: slabs of 128 rows in x, ceil(n_rows / 128) in y."""
    chain = chain_length(n_groups)
    visit = workgroup_id(0)
    group = lane_of(visit // chain) + visit % chain * TREE_LANES
    local, half = workitem_id() & (SLAB_ROWS - 1), workitem_id() >> 7
    row = workgroup_id(1) * SLAB_ROWS + local
    slab = x + u64(workgroup_id(1) * (chain * TREE_LANES) + visit) * SLAB_BYTES
    first_place = (local >> 4) * WORDS + pair_place(local & 15, half * 2)
    second_place = (local >> 4) * WORDS + pair_place(local & 15, half * 2 + 1)
    numbers = cast(slab + SLAB_QUANTS, ptr[f32]) + local
    out = cast(slab, ptr[i32])
    if (row < n_rows) & (group < n_groups):
        at = u64(row) * u64(n_groups) + u64(group)
        a, b = two_pairs(cast(q + at * GROUP, ptr[i32]), half)
        both = i32(s[at])
        first, last = (both << 16) >> 16, both >> 16
        store(out, a, first_place, align=8)
        store(out, b, second_place, align=8)
        if half == 0:
            numbers[0] = d[at]
            numbers[SLAB_ROWS] = f32(first + last)
            numbers[2 * SLAB_ROWS] = f32(first)
    else:
        store(out, zeros(vec[i32, 2]), first_place, align=8)
        store(out, zeros(vec[i32, 2]), second_place, align=8)
        if half == 0:
            numbers[0] = 0.0
            numbers[SLAB_ROWS] = 0.0
            numbers[2 * SLAB_ROWS] = 0.0

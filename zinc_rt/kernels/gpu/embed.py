"""Rows of the embedding table, dequantised as the block format says: a lane a group of 32."""

from __future__ import annotations

from zinc_rt.formats.decode import float_element, format_of, group_words, integer
from zinc_rt.formats.decode_scales import group_scale, scaled
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import concat, store, unroll, workgroup_id, workitem_id
from zinc_rt.lang.types import f32, i32, ptr, u8, u32, u64
from zinc_rt.numerics import GROUP, GROUP_SHIFT


@kernel(workgroup=64)
def embed(table: ptr[u8], ids: ptr[i32], y: ptr[f32], n: u32, FMT: str):
    """y[row] = row ids[row] of a table with rows of n elements; ceil(n / 2048) workgroups in x, a row each in y."""
    F = format_of(FMT)
    group = workgroup_id(0) * 64 + workitem_id()
    blocks = (n >> GROUP_SHIFT) >> F.group_shift
    row = table + u64(u32(ids[workgroup_id(1)])) * u64(blocks * F.block_bytes)
    if group < n >> GROUP_SHIFT:
        block = row + (group >> F.group_shift) * F.block_bytes
        j = i32(group & (F.groups - 1))
        words = group_words(block, j, FMT)
        out = y + u64(workgroup_id(1)) * u64(n) + group * GROUP
        for h in unroll(2):
            scale, addend = group_scale(block, j, h, FMT)
            for i in unroll(4 * h, 4 * h + 4):
                four = tuple(scaled(integer(words[i] >> (8 * b), FMT), scale, addend, FMT) for b in range(4))
                store(out, concat(concat(four[0], four[1]), concat(four[2], four[3])), 4 * i)


@kernel(workgroup=256)
def embed_float(table: ptr[u8], ids: ptr[i32], y: ptr[f32], n: u32, FMT: str):
    """As `embed` for a table of floats; ceil(n / 256) workgroups in x."""
    i = workgroup_id(0) * 256 + workitem_id()
    row = table + u64(u32(ids[workgroup_id(1)])) * u64(n * format_of(FMT).block_bytes)
    if i < n:
        y[u64(workgroup_id(1)) * u64(n) + u64(i)] = float_element(row, i32(i), FMT)

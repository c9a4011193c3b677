"""Rows of the embedding table, dequantised as the block format says: a lane a group of 32."""

from __future__ import annotations

from zinc_rt.kernels.cpu.blocks import group_words
from zinc_rt.kernels.cpu.embed import float_element, group_scale
from zinc_rt.kernels.rdna.groups import BLOCK_BYTES, SUPER
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import concat, store, unroll, workgroup_id, workitem_id
from zinc_rt.lang.types import f32, i8, i32, ptr, u8, u32, u64

OFFSETS = {"Q4_0": 8, "Q5_0": 16, "Q6_K": 32}


@inline
def value(bits, scale, addend, FMT: str):
    """The element in the low byte of a word."""
    if FMT == "Q8_0":
        number = f32(i32(i8(bits)))
    else:
        number = f32(i32(bits & 255) - OFFSETS.get(FMT, 0))
    if FMT in ("Q4_K", "Q5_K"):
        return number * scale - addend
    if FMT in ("Q4_1", "Q5_1"):
        return number * scale + addend
    return number * scale


@kernel(workgroup=64)
def embed(table: ptr[u8], ids: ptr[i32], y: ptr[f32], n: u32, FMT: str):
    """y[row] = row ids[row] of a table with rows of n elements; ceil(n / 2048) workgroups in x, a row each in y."""
    SHIFT = 3 if FMT in SUPER else 0
    group = workgroup_id(0) * 64 + workitem_id()
    blocks = (n >> 5) >> SHIFT
    row = table + u64(u32(ids[workgroup_id(1)])) * u64(blocks * BLOCK_BYTES[FMT])
    if group < n >> 5:
        block = row + (group >> SHIFT) * BLOCK_BYTES[FMT]
        j = i32(group & 7)
        words = group_words(block, j, FMT)
        out = y + u64(workgroup_id(1)) * u64(n) + group * 32
        for h in unroll(2):
            scale, addend = group_scale(block, j, h, FMT)
            for i in unroll(4 * h, 4 * h + 4):
                four = tuple(value(words[i] >> (8 * b), scale, addend, FMT) for b in range(4))
                store(out, concat(concat(four[0], four[1]), concat(four[2], four[3])), 4 * i)


@kernel(workgroup=256)
def embed_float(table: ptr[u8], ids: ptr[i32], y: ptr[f32], n: u32, FMT: str):
    """As `embed` for a table of floats; ceil(n / 256) workgroups in x."""
    i = workgroup_id(0) * 256 + workitem_id()
    row = table + u64(u32(ids[workgroup_id(1)])) * u64(n * (BLOCK_BYTES[FMT] // 32))
    if i < n:
        y[u64(workgroup_id(1)) * u64(n) + u64(i)] = float_element(row, i32(i), FMT)

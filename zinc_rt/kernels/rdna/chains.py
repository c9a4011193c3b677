"""A row times float activations by one work-item, in the order of docs/numerics.md ("Row products of the boundary")."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import cast, fma, load, regs, unroll
from zinc_rt.lang.types import f16, f32, i8, ptr, u8, u32

BLOCK_BYTES = {"F32": 128, "Q4_0": 18, "Q8_0": 34}
"""Bytes of 32 elements."""


@inline
def group_chain(block: ptr[u8], x: ptr[f32], FMT: str):
    """The fma chain over a block's 32 elements, dequantised, in index order."""
    acc: f32 = 0.0
    if FMT == "F32":
        w = cast(block, ptr[f32])
        for i in range(0, 32, 4):
            for j in unroll(4):
                acc = fma(w[i + j], x[i + j], acc)
    else:
        d = f32(load(cast(block, ptr[f16])))
        if FMT == "Q8_0":
            q = cast(block + 2, ptr[i8])
            for i in range(0, 32, 4):
                v = load(q, i, lanes=4)
                for j in unroll(4):
                    acc = fma(d * f32(v[j]), x[i + j], acc)
        else:
            for i in range(u32(0), 32, 4):
                bits = load(cast(block + 2, ptr[u32]), (i & 12) >> 2, align=2) >> ((i >> 4) * 4)
                for j in unroll(4):
                    acc = fma(d * (f32((bits >> (8 * j)) & 15) - 8.0), x[i + j], acc)
    return acc


@inline
def row_product(row: ptr[u8], x: ptr[f32], groups: u32, FMT: str):
    """The tree over 32 lanes by one work-item: lanes in bit-reversed order, merged like a binary counter."""
    sums = regs(f32, 6)
    for j in range(u32(0), 32):
        lane = ((j & 1) << 4) | ((j & 2) << 2) | (j & 4) | ((j & 8) >> 2) | (j >> 4)
        p: f32 = 0.0
        for g in range(lane, groups, 32):
            p += group_chain(row + g * BLOCK_BYTES[FMT], x + g * 32, FMT)
        for k in unroll(5):
            if j & ((2 << k) - 1) == (2 << k) - 1:
                p = sums[k] + p
        for k in unroll(6):
            if j & ((2 << k) - 1) == (1 << k) - 1:
                sums[k] = p
    return sums[5]

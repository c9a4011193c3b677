"""A row times float activations by a work-item: docs/how/numerics.md, "Row products of the boundary"."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of, plain_integers
from zinc_rt.formats.kinds import CodeLayout, Scale
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import cast, fma, load, regs, static_assert, unroll
from zinc_rt.lang.types import f16, f32, i8, ptr, u8, u32
from zinc_rt.numerics import GROUP, TREE_LANES

BOUNDARY_FORMATS = ("F32", "Q4_0", "Q8_0")
"""Formats that `TokenBoundary` has operations for."""


@inline
def group_chain(block: ptr[u8], x: ptr[f32], FMT: str):
    """The fma chain over a block's 32 elements, dequantised, in index order."""
    F = plain_integers(FMT)
    acc: f32 = 0.0
    if F.kind == CodeLayout.F32:
        w = cast(block, ptr[f32])
        for i in range(0, GROUP, 4):
            for j in unroll(4):
                acc = fma(w[i + j], x[i + j], acc)
    else:
        static_assert(
            F.scale == Scale.BLOCK and F.minimum is None, f"format {FMT}: group_chain knows blocks of 32 with one scale"
        )
        d = f32(load(cast(block + F.d, ptr[f16])))
        if F.kind == CodeLayout.BYTES:
            static_assert(F.offset == 0, f"format {FMT}: group_chain knows no offset {F.offset} of signed bytes")
            q = cast(block + F.q, ptr[i8])
            for i in range(0, GROUP, 4):
                v = load(q, i, lanes=4)
                for j in unroll(4):
                    acc = fma(d * f32(v[j]), x[i + j], acc)
        else:
            static_assert(
                F.kind == CodeLayout.NIBBLES and F.high_bits == 0,
                f"format {FMT}: group_chain does not know {F.high_bits} high bits of kind {F.kind!s}",
            )
            for i in range(u32(0), GROUP, 4):
                bits = load(cast(block + F.q, ptr[u32]), (i & 12) >> 2, align=2) >> ((i >> 4) * 4)
                for j in unroll(4):
                    acc = fma(d * (f32((bits >> (8 * j)) & 15) - float(F.offset)), x[i + j], acc)
    return acc


@inline
def row_product(row: ptr[u8], x: ptr[f32], groups: u32, FMT: str):
    """The tree over 32 lanes by one work-item: lanes in bit-reversed order, merged like a binary counter."""
    sums = regs(f32, 6)
    for j in range(u32(0), TREE_LANES):
        lane = ((j & 1) << 4) | ((j & 2) << 2) | (j & 4) | ((j & 8) >> 2) | (j >> 4)
        p: f32 = 0.0
        for g in range(lane, groups, TREE_LANES):
            p += group_chain(row + g * format_of(FMT).group_bytes, x + g * GROUP, FMT)
        for k in unroll(5):
            if j & ((2 << k) - 1) == (2 << k) - 1:
                p = sums[k] + p
        for k in unroll(6):
            if j & ((2 << k) - 1) == (1 << k) - 1:
                sums[k] = p
    return sums[5]

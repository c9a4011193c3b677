"""Rows of the embedding table, dequantised as the block format says."""

from __future__ import annotations

from zinc_rt.kernels.cpu.blocks import group_words, k_scale
from zinc_rt.kernels.cpu.structs import EmbedArgs, StepRecord
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import bitcast, cast, load, unroll
from zinc_rt.lang.types import f16, f32, i8, i32, i64, ptr, u8, u16, u32


@inline
def half(p: ptr[u8], at: int):
    """A float16 at a byte offset."""
    return f32(load(cast(p + at, ptr[f16]), align=1))


@inline
def float_element(row: ptr[u8], i: i32, FMT: str):
    """Element i of a row of floats."""
    if FMT == "F32":
        return load(cast(row, ptr[f32]), i, align=1)
    if FMT == "F16":
        return f32(load(cast(row, ptr[f16]), i, align=1))
    return bitcast(u32(load(cast(row, ptr[u16]), i, align=1)) << 16, f32)


@inline
def group_scale(block: ptr[u8], j: i32, h: int, FMT: str):
    """What multiplies half h of a group, and what is then added: (scale, addend or None)."""
    if FMT == "Q6_K":
        scale = f32(i32(load(cast(block + 192, ptr[i8]), 8 * (j >> 2) + 2 * (j & 3) + h)))
        return half(block, 208) * scale, None
    if FMT in ("Q4_K", "Q5_K"):
        sc, mn = k_scale(block + 4, j)
        return half(block, 0) * f32(i32(sc)), half(block, 2) * f32(i32(mn))
    if FMT in ("Q4_1", "Q5_1"):
        return half(block, 0), half(block, 2)
    return half(block, 0), None


@kernel
def embed(a: ptr[EmbedArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, BLOCK: int, PER_BLOCK: int):
    """Units: rows. BLOCK: bytes of a block; PER_BLOCK: groups of 32 in it (0: plain floats)."""
    OFFSET = 8 if FMT == "Q4_0" else 16 if FMT == "Q5_0" else 32 if FMT == "Q6_K" else 0
    n = a.n
    for row in range(first, last):
        table = a.table + i64(step.token_ids[row]) * a.row_bytes
        y = a.y + i64(row) * i64(n)
        if PER_BLOCK == 0:
            for i in range(n):
                y[i] = float_element(table, i, FMT)
        else:
            for g in range(n >> 5):
                block = table + (g >> (3 if PER_BLOCK == 8 else 0)) * BLOCK
                j = g & (PER_BLOCK - 1)
                words = group_words(block, j, FMT)
                out = y + g * 32
                for h in unroll(2):
                    scale, addend = group_scale(block, j, h, FMT)
                    for i in unroll(4 * h, 4 * h + 4):
                        for b in unroll(4):
                            bits = i32((words[i] >> (8 * b)) & 255)
                            if FMT == "Q8_0":
                                value = f32(i32(i8(bits)))
                            else:
                                value = f32(bits - OFFSET)
                            value = value * scale
                            if FMT in ("Q4_K", "Q5_K"):
                                value = value - addend
                            elif FMT in ("Q4_1", "Q5_1"):
                                value = value + addend
                            out[4 * i + b] = value

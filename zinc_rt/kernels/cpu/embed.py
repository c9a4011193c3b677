"""Rows of the embedding table, dequantised as the block format says."""

from __future__ import annotations

from zinc_rt.formats.decode import float_element, format_of, group_words, integer
from zinc_rt.formats.decode_scales import group_scale, scaled
from zinc_rt.kernels.cpu.packs import not_null
from zinc_rt.kernels.cpu.structs import EmbedArgs, StepRecord
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import unroll
from zinc_rt.lang.types import i32, i64, ptr
from zinc_rt.numerics import GROUP, GROUP_SHIFT


@kernel
def embed(a: ptr[EmbedArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str):
    """Units: rows of the table."""
    F = format_of(FMT)
    n = a.n
    ids: ptr[i32] = step.token_ids
    if not_null(a.ids):
        ids = a.ids
    for row in range(first, last):
        table = a.table + i64(ids[row]) * a.row_bytes
        y = a.y + i64(row) * i64(n)
        if not F.quantized:
            for i in range(n):
                y[i] = float_element(table, i, FMT)
        else:
            for g in range(n >> GROUP_SHIFT):
                block = table + (g >> F.group_shift) * F.block_bytes
                j = g & (F.groups - 1)
                words = group_words(block, j, FMT)
                out = y + g * GROUP
                for h in unroll(2):
                    scale, addend = group_scale(block, j, h, FMT)
                    for i in unroll(4 * h, 4 * h + 4):
                        for b in unroll(4):
                            out[4 * i + b] = scaled(integer(words[i] >> (8 * b), FMT), scale, addend, FMT)

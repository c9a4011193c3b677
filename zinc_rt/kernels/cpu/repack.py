"""From the file's rows to tiles; see layout.py."""

from __future__ import annotations

from zinc_rt.kernels.cpu.blocks import group_words, half_at, k_scale
from zinc_rt.kernels.cpu.structs import CopyArgs, Step
from zinc_rt.kernels.cpu.tiles import lane_of
from zinc_rt.kernels.cpu.weights import FIFTH_BIT, SUPER
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import cast, load, unroll
from zinc_rt.lang.types import i32, i64, ptr, u8, u16, u32


@inline
def put_scales(block: ptr[u8], j: i32, group: i32, supers: ptr[u8], scales: ptr[u8], r: i32, FMT: str):
    """Row r's scales of a group."""
    if FMT in SUPER:
        if j == 0:
            SUPER_BYTES = 32 if FMT == "Q6_K" else 64
            at = cast(supers + (group >> 3) * SUPER_BYTES, ptr[u16])
            at[r] = half_at(block, 208 if FMT == "Q6_K" else 0)
            if FMT != "Q6_K":
                at[16 + r] = half_at(block, 2)
        if FMT == "Q6_K":
            for h in unroll(2):
                scales[16 * h + r] = block[192 + 8 * (j >> 2) + 2 * (j & 3) + h]
        else:
            sc, mn = k_scale(block + 4, j)
            scales[r] = u8(sc)
            scales[16 + r] = u8(mn)
    else:
        cast(scales, ptr[u16])[r] = half_at(block, 0)
        if FMT in ("Q4_1", "Q5_1"):
            cast(scales, ptr[u16])[16 + r] = half_at(block, 2)


@inline
def put_weights(words, w: ptr[u8], r: i32, FMT: str, FLIP: int):
    """Row r's 32 weights of a group into its 8 lines."""
    lines = cast(w, ptr[u32])
    if FMT == "Q8_0":
        for i in unroll(8):
            lines[16 * i + r] = words[i] ^ FLIP
    else:
        for i in unroll(4):
            lines[16 * i + r] = (words[i] & 0x0F0F0F0F) | ((words[i + 4] & 0x0F0F0F0F) << 4)
        if FMT in FIFTH_BIT:
            plane: u32 = 0
            for i in unroll(8):
                plane = plane | (((words[i] >> 4) & 0x01010101) << i)
            lines[64 + r] = plane
        elif FMT == "Q6_K":
            for h in unroll(2):
                pair: u32 = 0
                for i in unroll(4):
                    pair = pair | (((words[4 * h + i] >> 4) & 0x03030303) << (2 * i))
                lines[64 + 16 * h + r] = pair


@kernel
def repack(
    a: ptr[CopyArgs], step: ptr[Step], first: i32, last: i32, FMT: str, BLOCK: int, PER_BLOCK: int, SUPER_BYTES: int,
    SCALE_BYTES: int, WEIGHT_BYTES: int, FLIP: int,
):  # fmt: skip
    """Units: tiles, of quantised formats. FLIP: what Q8_0's words are xored with (0x80808080 makes them unsigned).

    Rows past the matrix repeat its last row: they are computed and never stored.
    """
    groups = a.n_groups
    for t in range(first, last):
        tile = a.tiles + i64(t) * a.tile_bytes
        scales: ptr[u8] = tile + (groups >> 3) * SUPER_BYTES
        w: ptr[u8] = tile + ((((groups >> 3) * SUPER_BYTES + groups * SCALE_BYTES) + 63) & -64)
        for q in range(32):
            group: i32 = lane_of(q)
            while group < groups:
                j = group & (PER_BLOCK - 1)
                at = i64(group >> (3 if PER_BLOCK == 8 else 0)) * BLOCK
                for r in range(16):
                    row: i32 = t * 16 + r
                    if row >= a.n_rows:
                        row = a.n_rows - 1
                    block = a.source + (i64(row) * a.row_bytes + at)
                    put_scales(block, j, group, tile, scales, r, FMT)
                    put_weights(group_words(block, j, FMT), w, r, FMT, FLIP)
                group += 32
                w = w + WEIGHT_BYTES
                scales = scales + SCALE_BYTES


@kernel
def repack_float(a: ptr[CopyArgs], step: ptr[Step], first: i32, last: i32, FMT: str, WEIGHT_BYTES: int):
    """Units: tiles, of F32, F16 and BF16. Columns past the matrix are zero and never used."""
    groups = a.n_groups
    n = a.n
    for t in range(first, last):
        w: ptr[u8] = a.tiles + i64(t) * a.tile_bytes
        for q in range(32):
            group: i32 = lane_of(q)
            while group < groups:
                for r in range(16):
                    row: i32 = t * 16 + r
                    if row >= a.n_rows:
                        row = a.n_rows - 1
                    source = a.source + i64(row) * a.row_bytes
                    steps: i32 = n - group * 32
                    if steps > 32:
                        steps = 32
                    for k in range(steps):
                        column = group * 32 + k
                        if FMT == "F32":
                            cast(w, ptr[u32])[16 * k + r] = load(cast(source, ptr[u32]), column, align=1)
                        elif FMT == "F16":
                            cast(w, ptr[u16])[16 * k + r] = load(cast(source, ptr[u16]), column, align=1)
                        else:
                            cast(w, ptr[u16])[32 * (k >> 1) + 2 * r + (k & 1)] = load(
                                cast(source, ptr[u16]), column, align=1
                            )
                group += 32
                w = w + WEIGHT_BYTES

"""From the file's rows to tiles; see layout.py."""

from __future__ import annotations

from zinc_rt.kernels.cpu.blocks import half_at, k_scale
from zinc_rt.kernels.cpu.structs import CopyArgs, StepRecord
from zinc_rt.kernels.cpu.tiles import lane_of
from zinc_rt.kernels.cpu.weights import SUPER
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    cast,
    concat,
    high,
    insert,
    iota,
    load,
    low,
    prefetch,
    reduce_or,
    regs,
    shuffle,
    splat,
    store,
    unroll,
    zeros,
)
from zinc_rt.lang.types import i32, i64, ptr, u8, u16, u32, vec


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
def words_at(p: ptr[u8], at, N: int):
    """N words of four bytes from an offset."""
    return load(cast(p + at, ptr[u32]), lanes=N, align=1)


@inline
def row_lines(block: ptr[u8], j: i32, FMT: str, FLIP: int):
    """What a row puts into the lines of a group's tile: a word for each line, of eight."""
    if FMT == "Q8_0":
        return words_at(block, 2, 8) ^ FLIP
    if FMT in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        # The file keeps columns 4i … in low nibbles, 16 + 4i … in high ones, as a tile does.
        at = (2 if FMT in ("Q4_0", "Q5_0") else 4) + (4 if FMT in ("Q5_0", "Q5_1") else 0)
        packed = words_at(block, at, 4)
        out = concat(packed, zeros(vec[u32, 4]))
        if FMT in ("Q5_0", "Q5_1"):
            bits_of_row = splat(load(cast(block + (at - 4), ptr[u32]), align=1), 8)
            # Bit 4i + b belongs to byte b of line i: spread four bits over four bytes, then line i's go to bit i.
            spread = (((bits_of_row >> (iota(u32, 8) * 4)) & 15) * 0x00204081) & 0x01010101
            out = insert(out, 4, reduce_or(spread << iota(u32, 8)))
        return out
    if FMT in ("Q4_K", "Q5_K"):
        q = words_at(block, (48 if FMT == "Q5_K" else 16) + (j >> 1) * 32, 8)
        bits = (q >> splat(u32((j & 1) * 4), 8)) & 0x0F0F0F0F
        out = concat(low(bits) | (high(bits) << 4), zeros(vec[u32, 4]))
        if FMT == "Q5_K":
            fifth = (words_at(block, 16, 8) >> splat(u32(j), 8)) & 0x01010101
            out = insert(out, 4, reduce_or(fifth << iota(u32, 8)))
        return out
    k = j & 3
    bits = (words_at(block, (j >> 2) * 64 + (k & 1) * 32, 8) >> splat(u32((k >> 1) * 4), 8)) & 0x0F0F0F0F
    pairs = (words_at(block, 128 + (j >> 2) * 32, 8) >> splat(u32(2 * k), 8)) & 0x03030303
    shifted = pairs << ((iota(u32, 8) & 3) * 2)
    out = concat(low(bits) | (high(bits) << 4), zeros(vec[u32, 4]))
    out = insert(out, 4, reduce_or(low(shifted)))
    return insert(out, 5, reduce_or(high(shifted)))


@inline
def transpose(rows):
    """Eight words of sixteen rows, in place: rows[i] holds those of row i, then of row i + 8; then word i of all."""
    first = regs(vec[u32, 16], 8)
    for i in unroll(0, 8, 2):
        for h in unroll(2):
            # In each four lanes: two words of a row, each beside that of the next row.
            first[i + h] = shuffle(
                rows[i], rows[i + 1], tuple(n // 4 * 4 + 2 * h + n % 4 // 2 + n % 2 * 16 for n in range(16))
            )
    second = regs(vec[u32, 16], 8)
    for i in unroll(0, 8, 4):
        for h in unroll(2):
            for k in unroll(2):
                # In each four lanes: a word of four rows.
                second[i + 2 * h + k] = shuffle(
                    first[i + h], first[i + 2 + h],
                    tuple(n // 4 * 4 + 2 * k + n % 2 + n % 4 // 2 * 16 for n in range(16)),
                )  # fmt: skip
    for i in unroll(8):
        START = 4 * (i // 4)
        rows[i] = shuffle(
            second[i % 4], second[4 + i % 4],
            tuple(START + n // 8 * 8 + n % 4 + n % 8 // 4 * 16 for n in range(16)),
        )  # fmt: skip


@inline
def find_rows(a, t, starts):
    """Byte offsets of a tile's sixteen rows in the file; those past the matrix are its last row's."""
    for r in unroll(16):
        row: i32 = t * 16 + r
        if row >= a.n_rows:
            row = a.n_rows - 1
        starts[r] = i64(row) * a.row_bytes


@kernel
def repack(
    a: ptr[CopyArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, BLOCK: int, PER_BLOCK: int, SUPER_BYTES:
    int,
    SCALE_BYTES: int, WEIGHT_BYTES: int, FLIP: int,
):  # fmt: skip
    """Units: tiles, of quantised formats. FLIP: what Q8_0's words are xored with (0x80808080 makes them unsigned).

    Rows past the matrix repeat its last row: they are computed and never stored.
    """
    groups = a.n_groups
    starts = regs(i64, 16)
    for t in range(first, last):
        tile = a.tiles + i64(t) * a.tile_bytes
        scales: ptr[u8] = tile + (groups >> 3) * SUPER_BYTES
        w: ptr[u8] = tile + ((((groups >> 3) * SUPER_BYTES + groups * SCALE_BYTES) + 63) & -64)
        find_rows(a, t, starts)
        following: ptr[u8] = a.source + (starts[0] + 16 * a.row_bytes)
        for q in range(32):
            group: i32 = lane_of(q)
            while group < groups:
                j = group & (PER_BLOCK - 1)
                at = i64(group >> (3 if PER_BLOCK == 8 else 0)) * BLOCK
                lines = regs(vec[u32, 16], 8)
                for r in unroll(8):
                    upper = a.source + (starts[r] + at)
                    lower = a.source + (starts[r + 8] + at)
                    put_scales(upper, j, group, tile, scales, r, FMT)
                    put_scales(lower, j, group, tile, scales, r + 8, FMT)
                    lines[r] = concat(row_lines(upper, j, FMT, FLIP), row_lines(lower, j, FMT, FLIP))
                transpose(lines)
                for i in unroll(WEIGHT_BYTES // 64):
                    store(cast(w, ptr[u32]), lines[i], 16 * i, align=64)
                for i in unroll(0, 16 * BLOCK // PER_BLOCK, 64):
                    prefetch(following + i)
                following = following + 16 * BLOCK // PER_BLOCK
                group += 32
                w = w + WEIGHT_BYTES
                scales = scales + SCALE_BYTES


@inline
def put_whole_group(source: ptr[u8], starts, w: ptr[u8], FMT: str):
    """A group of floats that has all its 32 columns. starts: where each of the 16 rows begins, behind `source`."""
    PARTS = 4 if FMT == "F32" else 2
    for part in unroll(PARTS):
        lines = regs(vec[u32, 16], 8)
        for r in unroll(8):
            lines[r] = concat(
                words_at(source + starts[r], 32 * part, 8), words_at(source + starts[r + 8], 32 * part, 8)
            )  # fmt: skip
        transpose(lines)
        for i in unroll(8):
            if FMT == "F16":
                # A word is two columns, which lie in lines of their own.
                store(cast(w, ptr[u16]), u16(lines[i] & 0xFFFF), 16 * (16 * part + 2 * i), align=32)
                store(cast(w, ptr[u16]), u16(lines[i] >> 16), 16 * (16 * part + 2 * i + 1), align=32)
            else:
                store(cast(w, ptr[u32]), lines[i], 16 * (8 * part + i), align=64)


@kernel
def repack_float(a: ptr[CopyArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, WEIGHT_BYTES: int):
    """Units: tiles, of F32, F16 and BF16. Columns past the matrix are zero and never used."""
    SIZE = 4 if FMT == "F32" else 2
    groups = a.n_groups
    n = a.n
    starts = regs(i64, 16)
    for t in range(first, last):
        w: ptr[u8] = a.tiles + i64(t) * a.tile_bytes
        find_rows(a, t, starts)
        following: ptr[u8] = a.source + (starts[0] + 16 * a.row_bytes)
        for q in range(32):
            group: i32 = lane_of(q)
            while group < groups:
                source = a.source + group * (32 * SIZE)
                steps: i32 = n - group * 32
                if steps >= 32:
                    put_whole_group(source, starts, w, FMT)
                    for i in unroll(0, 16 * 32 * SIZE, 64):
                        prefetch(following + i)
                    following = following + 16 * 32 * SIZE
                else:
                    for r in unroll(16):
                        row_source = source + starts[r]
                        for k in range(steps):
                            if FMT == "F32":
                                cast(w, ptr[u32])[16 * k + r] = load(cast(row_source, ptr[u32]), k, align=1)
                            else:
                                at = 16 * k + r
                                if FMT == "BF16":
                                    at = 32 * (k >> 1) + 2 * r + (k & 1)
                                cast(w, ptr[u16])[at] = load(cast(row_source, ptr[u16]), k, align=1)
                group += 32
                w = w + WEIGHT_BYTES

"""From the file's rows to tiles; see layout.py."""

from __future__ import annotations

from zinc_rt.formats.decode import (
    HIGH_MASKS,
    LOW_BITS,
    LOW_NIBBLES,
    LOW_PAIRS,
    format_of,
    group_words,
    half_at,
    high_at,
    high_shift,
    integers_of,
    low_at,
    low_shift,
    spread,
)
from zinc_rt.formats.decode_grids import (
    added_bits,
    d_bits,
    grid_bytes,
    grid_sizes,
    high_word,
    odd_bits,
)
from zinc_rt.formats.decode_scales import half_scale_at, half_scales, signed_scale, six_bit_scales
from zinc_rt.formats.kinds import ODD_SCALES, PAIR_KINDS, CodeLayout, Scale
from zinc_rt.kernels.cpu.structs import CopyArgs, StepRecord
from zinc_rt.kernels.cpu.tiles import lane_of
from zinc_rt.kernels.cpu.weights import ROWS_TOGETHER, rows_together, stored_lines, supers_at, tile_of, weights_of
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    bitcast,
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
    static_assert,
    store,
    unroll,
    zeros,
)
from zinc_rt.lang.types import i32, i64, ptr, u8, u16, u32, vec
from zinc_rt.numerics import GROUP, TREE_LANES


@inline
def put_scales(block: ptr[u8], j: i32, group: i32, supers: ptr[u8], scales: ptr[u8], r: i32, FMT: str):
    """Row r's scales of a group."""
    F = format_of(FMT)
    if F.scale == Scale.BLOCK and F.groups == 1:
        cast(scales, ptr[u16])[r] = half_at(block, F.d)
        if F.minimum is not None:
            cast(scales, ptr[u16])[16 + r] = half_at(block, F.minimum)
    elif F.scale == Scale.POWER_OF_TWO:
        scales[r] = block[F.d]
    elif F.scale == Scale.E4M3_HALVES:
        for h in unroll(2):
            scales[16 * h + r] = load(block + (F.d + h), 2 * j)
    else:
        if j == 0:
            at = cast(supers + supers_at(group, FMT), ptr[u16])
            at[r] = d_bits(block, FMT)
            if F.minimum is not None:
                at[16 + r] = half_at(block, F.minimum)
        if F.scale == Scale.INT8_HALVES:
            for h in unroll(2):
                scales[16 * h + r] = block[half_scale_at(F.scales, j, h)]
        elif F.scale == Scale.SIX_BIT:
            sc, mn = six_bit_scales(block + F.scales, j)
            scales[r] = u8(sc)
            scales[16 + r] = u8(mn)
        elif F.eighths:
            added = added_bits(high_word(block, j, FMT), FMT)
            H = 2 if F.scaled_halves else 1
            for h in unroll(H):
                odd = (odd_bits(block, j, FMT) >> 4 * h & 15) * 2 + 1
                scales[H * r + h] = u8(odd << 4 | (8 | 4 * h if H == 2 else 0) | added >> 2 * h & 3)
        elif F.scale in ODD_SCALES:
            scales[r] = u8(odd_bits(block, j, FMT))
        elif F.scale == Scale.SIX_BIT_SIGNED:
            scales[r] = u8(signed_scale(block, j, FMT))
        elif F.scale == Scale.SIX_BIT_HALVES:
            numbers = half_scales(block, j, FMT)
            for h in unroll(2):
                scales[16 * h + r] = u8(numbers[h])
        elif F.scale == Scale.FOUR_BIT_HALVES:
            for h in unroll(2):
                scales[16 * h + r] = load(block, F.scales + 2 * j + h)
        elif F.scale != Scale.BLOCK:
            static_assert(False, f"format {FMT}: put_scales does not know scales of kind {F.scale!s}")


@inline
def words_at(p: ptr[u8], at, N: int):
    """N words of four bytes from an offset."""
    return load(cast(p + at, ptr[u32]), lanes=N, align=1)


@inline
def plane(bits_of_row: u32):
    """A bit for each of a row's columns as its word of a line: bit 4i + b goes to bit i of byte b."""
    return reduce_or(spread(splat(bits_of_row, 8) >> (iota(u32, 8) * 4)) << iota(u32, 8))


@inline
def four_pairs(words):
    """Four words of integers of two bits as one."""
    return (words[0] | (words[1] << 2)) | ((words[2] << 4) | (words[3] << 6))


@inline
def row_lines(block: ptr[u8], j: i32, FMT: str, FLIP: int):
    """What a row puts into the lines of a group's tile: a word for each line, of eight."""
    F = integers_of(FMT)
    if F.kind == CodeLayout.BYTES and F.groups == 1:
        return words_at(block, F.q, 8) ^ FLIP
    if F.kind == CodeLayout.NIBBLES:
        # The file keeps columns 4i … in low nibbles, 16 + 4i … in high ones, as a tile does.
        packed = words_at(block, F.q if F.groups == 1 else F.q + 16 * j, 4)
        out = concat(packed, zeros(vec[u32, 4]))
        if F.high_bits != 0:
            static_assert(
                F.high_bits == 1 and F.groups == 1,
                f"format {FMT}: row_lines does not know {F.high_bits} high bits of nibbles in blocks of {F.block}",
            )
            out = insert(out, 4, plane(load(cast(block + F.high, ptr[u32]), align=1)))
        return out
    if F.kind == CodeLayout.EIGHTS:
        halves = words_at(block, F.q + 16 * j, 4)
        low_half, high_half = halves & LOW_NIBBLES, (halves >> 4) & LOW_NIBBLES
        first = shuffle(low_half, high_half, (0, 1, 4, 5))
        return concat(first | (shuffle(low_half, high_half, (2, 3, 6, 7)) << 4), zeros(vec[u32, 4]))
    if F.kind == CodeLayout.GRID:
        sizes, signs = grid_sizes(grid_bytes(block, j, FMT), FMT)
        BITS, SHIFT = F.grid.size_bits, F.grid.size_shift
        places = tuple((size >> SHIFT) & LOW_BITS * ((1 << BITS) - 1) for size in sizes)
        out = zeros(vec[u32, 8])
        if BITS == 2:
            for h in unroll(2):
                out = insert(out, h, four_pairs(tuple(places[4 * h + i] for i in range(4))))
            return insert(out, 2, plane(signs))
        static_assert(BITS == 3, f"format {FMT}: tiles have no lines for places of {BITS} bits among sizes")
        codes = tuple(places[i] | (spread(signs >> (4 * i)) << 3) for i in range(8))
        for i in unroll(4):
            out = insert(out, i, codes[i] | (codes[i + 4] << 4))
        return out
    if F.kind == CodeLayout.QUARTERS:
        pairs = (words_at(block, low_at(j, FMT), 8) >> splat(low_shift(j, FMT), 8)) & LOW_PAIRS
        shifted = pairs << ((iota(u32, 8) & 3) * 2)
        out = insert(insert(zeros(vec[u32, 8]), 0, reduce_or(low(shifted))), 1, reduce_or(high(shifted)))
        if F.high_bits == 0:
            return out
        static_assert(F.high_bits == 1, f"format {FMT}: tiles have no lines for {F.high_bits} high bits of quarters")
        third = (words_at(block, high_at(j, FMT), 8) >> splat(high_shift(j, FMT), 8)) & LOW_BITS
        return insert(out, 2, reduce_or(third << iota(u32, 8)))
    if F.kind == CodeLayout.SIGN_BITS:
        return insert(zeros(vec[u32, 8]), 0, plane(load(cast(block + (F.q + 4 * j), ptr[u32]), align=1)))
    if F.kind in PAIR_KINDS:
        # Of a shifted grid's integers, bits 3 and 4.
        DOWN = 3 if F.kind == CodeLayout.SHIFTED_GRID else 0
        words = tuple((word >> DOWN) & LOW_PAIRS for word in group_words(block, j, FMT))
        out = zeros(vec[u32, 8])
        for h in unroll(2):
            out = insert(out, h, four_pairs(tuple(words[stored_lines(FMT)[4 * h + i]] for i in range(4))))
        return out
    static_assert(
        F.kind in (CodeLayout.PAIRS, CodeLayout.HALVES),
        f"format {FMT}: row_lines does not know integers of kind {F.kind!s} in blocks of {F.block}",
    )
    bits = (words_at(block, low_at(j, FMT), 8) >> splat(low_shift(j, FMT), 8)) & LOW_NIBBLES
    out = concat(low(bits) | (high(bits) << 4), zeros(vec[u32, 4]))
    if F.high_bits == 0:
        return out
    upper = (words_at(block, high_at(j, FMT), 8) >> splat(high_shift(j, FMT), 8)) & HIGH_MASKS[F.high_bits]
    if F.high_bits == 1:
        return insert(out, 4, reduce_or(upper << iota(u32, 8)))
    static_assert(F.high_bits == 2, f"format {FMT}: tiles have no lines for {F.high_bits} high bits")
    shifted = upper << ((iota(u32, 8) & 3) * 2)
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
                    first[i + h],
                    first[i + 2 + h],
                    tuple(n // 4 * 4 + 2 * k + n % 2 + n % 4 // 2 * 16 for n in range(16)),
                )
    for i in unroll(8):
        START = 4 * (i // 4)
        rows[i] = shuffle(
            second[i % 4],
            second[4 + i % 4],
            tuple(START + n // 8 * 8 + n % 4 + n % 8 // 4 * 16 for n in range(16)),
        )


@inline
def find_rows(a, t, starts):
    """Byte offsets of a tile's sixteen rows in the file; those past a matrix are its last row's."""
    matrix = i32(u32(t) // u32(a.n_tiles))
    for r in unroll(16):
        row: i32 = (t - matrix * a.n_tiles) * 16 + r
        if row >= a.n_rows:
            row = a.n_rows - 1
        row += matrix * a.n_rows
        period = i32(u32(row) // u32(a.stretch))
        starts[r] = i64(period) * a.period_bytes + i64(row - period * a.stretch) * a.row_bytes


@kernel
def repack(a: ptr[CopyArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, FLIP: int):
    """Units: tiles, of quantised formats. FLIP: what words of signed bytes are xored with (0x80808080: made unsigned).

    Rows past the matrix repeat its last row: they are computed and never stored.
    """
    F = format_of(FMT)
    TILE = tile_of(FMT)
    groups = a.n_groups
    starts = regs(i64, 16)
    for t in range(first, last):
        tile = a.tiles + i64(t) * a.tile_bytes
        w: ptr[u8] = weights_of(tile, groups, FMT)
        find_rows(a, t, starts)
        following: ptr[u8] = a.source + (starts[0] + 16 * a.row_bytes)
        for q in range(TREE_LANES):
            group: i32 = lane_of(q)
            while group < groups:
                j = group & (F.groups - 1)
                at = i64(group >> F.group_shift) * F.block_bytes
                lines = regs(vec[u32, 16], 8)
                for r in unroll(8):
                    upper = a.source + (starts[r] + at)
                    lower = a.source + (starts[r + 8] + at)
                    put_scales(upper, j, group, tile, w + TILE.weights, r, FMT)
                    put_scales(lower, j, group, tile, w + TILE.weights, r + 8, FMT)
                    lines[r] = concat(row_lines(upper, j, FMT, FLIP), row_lines(lower, j, FMT, FLIP))
                transpose(lines)
                if rows_together(FMT):
                    order = tuple(ROWS_TOGETHER[p % 16] * 4 + p // 16 for p in range(64))
                    lines[0] = bitcast(shuffle(bitcast(lines[0], vec[u8, 64]), order), vec[u32, 16])
                for i in unroll(TILE.weights // 64):
                    store(cast(w, ptr[u32]), lines[i], 16 * i, align=16 if TILE.group % 64 else 64)
                for i in unroll(0, 16 * F.block_bytes // F.groups, 64):
                    prefetch(following + i)
                following = following + 16 * F.block_bytes // F.groups
                group += TREE_LANES
                w = w + TILE.group


@inline
def put_whole_group(source: ptr[u8], starts, w: ptr[u8], FMT: str):
    """A group of floats that has all its 32 columns. starts: where each of the 16 rows begins, behind `source`."""
    F = format_of(FMT)
    for part in unroll(F.block_bytes):
        lines = regs(vec[u32, 16], 8)
        for r in unroll(8):
            lines[r] = concat(
                words_at(source + starts[r], 32 * part, 8), words_at(source + starts[r + 8], 32 * part, 8)
            )
        transpose(lines)
        for i in unroll(8):
            if F.kind == CodeLayout.F16:
                # A word is two columns, which lie in lines of their own.
                store(cast(w, ptr[u16]), u16(lines[i] & 0xFFFF), 16 * (16 * part + 2 * i), align=32)
                store(cast(w, ptr[u16]), u16(lines[i] >> 16), 16 * (16 * part + 2 * i + 1), align=32)
            else:
                static_assert(
                    F.kind in (CodeLayout.F32, CodeLayout.BF16), f"format {FMT}: tiles have no place for {F.kind!s}"
                )
                store(cast(w, ptr[u32]), lines[i], 16 * (8 * part + i), align=64)


@inline
def put_column(row: ptr[u8], w: ptr[u8], k: i32, r: int, FMT: str):
    """Column k of row r of a group of floats that is cut short."""
    F = format_of(FMT)
    if F.kind == CodeLayout.F32:
        cast(w, ptr[u32])[16 * k + r] = load(cast(row, ptr[u32]), k, align=1)
    else:
        at = 16 * k + r
        if F.kind == CodeLayout.BF16:
            at = 32 * (k >> 1) + 2 * r + (k & 1)
        else:
            static_assert(F.kind == CodeLayout.F16, f"format {FMT}: tiles have no place for numbers of kind {F.kind!s}")
        cast(w, ptr[u16])[at] = load(cast(row, ptr[u16]), k, align=1)


@kernel
def repack_float(a: ptr[CopyArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str):
    """Units: tiles, of plain numbers. Columns past the matrix are zero and never used."""
    SIZE = format_of(FMT).block_bytes
    groups = a.n_groups
    n = a.n
    starts = regs(i64, 16)
    for t in range(first, last):
        w: ptr[u8] = a.tiles + i64(t) * a.tile_bytes
        find_rows(a, t, starts)
        following: ptr[u8] = a.source + (starts[0] + 16 * a.row_bytes)
        for q in range(TREE_LANES):
            group: i32 = lane_of(q)
            while group < groups:
                source = a.source + group * (GROUP * SIZE)
                steps: i32 = n - group * GROUP
                if steps >= GROUP:
                    put_whole_group(source, starts, w, FMT)
                    for i in unroll(0, 16 * GROUP * SIZE, 64):
                        prefetch(following + i)
                    following = following + 16 * GROUP * SIZE
                else:
                    for r in unroll(16):
                        row_source = source + starts[r]
                        for k in range(steps):
                            put_column(row_source, w, k, r, FMT)
                group += TREE_LANES
                w = w + tile_of(FMT).weights

"""Sixteen rows of activations times a tile in matrix registers; the same sums as `matmul.tile_rows`.

A product of 16 rows and 16 weight rows over a group of 32 columns is one instruction; what it gives goes through memory
to the float arithmetic, a quarter of the lanes of a tree at a time.
"""

from __future__ import annotations

from zinc_rt.formats.decode import integers_of
from zinc_rt.formats.kinds import Kind
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS
from zinc_rt.kernels.cpu.tiles import lane_of
from zinc_rt.kernels.cpu.weights import (
    SUPER_SHIFT,
    activation_sums,
    bias_sum,
    group_factors,
    group_value,
    half_start,
    line,
    scale_of_halves,
    tile_of,
    weights_of,
)
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import (
    array,
    bitcast,
    cast,
    dot4,
    load,
    regs,
    splat,
    store,
    tile_configure,
    tile_dot_i8u8,
    tile_load,
    tile_store,
    tile_zero,
    unroll,
)  # fmt: skip
from zinc_rt.lang.types import f32, i8, i32, i64, ptr, u8, vec
from zinc_rt.numerics import GROUP, TREE_LANES

MAX_GROUPS = 384
"""Groups of the longest row that this path takes: its scratch lies on the stack."""

QUARTET_GROUPS = MAX_GROUPS // 8
"""The most groups that four of the 32 lanes have."""

LANE_STEPS = (0, 16, 8, 24)
"""From the first lane of a quartet to each of the four."""


@inline
def matrix_scratch(FMT: str, TILES: str):
    """Memory for (unpacked lines, products, factors, sums put aside)."""
    if TILES == "":
        return ()
    lines = array(u8, 64 if integers_of(FMT).kind == Kind.BYTES else MAX_GROUPS * 512, zero=False)
    products = array(i32, QUARTET_GROUPS * (512 if scale_of_halves(FMT) else 256), zero=False)
    factors = array(f32, QUARTET_GROUPS * 16 * integers_of(FMT).factors, zero=False)
    return lines, products, factors, array(f32, 8 * BLOCK_ROWS * 16, zero=False)


@inline
def tile_shapes(FMT: str, TILES: str):
    """Tiles 0 and 3 hold products, 1 and 4 activations, 2 and 5 weights; where halves of a group have scales of
    their own, 16 columns are multiplied at a time.
    """
    if TILES == "amx":
        if scale_of_halves(FMT):
            tile_configure((16, 16, 4, 16, 16, 4), (64, 16, 64, 64, 16, 64))
        else:
            tile_configure((16, 16, 8), (64, 32, 64))


@inline
def unpack_tile(tile, scratch, groups: i32, FMT: str):
    """The tile's weights as lines of unsigned bytes, 512 bytes for a group."""
    if integers_of(FMT).kind != Kind.BYTES:
        w: ptr[u8] = weights_of(tile, groups, FMT)
        out: ptr[u8] = scratch[0]
        for g in range(groups):
            for i in unroll(8):
                store(out, line(w, i, 0, FMT, 64, False, False), i * 64)
            w = w + tile_of(FMT).group
            out = out + 512


@inline
def product(c, x, w, T: int, LINES: int, TILES: str):
    """c i32[16, 16] = 16 rows of x (32 bytes apart) times LINES lines of weights."""
    if TILES == "amx":
        tile_zero(T)
        tile_load(T + 1, x, GROUP)
        tile_load(T + 2, w, 64)
        tile_dot_i8u8(T, T + 1, T + 2)
        tile_store(T, c, 64)
    else:
        for m in range(BLOCK_ROWS):
            acc: vec[i32, 16] = 0
            for i in unroll(LINES):
                q = bitcast(splat(load(cast(x + (m * GROUP + i * 4), ptr[i32])), 16), vec[i8, 64])
                acc = dot4(acc, load(w, i * 64, lanes=64), q)
            store(c, acc, m * 16)


@inline
def matrix_rows(p, tile, scratch, start: i32, out: ptr[f32], stride: i32, live: i32, FMT: str, TILES: str):
    """A tile for the first `live` rows of the block of 16 rows from `start` of a pack: sums f32[rows, stride] to `out`.

    live: a multiple of four. All sixteen rows are read.
    """
    TILE = tile_of(FMT)
    HALVES = scale_of_halves(FMT)
    P = 2 if HALVES else 1
    F = integers_of(FMT).factors
    BIAS = bias_sum(FMT, False)
    groups = p.n_groups
    at = i64(start) * i64(groups)
    lines: ptr[u8] = scratch[0]
    LINES = 512
    if integers_of(FMT).kind == Kind.BYTES:
        lines = weights_of(tile, groups, FMT)
        LINES = TILE.group
    products = scratch[1]
    factors = scratch[2]
    aside = scratch[3]
    scales: ptr[u8] = weights_of(tile, groups, FMT) + TILE.weights
    x: ptr[i8] = p.q + at * GROUP
    d: ptr[f32] = p.d + at
    s: ptr[i32] = p.s + at
    s_stride = p.s_stride
    for q in range(8):
        first = lane_of(q * 4)
        k: i32 = 0
        for r in range(4):
            group: i32 = first + ((r & 1) << 4) + ((r & 2) << 2)
            while group < groups:
                if HALVES:
                    product(products + k * 512, x, lines, 0, 4, TILES)
                    product(products + (k * 512 + 256), x + 16, lines + 256, 3, 4, TILES)
                else:
                    product(products + k * 256, x, lines, 0, 8, TILES)
                values = group_factors(scales, tile + (group >> SUPER_SHIFT) * TILE.super_scales, 0, FMT, 16)
                for i in unroll(F):
                    store(factors, values[i], (k * F + i) * 16)
                k += 1
                group += TREE_LANES
                lines = lines + LINES
                scales = scales + TILE.group
                x = x + 512
        for m in range(0, live, 4):
            lanes = regs(vec[f32, 16], 16)
            g: i32 = 0
            for r in unroll(4):
                n: i32 = (groups - first + (TREE_LANES - 1 - LANE_STEPS[r])) >> (TREE_LANES.bit_length() - 1)
                for j in range(n):
                    f = tuple(load(factors, (g * F + i) * 16, lanes=16) for i in range(F))
                    for mm in unroll(4):
                        place = g * 16 + m + mm
                        isum = load(products, g * (256 * P) + (m + mm) * 16, lanes=16)
                        second = isum
                        if BIAS:
                            isum = isum + splat(load(s, s_stride * BIAS + i64(place)), 16)
                        if HALVES:
                            isum = isum + splat(half_start(s, s_stride * 4 + i64(place), FMT, False), 16)
                            second = load(products, g * 512 + 256 + (m + mm) * 16, lanes=16)
                            second = second + splat(half_start(s, s_stride * 5 + i64(place), FMT, False), 16)
                        total = activation_sums(s, i64(place), s_stride, 16, FMT)
                        v = group_value(f, isum, second, splat(load(d, place), 16), total, FMT)
                        lanes[r * 4 + mm] = lanes[r * 4 + mm] + v
                    g += 1
            for mm in unroll(4):
                four = (lanes[mm] + lanes[4 + mm]) + (lanes[8 + mm] + lanes[12 + mm])
                store(aside, four, (q * BLOCK_ROWS + m + mm) * 16)
        d = d + k * 16
        s = s + k * 16
    for m in range(live):
        part = tuple(load(aside, (q * BLOCK_ROWS + m) * 16, lanes=16) for q in range(8))
        total = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))
        store(out, total, m * stride)

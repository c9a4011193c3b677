"""Grouped products: a row is cut into parts, and each part has a matrix of its own."""

from __future__ import annotations

from zinc_rt.kernels.cpu.experts import block_of, expert_tile
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, PANEL_ROWS
from zinc_rt.kernels.cpu.matrix import matrix_scratch
from zinc_rt.kernels.cpu.packs import load_some, store_group, store_some
from zinc_rt.kernels.cpu.structs import GroupedArgs, GroupedPackArgs, StepRecord
from zinc_rt.kernels.cpu.tiles import Ahead
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, load, regs, tile_release, unroll
from zinc_rt.lang.types import f32, i32, i64, ptr, u32, vec
from zinc_rt.numerics import GROUP, GROUP_SHIFT


@inline
def slots_of(rows: i32):
    """Places of a part's packed rows: as many as rows, or whole blocks of them."""
    slots: i32 = rows
    if rows >= BLOCK_ROWS:
        slots = (rows + (BLOCK_ROWS - 1)) & -BLOCK_ROWS
    return slots


@kernel
def grouped_pack(a: ptr[GroupedPackArgs], step: ptr[StepRecord], first: i32, last: i32, W: int):
    """Units: parts of rows, row after row. The rows of part g are packed one after another, those of part 0 first."""
    n = a.n
    rows = step.n_rows
    slots = slots_of(rows)
    block = block_of(rows)
    for u in range(first, last):
        row = i32(u32(u) // u32(a.parts))
        part = u - row * a.parts
        x = a.x + i64(u) * i64(n)
        inside = row & (BLOCK_ROWS - 1)
        for at in range(0, n, GROUP):
            v = regs(vec[f32, W], GROUP // W)
            for i in unroll(GROUP // W):
                v[i] = load_some(x, at + i * W, n, W)
            store_group(a.pack, v, part * slots + (row - inside), inside, block, at >> GROUP_SHIFT, W)


@kernel
def grouped_matmul(
    a: ptr[GroupedArgs], step: ptr[StepRecord], first: i32, last: i32, FMT: str, W: int, BLOCKS: tuple, AHEAD: Ahead,
    TILES: str, FEW: int, MANY: int,
):  # fmt: skip
    """Units: tiles, those of part 0 first."""
    n_out = a.n_out
    tiles = (n_out + 15) >> 4
    rows = step.n_rows
    slots = slots_of(rows)
    block = block_of(rows)
    sums = array(f32, PANEL_ROWS * 16, zero=False)
    scratch = matrix_scratch(FMT, TILES)
    for u in range(first, last):
        part = i32(u32(u) // u32(tiles))
        t = u - part * tiles
        tile = a.w + i64(u) * a.tile_bytes
        for panel in range(0, rows, PANEL_ROWS):
            n: i32 = rows - panel
            if n > PANEL_ROWS:
                n = PANEL_ROWS
            expert_tile(
                tile, tile + a.tile_bytes, a.pack, part * slots + panel, n, block, sums, scratch,
                FMT, W, BLOCKS, AHEAD, TILES, FEW, MANY, 16,
            )  # fmt: skip
            for i in range(n):
                y = a.y + (i64(panel + i) * i64(a.parts) + i64(part)) * i64(n_out)
                for h in unroll(16 // W):
                    store_some(y, load(sums, i * 16 + h * W, lanes=W), t * 16 + h * W, n_out, W)
    if TILES == "amx":
        if rows >= BLOCK_ROWS:
            tile_release()

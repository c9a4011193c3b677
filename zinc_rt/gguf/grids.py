"""Integers and scales of the formats whose blocks hold indices of vectors, with signs (`CodeLayout.GRID`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zinc_rt.formats import grids
from zinc_rt.formats.errors import UnknownFormat
from zinc_rt.formats.kinds import Scale, Signs
from zinc_rt.formats.record import Format, Grid
from zinc_rt.numerics import GROUP

U8 = NDArray[np.uint8]
I8 = NDArray[np.int8]
I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]

_WHERE = "the reference (zinc_rt/gguf/grids.py)"


def values(f: Format, blocks: U8) -> I8:
    """The signed integers of blocks, uint8[n_rows, n_blocks, block_bytes]: int8[n_rows, n_blocks, n_groups, 32]."""
    grid = _grid(f)
    table = np.array(grids.words(grid.table), "<u4").view(np.uint8).reshape(-1, grid.width)
    indices, signs = _indices(f, grid, blocks), _signs(f, grid, blocks)
    sizes = table[indices].reshape(*signs.shape[:3], GROUP).view(np.int8)
    negative = signs[..., None] >> np.arange(GROUP, dtype=np.uint32) & 1
    return np.where(negative == 1, -sizes, sizes)


def odd_scales(f: Format, blocks: U8) -> I32:
    """2 s + 1 of each group, int32[n_rows, n_blocks, n_groups], or of each half of one: [..., n_groups, 2]."""
    if f.scale == Scale.ODD_WORD:
        s: NDArray[np.integer] = _sign_words(f, _grid(f), blocks) >> 28
    elif f.scales is not None and f.scale in (Scale.ODD_HALVES, Scale.ODD_NIBBLES):
        n = f.groups * 2 if f.scale == Scale.ODD_HALVES else f.groups
        packed = blocks[..., f.scales : f.scales + n // 2]
        s = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*blocks.shape[:2], f.groups, n // f.groups)
        if f.scale == Scale.ODD_NIBBLES:
            s = s[..., 0]
    else:
        raise UnknownFormat(f.name, "scales of kind", f.scale, _WHERE)
    return 2 * s.astype(np.int32) + 1


def _grid(f: Format) -> Grid:
    if f.grid is None or f.grid.table not in grids.PACKED:
        raise UnknownFormat(f.name, "the grid", f.grid, _WHERE)
    return f.grid


def _groups(f: Format, blocks: U8, at: int, step: int, n: int) -> U8:
    """n bytes for each group: uint8[n_rows, n_blocks, n_groups, n]."""
    return np.stack([blocks[..., at + g * step : at + g * step + n] for g in range(f.groups)], axis=2)


def _words(raw: U8, kind: str) -> U32:
    return np.asarray(np.ascontiguousarray(raw).view(kind), np.uint32)


def _indices(f: Format, grid: Grid, blocks: U8) -> U32:
    """uint32[n_rows, n_blocks, n_groups, 32 / width]."""
    n = GROUP // grid.width
    if grid.signs == Signs.IN_INDEX:
        return np.bitwise_and(_words(_groups(f, blocks, f.q, grid.step, 2 * n), "<u2"), np.uint32(511))
    low = _groups(f, blocks, f.q, grid.step, n).astype(np.uint32)
    if grid.high is None:
        return low
    shifts = grid.high_bits * np.arange(n, dtype=np.uint32)
    high = _groups(f, blocks, grid.high, 1, 1).astype(np.uint32) >> shifts & np.uint32((1 << grid.high_bits) - 1)
    return np.asarray(np.bitwise_or(low, high << np.uint32(8)), np.uint32)


def _sign_words(f: Format, grid: Grid, blocks: U8) -> U32:
    return _words(_groups(f, blocks, grid.sign_place, grid.sign_step, 4), "<u4")[..., 0]


def _signs(f: Format, grid: Grid, blocks: U8) -> U32:
    """A bit for each element of a group: uint32[n_rows, n_blocks, n_groups]."""
    eights = np.arange(4, dtype=np.uint32)
    if grid.signs == Signs.BYTES:
        return _sign_words(f, grid, blocks)
    if grid.signs == Signs.IN_INDEX:
        seven = _words(_groups(f, blocks, f.q, grid.step, 8), "<u2") >> np.uint32(9)
    elif grid.signs == Signs.WORDS:
        seven = _sign_words(f, grid, blocks)[..., None] >> np.uint32(7) * eights & np.uint32(127)
    else:
        raise UnknownFormat(f.name, "signs of kind", grid.signs, _WHERE)
    ones = seven.copy()
    for distance in (4, 2, 1):
        ones ^= ones >> np.uint32(distance)
    each = (seven | (ones & np.uint32(1)) << np.uint32(7)) << np.uint32(8) * eights
    return np.asarray(np.bitwise_or.reduce(each, axis=-1), np.uint32)

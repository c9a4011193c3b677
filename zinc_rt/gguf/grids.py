"""Integers and scales of the formats whose blocks hold indices of vectors, with signs (`CodeLayout.GRID`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zinc_rt.formats import grids
from zinc_rt.formats.errors import UnknownFormat
from zinc_rt.formats.kinds import CodeLayout, Scale, Signs
from zinc_rt.formats.record import Format, Grid
from zinc_rt.numerics import GROUP

U8 = NDArray[np.uint8]
I8 = NDArray[np.int8]
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]

_WHERE = "the reference (zinc_rt/gguf/grids.py)"


def values(f: Format, blocks: U8) -> I8:
    """The signed integers of blocks, uint8[n_rows, n_blocks, block_bytes]: int8[n_rows, n_blocks, n_groups, 32]."""
    grid = _grid(f)
    table = np.array(grids.words(grid.table), "<u4").view(np.uint8).reshape(-1, grid.width)
    indices = _indices(f, grid, blocks)
    if f.kind == CodeLayout.SHIFTED_GRID:
        shifted = 8 * table[indices] + 2 * _added(f, grid, blocks)[..., None]
        return (shifted.astype(np.int8) - np.int8(f.offset)).reshape(*indices.shape[:3], GROUP)
    signs = _signs(f, grid, blocks)
    sizes = table[indices].reshape(*signs.shape[:3], GROUP).view(np.int8)
    negative = signs[..., None] >> np.arange(GROUP, dtype=np.uint32) & 1
    return np.where(negative == 1, -sizes, sizes)


def odd_scales(f: Format, blocks: U8) -> I32:
    """2 s + 1 of each group, int32[n_rows, n_blocks, n_groups], or of each half of one: [..., n_groups, 2]."""
    if f.scale == Scale.ODD_WORD:
        s: NDArray[np.integer] = _sign_words(f, _grid(f), blocks) >> 28
    elif f.scale == Scale.ODD_TOP:
        s = _high_words(f, _grid(f), blocks) >> 12 & 7
    elif f.scale == Scale.ODD_THREES:
        s = _scale_words(f, blocks)[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7
        s = s.reshape(*blocks.shape[:2], f.groups, 2)
    elif f.scales is not None and f.scale in (Scale.ODD_HALVES, Scale.ODD_NIBBLES):
        n = f.groups * 2 if f.scale == Scale.ODD_HALVES else f.groups
        packed = blocks[..., f.scales : f.scales + n // 2]
        s = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*blocks.shape[:2], f.groups, n // f.groups)
        if f.scale == Scale.ODD_NIBBLES:
            s = s[..., 0]
    else:
        raise UnknownFormat(f.name, "scales of kind", f.scale, _WHERE)
    return 2 * s.astype(np.int32) + 1


def scattered_d(f: Format, blocks: U8) -> F32:
    """d of `Scale.ODD_THREES` for each group: f32[n_rows, n_blocks * n_groups]."""
    nibbles = _scale_words(f, blocks) >> 12 << np.arange(0, 16, 4, dtype=np.uint16)
    halves: NDArray[np.float16] = np.bitwise_or.reduce(nibbles, axis=-1).astype("<u2").view("<f2")
    return np.repeat(halves.astype(np.float32), f.groups, axis=-1)


def _scale_words(f: Format, blocks: U8) -> NDArray[np.uint16]:
    """The four words of `Scale.ODD_THREES`: uint16[n_rows, n_blocks, 4]."""
    if f.scales is None:
        raise UnknownFormat(f.name, "the place of scales", f.scales, _WHERE)
    return np.ascontiguousarray(blocks[..., f.scales : f.scales + 8]).view("<u2")


def _high_words(f: Format, grid: Grid, blocks: U8) -> U32:
    """The 16 bits of each group of a shifted grid: uint32[n_rows, n_blocks, n_groups]."""
    if grid.high is None:
        raise UnknownFormat(f.name, "the grid", grid, _WHERE)
    return _words(_groups(f, blocks, grid.high, 2, 2), "<u2")[..., 0]


def _added(f: Format, grid: Grid, blocks: U8) -> U8:
    """1 for each vector of a shifted grid to which an eighth is added, else 0: uint8[n_rows, n_blocks, n_groups, 4]."""
    if grid.signs not in (Signs.SHIFT_OF_GROUP, Signs.SHIFT_OF_EIGHTS):
        raise UnknownFormat(f.name, "signs of kind", grid.signs, _WHERE)
    places = np.array([15] * 4 if grid.signs == Signs.SHIFT_OF_GROUP else [3, 7, 11, 15], np.uint32)
    return (~_high_words(f, grid, blocks)[..., None] >> places & np.uint32(1)).astype(np.uint8)


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
    shifts = grid.high_step * np.arange(n, dtype=np.uint32)
    if f.kind == CodeLayout.SHIFTED_GRID:
        upper = _high_words(f, grid, blocks)[..., None]
    else:
        upper = _groups(f, blocks, grid.high, 1, 1).astype(np.uint32)
    high = upper >> shifts & np.uint32((1 << grid.high_bits) - 1)
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

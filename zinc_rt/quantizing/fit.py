"""Rows of floats as integers and scales of a format, of the least squared error that the search finds.

Each kind of scales has one function here; where the parts of a block lie is `gguf.pack`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from zinc_rt.formats.errors import UnknownFormat
from zinc_rt.formats.kinds import Scale
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf.pack import e4m3, exponents
from zinc_rt.gguf.types import GGMLType
from zinc_rt.gguf.unpack import I32, QuantRows, half_e4m3, powers_of_two
from zinc_rt.numerics import GROUP
from zinc_rt.quantizing.levels import F32, levels_of
from zinc_rt.quantizing.search import (
    extreme,
    fit_range,
    fit_scale,
    half,
    integers,
    inverse,
    largest_alike,
    least_error,
    ratio,
    total,
)

_FEW: Final = 4
"""Integers of a format up to which scales for -1, 0 and 1 are tried, too."""
_ROUNDS: Final = 3
"""Of a super-block: integers for the scales, then scales for the integers."""
_SIGNED: Final = {Scale.INT8_HALVES: (-128, 127), Scale.SIX_BIT_SIGNED: (-32, 31), Scale.SIX_BIT_HALVES: (-32, 31)}
"""The least and the greatest small scale."""
_UNSIGNED: Final = {Scale.SIX_BIT: 63, Scale.FOUR_BIT_HALVES: 15}
"""The greatest small scale and minimum."""


def fit(type: GGMLType, x: F32) -> QuantRows:
    """The integer view of `x`, f32[n_rows, n] of finite numbers, n a whole number of blocks.

    Raises UnknownFormat for a format of scales that nothing here fits.
    """
    f = FORMATS[type.name]
    if f.scale not in _FITTED:
        raise UnknownFormat(f.name, "scales of kind", f.scale, "the quantiser (zinc_rt/quantizing/fit.py)")
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        return _FITTED[Scale(f.scale)](type, f, x)


def _columns(x: F32, size: int) -> F32:
    """Groups of so many elements as columns: f32[size, n_rows * n / size]."""
    return np.ascontiguousarray(x.reshape(x.size // size, size).T)


def _rows(type: GGMLType, q: F32, n_rows: int, *scales: F32, **small: F32 | None) -> QuantRows:
    """Columns of integers, f32[size, groups], as rows. scales: f32[groups] each. small: f32 numbers of the columns."""
    ints = q.T.astype(np.int8).reshape(n_rows, q.size // max(1, n_rows) // GROUP, GROUP)
    shape: tuple[int, ...] = ints.shape[:2]
    flat = [
        np.asarray(np.broadcast_to(s[:, None], (len(s), shape[0] * shape[1] // max(1, len(s)))), np.float32)
        for s in scales
    ]
    if len(q) < GROUP:
        shape = (*shape, GROUP // len(q))
    parts: dict[str, I32] = {k: v.astype(np.int32).reshape(shape) for k, v in small.items() if v is not None}
    return QuantRows(type, ints, *(s.reshape(ints.shape[:2]) for s in flat), **parts)  # type: ignore[arg-type]


def _block(type: GGMLType, f: Format, x: F32) -> QuantRows:
    """A float16 scale, and perhaps a minimum, for each block."""
    columns = _columns(x, f.block)
    if f.minimum is not None:
        return _block_with_minimum(type, f, columns, len(x))
    levels, zero = levels_of(f), np.zeros(columns.shape[1], np.float32)

    def tried() -> Iterator[tuple[F32, F32]]:
        plain = extreme(columns) / np.float32(levels.low)
        few = largest_alike(columns) if len(f.levels) <= _FEW else ()
        for scale in (fit_scale(columns, levels), plain, -plain, *few):
            d = half(scale)
            yield d * levels.nearest(columns * inverse(d)), d[None]

    (d,) = least_error(columns, tried(), (zero,))
    return _rows(type, levels.nearest(columns * inverse(d)), len(x), d)


def _block_with_minimum(type: GGMLType, f: Format, columns: F32, n_rows: int) -> QuantRows:
    top, zero = f.integers[1], np.zeros(columns.shape[1], np.float32)

    def tried() -> Iterator[tuple[F32, F32]]:
        low, high = columns.min(axis=0), columns.max(axis=0)
        for step, start in (fit_range(columns, top), ((high - low) / np.float32(top), low)):
            d, m = half(step), half(start)
            yield d * integers(columns, d, m, top) + m, np.stack([d, m])

    d, m = least_error(columns, tried(), (zero, zero))
    return _rows(type, integers(columns, d, m, top), n_rows, d, m)


def _small_signed(type: GGMLType, f: Format, x: F32) -> QuantRows:
    """An integer scale for each group or half of one, times a float16 of the block."""
    columns = _columns(x, GROUP // 2 if f.scaled_halves else GROUP)
    levels, (low, high) = levels_of(f), _SIGNED[Scale(f.scale)]
    k = f.block // len(columns)
    free, squares = fit_scale(columns, levels), total(columns, columns)
    n = columns.shape[1] // k
    kept_d, kept_sc, best = np.zeros(n, np.float32), np.zeros((n, k), np.float32), np.full(n, np.inf, np.float32)
    for target in (low, low + 1, high):
        g = free.reshape(n, k)
        d = half(extreme(g.T) / np.float32(target))
        for _ in range(_ROUNDS - 1):
            sc = np.clip(np.rint(g * inverse(d)[:, None]), low, high)
            scale = (d[:, None] * sc).reshape(-1)
            q = levels.nearest(columns * inverse(scale))
            along, size = total(q, columns), total(q, q)
            error = (squares + scale * (scale * size - 2 * along)).reshape(n, k).sum(axis=1)
            better = error < best
            kept_d, best = np.where(better, d, kept_d), np.where(better, error, best)
            kept_sc = np.where(better[:, None], sc, kept_sc)
            along, size = along.reshape(n, k), size.reshape(n, k)
            d = half(ratio((sc * along).sum(axis=1), (sc * sc * size).sum(axis=1)))
            g = np.where(size > 0, ratio(along, size), g)
    q = levels.nearest(columns * inverse((kept_d[:, None] * kept_sc).reshape(-1)))
    return _rows(type, q, len(x), kept_d, sc=kept_sc.reshape(-1))


def _small_with_minima(type: GGMLType, f: Format, x: F32) -> QuantRows:
    """Integer scales and minima for each group or half of one, times two float16 of the block."""
    columns = _columns(x, GROUP // 2 if f.scaled_halves else GROUP)
    size, limit, top = np.float32(len(columns)), _UNSIGNED[Scale(f.scale)], f.integers[1]
    k = f.block // len(columns)
    n = columns.shape[1] // k
    a, b = (part.reshape(n, k) for part in fit_range(columns, top, below=True))
    b = -b
    sx, sx2 = (np.add.reduce(part, axis=0).reshape(n, k) for part in (columns, columns * columns))
    d, m = half(a.max(axis=1) / np.float32(limit)), half(b.max(axis=1) / np.float32(limit))
    kept = (d, m, np.zeros_like(a), np.zeros_like(b))
    best = np.full(n, np.inf, np.float32)
    for _ in range(_ROUNDS):
        sc, mn = (np.clip(np.rint(p * inverse(s)[:, None]), 0, limit) for p, s in ((a, d), (b, m)))
        scale, less = d[:, None] * sc, m[:, None] * mn
        q = integers(columns, scale.reshape(-1), -less.reshape(-1), top)
        sq, sq2, sqx = (p.reshape(n, k) for p in (np.add.reduce(q, axis=0), total(q, q), total(q, columns)))
        errors = sx2 - 2 * scale * sqx + 2 * less * sx + scale * scale * sq2 - 2 * scale * less * sq + size * less**2
        error = errors.sum(axis=1)
        better = error < best
        best = np.where(better, error, best)
        kept = tuple(
            np.where(better if now.ndim == 1 else better[:, None], now, then)
            for now, then in zip((d, m, sc, mn), kept, strict=True)
        )  # type: ignore[assignment]
        d, m = _two_scales(sc, mn, sq, sq2, sqx, sx, size, (d, m))
        a = np.where(sq2 > 0, ratio(sqx + less * sq, sq2), a)
        b = np.maximum((scale * sq - sx) / size, np.float32(0))
    d, m, sc, mn = kept
    q = integers(columns, (d[:, None] * sc).reshape(-1), -(m[:, None] * mn).reshape(-1), top)
    return _rows(type, q, len(x), d, m, sc=sc.reshape(-1), mn=mn.reshape(-1))


def _two_scales(
    sc: F32, mn: F32, sq: F32, sq2: F32, sqx: F32, sx: F32, size: np.float32, before: tuple[F32, F32]
) -> tuple[F32, F32]:
    """The scales of blocks by least squares, where all integers are given: those before where none fit."""
    aa, ab, bb = (sc * sc * sq2).sum(axis=1), (sc * mn * sq).sum(axis=1), size * (mn * mn).sum(axis=1)
    ax, bx = (sc * sqx).sum(axis=1), (mn * sx).sum(axis=1)
    det = aa * bb - ab * ab
    d, m = ratio(bb * ax - ab * bx, det), ratio(ab * ax - aa * bx, det)
    only = bb == 0  # no group has a minimum
    d = np.where(only, ratio(ax, aa), d)
    fits = (d > 0) & ((m > 0) | only)
    return half(np.where(fits, d, before[0])), half(np.where(fits & ~only, m, before[1]))


def _power_of_two(type: GGMLType, f: Format, x: F32) -> QuantRows:
    """2^(e - 128) for each group: the powers about that which takes the largest value to the greatest integer."""
    columns, levels = _columns(x, GROUP), levels_of(f)
    largest = np.abs(columns).max(axis=0)
    near = exponents(largest / np.float32(levels.high)).astype(np.int32)
    zero = np.zeros(columns.shape[1], np.float32)
    # Squares of larger numbers are no float32; a power of two changes no digit.
    less = np.where(largest > 2.0**60, np.float32(2.0**-67), np.float32(1))
    columns *= less

    def tried() -> Iterator[tuple[F32, F32]]:
        for step in (0, 1, 2, -1):
            d = powers_of_two(np.clip(near + step, 0, 254).astype(np.uint8)) * less
            yield d * levels.nearest(columns * inverse(d)), d[None]

    (d,) = least_error(columns, tried(), (zero,))
    return _rows(type, levels.nearest(columns * inverse(d)), len(x), np.asarray(d / less, np.float32))


def _small_floats(type: GGMLType, f: Format, x: F32) -> QuantRows:
    """A float of seven bits for each half group: those about the one that takes the largest value to the greatest."""
    columns, levels = _columns(x, GROUP // 2), levels_of(f)
    near = e4m3(np.abs(columns).max(axis=0) / np.float32(levels.high)).astype(np.int32)
    zero = np.zeros(columns.shape[1], np.float32)

    def tried() -> Iterator[tuple[F32, F32]]:
        for step in (0, 1, 2, 3, 4, -1, -2):
            d = half_e4m3(np.clip(near + step, 0, 0x7E).astype(np.uint8))
            yield d * levels.nearest(columns * inverse(d)), d[None]

    (d,) = least_error(columns, tried(), (zero,))
    ints = levels.nearest(columns * inverse(d)).T.astype(np.int8).reshape(len(x), x.shape[1] // GROUP, GROUP)
    both = d.reshape(len(x), x.shape[1] // GROUP, 2)
    return QuantRows(type, ints, both[..., 0].copy(), last=both[..., 1].copy())


_FITTED: Final[dict[Scale, Callable[[GGMLType, Format, F32], QuantRows]]] = {
    Scale.BLOCK: _block,
    **dict.fromkeys(_SIGNED, _small_signed),
    **dict.fromkeys(_UNSIGNED, _small_with_minima),
    Scale.POWER_OF_TWO: _power_of_two,
    Scale.E4M3_HALVES: _small_floats,
}

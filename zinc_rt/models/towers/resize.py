"""Resampling of pixels in integers: Pillow's rule, so that a picture has the same pixels on every machine.

A pass along one axis sums `weight * pixel` with weights of 22 bits after the point, and rounds to bytes. The first pass
goes across, the second one down over the first one's bytes. Weights are made in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
_BITS: Final = 22
_BICUBIC: Final = -0.5
_BLOCK: Final = 16
"""Lines of a result that are summed together: few, so that most weights of a block are not 0."""
_PRODUCT: Final = 1 << 18
"""Multiplications of a product: from there on OpenBLAS divides it among threads, which then wait for each other."""
_LINES: Final = 64
"""Lines of a picture that go across together: few, so that they stay in the cache."""


def _bilinear(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def _bicubic(x: float) -> float:
    a, x = _BICUBIC, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    return (((x - 5.0) * x + 8.0) * x - 4.0) * a if x < 2.0 else 0.0


def _lanczos(x: float) -> float:
    return _sinc(x) * _sinc(x / 3.0) if -3.0 <= x < 3.0 else 0.0


def _sinc(x: float) -> float:
    return 1.0 if x == 0.0 else math.sin(x * math.pi) / (x * math.pi)


FILTERS: Final[dict[str, tuple[Callable[[float], float], float]]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}
"""The filter and the distance to which it reaches."""


def resize(pixels: U8, width: int, height: int, filter: str) -> U8:
    """The picture in another size, stretched: u8[height, width, channels] from u8[h, w, channels].

    filter: a name of `FILTERS`.
    """
    out = pixels
    if out.shape[1] != width:
        across = np.empty((out.shape[0], width, out.shape[2]), np.uint8)
        taps = _Taps(out.shape[1], width, filter)
        for at in range(0, len(out), _LINES):
            lines = out[at : at + _LINES].transpose(1, 0, 2)
            across[at : at + _LINES] = taps.apply(lines).transpose(1, 0, 2)
        out = across
    if out.shape[0] != height:
        out = _Taps(out.shape[0], height, filter).apply(out)
    return np.ascontiguousarray(out)


def fit(pixels: U8, width: int, height: int, filter: str) -> U8:
    """The picture as large as it goes into a size, in the middle, on black: u8[height, width, channels]."""
    h, w = pixels.shape[:2]
    if (w, h) == (width, height):
        return np.ascontiguousarray(pixels)
    scale = min(np.float32(width) / np.float32(w), np.float32(height) / np.float32(h))
    new_w = min(math.ceil(np.float32(w) * scale), width)
    new_h = min(math.ceil(np.float32(h) * scale), height)
    out = np.zeros((height, width, pixels.shape[2]), np.uint8)
    x, y = (width - new_w) // 2, (height - new_h) // 2
    out[y : y + new_h, x : x + new_w] = resize(pixels, new_w, new_h, filter)
    return out


class _Taps:
    """A pass: which lines of the first axis become each line of the result, by which weights."""

    def __init__(self, n_in: int, n_out: int, filter: str) -> None:
        firsts, weights = _weights(n_in, n_out, filter)
        self._n_out = n_out
        self._blocks: list[tuple[slice, slice, npt.NDArray[np.float64]]] = []  # lines out, lines in, weights
        for at in range(0, n_out, _BLOCK):
            rows = slice(at, min(at + _BLOCK, n_out))
            used = weights[rows] != 0
            start = int(firsts[rows].min())
            lines = firsts[rows, None] - start + np.arange(weights.shape[1])
            table = np.zeros((rows.stop - at, int(lines[used].max(initial=0)) + 1))
            line, tap = np.nonzero(used)
            table[line, lines[line, tap]] = weights[rows][line, tap]
            self._blocks.append((rows, slice(start, start + table.shape[1]), table))

    def apply(self, pixels: U8) -> U8:
        """u8[n_out, ...] of u8[n_in, ...].

        The sums are of integers below 2^53, so float64 has them exactly in any order, and a library that multiplies
        matrices is fast and lets other threads run.
        """
        lines = np.ascontiguousarray(pixels).reshape(len(pixels), -1)
        out = np.empty((self._n_out, lines.shape[1]), np.uint8)
        for rows, used, table in self._blocks:
            wide = max(_PRODUCT // table.size, 1)
            for at in range(0, lines.shape[1], wide):
                total = table @ lines[used, at : at + wide].astype(np.float64)
                total += 1 << (_BITS - 1)
                total *= 0.5**_BITS
                np.clip(np.floor(total, out=total), 0, 255, out=total)
                out[rows, at : at + wide] = total
        return out.reshape(self._n_out, *pixels.shape[1:])


def _weights(n_in: int, n_out: int, filter: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """For each line out: the first line in, and the weights from there on, i32[n_out, taps]."""
    shape, reach = FILTERS[filter]
    scale = n_in / n_out
    wide = max(scale, 1.0)
    support = reach * wide
    weights = np.zeros((n_out, math.ceil(support) * 2 + 1), np.int32)
    firsts = np.zeros(n_out, np.int64)
    for i in range(n_out):
        centre = (i + 0.5) * scale
        first = max(0, int(centre - support + 0.5))
        last = min(n_in, int(centre + support + 0.5))
        parts = [shape((j - centre + 0.5) * (1.0 / wide)) for j in range(first, last)]
        total = sum(parts)
        firsts[i] = first
        for j, part in enumerate(parts):
            value = (part / total if total else part) * (1 << _BITS)
            weights[i, j] = int(value - 0.5) if value < 0 else int(value + 0.5)
    return firsts, weights

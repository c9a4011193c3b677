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
        out = _pass(out.transpose(1, 0, 2), width, filter).transpose(1, 0, 2)
    if out.shape[0] != height:
        out = _pass(out, height, filter)
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


def _pass(pixels: U8, n: int, filter: str) -> U8:
    """The first axis resampled to n lines. Lines that one weight is for are summed together."""
    firsts, weights = _weights(pixels.shape[0], n, filter)
    total = np.full((n, *pixels.shape[1:]), 1 << (_BITS - 1), np.int32)
    for tap in range(weights.shape[1]):
        used = np.flatnonzero(weights[:, tap])
        lines = pixels[firsts[used] + tap].astype(np.int32)
        lines *= weights[used, tap].reshape(-1, *[1] * (pixels.ndim - 1))
        total[used] += lines
    total >>= _BITS
    return total.clip(0, 255).astype(np.uint8)


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

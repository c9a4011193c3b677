"""The integers that a scale multiplies, and which of them is the nearest one to a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zinc_rt.formats.record import Format

F32 = NDArray[np.float32]

_EXTREME: Final = 0.92, 1.14
"""Where the largest value of a group may land, as a share of the largest integer: beyond it, it is clipped."""
_TRIES: Final = {2: 18, 3: 18, 4: 14, 5: 9, 6: 5}
"""Scales tried by the bits of an integer: with many bits, little depends on it."""


@dataclass(frozen=True)
class Levels:
    """The integers of a format.

    low, high: the least and the greatest. table: where they are not all integers between, the nearest one to
    `low + i / 2 + 1 / 4` for each i, f32[n]. targets: what the value of a group that is largest in size may become;
    each target is a scale to try.
    """

    low: float
    high: float
    table: F32 | None
    targets: tuple[float, ...]

    def nearest(self, x: F32) -> F32:
        """The nearest integer to each number, as floats; `x` is overwritten and may be the result."""
        if self.table is None:
            np.rint(x, out=x)
            np.maximum(x, np.float32(self.low), out=x)
            return np.minimum(x, np.float32(self.high), out=x)
        # Two neighbours of the table meet at a multiple of a half.
        np.multiply(x, np.float32(2), out=x)
        np.subtract(x, np.float32(2 * self.low), out=x)
        np.maximum(x, np.float32(0), out=x)
        np.minimum(x, np.float32(len(self.table) - 1), out=x)
        return self.table.take(x.astype(np.int16), mode="clip")


@cache
def levels_of(f: Format) -> Levels:
    """The integers of a quantised format."""
    values = np.array(f.levels, np.float32)
    low, high = f.levels[0], f.levels[-1]
    bits = max(2, (high - low).bit_length())
    if len(values) <= high - low:  # some of them are left out
        middles = low + np.arange(2 * (high - low) + 1) / 2 + 0.25
        table = values[np.abs(middles[:, None] - values).argmin(axis=1)]
        return Levels(low, high, table, (*_between(low, 9), *_between(high, 5)))
    tries = _TRIES.get(bits, 3)
    near = _around(low, tries)
    return Levels(low, high, None, (*near, *_around(high, tries // 2)) if -low != high else near)


def _between(extreme: float, n: int) -> tuple[float, ...]:
    least, most = _EXTREME
    return tuple(extreme * (least + (most - least) * i / (n - 1)) for i in range(n))


def _around(extreme: float, n: int) -> tuple[float, ...]:
    """Up to half a step inwards and one and a half outwards; the integer itself is among them."""
    if n < 2:
        return (float(extreme),)
    inner = [extreme - math.copysign(0.55 - 1.9 * i / (n - 1), extreme) for i in range(n)]
    return (float(extreme), *inner)

"""What lanes of one wave make together."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import maximum, select, unroll, wave_shuffle_xor
from zinc_rt.lang.types import f32, u32

NOWHERE = 0xFFFFFFFF
"""The place of a lane that has found nothing; above every real one."""


@inline
def wave_max(x):
    """The greatest of 32 lanes; NaN where any is."""
    top: f32 = x
    for distance in unroll((16, 8, 4, 2, 1)):
        top = maximum(top, wave_shuffle_xor(top, distance))
    return top


@inline
def better(x, at, best, where):
    """Whether x at a place goes before the best so far: it is greater, or equal and earlier. A NaN never does.

    −infinity goes before a lane that has found nothing, whose best is −infinity at `NOWHERE`.
    """
    return (x > best) | ((x == best) & (at < where))


@inline
def wave_best(best, where):
    """The best of 32 lanes, f32 or u32, and its place; every lane gets it."""
    top = best
    at: u32 = where
    for distance in unroll((16, 8, 4, 2, 1)):
        x = wave_shuffle_xor(top, distance)
        i = wave_shuffle_xor(at, distance)
        take = better(x, i, top, at)
        top = select(take, x, top)
        at = select(take, i, at)
    return top, at

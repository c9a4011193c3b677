"""What lanes of one wave make together."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import maximum, unroll, wave_shuffle_xor
from zinc_rt.lang.types import f32


@inline
def wave_max(x):
    """The greatest of 32 lanes; NaN where any is."""
    top: f32 = x
    for distance in unroll((16, 8, 4, 2, 1)):
        top = maximum(top, wave_shuffle_xor(top, distance))
    return top

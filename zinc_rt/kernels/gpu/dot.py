"""What reading groups shares: activations as words, dot products of words, sums of halves."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, cast, dot4, load
from zinc_rt.lang.types import f32, i8, i32, ptr, u8, u32, vec
from zinc_rt.numerics import GROUP


@inline
def quants(x: ptr[i8], group: u32, first: int, n: int):
    """n words of a group's activations from word `first` on: by 16 bytes at a time, as a tuple."""
    at = cast(x + group * GROUP, ptr[u32])
    parts = tuple(load(at, first + i, lanes=4, align=16) for i in range(0, n, 4))
    return tuple(parts[i // 4][i % 4] for i in range(n))


@inline
def dot(acc, a, b, SIGNED: bool):
    """acc plus the products of four bytes of weights and four activations."""
    if SIGNED:
        return dot4(acc, bitcast(a, vec[i8, 4]), bitcast(b, vec[i8, 4]))
    return dot4(acc, bitcast(a, vec[u8, 4]), bitcast(b, vec[i8, 4]))


@inline
def scale_at(d: ptr[f32], group: u32):
    """The scale of a group's activations."""
    return load(cast(cast(d, ptr[u8]) + group * 4, ptr[f32]))


@inline
def sums_at(s: ptr[u32], group: u32):
    """The word with the sums of a group's activations, for `sums_of`."""
    return load(cast(cast(s, ptr[u8]) + group * 4, ptr[u32]))


@inline
def sums_of(word: u32):
    """The sums of a group's first and last 16 activations."""
    both = i32(word)
    return (both << 16) >> 16, both >> 16

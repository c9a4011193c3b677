"""Weights of one group of one tile as dot-product operands, and the group's scales, for every block format."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import bitcast, cast, load
from zinc_rt.lang.types import f16, f32, i8, i32, ptr, u8, vec

# What is added to a weight's bits, as which of a pack's sums takes it away; see structs.Pack.
BIAS_SUM = {"Q8_0": 1, "Q4_0": 2, "Q5_0": 3}
NIBBLES = ("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K")
FIFTH_BIT = ("Q5_0", "Q5_1", "Q5_K")
WITH_MINIMUM = ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
SUPER = ("Q4_K", "Q5_K", "Q6_K")


@inline
def line(w: ptr[u8], i: int, at: int, FMT: str, N: int, SIGNED: bool):
    """Line i of a group as N bytes from byte `at`: u8 offset by the format's bias, or i8 where SIGNED (Q8_0 only)."""
    if FMT == "Q8_0":
        bits = load(w, i * 64 + at, lanes=N)
        if SIGNED:
            return bitcast(bits, vec[i8, N])
        return bits
    low = load(w, (i % 4) * 64 + at, lanes=N)
    if i < 4:
        x = low & 15
    else:
        x = low >> 4
    if FMT in FIFTH_BIT:
        plane = load(w, 256 + at, lanes=N)
        if i < 4:
            x = x | ((plane << (4 - i)) & 16)
        else:
            x = x | ((plane >> (i - 4)) & 16)
    elif FMT == "Q6_K":
        plane = load(w, 256 + (i // 4) * 64 + at, lanes=N)
        j = i % 4
        if j < 2:
            x = x | ((plane << (4 - 2 * j)) & 48)
        else:
            x = x | ((plane >> (2 * j - 4)) & 48)
    return x


@inline
def halves(p: ptr[u8], at, W: int):
    """W float16 at a byte offset, as f32."""
    return f32(load(cast(p + at, ptr[f16]), lanes=W))


@inline
def bytes_as_f32(p: ptr[u8], at, W: int, SIGNED: bool):
    """W integer bytes as f32."""
    if SIGNED:
        return f32(i32(load(cast(p + at, ptr[i8]), lanes=W)))
    return f32(i32(load(p + at, lanes=W)))


@inline
def group_factors(scales, supers, at: int, FMT: str, W: int):
    """What a group's integer sums are multiplied with, for W rows from row `at`: f32 vectors, one to four."""
    if FMT == "Q6_K":
        first = bytes_as_f32(scales, at, W, True)
        return halves(supers, 2 * at, W), first, bytes_as_f32(scales, 16 + at, W, True)
    if FMT in ("Q4_K", "Q5_K"):
        scale = bytes_as_f32(scales, at, W, False)
        low = bytes_as_f32(scales, 16 + at, W, False)
        return halves(supers, 2 * at, W), scale, halves(supers, 32 + 2 * at, W), low
    if FMT in WITH_MINIMUM:
        return halves(scales, 2 * at, W), halves(scales, 32 + 2 * at, W)
    return (halves(scales, 2 * at, W),)


@inline
def group_value(factors, isum, second, dx, total, FMT: str):
    """v_g of docs/numerics.md. second: the other half's sum, for Q6_K; total: the activations' sum, for minima."""
    if FMT == "Q6_K":
        # Scales times sums stay below 2^24, so float32 holds every integer here exactly.
        return (factors[0] * dx) * (factors[1] * f32(isum) + factors[2] * f32(second))
    if FMT in ("Q4_K", "Q5_K"):
        return (factors[0] * dx) * (factors[1] * f32(isum)) - (factors[2] * dx) * (factors[3] * total)
    if FMT in WITH_MINIMUM:
        return (factors[0] * dx) * f32(isum) + (factors[1] * dx) * total
    return (factors[0] * dx) * f32(isum)

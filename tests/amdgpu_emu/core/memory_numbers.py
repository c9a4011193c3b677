"""What atomic instructions make of a number in memory and one or two of a register, on integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tests.amdgpu_emu.core.one import INF, NAN, is_nan, rounded, signed, value

BF16 = 17
"""As a width: the upper half of a binary32."""


def _number(bits: int, width: int) -> float:
    return value(bits << 16, 32) if width == BF16 else value(bits, width)


def summed(a: int, b: int, width: int) -> int | float:
    """Bits of a sum rounded once to nearest even; nan."""
    x, y = _number(a, width), _number(b, width)
    if math.isnan(x + y):
        return NAN
    if INF in (abs(x), abs(y)):
        return a if abs(x) == INF else b
    exact, both_negative = Fraction(x) + Fraction(y), bool(a & b & 1 << (31 if width == 32 else 15))
    if width != BF16:
        return rounded(exact, width, 0, both_negative)
    wide = rounded(exact, 32, 3, both_negative)  # cut off; what was lost stands in the last bit
    short, rest = wide >> 16, wide & 0xFFFF | (Fraction(value(wide, 32)) != exact)
    return short + (rest > 0x8000 or (rest == 0x8000 and short & 1 == 1))


def _least(old: int, data: int, width: int, sign: int) -> int:
    """The lesser (sign 1) or the greater (-1); where one is NaN the other one, where both are the data, made quiet."""
    if is_nan(old, width) and is_nan(data, width):
        return data | 1 << {32: 22, 64: 51}[width]
    if is_nan(data, width) or is_nan(old, width):
        return old if is_nan(data, width) else data

    def key(bits: int) -> tuple[float, int]:
        return sign * value(bits, width), -sign * (bits >> width - 1)

    return data if key(data) < key(old) else old


def _integer(width: int) -> dict[str, Callable[[int, int, int], int]]:
    top = (1 << width) - 1
    s = lambda x: signed(x, width)  # noqa: E731
    u, i, b = f"u{width}", f"i{width}", f"b{width}"
    return {
        f"add_{u}": lambda old, d, c: (old + d) % (top + 1),
        f"sub_{u}": lambda old, d, c: (old - d) % (top + 1),
        f"rsub_{u}": lambda old, d, c: (d - old) % (top + 1),
        f"inc_{u}": lambda old, d, c: 0 if old >= d else old + 1,
        f"dec_{u}": lambda old, d, c: d if old == 0 or old > d else old - 1,
        f"min_{i}": lambda old, d, c: d if s(d) < s(old) else old,
        f"max_{i}": lambda old, d, c: d if s(d) >= s(old) else old,
        f"min_{u}": lambda old, d, c: d if d < old else old,
        f"max_{u}": lambda old, d, c: d if d >= old else old,
        f"and_{b}": lambda old, d, c: old & d,
        f"or_{b}": lambda old, d, c: old | d,
        f"xor_{b}": lambda old, d, c: old ^ d,
        f"swap_{b}": lambda old, d, c: d,
        f"cmpswap_{b}": lambda old, d, c: d if old == c else old,
        f"mskor_{b}": lambda old, d, c: old & (top ^ d) | c,
    }


OPERATIONS: dict[str, Callable[[int, int, int], int | float]] = {
    **_integer(32),
    **_integer(64),
    "cond_sub_u32": lambda old, d, c: old - d if old >= d else old,
    "sub_clamp_u32": lambda old, d, c: old - d if old >= d else 0,
    "add_f32": lambda old, d, c: summed(old, d, 32),
    "min_num_f32": lambda old, d, c: _least(old, d, 32, 1),
    "max_num_f32": lambda old, d, c: _least(old, d, 32, -1),
    "min_num_f64": lambda old, d, c: _least(old, d, 64, 1),
    "max_num_f64": lambda old, d, c: _least(old, d, 64, -1),
}
PAIRS = {"pk_add_f16": 16, "pk_add_bf16": BF16}
COMPARES = ("cmpswap_b32", "cmpswap_b64", "mskor_b32", "mskor_b64")


def dwords_of(operation: str) -> int:
    return 2 if operation.endswith("64") else 1

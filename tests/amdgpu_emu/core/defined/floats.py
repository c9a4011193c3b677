"""Float instructions of the vector unit, on exact fractions; the harness rounds them (RDNA 4 ISA)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tests.amdgpu_emu.core.defined.harness import NAN, Definition, Real, define
from tests.amdgpu_emu.core.one import FORMATS, is_nan, signed, value

WIDTHS = (16, 32, 64)


def infinity(width: int, negative: bool = False) -> int:
    exponent, mantissa, _, _ = FORMATS[width]
    return ((1 << exponent) - 1) << mantissa | int(negative) << width - 1


def negated(bits: int, width: int) -> int:
    return bits ^ 1 << width - 1


def is_negative(bits: int, width: int) -> bool:
    return bool(bits >> width - 1)


def fma(a: int, b: int, c: int, width: int) -> Any:
    """a * b + c, of bits."""
    x, y, z = (value(v, width) for v in (a, b, c))
    if math.isnan(x) or math.isnan(y) or math.isnan(z):
        return NAN
    negative = is_negative(a, width) != is_negative(b, width)
    if math.isinf(x) or math.isinf(y):
        if x == 0 or y == 0 or (math.isinf(z) and (z < 0) != negative):
            return NAN
        return infinity(width, negative)
    if math.isinf(z):
        return c
    product = Fraction(x) * Fraction(y)
    total = product + Fraction(z)
    # An exact zero: of zeros with one sign that sign, otherwise a sum that cancels.
    same = not product and not z and negative == is_negative(c, width)
    return Real(total, negative if same else None)


def mul(a: int, b: int, width: int) -> Any:
    x, y = value(a, width), value(b, width)
    if math.isnan(x) or math.isnan(y):
        return NAN
    negative = is_negative(a, width) != is_negative(b, width)
    if math.isinf(x) or math.isinf(y):
        return NAN if x == 0 or y == 0 else infinity(width, negative)
    return Real(Fraction(x) * Fraction(y), negative)


def one(width: int) -> int:
    return {16: 0x3C00, 32: 0x3F800000, 64: 0x3FF0 << 48}[width]


def add(a: int, b: int, width: int) -> Any:
    return fma(a, one(width), b, width)


def order(bits: int, width: int) -> tuple[float, int]:
    """-0 comes before +0."""
    return value(bits, width), 0 if is_negative(bits, width) else 1


def pick(kind: str, a: int, b: int, width: int) -> int:
    """min_num, max_num: a lone NaN does not count; minimum, maximum: it does."""
    nans = [is_nan(x, width) for x in (a, b)]
    if any(nans):
        if kind.endswith("imum") or all(nans):
            return infinity(width) | 1
        return b if nans[0] else a
    return (min if kind.startswith("min") else max)((a, b), key=lambda x: order(x, width))


def median(a: int, b: int, c: int, width: int) -> int:
    """Without the first that equals the greatest, the greater of the others."""
    if any(is_nan(x, width) for x in (a, b, c)):
        return pick("min_num", pick("min_num", a, b, width), c, width)
    rest = [a, b, c]
    top = max(value(x, width) for x in rest)
    rest.pop(next(i for i, x in enumerate(rest) if value(x, width) == top))
    return pick("max_num", *rest, width)


def whole(call: Callable[[Any], int], a: int, width: int) -> Any:
    x = value(a, width)
    return a if not math.isfinite(x) else Real(Fraction(call(Fraction(x))), is_negative(a, width))


def fract(a: int, width: int) -> Any:
    x = value(a, width)
    if not math.isfinite(x):
        return NAN
    below = 1 - Fraction(1, 2 ** (FORMATS[width][1] + 1))  # the greatest number under 1
    return Real(min(Fraction(x) - math.floor(x), below))


def ldexp(a: int, n: int, width: int) -> Any:
    x = value(a, width)
    n = signed(n, 16 if width == 16 else 32)
    if not math.isfinite(x):
        return a
    # Further than that all is zero or infinite.
    return Real(Fraction(x) * Fraction(2) ** max(-5000, min(n, 5000)), is_negative(a, width))


def mantissa(a: int, width: int) -> Any:
    x = value(a, width)
    return a if not math.isfinite(x) else Real(Fraction(math.frexp(x)[0]), is_negative(a, width))


def exponent(a: int, width: int) -> int:
    x = value(a, width)
    return math.frexp(x)[1] if math.isfinite(x) else 0


def zero(bits: int, width: int = 32) -> bool:
    return value(bits, width) == 0


def flushed32(bits: int) -> int:
    return bits & 0x80000000 if bits & 0x7FFFFFFF < 0x800000 else bits


def mullit(a: int, b: int, c: int) -> Any:
    y, z = value(b, 32), value(c, 32)
    if math.isnan(y) or y <= -value(0x7F7FFFFF, 32) or math.isnan(z) or z <= 0:
        return 0xFF7FFFFF
    return 0 if zero(a) or zero(b) else mul(a, b, 32)


def axis(x: int, y: int, z: int) -> int:
    """The major one: 2 for z, 1 for y, 0 for x; subnormals count as zeros."""
    ax, ay, az = (abs(value(flushed32(v), 32)) for v in (x, y, z))
    if az >= ax and az >= ay:
        return 2
    return 1 if ay >= ax else 0


def below(bits: int) -> bool:
    return value(flushed32(bits), 32) < 0


def cube_id(x: int, y: int, z: int) -> Real:
    major = axis(x, y, z)
    return Real(Fraction(2 * major + below((x, y, z)[major])))


def cube_s(x: int, y: int, z: int) -> int:
    major = axis(x, y, z)
    if major == 2:
        return negated(x, 32) if below(z) else x
    if major == 1:
        return x
    return z if below(x) else negated(z, 32)


def cube_t(x: int, y: int, z: int) -> int:
    if axis(x, y, z) != 1:
        return negated(y, 32)
    return negated(z, 32) if below(y) else z


def cube_major(x: int, y: int, z: int) -> Any:
    found = (x, y, z)[axis(x, y, z)]
    return 0 if zero(found) else mul(found, 0x40000000, 32)


def ratio(n: int, d: int, width: int) -> Fraction:
    return Fraction(value(n, width)) / Fraction(value(d, width))


def div_fixup(q: int, d: int, n: int, width: int) -> Any:
    negative = is_negative(d, width) != is_negative(n, width)
    x, y = value(n, width), value(d, width)
    if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
        return NAN
    if y == 0 or math.isinf(x):
        return infinity(width, negative)
    if math.isinf(y) or x == 0:
        return int(negative) << width - 1
    exponent_bits, fraction, _, _ = FORMATS[width]
    apart = [v >> fraction & (1 << exponent_bits) - 1 for v in (n, d)]
    if width > 16 and apart[0] - apart[1] < {32: -150, 64: -1075}[width]:
        return Real(Fraction(-1 if negative else 1) * Fraction(2) ** -5000)
    if width > 16 and is_nan(q, width):  # of numbers: the quotient overflew
        return Real(Fraction(-1 if negative else 1) * Fraction(2) ** 5000)
    return q & (1 << width - 1) - 1 | int(negative) << width - 1


def div_fmas(a: int, b: int, c: int, scaled: int, width: int) -> Any:
    found = fma(a, b, c, width)
    if not scaled or not isinstance(found, Real) or not found.x:
        return found
    exponent_bits, fraction, _, _ = FORMATS[width]
    up = c >> fraction & (1 << exponent_bits) - 1 > (1 << exponent_bits - 1) - 1
    return Real(found.x * Fraction(2) ** ({32: 64, 64: 128}[width] * (1 if up else -1)))


FLOATS: dict[str, Definition] = {
    "v_mul_dx9_zero_f32": lambda a, b: 0 if zero(a) or zero(b) else mul(a, b, 32),
    "v_fma_dx9_zero_f32": lambda a, b, c: c if zero(a) or zero(b) else fma(a, b, c, 32),
    "v_mullit_f32": mullit,
    "v_cubeid_f32": cube_id,
    "v_cubesc_f32": cube_s,
    "v_cubetc_f32": cube_t,
    "v_cubema_f32": cube_major,
    "v_subrev_f32": lambda a, b: add(b, negated(a, 32), 32),
    "v_subrev_f16": lambda a, b: add(b, negated(a, 16), 16),
}
EXPONENTS: dict[str, Definition] = {}
for _w in WIDTHS:
    FLOATS |= {
        f"v_add_f{_w}": lambda a, b, w=_w: add(a, b, w),
        f"v_mul_f{_w}": lambda a, b, w=_w: mul(a, b, w),
        f"v_fma_f{_w}": lambda a, b, c, w=_w: fma(a, b, c, w),
        f"v_ldexp_f{_w}": lambda a, n, w=_w: ldexp(a, n, w),
        f"v_frexp_mant_f{_w}": lambda a, w=_w: mantissa(a, w),
        f"v_fract_f{_w}": lambda a, w=_w: fract(a, w),
        f"v_trunc_f{_w}": lambda a, w=_w: whole(math.trunc, a, w),
        f"v_ceil_f{_w}": lambda a, w=_w: whole(math.ceil, a, w),
        f"v_floor_f{_w}": lambda a, w=_w: whole(math.floor, a, w),
        f"v_rndne_f{_w}": lambda a, w=_w: whole(round, a, w),
        f"v_div_fixup_f{_w}": lambda q, d, n, w=_w: div_fixup(q, d, n, w),
    }
    EXPONENTS[f"v_frexp_exp_{'i16' if _w == 16 else 'i32'}_f{_w}"] = lambda a, w=_w: exponent(a, w)
    for _kind in ("min_num", "max_num", "minimum", "maximum"):
        FLOATS[f"v_{_kind}_f{_w}"] = lambda a, b, w=_w, k=_kind: pick(k, a, b, w)
    if _w == 64:
        continue
    FLOATS |= {
        f"v_sub_f{_w}": lambda a, b, w=_w: add(a, negated(b, w), w),
        f"v_fmac_f{_w}": lambda a, b, c, w=_w: fma(a, b, c, w),
        f"v_fmaak_f{_w}": lambda a, b, c, w=_w: fma(a, b, c, w),
        f"v_fmamk_f{_w}": lambda a, k, b, w=_w: fma(a, k, b, w),
        f"v_med3_num_f{_w}": lambda a, b, c, w=_w: median(a, b, c, w),
    }
    for _name, _first, _second in (
        ("min3_num", "min_num", "min_num"),
        ("max3_num", "max_num", "max_num"),
        ("maxmin_num", "max_num", "min_num"),
        ("minmax_num", "min_num", "max_num"),
        ("minimum3", "minimum", "minimum"),
        ("maximum3", "maximum", "maximum"),
        ("minimummaximum", "minimum", "maximum"),
        ("maximumminimum", "maximum", "minimum"),
    ):
        FLOATS[f"v_{_name}_f{_w}"] = lambda a, b, c, w=_w, f=_first, s=_second: pick(s, pick(f, a, b, w), c, w)
for _w in (32, 64):
    FLOATS[f"v_div_fmas_f{_w}"] = lambda a, b, c, m=0, w=_w: div_fmas(a, b, c, m, w)
define(FLOATS, "f")
define(EXPONENTS, "i")

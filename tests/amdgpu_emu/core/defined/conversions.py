"""Conversions, on exact fractions (RDNA 4 ISA, V_CVT_*); fp8 is OCP E4M3, bf8 OCP E5M2."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from tests.amdgpu_emu.core.defined.floats import infinity, is_negative
from tests.amdgpu_emu.core.defined.harness import NAN, Definition, Real, define
from tests.amdgpu_emu.core.one import is_nan, rounded, signed, value


def to_int(a: int, width: int, low: int, high: int, step: Any = math.trunc) -> int:
    x = value(a, width)
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return high if x > 0 else low
    return max(low, min(step(Fraction(x)), high))


def integer(x: int) -> Real:
    return Real(Fraction(x))


def between(a: int, source: int, target: int) -> Any:
    x = value(a, source)
    if math.isnan(x):
        return NAN
    return infinity(target, x < 0) if math.isinf(x) else Real(Fraction(x), is_negative(a, source))


def toward_zero(a: int) -> int:
    """binary32 to binary16; a NaN is the quiet one."""
    x = value(a, 32)
    if math.isnan(x):
        return 0x7E00
    return infinity(16, x < 0) if math.isinf(x) else rounded(Fraction(x), 16, 3, is_negative(a, 32))


def norm(a: int, width: int, low: int, high: int) -> int:
    x = value(a, width)
    if math.isnan(x):
        return 0
    return round(Fraction(max(float(low > -1) - 1.0, min(x, 1.0))) * high)


def small_float(code: int, mantissa: int) -> float:
    """E4M3 (mantissa 3) and E5M2 (mantissa 2)."""
    exponent, bias = 7 - mantissa, 7 if mantissa == 3 else 15
    sign, e, m = code >> 7, code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
    if mantissa == 3 and code & 0x7F == 0x7F:
        return NAN
    if mantissa == 2 and e == 31:
        return NAN if m else -math.inf if sign else math.inf
    size = m / 2**mantissa * 2.0 ** (1 - bias) if e == 0 else (1 + m / 2**mantissa) * 2.0 ** (e - bias)
    return -size if sign else size


def widened(code: int, mantissa: int) -> int:
    """The bits of the same number in binary32."""
    x = small_float(code & 255, mantissa)
    if math.isnan(x):
        return 0x7FC00000
    return infinity(32, x < 0) if math.isinf(x) else rounded(Fraction(x), 32, 0, bool(code >> 7 & 1))


def narrowed(a: int, mantissa: int, seed: int | None = None) -> int:
    """binary32 to eight bits: to nearest even, or what a seed says: it is added to what lies under the last bit."""
    x, sign = value(a, 32), a >> 31 << 7
    top, least = (0x7F, -6) if mantissa == 3 else (0x7C, -14)
    if math.isnan(x):
        return 0xFF if mantissa == 3 else 0xFE
    if math.isinf(x):
        return sign | top
    size = abs(Fraction(x))
    e = max(math.frexp(x)[1] - 1, least) if x else least
    steps = size / Fraction(2) ** (e - mantissa)
    if seed is None:
        code = round(steps)
    else:
        cut = 23 - mantissa
        kept = math.floor(steps * 2**cut)  # the 24 bits of the significand, what falls off is lost
        code = (kept + (seed >> 32 - cut)) >> cut
    return sign | min(code + (e - least << mantissa), top)


def byte(a: int, which: int, old: int) -> int:
    at = 8 * (which & 3)
    return old & ~(255 << at) | to_int(a, 32, 0, 255, round) << at


def quiet(a: int) -> int:
    return a | 0x200 if is_nan(a, 16) else a


I16, U16 = (-(1 << 15), (1 << 15) - 1), (0, (1 << 16) - 1)
I32, U32 = (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)
TO_FLOAT: dict[str, Definition] = {
    "v_cvt_f32_i32": lambda a: integer(signed(a, 32)),
    "v_cvt_f32_u32": integer,
    "v_cvt_f64_i32": lambda a: integer(signed(a, 32)),
    "v_cvt_f64_u32": integer,
    "v_cvt_f16_u16": integer,
    "v_cvt_f16_i16": lambda a: integer(signed(a, 16)),
    "v_cvt_f32_f16": lambda a: between(a, 16, 32),
    "v_cvt_f16_f32": lambda a: between(a, 32, 16),
    "v_cvt_f64_f32": lambda a: between(a, 32, 64),
    "v_cvt_f32_f64": lambda a: between(a, 64, 32),
    "v_cvt_off_f32_i4": lambda a: Real(Fraction(signed(a & 15, 4), 16)),
    **{f"v_cvt_f32_ubyte{k}": lambda a, k=k: integer(a >> 8 * k & 255) for k in range(4)},
}
FROM_BYTE: dict[str, Definition] = {
    "v_cvt_f32_fp8": lambda a: widened(a, 3),
    "v_cvt_f32_bf8": lambda a: widened(a, 2),
}
TO_INTEGER: dict[str, Definition] = {
    "v_cvt_i32_f32": lambda a: to_int(a, 32, *I32),
    "v_cvt_u32_f32": lambda a: to_int(a, 32, *U32),
    "v_cvt_i32_f64": lambda a: to_int(a, 64, *I32),
    "v_cvt_u32_f64": lambda a: to_int(a, 64, *U32),
    "v_cvt_i16_f16": lambda a: to_int(a, 16, *I16),
    "v_cvt_u16_f16": lambda a: to_int(a, 16, *U16),
    "v_cvt_floor_i32_f32": lambda a: to_int(a, 32, *I32, math.floor),
    "v_cvt_nearest_i32_f32": lambda a: to_int(a, 32, *I32, lambda x: math.floor(x + Fraction(1, 2))),
    "v_cvt_norm_i16_f16": lambda a: norm(a, 16, -1, 32767),
    "v_cvt_norm_u16_f16": lambda a: norm(a, 16, 0, 65535),
    "v_cvt_pk_u8_f32": byte,
}
PAIRS: dict[str, Definition] = {
    "v_cvt_pk_rtz_f16_f32": lambda a, b: (toward_zero(a), toward_zero(b)),
    "v_cvt_pk_i16_f32": lambda a, b: (to_int(a, 32, *I16), to_int(b, 32, *I16)),
    "v_cvt_pk_u16_f32": lambda a, b: (to_int(a, 32, *U16), to_int(b, 32, *U16)),
    "v_cvt_pk_norm_i16_f32": lambda a, b: (norm(a, 32, -1, 32767), norm(b, 32, -1, 32767)),
    "v_cvt_pk_norm_u16_f32": lambda a, b: (norm(a, 32, 0, 65535), norm(b, 32, 0, 65535)),
    "v_cvt_pk_norm_i16_f16": lambda a, b: (norm(a, 16, -1, 32767), norm(b, 16, -1, 32767)),
    "v_cvt_pk_norm_u16_f16": lambda a, b: (norm(a, 16, 0, 65535), norm(b, 16, 0, 65535)),
    "v_pack_b32_f16": lambda a, b: (quiet(a), quiet(b)),
    "v_cvt_pk_f32_fp8": lambda a: (widened(a, 3), widened(a >> 8, 3)),
    "v_cvt_pk_f32_bf8": lambda a: (widened(a, 2), widened(a >> 8, 2)),
}
define(TO_FLOAT, "f")
define(FROM_BYTE, "f")
define(TO_INTEGER, "i")
define(PAIRS, "p")

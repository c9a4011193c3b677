"""VOP3P and dot products (RDNA 4 ISA): halves by the 16-bit definitions, sums on exact numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from tests.amdgpu_emu.core.defined import floats, integers  # noqa: F401  their names are needed here
from tests.amdgpu_emu.core.defined.conversions import small_float
from tests.amdgpu_emu.core.defined.floats import fma
from tests.amdgpu_emu.core.defined.harness import DEFINED, NAN, Definition, define, final
from tests.amdgpu_emu.core.one import rounded, signed, value

HALVES = {
    "v_pk_add_u16": "v_add_nc_u16", "v_pk_sub_u16": "v_sub_nc_u16", "v_pk_add_i16": "v_add_nc_i16",
    "v_pk_sub_i16": "v_sub_nc_i16", "v_pk_mul_lo_u16": "v_mul_lo_u16", "v_pk_mad_u16": "v_mad_u16",
    "v_pk_mad_i16": "v_mad_i16", "v_pk_min_u16": "v_min_u16", "v_pk_max_u16": "v_max_u16",
    "v_pk_min_i16": "v_min_i16", "v_pk_max_i16": "v_max_i16", "v_pk_lshlrev_b16": "v_lshlrev_b16",
    "v_pk_lshrrev_b16": "v_lshrrev_b16", "v_pk_ashrrev_i16": "v_ashrrev_i16", "v_pk_add_f16": "v_add_f16",
    "v_pk_mul_f16": "v_mul_f16", "v_pk_fma_f16": "v_fma_f16", "v_pk_min_num_f16": "v_min_num_f16",
    "v_pk_max_num_f16": "v_max_num_f16", "v_pk_minimum_f16": "v_minimum_f16", "v_pk_maximum_f16": "v_maximum_f16",
    "v_pk_fmac_f16": "v_fma_f16",
}  # fmt: skip


def of_halves(name: str) -> Definition:
    call = DEFINED[name].call
    return lambda *xs: tuple(call(*(x >> 16 * k & 0xFFFF for x in xs)) for k in (0, 1))


def fields(x: int, bits: int, is_signed: bool = False) -> list[int]:
    found = [x >> bits * k & (1 << bits) - 1 for k in range(32 // bits)]
    return [signed(f, bits) for f in found] if is_signed else found


def dot(a: int, b: int, c: int, bits: int, signs: tuple[bool, bool] = (False, False)) -> int:
    return sum(x * y for x, y in zip(fields(a, bits, signs[0]), fields(b, bits, signs[1]), strict=True)) + c


def bits32(found: Any) -> int:
    done = final(found, 32)
    return 0x7FC00000 if isinstance(done, float) else done


def bf16(x: int) -> int:
    """The bits of a bfloat16 as binary32."""
    return x << 16


def wide(x: int) -> int:
    """The bits of a binary16 as binary32."""
    found = value(x, 16)
    if not math.isfinite(found):
        return (x & 0x8000) << 16 | 0x7F800000 | (x & 0x3FF) << 13
    return rounded(Fraction(found), 32, 0, bool(x >> 15))


def dot2(a: int, b: int, c: int, brain: bool) -> int:
    """c and then two products added, each sum rounded once; the first product is that of the low halves."""
    of = bf16 if brain else wide
    for k in (0, 16):
        c = bits32(fma(of(a >> k & 0xFFFF), of(b >> k & 0xFFFF), c, 32))
    return c


def flush_brain(x: int) -> int:
    return x if x & 0x7F80 else x & 0x8000


def short(bits: int, brain: bool) -> Any:
    """binary32 to nearest binary16 or bfloat16, a subnormal bfloat16 to zero."""
    x = value(bits, 32)
    if math.isnan(x):
        return 0x7FC0 if brain else NAN
    if brain:
        up = bits + 0x7FFF + (bits >> 16 & 1) if not math.isinf(x) else bits
        return up >> 16 if bits & 0x7F800000 else (bits >> 16 & 0x8000)
    return (0x7C00 | (bits >> 16 & 0x8000)) if math.isinf(x) else rounded(Fraction(x), 16, 0, bool(bits >> 31))


def dot2_short(a: int, b: int, c: int, brain: bool) -> Any:
    if not brain:
        return short(dot2(a, b, wide(c), False), False)
    pair = [flush_brain(x & 0xFFFF) | flush_brain(x >> 16) << 16 for x in (a, b)]
    return short(dot2(*pair, bf16(flush_brain(c)), True), True)


def dot4(a: int, b: int, c: int, kinds: tuple[str, str]) -> int:
    """Bytes of eight-bit floats; their products are exact in binary32."""
    mantissas = [3 if kind == "fp8" else 2 for kind in kinds]
    for x, y in zip(fields(a, 8), fields(b, 8), strict=True):
        p, q = small_float(x, mantissas[0]), small_float(y, mantissas[1])
        if math.isnan(p) or math.isnan(q):
            return 0x7FC00000
        sign = (x ^ y) >> 7
        if math.isinf(p) or math.isinf(q):
            product = 0x7FC00000 if 0 in (p, q) else 0x7F800000 | sign << 31
        else:
            product = rounded(Fraction(p) * Fraction(q), 32, 0, bool(sign))
        c = bits32(fma(product, 0x3F800000, c, 32))
    return c


define({name: of_halves(of) for name, of in HALVES.items()}, "p")
define(
    {
        "v_dot4_u32_u8": lambda a, b, c: dot(a, b, c, 8),
        "v_dot8_u32_u4": lambda a, b, c: dot(a, b, c, 4),
    },
    "u",
    saturates=True,
)
define(
    {
        "v_dot4_i32_iu8": lambda a, b, c: dot(a, b, signed(c, 32), 8),
        "v_dot8_i32_iu4": lambda a, b, c: dot(a, b, signed(c, 32), 4),
    },
    "i",
    saturates=True,
)
FLOAT_DOTS: dict[str, Definition] = {
    "v_dot2_f32_f16": lambda a, b, c: dot2(a, b, c, False),
    "v_dot2_f32_bf16": lambda a, b, c: dot2(a, b, c, True),
    "v_dot2_f16_f16": lambda a, b, c: dot2_short(a, b, c, False),
    **{
        f"v_dot4_f32_{p}_{q}": lambda a, b, c, kinds=(p, q): dot4(a, b, c, kinds)
        for p in ("fp8", "bf8")
        for q in ("fp8", "bf8")
    },
}
define(FLOAT_DOTS, "f")
define({"v_dot2_bf16_bf16": lambda a, b, c: dot2_short(a, b, c, True)}, "b")

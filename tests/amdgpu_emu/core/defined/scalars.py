"""The scalar unit, on Python's integers and exact fractions (RDNA 4 ISA, SOP1, SOP2, SOPC, SOPK).

A definition gives the result and SCC; None leaves what was there. It may ask for `scc` and `old`, what SCC and the
destination held before.
"""

from __future__ import annotations

from typing import Any

from tests.amdgpu_emu.core.defined import conversions, floats
from tests.amdgpu_emu.core.defined.compare import CONDITIONS, number
from tests.amdgpu_emu.core.defined.harness import DEFINED, OPCODES, Definition, define
from tests.amdgpu_emu.core.defined.integers import M, field, leading, s32, signs, trailing
from tests.amdgpu_emu.core.one import signed

_FULL = {32: M, 64: (1 << 64) - 1}


def nonzero(x: int, bits: int = 32) -> tuple[int, int]:
    x &= _FULL[bits]
    return x, int(x != 0)


def over(x: int, low: int, high: int) -> tuple[int, int]:
    return x, int(not low <= x <= high)


def unsigned(x: int) -> tuple[int, int]:
    return over(x, 0, M)


def as_signed(x: int) -> tuple[int, int]:
    return over(x, -(1 << 31), (1 << 31) - 1)


def bfe(a: int, b: int, bits: int, is_signed: bool) -> tuple[int, int]:
    offset, width = b & bits - 1, min(b >> 16 & 127, bits)
    found = field(a, offset, width, bits) if is_signed else a >> offset & (1 << width) - 1
    return nonzero(found, bits)


def quads(a: int, bits: int, each: int) -> int:
    """each: bits that a group of four gives."""
    return sum(((1 << each) - 1) << each * k for k in range(bits // 4) if a >> 4 * k & 15)


def brev(a: int, bits: int) -> int:
    return int(f"{a:0{bits}b}"[::-1], 2)


PLAIN: dict[str, Definition] = {
    "s_add_co_u32": lambda a, b: unsigned(a + b),
    "s_sub_co_u32": lambda a, b: unsigned(a - b),
    "s_add_co_i32": lambda a, b: as_signed(s32(a) + s32(b)),
    "s_sub_co_i32": lambda a, b: as_signed(s32(a) - s32(b)),
    "s_add_co_ci_u32": lambda a, b, scc: unsigned(a + b + scc),
    "s_sub_co_ci_u32": lambda a, b, scc: unsigned(a - b - scc),
    "s_absdiff_i32": lambda a, b: nonzero(abs(s32(s32(a) - s32(b)))),
    "s_min_i32": lambda a, b: (min(s32(a), s32(b)), s32(a) < s32(b)),
    "s_min_u32": lambda a, b: (min(a, b), a < b),
    "s_max_i32": lambda a, b: (max(s32(a), s32(b)), s32(a) >= s32(b)),
    "s_max_u32": lambda a, b: (max(a, b), a >= b),
    "s_mul_i32": lambda a, b: (a * b, None),
    "s_mul_hi_u32": lambda a, b: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b: (s32(a) * s32(b) >> 32, None),
    "s_add_nc_u64": lambda a, b: (a + b, None),
    "s_sub_nc_u64": lambda a, b: (a - b, None),
    "s_mul_u64": lambda a, b: (a * b, None),
    "s_pack_ll_b32_b16": lambda a, b: (a & 65535 | b << 16, None),
    "s_pack_lh_b32_b16": lambda a, b: (a & 65535 | b & 0xFFFF0000, None),
    "s_pack_hl_b32_b16": lambda a, b: (a >> 16 | b << 16, None),
    "s_pack_hh_b32_b16": lambda a, b: (a >> 16 | b & 0xFFFF0000, None),
    "s_abs_i32": lambda a: nonzero(abs(s32(a))),
    "s_sext_i32_i8": lambda a: (signed(a, 8), None),
    "s_sext_i32_i16": lambda a: (signed(a, 16), None),
    "s_clz_i32_u32": lambda a: (leading(a), None),
    "s_clz_i32_u64": lambda a: (leading(a, 64), None),
    "s_cls_i32": lambda a: (signs(a), None),
    "s_cls_i32_i64": lambda a: (signs(a, 64), None),
    "s_bitreplicate_b64_b32": lambda a: (sum(3 << 2 * k for k in range(32) if a >> k & 1), None),
    "s_movk_i32": lambda k: (k, None),
    "s_cmovk_i32": lambda k, scc, old: (k if scc else old, None),
    "s_addk_co_i32": lambda k, old: as_signed(s32(old) + k),
    "s_mulk_i32": lambda k, old: (s32(old) * k, None),
    **{f"s_lshl{n}_add_u32": lambda a, b, n=n: unsigned((a << n) + b) for n in (1, 2, 3, 4)},
}
for _n in (32, 64):
    PLAIN |= {
        f"s_mov_b{_n}": lambda a: (a, None),
        f"s_cmov_b{_n}": lambda a, scc, old: (a if scc else old, None),
        f"s_cselect_b{_n}": lambda a, b, scc: (a if scc else b, None),
        f"s_not_b{_n}": lambda a, n=_n: nonzero(~a, n),
        f"s_and_b{_n}": lambda a, b, n=_n: nonzero(a & b, n),
        f"s_or_b{_n}": lambda a, b, n=_n: nonzero(a | b, n),
        f"s_xor_b{_n}": lambda a, b, n=_n: nonzero(a ^ b, n),
        f"s_nand_b{_n}": lambda a, b, n=_n: nonzero(~(a & b), n),
        f"s_nor_b{_n}": lambda a, b, n=_n: nonzero(~(a | b), n),
        f"s_xnor_b{_n}": lambda a, b, n=_n: nonzero(~(a ^ b), n),
        f"s_and_not1_b{_n}": lambda a, b, n=_n: nonzero(a & ~b, n),
        f"s_or_not1_b{_n}": lambda a, b, n=_n: nonzero(a | ~b, n),
        f"s_lshl_b{_n}": lambda a, b, n=_n: nonzero(a << (b & n - 1), n),
        f"s_lshr_b{_n}": lambda a, b, n=_n: nonzero(a >> (b & n - 1), n),
        f"s_ashr_i{_n}": lambda a, b, n=_n: nonzero(signed(a, n) >> (b & n - 1), n),
        f"s_bfm_b{_n}": lambda a, b, n=_n: ((1 << (a & n - 1)) - 1 << (b & n - 1), None),
        f"s_bfe_u{_n}": lambda a, b, n=_n: bfe(a, b, n, False),
        f"s_bfe_i{_n}": lambda a, b, n=_n: bfe(a, b, n, True),
        f"s_brev_b{_n}": lambda a, n=_n: (brev(a, n), None),
        f"s_bcnt0_i32_b{_n}": lambda a, n=_n: nonzero(n - a.bit_count()),
        f"s_bcnt1_i32_b{_n}": lambda a: nonzero(a.bit_count()),
        f"s_ctz_i32_b{_n}": lambda a: (trailing(a), None),
        f"s_wqm_b{_n}": lambda a, n=_n: nonzero(quads(a, n, 4), n),
        f"s_quadmask_b{_n}": lambda a, n=_n: nonzero(quads(a, n, 1), n),
        f"s_bitset0_b{_n}": lambda a, old, n=_n: (old & ~(1 << (a & n - 1)), None),
        f"s_bitset1_b{_n}": lambda a, old, n=_n: (old | 1 << (a & n - 1), None),
        f"s_bitcmp0_b{_n}": lambda a, b, n=_n: (None, int(not a >> (b & n - 1) & 1)),
        f"s_bitcmp1_b{_n}": lambda a, b, n=_n: (None, a >> (b & n - 1) & 1),
    }


def _comparison(name: str) -> Definition:
    _, _, condition, kind = name.split("_")
    read, call = number(kind), CONDITIONS[condition]
    return lambda a, b: (None, int(call(read(a), read(b))))


PLAIN |= {name: _comparison(name) for name in OPCODES if name.startswith("s_cmp_")}


def _like(name: str) -> Definition:
    call = DEFINED[name].call
    return lambda *xs: (call(*xs), None)


def _fmac(width: int) -> Definition:
    mask = (1 << width) - 1
    return lambda a, b, old: (floats.fma(a, b, old & mask, width), None)


REAL: dict[str, Definition] = {
    f"s_{op}_f{w}": _like(f"v_{op}_f{w}")
    for op in ("add", "sub", "mul", "min_num", "max_num", "minimum", "maximum", "ceil", "floor", "trunc", "rndne")
    for w in (16, 32)
}
REAL |= {
    "s_fmac_f32": _fmac(32),
    "s_fmac_f16": _fmac(16),
    "s_fmaak_f32": _like("v_fma_f32"),
    "s_fmamk_f32": _like("v_fma_f32"),
    **{f"s_{n}": _like(f"v_{n}") for n in ("cvt_f32_i32", "cvt_f32_u32", "cvt_f16_f32", "cvt_f32_f16")},
    "s_cvt_hi_f32_f16": lambda a: (conversions.between(a >> 16, 16, 32), None),
}


def _rtz(a: int, b: int) -> tuple[Any, None]:
    return (conversions.toward_zero(a), conversions.toward_zero(b)), None


define(PLAIN, "u")
define(REAL, "f")
define({"s_cvt_i32_f32": _like("v_cvt_i32_f32"), "s_cvt_u32_f32": _like("v_cvt_u32_f32")}, "i")
define({"s_cvt_pk_rtz_f16_f32": _rtz}, "p")

"""Conversions. Float to integer truncates and saturates, NaN gives 0; the rest round as MODE says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from amdgpu_emu.core import rounding
from amdgpu_emu.core.floats import FloatInstruction

F16, F32, F64 = np.float16, np.float32, np.float64
U32 = np.uint32


def to_int(x: Any, kind: Any) -> Any:
    """Convert to an integer, truncated and saturated; NaN gives 0."""
    info = np.iinfo(kind)
    wide = np.trunc(np.asarray(x).astype(F64))
    safe = np.where(np.isnan(wide), 0.0, np.clip(wide, float(info.min), float(info.max)))
    return safe.astype(np.int64).astype(kind)


def _to_int(kind: Any, before: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
    return lambda x: to_int(x if before is None else before(np.asarray(x).astype(F64)), kind)


def _narrowed(kind: Any) -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    """Convert from int32, uint32, binary32 or binary64, all exact in binary64."""

    def modal(x: Any, _: Any, mode: int) -> Any:
        wide = np.asarray(x).astype(F64)
        return rounding.narrow(wide, np.zeros_like(wide), kind, mode)

    return lambda x: np.asarray(x).astype(kind), modal


def _float(result: str, source: str, kind: Any) -> FloatInstruction:
    call, modal = _narrowed(kind)
    return FloatInstruction(result, source, call, modal)


def _ubyte(k: int) -> FloatInstruction:
    return FloatInstruction("f", "u", lambda x: ((x >> U32(8 * k)) & U32(0xFF)).astype(F32))


def pair(low: Any, high: Any) -> Any:
    """Pack two 16-bit halves into a word."""
    low, high = (np.asarray(h).view(np.uint16).astype(U32) for h in (low, high))
    return low | (high << U32(16))


def _pack(a: Any, b: Any) -> Any:
    """Pack two halves into a word; signalling NaNs become quiet."""
    bits = [np.asarray(h).view(np.uint16).astype(U32) for h in (a, b)]
    low, high = (np.where(np.isnan(h), x | U32(0x200), x) for h, x in zip((a, b), bits, strict=True))
    return low | (high << U32(16))


def rtz16(x: Any) -> Any:
    """Convert binary32 to binary16, rounded toward zero."""
    wide = np.asarray(x).astype(F64)
    return rounding.narrow(wide, np.zeros_like(wide), F16, rounding.ZERO)


def _norm(x: Any, low: int, high: int, kind: Any) -> Any:
    wide = np.asarray(x).astype(F64)
    scaled = np.rint(np.clip(np.where(np.isnan(wide), 0.0, wide), -1.0 if low else 0.0, 1.0) * high)
    return scaled.astype(np.int64).astype(kind)


def _snorm(x: Any) -> Any:
    return _norm(x, -32767, 32767, np.int16)


def _unorm(x: Any) -> Any:
    return _norm(x, 0, 65535, np.uint16)


def _clip(x: Any, kind: Any) -> Any:
    info = np.iinfo(kind)
    return np.clip(np.asarray(x).astype(np.int64), info.min, info.max).astype(kind)


def _pk_u8(x: Any, which: Any, old: Any) -> Any:
    byte = to_int(np.rint(x), np.uint8).astype(U32)
    shift = (which & U32(3)) * U32(8)
    return (old & ~(U32(0xFF) << shift)) | (byte << shift)


def _fp8_table(exponent: int, mantissa: int, bias: int) -> Any:
    """OCP FP8: E4M3 has one NaN and no infinity, E5M2 both as IEEE."""
    values = []
    for code in range(256):
        e, m, sign = (
            (code >> mantissa) & ((1 << exponent) - 1),
            code & ((1 << mantissa) - 1),
            -1.0 if code >> 7 else 1.0,
        )
        top = (1 << exponent) - 1
        if exponent == 5 and e == top:
            values.append(sign * np.inf if m == 0 else np.nan)
        elif exponent == 4 and e == top and m == 7:
            values.append(np.nan)
        else:
            values.append(
                sign * (m * 2.0 ** (1 - bias - mantissa) if e == 0 else (1 + m / 2**mantissa) * 2.0 ** (e - bias))
            )
    return np.array(values, F32)


FP8: Final = _fp8_table(4, 3, 7)
BF8: Final = _fp8_table(5, 2, 15)


def _from_byte(table: Any) -> FloatInstruction:
    return FloatInstruction("f", "u", lambda x: table[(x & U32(0xFF)).astype(np.intp)])


def _pair_from_bytes(table: Any) -> FloatInstruction:
    """Two numbers of 32 bits."""

    def call(x: Any) -> Any:
        low = table[(x & U32(0xFF)).astype(np.intp)].view(U32).astype(np.uint64)
        high = table[((x >> U32(8)) & U32(0xFF)).astype(np.intp)].view(U32).astype(np.uint64)
        return low | (high << np.uint64(32))

    return FloatInstruction("U", "u", call)


def _off_i4(x: Any) -> Any:
    n = (x & U32(15)).astype(np.int64)
    return (np.where(n > 7, n - 16, n) / 16).astype(F32)


def _table() -> dict[str, FloatInstruction]:
    table = {
        "v_cvt_f32_i32": _float("f", "i", F32),
        "v_cvt_f32_u32": _float("f", "u", F32),
        "v_cvt_f64_i32": _float("d", "i", F64),
        "v_cvt_f64_u32": _float("d", "u", F64),
        "v_cvt_f32_f16": FloatInstruction("f", "h", lambda x: x.astype(F32)),
        "v_cvt_f16_f32": _float("h", "f", F16),
        "v_cvt_f64_f32": FloatInstruction("d", "f", lambda x: x.astype(F64)),
        "v_cvt_f32_f64": _float("f", "d", F32),
        "v_cvt_f16_u16": _float("h", "H", F16),
        "v_cvt_f16_i16": _float("h", "I", F16),
        "v_cvt_u16_f16": FloatInstruction("H", "h", _to_int(np.uint16)),
        "v_cvt_i16_f16": FloatInstruction("I", "h", _to_int(np.int16)),
        "v_cvt_i32_f32": FloatInstruction("i", "f", _to_int(np.int32)),
        "v_cvt_u32_f32": FloatInstruction("u", "f", _to_int(np.uint32)),
        "v_cvt_i32_f64": FloatInstruction("i", "d", _to_int(np.int32)),
        "v_cvt_u32_f64": FloatInstruction("u", "d", _to_int(np.uint32)),
        "v_cvt_floor_i32_f32": FloatInstruction("i", "f", _to_int(np.int32, np.floor)),
        "v_cvt_nearest_i32_f32": FloatInstruction("i", "f", _to_int(np.int32, lambda x: np.floor(x + 0.5))),
        "v_cvt_off_f32_i4": FloatInstruction("f", "u", _off_i4),
        "v_pack_b32_f16": FloatInstruction("u", "hh", _pack),
        "v_cvt_pk_rtz_f16_f32": FloatInstruction("u", "ff", lambda a, b: pair(rtz16(a), rtz16(b))),
        "v_cvt_pk_i16_f32": FloatInstruction("u", "ff", lambda a, b: pair(to_int(a, np.int16), to_int(b, np.int16))),
        "v_cvt_pk_u16_f32": FloatInstruction("u", "ff", lambda a, b: pair(to_int(a, np.uint16), to_int(b, np.uint16))),
        "v_cvt_pk_norm_i16_f32": FloatInstruction("u", "ff", lambda a, b: pair(_snorm(a), _snorm(b))),
        "v_cvt_pk_norm_u16_f32": FloatInstruction("u", "ff", lambda a, b: pair(_unorm(a), _unorm(b))),
        "v_cvt_pk_norm_i16_f16": FloatInstruction("u", "hh", lambda a, b: pair(_snorm(a), _snorm(b))),
        "v_cvt_pk_norm_u16_f16": FloatInstruction("u", "hh", lambda a, b: pair(_unorm(a), _unorm(b))),
        "v_cvt_norm_i16_f16": FloatInstruction("I", "h", _snorm),
        "v_cvt_norm_u16_f16": FloatInstruction("H", "h", _unorm),
        "v_cvt_pk_i16_i32": FloatInstruction("u", "ii", lambda a, b: pair(_clip(a, np.int16), _clip(b, np.int16))),
        "v_cvt_pk_u16_u32": FloatInstruction("u", "uu", lambda a, b: pair(_clip(a, np.uint16), _clip(b, np.uint16))),
        "v_cvt_pk_u8_f32": FloatInstruction("u", "fuu", _pk_u8),
        "v_cvt_f32_fp8": _from_byte(FP8),
        "v_cvt_f32_bf8": _from_byte(BF8),
        "v_cvt_pk_f32_fp8": _pair_from_bytes(FP8),
        "v_cvt_pk_f32_bf8": _pair_from_bytes(BF8),
    }
    for k in range(4):
        table[f"v_cvt_f32_ubyte{k}"] = _ubyte(k)
    return table


CONVERSIONS: Final = _table()

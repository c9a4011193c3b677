"""Integer and bit instructions of the vector unit: name, type of the result, types of the sources, definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64
U16, I16 = np.uint16, np.int16


class Plain(NamedTuple):
    """One integer instruction. result, sources: letters of `operands`; call: on arrays of those types; wide: the exact
    result in int64, for instructions that saturate with clamp.
    """

    result: str
    sources: str
    call: Callable[..., Any]
    wide: Callable[..., Any] | None = None


def _i64(*xs: Any) -> tuple[Any, ...]:
    return tuple(np.asarray(x).astype(I64) for x in xs)


def _wide_add(a: Any, b: Any) -> Any:
    x, y = _i64(a, b)
    return x + y


def _wide_sub(a: Any, b: Any) -> Any:
    x, y = _i64(a, b)
    return x - y


def _wide_mad(a: Any, b: Any, c: Any) -> Any:
    x, y, z = _i64(a, b, c)
    return x * y + z


def _mul_hi_u(a: Any, b: Any) -> Any:
    return (np.multiply(a, b, dtype=U64) >> U64(32)).astype(U32)


def _mul_hi_i(a: Any, b: Any) -> Any:
    return (np.multiply(a, b, dtype=I64) >> I64(32)).astype(I32)


def u24(x: Any) -> Any:
    """The low 24 bits of numbers, unsigned."""
    return x & U32(0xFFFFFF)


def i24(x: Any) -> Any:
    """The low 24 bits of numbers, sign-extended."""
    return (x << I32(8)) >> I32(8)


def _wide_mad_u24(a: Any, b: Any, c: Any) -> Any:
    return _wide_mad(u24(a), u24(b), c)


def _wide_mad_i24(a: Any, b: Any, c: Any) -> Any:
    return _wide_mad(i24(a), i24(b), c)


def _bfe_u(x: Any, offset: Any, width: Any) -> Any:
    o, w = offset & U32(31), width & U32(31)
    return (x >> o) & ((U32(1) << w) - U32(1))


def _bfe_i(x: Any, offset: Any, width: Any) -> Any:
    o, w = (offset & I32(31)).astype(I64), (width & I32(31)).astype(I64)
    field = (np.asarray(x).astype(I64) >> o) & ((I64(1) << w) - I64(1))
    sign = np.where(w > 0, I64(1) << np.maximum(w - 1, 0), I64(0))
    return ((field ^ sign) - sign).astype(I32)


def popcount(x: Any) -> Any:
    """Number of set bits."""
    return np.bitwise_count(x).astype(U32)


def clz(x: Any, bits: int) -> Any:
    """Number of zero bits above the highest set bit, -1 for 0."""
    x = np.asarray(x).astype(U64)
    n = np.zeros(x.shape, I64)
    top = x.copy()
    for step in (32, 16, 8, 4, 2, 1):
        high = top >= (U64(1) << U64(step))
        n += np.where(high, step, 0)
        top = np.where(high, top >> U64(step), top)
    return np.where(x == 0, -1, bits - 1 - n).astype(I32)


def ctz(x: Any) -> Any:
    """Number of zero bits below the lowest set bit, -1 for 0."""
    x = np.asarray(x)
    lowest = x & (~x + x.dtype.type(1))
    return np.where(x == 0, -1, np.bitwise_count(lowest - x.dtype.type(1)).astype(I32)).astype(I32)


def cls(x: Any, bits: int) -> Any:
    """Number of bits from the top that equal the sign, -1 if all do."""
    x = np.asarray(x)
    unsigned = U32 if bits == 32 else U64
    flipped = np.where(x < 0, ~x, x).view(unsigned)
    return np.where(flipped == 0, -1, clz(flipped, bits)).astype(I32)


_REVERSED = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], np.uint8)


def reverse(x: Any) -> Any:
    """Reverse the order of the bits of u32 or u64."""
    x = np.asarray(x)
    return _REVERSED[np.ascontiguousarray(x.byteswap()).view(np.uint8)].view(x.dtype).reshape(x.shape)


def perm(a: Any, b: Any, selector: Any) -> Any:
    """v_perm_b32: bytes picked from {a, b}: 0-3 of b, 4-7 of a, 8-11 signs of the four words, 12 zero, 13 and more
    ones.
    """
    a, b, selector = np.broadcast_arrays(a, b, selector)
    both = (a.astype(U64) << U64(32)) | b.astype(U64)
    out = np.zeros(a.shape, U32)
    for k in range(4):
        pick = (selector >> U32(8 * k)) & U32(0xFF)
        byte = (both >> (np.minimum(pick, U32(7)).astype(U64) * U64(8))) & U64(0xFF)
        sign = ((both >> (((pick & U32(3)).astype(U64) * U64(16)) + U64(15))) & U64(1)) * U64(0xFF)
        found = np.where(pick < 8, byte, np.where(pick < 12, sign, np.where(pick == 12, U64(0), U64(0xFF))))
        out |= found.astype(U32) << U32(8 * k)
    return out


def _bytes(x: Any) -> list[Any]:
    return [((x >> U32(8 * k)) & U32(0xFF)).astype(I64) for k in range(4)]


def _apart8(a: Any, b: Any) -> Any:
    """Sum of the distances of four bytes, int64."""
    return np.asarray(sum(np.abs(x - y) for x, y in zip(_bytes(a), _bytes(b), strict=True)))


def _apart8_masked(a: Any, b: Any) -> Any:
    """Sum of the distances of four bytes, without the bytes that are 0 in b."""
    return np.asarray(sum(np.where(y == 0, 0, np.abs(x - y)) for x, y in zip(_bytes(a), _bytes(b), strict=True)))


def _apart16(a: Any, b: Any) -> Any:
    low = np.abs((a & U32(0xFFFF)).astype(I64) - (b & U32(0xFFFF)))
    return low + np.abs((a >> U32(16)).astype(I64) - (b >> U32(16)))


def _sad(distance: Callable[[Any, Any], Any]) -> Plain:
    """A sum of distances and of what is there already."""

    def wide(a: Any, b: Any, c: Any) -> Any:
        return distance(a, b) + np.asarray(c).astype(I64)

    return Plain("u", "uuu", lambda a, b, c: wide(a, b, c).astype(U32), wide)


def quad_distances(a: Any, b: Any, masked: bool) -> list[Any]:
    """Sums of distances between u32 b and the four bytes of u64 a from byte 0, 1, 2 and 3 on."""
    distance = _apart8_masked if masked else _apart8
    return [distance((np.asarray(a) >> U64(8 * k)).astype(U32), b) for k in range(4)]


def _lerp(a: Any, b: Any, c: Any) -> Any:
    out = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)), U32)
    for k, (x, y, z) in enumerate(zip(_bytes(a), _bytes(b), _bytes(c), strict=True)):
        out |= (((x + y + (z & 1)) >> 1) & 0xFF).astype(U32) << U32(8 * k)
    return out


def _alignbit(a: Any, b: Any, c: Any) -> Any:
    both = (np.asarray(a).astype(U64) << U64(32)) | b
    return (both >> (c & U32(31)).astype(U64)).astype(U32)


def _alignbyte(a: Any, b: Any, c: Any) -> Any:
    both = (np.asarray(a).astype(U64) << U64(32)) | b
    return (both >> ((c & U32(3)) * U32(8)).astype(U64)).astype(U32)


def med3(a: Any, b: Any, c: Any) -> Any:
    """The median of three integers."""
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _sat_pk(x: Any) -> Any:
    low, high = (
        np.clip(h, 0, 255).astype(U32)
        for h in ((x.astype(np.uint32) & U32(0xFFFF)).astype(U16).view(I16), (x >> U32(16)).astype(U16).view(I16))
    )
    return (low | high << U32(8)).astype(U16)


def _shifts(bits: int, u: str, s: str) -> dict[str, Plain]:
    m: Any = {16: U16(15), 32: U32(31), 64: U64(63)}[bits]
    sm: Any = {16: I16(15), 32: I32(31), 64: I64(63)}[bits]
    to: Any = {16: U16, 32: U32, 64: U64}[bits]
    count = "u" if bits == 64 else u

    def n(a: Any) -> Any:
        return np.asarray(a).astype(to) & m

    def ashr(a: Any, x: Any) -> Any:
        return x >> (np.asarray(a).astype(type(sm)) & sm)

    return {
        f"v_lshlrev_b{bits}": Plain(u, count + u, lambda a, x: x << n(a)),
        f"v_lshrrev_b{bits}": Plain(u, count + u, lambda a, x: x >> n(a)),
        f"v_ashrrev_i{bits}": Plain(s, ("i" if bits == 64 else s) + s, ashr),
    }


def _minmax(t: str, name: str) -> dict[str, Plain]:
    return {
        f"v_min_{name}": Plain(t, t * 2, np.minimum),
        f"v_max_{name}": Plain(t, t * 2, np.maximum),
        f"v_min3_{name}": Plain(t, t * 3, lambda a, b, c: np.minimum(np.minimum(a, b), c)),
        f"v_max3_{name}": Plain(t, t * 3, lambda a, b, c: np.maximum(np.maximum(a, b), c)),
        f"v_med3_{name}": Plain(t, t * 3, med3),
        f"v_maxmin_{name}": Plain(t, t * 3, lambda a, b, c: np.minimum(np.maximum(a, b), c)),
        f"v_minmax_{name}": Plain(t, t * 3, lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    }


def _table() -> dict[str, Plain]:
    t: dict[str, Plain] = {
        "v_mov_b32": Plain("u", "u", lambda a: a),
        "v_mov_b16": Plain("H", "H", lambda a: a),
        "v_not_b32": Plain("u", "u", np.invert),
        "v_not_b16": Plain("H", "H", np.invert),
        "v_bfrev_b32": Plain("u", "u", reverse),
        "v_clz_i32_u32": Plain("i", "u", lambda a: clz(a, 32)),
        "v_ctz_i32_b32": Plain("i", "u", ctz),
        "v_cls_i32": Plain("i", "i", lambda a: cls(a, 32)),
        "v_bcnt_u32_b32": Plain("u", "uu", lambda a, b: popcount(a) + b),
        "v_subrev_nc_u32": Plain("u", "uu", lambda a, b: b - a, lambda a, b: _wide_sub(b, a)),
        "v_mul_lo_u32": Plain("u", "uu", np.multiply),
        "v_mul_hi_u32": Plain("u", "uu", _mul_hi_u),
        "v_mul_hi_i32": Plain("i", "ii", _mul_hi_i),
        "v_mul_lo_u16": Plain("H", "HH", np.multiply),
        "v_mul_u32_u24": Plain("u", "uu", lambda a, b: u24(a) * u24(b), lambda a, b: _wide_mad_u24(a, b, 0)),
        "v_mul_i32_i24": Plain("i", "ii", lambda a, b: i24(a) * i24(b), lambda a, b: _wide_mad_i24(a, b, 0)),
        "v_mul_hi_u32_u24": Plain("u", "uu", lambda a, b: _mul_hi_u(u24(a), u24(b))),
        "v_mul_hi_i32_i24": Plain("i", "ii", lambda a, b: _mul_hi_i(i24(a), i24(b))),
        "v_mad_u32_u24": Plain("u", "uuu", lambda a, b, c: u24(a) * u24(b) + c, _wide_mad_u24),
        "v_mad_i32_i24": Plain("i", "iii", lambda a, b, c: i24(a) * i24(b) + c, _wide_mad_i24),
        "v_mad_u16": Plain("H", "HHH", lambda a, b, c: a * b + c, _wide_mad),
        "v_mad_i16": Plain("I", "III", lambda a, b, c: a * b + c, _wide_mad),
        "v_mad_u32_u16": Plain("u", "HHu", lambda a, b, c: a.astype(U32) * b.astype(U32) + c, _wide_mad),
        "v_mad_i32_i16": Plain("i", "IIi", lambda a, b, c: a.astype(I32) * b.astype(I32) + c, _wide_mad),
        "v_and_or_b32": Plain("u", "uuu", lambda a, b, c: (a & b) | c),
        "v_or3_b32": Plain("u", "uuu", lambda a, b, c: a | b | c),
        "v_xor3_b32": Plain("u", "uuu", lambda a, b, c: a ^ b ^ c),
        "v_lshl_or_b32": Plain("u", "uuu", lambda a, b, c: (a << (b & U32(31))) | c),
        "v_lshl_add_u32": Plain("u", "uuu", lambda a, b, c: (a << (b & U32(31))) + c),
        "v_add_lshl_u32": Plain("u", "uuu", lambda a, b, c: (a + b) << (c & U32(31))),
        "v_add3_u32": Plain("u", "uuu", lambda a, b, c: a + b + c),
        "v_xad_u32": Plain("u", "uuu", lambda a, b, c: (a ^ b) + c),
        "v_bfi_b32": Plain("u", "uuu", lambda a, b, c: (a & b) | (~a & c)),
        "v_bfe_u32": Plain("u", "uuu", _bfe_u),
        "v_bfe_i32": Plain("i", "iii", _bfe_i),
        "v_bfm_b32": Plain("u", "uu", lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31))),
        "v_alignbit_b32": Plain("u", "uuu", _alignbit),
        "v_alignbyte_b32": Plain("u", "uuu", _alignbyte),
        "v_perm_b32": Plain("u", "uuu", perm),
        "v_sad_u32": _sad(lambda a, b: np.abs(_wide_sub(a, b))),
        "v_sad_u16": _sad(_apart16),
        "v_sad_u8": _sad(_apart8),
        "v_sad_hi_u8": _sad(lambda a, b: _apart8(a, b) << 16),
        "v_msad_u8": _sad(_apart8_masked),
        "v_lerp_u8": Plain("u", "uuu", _lerp),
        "v_sat_pk_u8_i16": Plain("H", "u", _sat_pk),
        "v_cvt_i32_i16": Plain("i", "I", lambda a: a.astype(I32)),
        "v_cvt_u32_u16": Plain("u", "H", lambda a: a.astype(U32)),
    }
    for op, call in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        t[f"v_{op}_b32"], t[f"v_{op}_b16"] = Plain("u", "uu", call), Plain("H", "HH", call)
    t["v_xnor_b32"] = Plain("u", "uu", lambda a, b: ~(a ^ b))
    for kind, name in (("u", "u32"), ("i", "i32"), ("H", "u16"), ("I", "i16")):
        t[f"v_add_nc_{name}"] = Plain(kind, kind * 2, np.add, _wide_add)
        t[f"v_sub_nc_{name}"] = Plain(kind, kind * 2, np.subtract, _wide_sub)
        t |= _minmax(kind, name)
    for bits, u, s in ((16, "H", "I"), (32, "u", "i"), (64, "U", "J")):
        t |= _shifts(bits, u, s)
    return t


INTEGERS: Final = _table()

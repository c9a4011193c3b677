"""Float instructions of the vector unit. NumPy rounds to nearest and keeps subnormals; the rest goes via `rounding`.

Where results are not exact by definition: reciprocal and square root are correctly rounded, and so is 1/sqrt of
binary64 but for ties that are nearly exact; 1/sqrt, exp, log, sin and cos of binary32 and binary16 are computed in
float64 and rounded once, that is within 0.51 units in the last place; hardware promises one. Of binary32 these
functions flush subnormals, as the hardware's do whatever MODE says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from amdgpu_emu.core import rounding
from amdgpu_emu.core.shapes import alike

F32, F64, F16 = np.float32, np.float64, np.float16
KINDS: Final[dict[str, Any]] = {"f": F32, "d": F64, "h": F16}
_BITS: Final[dict[Any, Any]] = {np.dtype(F32): np.uint32, np.dtype(F64): np.uint64, np.dtype(F16): np.uint16}

_TINY: Final[dict[Any, Any]] = {kind: np.finfo(kind).tiny for kind in _BITS}


class FloatInstruction(NamedTuple):
    """One float instruction. call: rounds to nearest; modal: also takes kind and rounding mode, where they matter."""

    result: str
    sources: str
    call: Callable[..., Any]
    modal: Callable[..., Any] | None = None


def _chosen(choose: np.ufunc, zero: np.ufunc, a: Any, b: Any) -> Any:
    """`choose` of both; where they are equal, which two zeros of unlike sign are, `zero` of their bits."""
    r, same = choose(a, b), a == b
    if not np.count_nonzero(same):
        return r
    a, b = alike(a, b)
    word = _BITS[a.dtype]
    return np.where(same, zero(a.view(word), b.view(word)).view(r.dtype), r)


def _number(a: Any, b: Any, r: Any) -> Any:
    """r, but the other one where one is NaN. (What fmin makes of a signalling NaN differs from place to place.)"""
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, r))


def min_num(a: Any, b: Any) -> Any:
    """The lesser number; the other one where one is NaN; -0.0 below +0.0 (IEEE 754-2019 minimumNumber)."""
    return _number(a, b, _chosen(np.minimum, np.bitwise_or, a, b))


def max_num(a: Any, b: Any) -> Any:
    """The greater number; the other one where one is NaN; +0.0 above -0.0 (maximumNumber)."""
    return _number(a, b, _chosen(np.maximum, np.bitwise_and, a, b))


def minimum(a: Any, b: Any) -> Any:
    """The lesser number, NaN where one is NaN."""
    return _chosen(np.minimum, np.bitwise_or, a, b)


def maximum(a: Any, b: Any) -> Any:
    """The greater number, NaN where one is NaN."""
    return _chosen(np.maximum, np.bitwise_and, a, b)


def med3(a: Any, b: Any, c: Any) -> Any:
    """The median of three: the greater of the two left after the first greatest; with a NaN, the least number.

    Zeros of both signs count as equal when the greatest one is looked for (RDNA 4 ISA, V_MED3_NUM_F32).
    """
    top = max_num(max_num(a, b), c)
    middle = np.where(top == a, max_num(b, c), np.where(top == b, max_num(a, c), max_num(a, b)))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), min_num(min_num(a, b), c), middle)


def flush(x: Any) -> Any:
    """Replace subnormals by zeros of their sign."""
    small = np.abs(x) < _TINY[x.dtype]
    return np.where(small, np.copysign(x.dtype.type(0), x), x) if np.count_nonzero(small) else x


def limited(x: Any) -> Any:
    """Clamp floats to 0 … 1; NaN and -0 give +0."""
    zero = x.dtype.type(0)
    return np.where(np.isnan(x), zero, np.clip(x, zero, x.dtype.type(1))) + zero


def _through(call: Callable[[Any], Any], kind: Any, flushed: bool) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        if flushed:
            x = flush(np.asarray(x))
        r = call(np.asarray(x).astype(F64)).astype(kind)
        return flush(r) if flushed else r

    return run


def _rcp(x: Any) -> Any:
    return 1.0 / x


def _rsq(x: Any) -> Any:
    return np.where(x == 0, np.copysign(np.inf, x), 1.0 / np.sqrt(x))


def _rsq64(x: Any) -> Any:
    """1 / sqrt(x) in binary64: a quotient, and one step of Newton's with a residue exact but for its last bits."""
    good = (x > 0) & np.isfinite(x)
    m, e = np.frexp(np.where(good, x, 1.0))
    odd = e & 1
    m = np.ldexp(m, odd)  # in [0.5, 2), and an even power of two
    y = 1.0 / np.sqrt(m)
    square, rest = rounding.two_product(y, y)
    p, q = rounding.two_product(m, square)
    residue = ((1.0 - p) - q) - m * rest
    found = np.ldexp(y + y * residue * 0.5, -((e - odd) // 2))
    return np.where(good, found, np.where(x == 0, np.copysign(np.inf, x), np.where(x > 0, 0.0, np.nan)))


def _log(x: Any) -> Any:
    return np.log2(x)


def _eighth(near: Any, far: Any, turns: Any) -> Any:
    """near(2 pi t) up to an eighth of a turn, far(2 pi (1/4 - t)) up to a quarter: both exact where they are 0 or 1."""
    small = turns <= 0.125
    angle = np.where(small, turns, 0.25 - turns) * (2 * np.pi)
    return np.where(small, near(angle), far(angle))


def _sin(x: Any) -> Any:
    """Sine of an angle in turns. Multiples of a half give +0.0, except -0.0, which stays."""
    rest = x - np.rint(x)  # exact, in -1/2 ... 1/2
    size = np.abs(rest)
    size = np.where(size > 0.25, 0.5 - size, size)
    found = np.where(size == 0, np.where(x == 0, x, 0.0), np.copysign(_eighth(np.sin, np.cos, size), rest))
    return np.where(np.isfinite(x), found, np.nan)


def _cos(x: Any) -> Any:
    """Cosine of an angle in turns."""
    size = np.abs(x - np.rint(x))
    far = size > 0.25
    found = _eighth(np.cos, np.sin, np.where(far, 0.5 - size, size))
    return np.where(np.isfinite(x), np.where(far, -found, found) + 0.0, np.nan)


TRANSCENDENTAL: Final[dict[str, Callable[[Any], Any]]] = {
    "rcp": _rcp,
    "rsq": _rsq,
    "sqrt": np.sqrt,
    "exp": np.exp2,
    "log": _log,
    "sin": _sin,
    "cos": _cos,
}


def _fract(x: Any) -> Any:
    below = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    return np.where(np.isfinite(x), np.minimum(x - np.floor(x), below), x.dtype.type(np.nan))


def _fract_modal(x: Any, kind: Any, mode: int) -> Any:
    s, e = rounding.two_sum(np.asarray(x, F64), -np.floor(np.asarray(x, F64)))
    r = rounding.narrow(s, e, kind, mode)
    return np.where(np.isfinite(x), np.minimum(r, np.nextafter(kind(1), kind(0))), kind(np.nan))


def ldexp(x: Any, n: Any, kind: Any, mode: int = rounding.NEAREST) -> Any:
    """x * 2^n, rounded once."""
    x, n = np.asarray(x), np.asarray(n).astype(np.int64)
    if kind is F64:
        if mode != rounding.NEAREST:
            return _ldexp64(x, n, mode)
        return np.ldexp(x, np.clip(n, -5000, 5000))
    s = np.ldexp(x.astype(F64), np.clip(n, -700, 700))
    return rounding.narrow(s, np.zeros_like(s), kind, mode)


def _ldexp64(x: Any, n: Any, mode: int) -> Any:
    out = np.ldexp(x, np.clip(n, -5000, 5000))
    back = np.ldexp(out, np.clip(-n, -5000, 5000))
    above, below = back > x, back < x
    if mode == rounding.UP:
        return np.where(below, np.nextafter(out, np.inf), out)
    if mode == rounding.DOWN:
        return np.where(above, np.nextafter(out, -np.inf), out)
    return np.where((above & (x > 0)) | (below & (x < 0)), np.nextafter(out, 0.0), out)


def _frexp_exp(x: Any) -> Any:
    _, e = np.frexp(x)
    return np.where(np.isfinite(x), e, 0).astype(np.int32)


def _frexp_mant(x: Any) -> Any:
    m, _ = np.frexp(x)
    return np.where(np.isfinite(x), m, x)


def _dx9(call: Callable[..., Any]) -> Callable[..., Any]:
    """Product by the DX9 rule: +0 where a factor is 0."""

    def run(a: Any, b: Any, *rounding: Any) -> Any:
        return np.where((a == 0) | (b == 0), F32(0), call(a, b, *rounding))

    return run


def _dx9_fma(call: Callable[..., Any]) -> Callable[..., Any]:
    """fma by the DX9 rule: the addend unchanged where a factor is 0."""

    def run(a: Any, b: Any, c: Any, *rounding: Any) -> Any:
        return np.where((a == 0) | (b == 0), c, call(a, b, c, *rounding))

    return run


_LEAST = -np.finfo(F32).max


def _mullit(call: Callable[..., Any]) -> Callable[..., Any]:
    """The product for a lighting exponent: the most negative number where one of the others forbids it."""
    product = _dx9(call)

    def run(a: Any, b: Any, c: Any, *rounding: Any) -> Any:
        return np.where((b <= _LEAST) | np.isnan(b) | (c <= 0) | np.isnan(c), _LEAST, product(a, b, *rounding))

    return run


def _axes(x: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """Masks of the lanes whose major axis is z, and y; subnormals count as 0 here."""
    ax, ay, az = (np.abs(flush(np.asarray(v))) for v in (x, y, z))
    return (az >= ax) & (az >= ay), ay >= ax


def _cube_id(x: Any, y: Any, z: Any) -> Any:
    on_z, on_y = _axes(x, y, z)
    below = [flush(np.asarray(v)) < 0 for v in (x, y, z)]
    face = np.where(on_z, np.where(below[2], 5, 4), np.where(on_y, np.where(below[1], 3, 2), np.where(below[0], 1, 0)))
    return face.astype(F32)


def _cube_s(x: Any, y: Any, z: Any) -> Any:
    on_z, on_y = _axes(x, y, z)
    left, back = flush(np.asarray(x)) < 0, flush(np.asarray(z)) < 0
    return np.where(on_z, np.where(back, -x, x), np.where(on_y, x, np.where(left, z, -z)))


def _cube_t(x: Any, y: Any, z: Any) -> Any:
    on_z, on_y = _axes(x, y, z)
    return np.where(on_z | ~on_y, -y, np.where(flush(np.asarray(y)) < 0, -z, z))


def _cube_major(x: Any, y: Any, z: Any) -> Any:
    """Twice the major axis; zeros give +0."""
    on_z, on_y = _axes(x, y, z)
    return np.where(on_z, z, np.where(on_y, y, x)) * F32(2) + F32(0)


_BITS_OF_PI = 1201


@cache
def _two_over_pi() -> int:
    """The first 1201 bits of 2/pi (pi by Machin's formula, in integers)."""
    unit = 1 << (_BITS_OF_PI + 64)

    def arctan(n: int) -> int:
        total, power, k = 0, unit // n, 1
        while power:
            total += power // k if k & 2 == 0 else -(power // k)
            power //= n * n
            k += 2
        return total

    pi = 4 * (4 * arctan(5) - arctan(239))
    return (2 * unit << _BITS_OF_PI) // pi


def trig_preop(x: Any, segment: Any) -> Any:
    """53 bits of 2/pi, from where the exponent of x and the segment's number say (RDNA 4 ISA, V_TRIG_PREOP_F64)."""
    x, segment = np.broadcast_arrays(x, segment)
    out = []
    for bits, part in zip(x.reshape(-1).view(np.uint64).tolist(), segment.reshape(-1).tolist(), strict=True):
        exponent = bits >> 52 & 0x7FF
        shift = (part & 31) * 53 + max(exponent - 1077, 0)
        window = (_two_over_pi() << shift) >> (_BITS_OF_PI - 53) & (1 << 53) - 1
        out.append(math.ldexp(float(window), (128 if exponent >= 1968 else 0) - 53 - shift))
    return np.array(out, F64).reshape(x.shape)


def _fma(t: str) -> Callable[..., Any]:
    if t == "f":
        return rounding.fma32
    kind = KINDS[t]
    return lambda a, b, c: rounding.fma(a, b, c, kind)


def _arithmetic(t: str, name: str) -> dict[str, FloatInstruction]:
    fma = _fma(t)

    def subrev(a: Any, b: Any) -> Any:
        return b - a

    def modal_sub(a: Any, b: Any, kind: Any, mode: int) -> Any:
        return rounding.add(a, -b, kind, mode)

    three = {"v_fma": "abc", "v_fmac": "abc", "v_fmaak": "abc"}
    table = {
        f"v_add_{name}": FloatInstruction(t, t * 2, np.add, rounding.add),
        f"v_sub_{name}": FloatInstruction(t, t * 2, np.subtract, modal_sub),
        f"v_subrev_{name}": FloatInstruction(t, t * 2, subrev, lambda a, b, k, m: rounding.add(b, -a, k, m)),
        f"v_mul_{name}": FloatInstruction(t, t * 2, np.multiply, rounding.mul),
        f"v_fmamk_{name}": FloatInstruction(t, t * 3, fma, rounding.fma),
        f"v_ldexp_{name}": FloatInstruction(
            t, t + ("I" if t == "h" else "i"), lambda x, n: ldexp(x, n, KINDS[t]), ldexp
        ),
        f"v_frexp_exp_{'i16' if t == 'h' else 'i32'}_{name}": FloatInstruction(
            "I" if t == "h" else "i", t, (lambda x: _frexp_exp(x).astype(np.int16)) if t == "h" else _frexp_exp
        ),
        f"v_frexp_mant_{name}": FloatInstruction(t, t, _frexp_mant),
        f"v_fract_{name}": FloatInstruction(t, t, _fract, _fract_modal),
        f"v_trunc_{name}": FloatInstruction(t, t, np.trunc),
        f"v_ceil_{name}": FloatInstruction(t, t, np.ceil),
        f"v_floor_{name}": FloatInstruction(t, t, np.floor),
        f"v_rndne_{name}": FloatInstruction(t, t, np.rint),
        f"v_min_num_{name}": FloatInstruction(t, t * 2, min_num),
        f"v_max_num_{name}": FloatInstruction(t, t * 2, max_num),
        f"v_minimum_{name}": FloatInstruction(t, t * 2, minimum),
        f"v_maximum_{name}": FloatInstruction(t, t * 2, maximum),
        f"v_min3_num_{name}": FloatInstruction(t, t * 3, lambda a, b, c: min_num(min_num(a, b), c)),
        f"v_max3_num_{name}": FloatInstruction(t, t * 3, lambda a, b, c: max_num(max_num(a, b), c)),
        f"v_med3_num_{name}": FloatInstruction(t, t * 3, med3),
        f"v_maxmin_num_{name}": FloatInstruction(t, t * 3, lambda a, b, c: min_num(max_num(a, b), c)),
        f"v_minmax_num_{name}": FloatInstruction(t, t * 3, lambda a, b, c: max_num(min_num(a, b), c)),
        f"v_minimum3_{name}": FloatInstruction(t, t * 3, lambda a, b, c: minimum(minimum(a, b), c)),
        f"v_maximum3_{name}": FloatInstruction(t, t * 3, lambda a, b, c: maximum(maximum(a, b), c)),
        f"v_minimummaximum_{name}": FloatInstruction(t, t * 3, lambda a, b, c: maximum(minimum(a, b), c)),
        f"v_maximumminimum_{name}": FloatInstruction(t, t * 3, lambda a, b, c: minimum(maximum(a, b), c)),
    }
    for prefix in three:
        table[f"{prefix}_{name}"] = FloatInstruction(t, t * 3, fma, rounding.fma)
    for prefix, call in TRANSCENDENTAL.items():
        table[f"v_{prefix}_{name}"] = FloatInstruction(t, t, _through(call, KINDS[t], t == "f"))
    if t == "d":
        table["v_rsq_f64"] = FloatInstruction(t, t, _through(_rsq64, F64, False))
    return table


def _table() -> dict[str, FloatInstruction]:
    table: dict[str, FloatInstruction] = {}
    for t, name in (("f", "f32"), ("h", "f16"), ("d", "f64")):
        table |= _arithmetic(t, name)
    for name in ("exp", "log", "sin", "cos"):
        del table[f"v_{name}_f64"]  # binary64 has none
    table["v_rcp_iflag_f32"] = table["v_rcp_f32"]
    table["v_mul_dx9_zero_f32"] = FloatInstruction("f", "ff", _dx9(np.multiply), _dx9(rounding.mul))
    table["v_fma_dx9_zero_f32"] = FloatInstruction("f", "fff", _dx9_fma(rounding.fma32), _dx9_fma(rounding.fma))
    table["v_fmac_dx9_zero_f32"] = table["v_fma_dx9_zero_f32"]
    table["v_mullit_f32"] = FloatInstruction("f", "fff", _mullit(np.multiply), _mullit(rounding.mul))
    for axis, cube in (("id", _cube_id), ("sc", _cube_s), ("tc", _cube_t), ("ma", _cube_major)):
        table[f"v_cube{axis}_f32"] = FloatInstruction("f", "fff", cube)
    table["v_trig_preop_f64"] = FloatInstruction("d", "du", trig_preop)
    for kind in ("f32", "f16"):
        for prefix in ("rcp", "rsq", "sqrt", "exp", "log"):
            table[f"v_s_{prefix}_{kind}"] = table[f"v_{prefix}_{kind}"]
    return table


FLOATS: Final = _table()

"""Float instructions of the vector unit. NumPy rounds to nearest and keeps subnormals; the rest goes via `rounding`.

Where results are not exact by definition: reciprocal and square root are correctly rounded; 1/sqrt, exp, log, sin and
cos are computed in float64 and rounded once, that is within 0.51 units in the last place; hardware promises one. Of
binary32 these functions flush subnormals, as the hardware's do whatever MODE says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from zinc_rt.emu.core import rounding

F32, F64, F16 = np.float32, np.float64, np.float16
KINDS: Final[dict[str, Any]] = {"f": F32, "d": F64, "h": F16}
_BITS: Final[dict[Any, Any]] = {np.dtype(F32): np.uint32, np.dtype(F64): np.uint64, np.dtype(F16): np.uint16}


class Float(NamedTuple):
    """call: to nearest; modal: with the kind and the rounding mode behind the numbers, where that matters."""

    result: str
    sources: str
    call: Callable[..., Any]
    modal: Callable[..., Any] | None = None


def _chosen(choose: np.ufunc, zero: np.ufunc, a: Any, b: Any) -> Any:
    """`choose` of both; where they are equal, which two zeros of unlike sign are, `zero` of their bits."""
    a, b = np.broadcast_arrays(a, b)
    word = _BITS[a.dtype]
    r = choose(a, b)
    return np.where(a == b, zero(a.view(word), b.view(word)).view(r.dtype), r)


def min_num(a: Any, b: Any) -> Any:
    """The lesser; the other one where one is NaN; -0.0 below +0.0 (IEEE 754-2019 minimumNumber)."""
    return _chosen(np.fmin, np.bitwise_or, a, b)


def max_num(a: Any, b: Any) -> Any:
    """The greater; the other one where one is NaN; +0.0 above -0.0."""
    return _chosen(np.fmax, np.bitwise_and, a, b)


def minimum(a: Any, b: Any) -> Any:
    """The lesser, NaN where one is NaN."""
    return _chosen(np.minimum, np.bitwise_or, a, b)


def maximum(a: Any, b: Any) -> Any:
    """The greater, NaN where one is NaN."""
    return _chosen(np.maximum, np.bitwise_and, a, b)


def med3(a: Any, b: Any, c: Any) -> Any:
    """The one in the middle; with a NaN, the least number."""
    middle = max_num(min_num(a, b), min_num(max_num(a, b), c))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), min_num(min_num(a, b), c), middle)


def flush(x: Any) -> Any:
    """Subnormals as zeros of their sign."""
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


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


def _log(x: Any) -> Any:
    return np.log2(x)


def _turns(x: Any) -> Any:
    return (x - np.floor(x)) * (2 * np.pi)


def _sin(x: Any) -> Any:
    return np.where(np.isfinite(x), np.sin(_turns(x)), np.nan)


def _cos(x: Any) -> Any:
    return np.where(np.isfinite(x), np.cos(_turns(x)), np.nan)


TRANSCENDENTAL: Final[dict[str, Callable[[Any], Any]]] = {
    "rcp": _rcp, "rsq": _rsq, "sqrt": np.sqrt, "exp": np.exp2, "log": _log, "sin": _sin, "cos": _cos,
}  # fmt: skip


def _fract(x: Any) -> Any:
    below = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    return np.where(np.isfinite(x), np.minimum(x - np.floor(x), below), x.dtype.type(np.nan))


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
    """Zero times anything is +0."""

    def run(a: Any, b: Any, *c: Any) -> Any:
        zero = (a == 0) | (b == 0)
        return call(np.where(zero, a.dtype.type(0), a), np.where(zero, b.dtype.type(0), b), *c)

    return run


def _fma(t: str) -> Callable[..., Any]:
    if t == "f":
        return rounding.fma32
    kind = KINDS[t]
    return lambda a, b, c: rounding.fma(a, b, c, kind)


def _arithmetic(t: str, name: str) -> dict[str, Float]:
    fma = _fma(t)

    def subrev(a: Any, b: Any) -> Any:
        return b - a

    def modal_sub(a: Any, b: Any, kind: Any, mode: int) -> Any:
        return rounding.add(a, -b, kind, mode)

    three = {"v_fma": "abc", "v_fmac": "abc", "v_fmaak": "abc"}
    table = {
        f"v_add_{name}": Float(t, t * 2, np.add, rounding.add),
        f"v_sub_{name}": Float(t, t * 2, np.subtract, modal_sub),
        f"v_subrev_{name}": Float(t, t * 2, subrev, lambda a, b, k, m: rounding.add(b, -a, k, m)),
        f"v_mul_{name}": Float(t, t * 2, np.multiply, rounding.mul),
        f"v_fmamk_{name}": Float(t, t * 3, fma, rounding.fma),
        f"v_ldexp_{name}": Float(t, t + ("I" if t == "h" else "i"), lambda x, n: ldexp(x, n, KINDS[t]), ldexp),
        f"v_frexp_exp_{'i16' if t == 'h' else 'i32'}_{name}": Float(
            "I" if t == "h" else "i", t, (lambda x: _frexp_exp(x).astype(np.int16)) if t == "h" else _frexp_exp
        ),
        f"v_frexp_mant_{name}": Float(t, t, _frexp_mant),
        f"v_fract_{name}": Float(t, t, _fract),
        f"v_trunc_{name}": Float(t, t, np.trunc),
        f"v_ceil_{name}": Float(t, t, np.ceil),
        f"v_floor_{name}": Float(t, t, np.floor),
        f"v_rndne_{name}": Float(t, t, np.rint),
        f"v_min_num_{name}": Float(t, t * 2, min_num),
        f"v_max_num_{name}": Float(t, t * 2, max_num),
        f"v_minimum_{name}": Float(t, t * 2, minimum),
        f"v_maximum_{name}": Float(t, t * 2, maximum),
        f"v_min3_num_{name}": Float(t, t * 3, lambda a, b, c: min_num(min_num(a, b), c)),
        f"v_max3_num_{name}": Float(t, t * 3, lambda a, b, c: max_num(max_num(a, b), c)),
        f"v_med3_num_{name}": Float(t, t * 3, med3),
        f"v_maxmin_num_{name}": Float(t, t * 3, lambda a, b, c: min_num(max_num(a, b), c)),
        f"v_minmax_num_{name}": Float(t, t * 3, lambda a, b, c: max_num(min_num(a, b), c)),
        f"v_minimum3_{name}": Float(t, t * 3, lambda a, b, c: minimum(minimum(a, b), c)),
        f"v_maximum3_{name}": Float(t, t * 3, lambda a, b, c: maximum(maximum(a, b), c)),
        f"v_minimummaximum_{name}": Float(t, t * 3, lambda a, b, c: maximum(minimum(a, b), c)),
        f"v_maximumminimum_{name}": Float(t, t * 3, lambda a, b, c: minimum(maximum(a, b), c)),
    }
    for prefix in three:
        table[f"{prefix}_{name}"] = Float(t, t * 3, fma, rounding.fma)
    for prefix, call in TRANSCENDENTAL.items():
        table[f"v_{prefix}_{name}"] = Float(t, t, _through(call, KINDS[t], t == "f"))
    return table


def _table() -> dict[str, Float]:
    table: dict[str, Float] = {}
    for t, name in (("f", "f32"), ("h", "f16"), ("d", "f64")):
        table |= _arithmetic(t, name)
    for name in ("exp", "log", "sin", "cos"):
        del table[f"v_{name}_f64"]  # there are none
    table["v_rcp_iflag_f32"] = table["v_rcp_f32"]
    table["v_mul_dx9_zero_f32"] = Float("f", "ff", _dx9(np.multiply), _dx9(rounding.mul))
    table["v_fma_dx9_zero_f32"] = Float("f", "fff", _dx9(rounding.fma32), _dx9(rounding.fma))
    table["v_fmac_dx9_zero_f32"] = table["v_fma_dx9_zero_f32"]
    for kind in ("f32", "f16"):
        for prefix in ("rcp", "rsq", "sqrt", "exp", "log"):
            table[f"v_s_{prefix}_{kind}"] = table[f"v_{prefix}_{kind}"]
    return table


FLOATS: Final = _table()

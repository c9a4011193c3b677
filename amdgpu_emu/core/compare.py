"""Comparisons: conditions, and the classes of floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from amdgpu_emu.core.shapes import alike, chosen

TYPES: Final = {
    "u16": "H", "i16": "I", "u32": "u", "i32": "i", "u64": "U", "i64": "J", "f16": "h", "f32": "f", "f64": "d",
}  # fmt: skip


def _unordered(a: Any, b: Any) -> Any:
    return np.isnan(a) | np.isnan(b)


CONDITIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "ne": np.not_equal,
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~_unordered(a, b),
    "u": _unordered,
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
}

_WORD: Final = {"f": (np.uint32, 23), "d": (np.uint64, 52), "h": (np.uint16, 10)}


def in_class(t: str, x: Any, mask: Any) -> Any:
    """Whether floats are of a class of the mask.

    Its bits: signalling NaN, quiet NaN, -infinity, -normal, -subnormal, -0, and the same upwards from +0.
    """
    word, mantissa = _WORD[t]
    x, mask = alike(x, mask)
    bits = x.view(word)
    quiet = (bits >> word(mantissa - 1)) & word(1) == 1
    negative, size = np.signbit(x), np.abs(x)
    nan, infinite, zero = np.isnan(x), np.isinf(x), x == 0
    subnormal = ~zero & (size < np.finfo(x.dtype).tiny)
    kind = chosen([(infinite, 0), (subnormal, 2), (zero, 3)], np.ones(x.shape, np.int64))
    number = np.where(nan, np.where(quiet, 1, 0), np.where(negative, 2 + kind, 9 - kind))
    return (mask.astype(np.uint32) >> number.astype(np.uint32)) & np.uint32(1) == 1

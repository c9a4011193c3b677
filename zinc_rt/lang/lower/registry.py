"""The registry of lowerings, and their common checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.ops import Word
from zinc_rt.lang.types import MAX_LANES, Bool, Float, Int, Ptr, Struct, Type, Vec, elem_of
from zinc_rt.lang.values import Val, describe

LOWERINGS: dict[Word, Callable[..., Any]] = {}


_Lower = TypeVar("_Lower", bound=Callable[..., Any])


def lowers(word: Word) -> Callable[[_Lower], _Lower]:
    """Decorator: register the function that emits `word`; it gets the compiler and the evaluated arguments in order."""

    def register(fn: _Lower) -> _Lower:
        LOWERINGS[word] = fn
        return fn

    return register


def want_val(x: Any, label: str) -> Val:
    """A run-time value. Raises `Reject`."""
    if not isinstance(x, Val):
        raise Reject(f"{label} must be a run-time value, got {describe(x)}")
    return x


def want_float(x: Any, label: str) -> Val:
    """A value of f32 or f64 lanes. Raises `Reject`."""
    v = want_val(x, label)
    elem = elem_of(v.type)
    if not isinstance(elem, Float) or elem.bits == 16:
        raise Reject(f"{label} must be of f32 or f64, got {v.type}; convert with f32(…)")
    return v


def want_int(x: Any, label: str) -> Val:
    """A value of integer lanes. Raises `Reject`."""
    v = want_val(x, label)
    if not isinstance(elem_of(v.type), Int):
        raise Reject(f"{label} must be of integers, got {v.type}")
    return v


def want_pointer(p: Any, label: str = "the address") -> tuple[Val, Ptr]:
    """A pointer to scalars or pointers, and its type. Raises `Reject`."""
    v = want_val(p, label)
    if not isinstance(v.type, Ptr) or isinstance(v.type.elem, Struct):
        raise Reject(f"{label} must be a pointer to numbers or pointers, got {v.type}")
    return v, v.type


def want_static(x: Any, kind: type, label: str) -> Any:
    """A compile-time value of a Python type. Raises `Reject`."""
    if not isinstance(x, kind) or (kind is int and isinstance(x, bool)):
        raise Reject(f"{label} must be a compile-time {kind.__name__}, got {describe(x)}")
    return x


def want_lanes(x: Any, label: str = "lanes") -> int:
    """A number of lanes. Raises `Reject`."""
    if not 1 <= want_static(x, int, label) <= MAX_LANES:
        raise Reject(f"{label} must be 1 to {MAX_LANES}, got {x}")
    return int(x)


def vector(elem: Type, lanes: int) -> Type:
    """The vector of `lanes` elements; one is the scalar. Raises `Reject` where there are too many."""
    if want_lanes(lanes) == 1:
        return elem
    assert isinstance(elem, Int | Float | Bool)
    return Vec(elem, lanes)


def want_type(x: Any, label: str) -> Type:
    """A type of the language. Raises `Reject`."""
    if not isinstance(x, Type):
        raise Reject(f"{label} must be a type of the language, got {describe(x)}")
    return x

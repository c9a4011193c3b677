"""Compile-time Python: values that kernels may use from outside, and operators and calls on them.

Values are plain Python: numbers, text, tuples, types, helpers. Whatever Python raises becomes a `Reject`.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import operator
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.kernel import Function
from zinc_rt.lang.ops import Word
from zinc_rt.lang.types import Type, ptr, vec
from zinc_rt.lang.values import describe

MAX_BITS = 4096
"""Most bits of a compile-time integer."""
MAX_ITEMS = 1 << 16
"""Most items of a compile-time sequence or unrolled loop."""

BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Pow: operator.pow,
}  # fmt: skip
_SMALL, _LARGE = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor), 1 << 1024  # no check needed for these
UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip

_ORDER = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)

PYTHON_CALLS: tuple[Any, ...] = (
    range, len, min, max, tuple, list, sum, abs, reversed, sorted, enumerate, zip, float, int, str, divmod, round, any,
    all,
)  # fmt: skip
_BY_NAME = {call.__name__: call for call in PYTHON_CALLS}
_TEXT = (str, int, float, tuple, range)
_DICT_METHODS = ("get", "keys", "values", "items")
_LAZY: tuple[Any, ...] = (
    reversed,
    enumerate,
    zip,
    type(dict[str, int]().keys()),
    type(dict[str, int]().values()),
    type(dict[str, int]().items()),
)


def guarded(action: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Run Python code; its exceptions become a `Reject`."""
    try:
        result = function(*arguments, **named)
        if isinstance(result, _LAZY):
            result = tuple(result)
    except Reject:
        raise
    except LangError as error:
        raise Reject(str(error)) from None
    except KeyError as error:
        raise Reject(f"there is no key {error}") from None
    except Exception as error:
        raise Reject(f"{action} failed at compile time: {error or type(error).__name__}") from None
    if isinstance(result, int) and result.bit_length() > MAX_BITS:
        raise Reject(f"{action} gives an integer of more than {MAX_BITS} bits at compile time")
    if isinstance(result, str | tuple | list | range) and _longer(result):
        raise Reject(f"{action} gives more than {MAX_ITEMS} items at compile time")
    return result


def _longer(items: Any) -> bool:
    """Whether there are more items than are allowed; some ranges have more than `len` can say."""
    try:
        return len(items) > MAX_ITEMS
    except OverflowError:
        return True


def binary(op: ast.operator, a: Any, b: Any) -> Any:
    """Evaluate `a op b` of compile-time values. Raises `Reject`."""
    function = BINARY.get(type(op))
    if function is None:
        raise Reject("the operator @ is not part of the kernel language")
    if type(a) is int and type(b) is int and isinstance(op, _SMALL) and -_LARGE < a < _LARGE and -_LARGE < b < _LARGE:
        return function(a, b)
    if isinstance(a, int) and isinstance(b, int):
        growth = b if isinstance(op, ast.LShift) else b * max(a.bit_length(), 1) if isinstance(op, ast.Pow) else 0
        if growth > MAX_BITS:
            raise Reject(f"compile-time arithmetic gives an integer of more than {MAX_BITS} bits")
    if isinstance(op, ast.Mod) and isinstance(a, str):
        _check_format(a)
    if isinstance(op, ast.Mult):
        for sequence, count in ((a, b), (b, a)):
            if (
                isinstance(sequence, str | tuple | list)
                and isinstance(count, int)
                and len(sequence) * count > MAX_ITEMS
            ):
                raise Reject(f"compile-time arithmetic gives more than {MAX_ITEMS} items")
    return guarded("arithmetic", function, a, b)


def truth(value: Any) -> bool:
    """The truth of a compile-time value in Python. Raises `Reject`."""
    return value if type(value) is bool else bool(guarded("a truth test", bool, value))


def item(base: Any, index: Any) -> Any:
    """Evaluate `base[index]` of compile-time values. Raises `Reject`."""
    if type(base) is tuple and type(index) is int and 0 <= index < len(base):  # as a rule: it cannot fail
        return base[index]
    return guarded("indexing", operator.getitem, base, index)


def compare(op: ast.cmpop, a: Any, b: Any) -> Any:
    """Evaluate a comparison of compile-time values. Raises `Reject`."""
    if type(a) is int and type(b) is int and isinstance(op, _ORDER):  # as a rule: it cannot fail
        return COMPARE[type(op)](a, b)
    return guarded("a comparison", COMPARE[type(op)], a, b)


def items(value: Any, clause: str) -> tuple[Any, ...]:
    """The items of an unrolled loop, in order. Raises `Reject`."""
    if isinstance(value, set | frozenset):
        raise Reject("a set has no order of its own; use sorted(…)")
    if not isinstance(value, tuple | list | range | str | dict):
        raise Reject(f"what {clause} must be a compile-time tuple or range, got {describe(value)}")
    if _longer(value):
        raise Reject(f"what {clause} has more than {MAX_ITEMS} items; loop with range at run time")
    return tuple(value)


def builtin(name: str) -> Any:
    """A Python function that kernels may call on compile-time values. Raises `Reject` for other names."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if hasattr(builtins, name):
        raise Reject(f"Python's {name} is not part of the kernel language")
    raise Reject("the name is not defined")


def is_record(kind: Any) -> bool:
    """Whether it is a class of named tuples: compile-time constants that belong together."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def checked(value: Any) -> Any:
    """Check a value from outside the kernel. Raises `Reject` unless kernels can use its kind."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple | list | set | frozenset):
        for item in value:
            checked(item)
        return value
    if isinstance(value, dict):
        for key, item in value.items():
            checked(key)
            checked(item)
        return value
    if any(value is v for v in (*PYTHON_CALLS, bool)):
        return value
    if isinstance(value, type) and (issubclass(value, enum.Enum) or is_record(value)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return value
    if isinstance(value, types.FunctionType):
        raise Reject("a plain Python function cannot be used in a kernel; mark it with @inline")
    what = f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
    raise Reject(
        f"{what} cannot be used in a kernel, which takes numbers, text, tuples, types, helpers and modules from outside"
    )


_PLAIN = (bool, int, float, str, range, enum.Enum, Type, Word, Function, types.ModuleType, type(vec), type(ptr))


def attribute(base: Any, name: str) -> Any:
    """Evaluate `base.name` of a compile-time value. Raises `Reject`."""
    missing = object()
    value = guarded(f"reading .{name}", getattr, base, name, missing)
    if value is missing:
        raise Reject(f"{describe(base)} has no attribute {name}")
    if callable(value) and not isinstance(value, Type | Word | Function | type):
        if _callable_here(value):
            return value
        raise Reject(f"{describe(base)}.{name} cannot be called in a kernel; helpers need @inline")
    return checked(value)


def _callable_here(function: Any) -> bool:
    """Whether a function of Python's own works on compile-time values without side effects."""
    if any(function is call for call in PYTHON_CALLS):
        return True
    if not isinstance(function, types.BuiltinFunctionType):
        return False
    owner = function.__self__
    if getattr(owner, "__name__", "") == "math":
        return function.__name__ not in ("factorial", "comb", "perm")  # these may never end
    if owner in (int, float):
        return True
    return isinstance(owner, _TEXT) or (isinstance(owner, dict) and function.__name__ in _DICT_METHODS)


def call(function: Any, positional: list[Any], named: dict[str, Any]) -> Any:
    """Call a Python function on compile-time values. Raises `Reject`."""
    if not _callable_here(function):
        name = getattr(function, "__name__", None) or describe(function)
        raise Reject(f"{name} cannot be called in a kernel; helpers need @inline")
    if any(isinstance(x, int) and abs(x) > MAX_ITEMS for x in positional) and isinstance(_owner(function), str):
        raise Reject(f"{function.__name__}(…) gives more than {MAX_ITEMS} items at compile time")
    return guarded(f"{function.__name__}(…)", function, *positional, **named)


def _owner(function: Any) -> Any:
    return getattr(function, "__self__", None)


def formatted(value: Any, layout: str) -> str:
    """A value as text in a format. Raises `Reject`."""
    _check_format(layout)
    return str(guarded("formatting", format, value, layout))


def _check_format(layout: str) -> None:
    if any(int(digits[:9]) > 1000 for digits in re.findall(r"\d+", layout)):
        raise Reject(f"the format {layout!r:.40} is too wide")

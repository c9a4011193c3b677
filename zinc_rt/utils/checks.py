"""Checks of values that callers give, as whole numbers, functions and paths, and these values as messages show them.

Python takes True for 1 and b"abc" for three whole numbers; here neither is a number. NumPy's numbers are numbers.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Set
from typing import Final

from zinc_rt.errors import UsageError

_MAX_SHOWN: Final = 80  # characters of a value that a message repeats


def printable(text: str) -> str:
    """`text` with control characters and lone surrogates escaped, so that a message stays one line."""
    return text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode("ascii")


def show(value: object) -> str:
    """`value` quoted for a message: one line, at most 80 characters of it."""
    if isinstance(value, (str, bytes, list, tuple)):
        value = value[: _MAX_SHOWN + 1]
    try:
        text = printable(value if isinstance(value, str) else " ".join(repr(value).split())[: _MAX_SHOWN + 1])
    except ValueError:  # Python refuses to spell out integers of more than 4300 digits
        text = f"a huge {type(value).__name__}"
    text = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
    return f"'{text}'" if isinstance(value, str) else text


def whole(value: object) -> int | None:
    """A whole number as an int; None for anything else, as True, 1.0 and "1" are."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def real(value: object) -> float | None:
    """A real number as a float; None for anything else, as True, "1" and an array are."""
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return None
    if getattr(value, "shape", ()) != () or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


def whole_between(name: str, value: object, minimum: int, maximum: int) -> int:
    """`value` as an int from least to most. Raises `UsageError`, naming it."""
    number = whole(value)
    if number is None or not minimum <= number <= maximum:
        raise UsageError(f"{name} is {show(value)}, it must be a whole number between {minimum} and {maximum}")
    return number


def whole_numbers(name: str, values: object) -> list[int]:
    """The items of a list, array or other sequence as ints. Raises `UsageError`, naming it, also for text and bytes."""
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping, Set)) or not isinstance(values, Iterable):
        raise UsageError(f"{name} are {show(values)}, they must be a sequence of whole numbers")
    numbers: list[int] = []
    for at, value in enumerate(values):
        number = whole(value)
        if number is None:
            raise UsageError(f"{name} must be whole numbers, number {at + 1} of them is {show(value)}")
        numbers.append(number)
    return numbers


def true_or_false(name: str, value: object) -> bool:
    """`value`, which is True or False. Raises `UsageError`, naming it."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {show(value)}, it must be True or False")
    return value


def function_or_none(name: str, value: object) -> None:
    """Nothing where `value` can be called or is None. Raises `UsageError`, naming it."""
    if value is not None and not callable(value):
        raise UsageError(f"{name} is {show(value)}, it must be a function or None")


def path_text(name: str, value: object) -> str:
    """A path as text. Raises `UsageError`, naming it, for an empty one and for what is no path."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise UsageError(f"{name} is {show(value)}, it must be a path")
    text = os.fsdecode(value)
    if not text:
        raise UsageError(f"{name} is empty, it must be a path")
    return text

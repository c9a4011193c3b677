"""How long a chat template may run and how much it may make.

A rendering counts its loop rounds, calls, operators and filters, and the size of what they make; the count
does not depend on the machine. The length of a result is worked out from the arguments before it is made
where a short expression can make a long text. Not counted is the inside of a filter, which works on values of
bounded size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

MAX_SOURCE = 1 << 20  # characters of a template
MAX_TEXT = 1 << 24  # characters of any one text and of the whole output; an item of a list counts as 8
# Loop rounds, calls, operators and filters of one rendering. 1024 characters made, or 16 items given to a
# filter, count as one more.
MAX_STEPS = 5_000_000
_MAX_POWER_BITS = 1 << 12
_LARGE_WIDTH = re.compile(r"\d{5,}|\*")  # in a format: a width that makes text much longer than its arguments

_steps: ContextVar[list[int] | None] = ContextVar("zinc_rt_template_steps", default=None)


class Limit(Exception):
    """A template went over one of the limits of this module."""


@contextmanager
def counting() -> Generator[None]:
    """Count from zero in this block; outside of one (when constants are folded) only sizes are checked."""
    token = _steps.set([0])
    try:
        yield
    finally:
        _steps.reset(token)


def size_of(value: object) -> int:
    """Characters of a text; about as many for a list of the same size in memory."""
    return len(value) if isinstance(value, str) else 8 * len(value) if isinstance(value, (list, tuple)) else 0


def check_size(size: int) -> None:
    """Raise Limit for a text of more than MAX_TEXT characters."""
    if size > MAX_TEXT:
        raise Limit(f"it makes a text of {size} characters, or a list as large; the limit is {MAX_TEXT}")


def count(number: int = 1) -> None:
    """Count steps. Raises Limit."""
    steps = _steps.get()
    if steps is not None:
        steps[0] += number
        if steps[0] > MAX_STEPS:
            raise Limit(f"it runs for more than {MAX_STEPS} steps")


def counted(value: Any) -> Any:
    """Count one step and the size of what it made, and pass that on. Raises Limit."""
    size = size_of(value)
    check_size(size)
    count(1 + (size >> 10))
    return value


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Raise Limit when the result of `*`, `+`, `**` or `%` would be too large."""
    if operator == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(times, int):
                check_size(size_of(sequence) * max(times, 0))
    elif operator == "+":
        check_size(size_of(left) + size_of(right))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        if left.bit_length() * abs(right) > _MAX_POWER_BITS:
            raise Limit(f"it computes a power of more than {_MAX_POWER_BITS} bits")
    elif operator == "%" and isinstance(left, str):
        _formatted(left)


def check_method(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise Limit when calling a method of `str` would make too long a text. Other callables pass."""
    method = getattr(function, "__wrapped__", function)  # Jinja2's sandbox wraps str.format
    owner = getattr(method, "__self__", None)
    if isinstance(owner, str):
        size = _METHOD_SIZES.get(getattr(method, "__name__", ""))
        if size is not None:
            _check_call(size, (owner, *args), kwargs)


def counted_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A Jinja2 filter that counts what it is given and has its result checked. `wraps` keeps the mark by
    which Jinja2 knows that a filter takes an environment or a context first.
    """
    skip = 1 if hasattr(function, "jinja_pass_arg") else 0
    size = _FILTER_SIZES.get(name)

    @wraps(function)
    def filter_(*args: Any, **kwargs: Any) -> Any:
        if len(args) > skip and isinstance(args[skip], Sized):
            count(len(args[skip]) >> 4)
        if size is not None:
            _check_call(size, args[skip:], kwargs)
        return counted(function(*args, **kwargs))

    return filter_


def _check_call(size: Callable[..., int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        expected = size(*args, **kwargs)
    except (TypeError, AttributeError):
        return  # wrong arguments: the call itself says so
    check_size(expected)


def _formatted(text: str, *_: Any, **__: Any) -> int:
    if _LARGE_WIDTH.search(text):
        raise Limit("it formats text with a width of five or more digits, or one taken from a value")
    return 0


def _padded(text: str, width: int = 80, *_: Any, **__: Any) -> int:
    return max(len(text), width)


def _indentation(width: int | str | None) -> int:
    return len(width) if isinstance(width, str) else max(width or 0, 0)


def _indented(text: str, width: int | str = 4, *_: Any, **__: Any) -> int:
    return len(text) + (text.count("\n") + 1) * _indentation(width)


def _replaced(text: str, old: str, new: str, *_: Any, **__: Any) -> int:
    return len(text) + text.count(old) * len(new)


def _joined(parts: Any, separator: str = "", *_: Any, **__: Any) -> int:
    return sum(map(size_of, parts)) + len(separator) * len(parts) if isinstance(parts, (list, tuple)) else 0


# An upper bound of a result's length from the arguments; the filters name theirs as Jinja2 does.
_METHOD_SIZES: dict[str, Callable[..., int]] = {
    "center": _padded,
    "expandtabs": lambda text, tabsize=8: len(text) + text.count("\t") * max(tabsize, 0),
    "format": _formatted,
    "format_map": _formatted,
    "join": lambda separator, parts: _joined(parts, separator),
    "ljust": _padded,
    "replace": _replaced,
    "rjust": _padded,
    "zfill": _padded,
}
_FILTER_SIZES: dict[str, Callable[..., int]] = {
    "batch": lambda items, linecount, fill_with=None: 8 * linecount,
    "center": _padded,
    "format": _formatted,
    "indent": _indented,
    "join": lambda parts, d="", attribute=None: _joined(parts, d),
    "replace": lambda s, old, new, count=None: _replaced(s, old, new),
    "slice": lambda items, slices, fill_with=None: 8 * slices,
    "tojson": lambda value, ensure_ascii=False, indent=None, *_: _indentation(indent) << 10,
}

"""Signatures: the parameters of built-in functions and helpers, and the check of calls against them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.lang.diagnostics import Reject

_MISSING: Any = object()


@dataclass(frozen=True)
class Signature:
    """Parameters in order: those taken by position or name, then those by name alone, then the rest (`*rest`)."""

    name: str
    positional: tuple[str, ...]
    by_name: tuple[str, ...]
    rest: str | None
    defaults: Mapping[str, Any]

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Signature:
        """The signature of a Python function, without its annotations. Raises `Reject` for `**names`."""
        code = fn.__code__
        by_position, by_name = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames
        rest = names[by_name] if code.co_flags & inspect.CO_VARARGS else None
        if code.co_flags & inspect.CO_VARKEYWORDS:
            name = names[by_name + (rest is not None)]
            raise Reject(f"{fn.__name__} has a parameter **{name}, which is not part of the language")
        given = fn.__defaults__ or ()
        defaults = dict(zip(names[by_position - len(given) : by_position], given, strict=True))
        defaults |= fn.__kwdefaults__ or {}
        return cls(fn.__name__, names[:by_position], names[by_position:by_name], rest, defaults)

    def __str__(self) -> str:
        def one(name: str) -> str:
            return f"{name}={self.defaults[name]!r}" if name in self.defaults else name

        star = [f"*{self.rest}"] if self.rest else ["*"] if self.by_name else []
        return f"{self.name}({', '.join([*map(one, self.positional), *star, *map(one, self.by_name)])})"

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """A value for every parameter, in order; the rest, if there is one, is spread at the end. Raises `Reject`."""
        given = len(positional)
        if given == len(self.positional) and not named and not self.by_name and not self.rest:
            return list(positional)
        if given > len(self.positional) and self.rest is None:
            limit = f"{len(self.positional)} argument{'s' if len(self.positional) != 1 else ''}"
            raise Reject(f"{self.name} takes {limit} by position, got {given}: {self}")
        out = list(positional[: len(self.positional)])
        left = dict(named)
        for name in (*self.positional[given:], *self.by_name):
            value = left.pop(name, _MISSING)
            if value is _MISSING:
                value = self.defaults.get(name, _MISSING)
            if value is _MISSING:
                raise Reject(f"{self.name} needs the argument {name}: {self}")
            out.append(value)
        for name in left:
            twice = name in self.positional
            raise Reject(f"{self.name} {'got two values for' if twice else 'has no argument'} {name}: {self}")
        return [*out, *positional[len(self.positional) :]]

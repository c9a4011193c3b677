"""Which argument is which: parameters of words and helpers, and calls checked against them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
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
    def of(cls, name: str, signature: inspect.Signature) -> Signature:
        """That of a Python function. Raises `Reject` for `**names`."""
        groups: dict[Any, list[str]] = {}
        for p in signature.parameters.values():
            groups.setdefault(p.kind, []).append(p.name)
        kind = inspect.Parameter
        if kind.VAR_KEYWORD in groups:
            raise Reject(f"{name} has a parameter **{groups[kind.VAR_KEYWORD][0]}, which is not part of the language")
        positional = (*groups.get(kind.POSITIONAL_ONLY, ()), *groups.get(kind.POSITIONAL_OR_KEYWORD, ()))
        rest = groups.get(kind.VAR_POSITIONAL, [None])[0]
        defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}
        return cls(name, positional, tuple(groups.get(kind.KEYWORD_ONLY, ())), rest, defaults)

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

"""Symbolic sizes, and the matching of buffer shapes against shape patterns.

A pattern is a tuple of dimensions: an int must be met exactly, a str is a variable that the first dimension
seen binds and every later one must equal. Variables are local to one node, so `n` of one node has nothing to
do with `n` of another; sizes that are shared by a whole graph meet through its buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zinc_rt.ir.graph import Dim


@dataclass(frozen=True, slots=True)
class Size:
    """A product of one int and any symbols (sorted): `[n_rows, 4, 16]` has the size 64 * n_rows."""

    factor: int
    symbols: tuple[str, ...] = ()

    def __mul__(self, other: Size) -> Size:
        return Size(self.factor * other.factor, tuple(sorted(self.symbols + other.symbols)))

    def __str__(self) -> str:
        parts = [*self.symbols] if self.factor == 1 and self.symbols else [str(self.factor), *self.symbols]
        return "*".join(parts)


def size_of(dims: Iterable[Dim]) -> Size:
    """The product of `dims`."""
    total = Size(1)
    for dim in dims:
        total *= _one(dim)
    return total


def _one(dim: Dim) -> Size:
    return Size(1, (dim,)) if isinstance(dim, str) else Size(dim)


class Bindings:
    """The values of the variables in one node's patterns, with the ports that bound them."""

    def __init__(self) -> None:
        self._sizes: dict[str, Size] = {}
        self._sources: dict[str, str] = {}

    def bind(self, variable: str, size: Size, source: str) -> bool:
        """Bind `variable`, or compare with what it is bound to. False when they differ."""
        if variable not in self._sizes:
            self._sizes[variable] = size
            self._sources[variable] = source
        return self._sizes[variable] == size

    def value(self, variable: str) -> int | None:
        """The plain int that `variable` stands for; None while unbound or symbolic."""
        size = self._sizes.get(variable)
        return size.factor if size is not None and not size.symbols else None

    def match(self, shape: Sequence[Dim], pattern: Sequence[Dim], source: str, *, view: bool) -> bool:
        """Whether `shape` fits `pattern`; binds the free variables it meets, unless it does not fit.

        With `view`, dimensions after the first may be split or joined if they multiply to the same size:
        `[n_rows, 64]` fits the pattern (R, 4, 16) and the other way round.
        """
        before = len(self._sizes)
        fits = self._match_row(shape, pattern, source) if view else self._match_dims(shape, pattern, source)
        while not fits and len(self._sizes) > before:
            variable, _ = self._sizes.popitem()
            del self._sources[variable]
        return fits

    def expected(self, pattern: Sequence[Dim]) -> str:
        """`pattern` with bound variables replaced: `[n_rows, n_out]`."""
        return "[" + ", ".join(str(self._sizes.get(str(want), want)) for want in pattern) + "]"

    def reasons(self, pattern: Sequence[Dim], source: str) -> str:
        """Where the bound variables of `pattern` come from: `n_in is 64 by input x 'h'`."""
        parts = [
            f"{want} is {self._sizes[want]} by {self._sources[want]}"
            for want in dict.fromkeys(pattern)
            if isinstance(want, str) and self._sources.get(want, source) != source
        ]
        return "; ".join(parts)

    def _match_row(self, shape: Sequence[Dim], pattern: Sequence[Dim], source: str) -> bool:
        if len(shape) == len(pattern):
            return self._match_dims(shape, pattern, source)
        if len(shape) < 2 or not self._match_dims(shape[:1], pattern[:1], source):
            return False
        row = size_of(shape[1:])
        if len(pattern) == 2 and isinstance(pattern[1], str):
            return self.bind(pattern[1], row, source)
        wanted = self._product(pattern[1:])
        # A pattern with free variables here means an attribute is missing, which is reported as that.
        return wanted is None or wanted == row

    def _match_dims(self, shape: Sequence[Dim], pattern: Sequence[Dim], source: str) -> bool:
        return len(shape) == len(pattern) and all(
            self.bind(want, _one(dim), source) if isinstance(want, str) else dim == want
            for dim, want in zip(shape, pattern, strict=True)
        )

    def _product(self, pattern: Sequence[Dim]) -> Size | None:
        total = Size(1)
        for want in pattern:
            size = self._sizes.get(want) if isinstance(want, str) else Size(want)
            if size is None:
                return None
            total *= size
        return total

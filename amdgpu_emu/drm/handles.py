"""Handle numbers of kernel objects: always the lowest free one, as with the kernel's idr."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Handles(Generic[T]):
    """A table of objects by number. first: the lowest number; last: the highest, None for no limit."""

    def __init__(self, first: int = 1, last: int | None = None) -> None:
        self._next, self._last = first, last
        self._free: list[int] = []
        self._objects: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._objects))

    def add(self, thing: T) -> int | None:
        """Add an object; returns its number, or None if all are taken."""
        if self._free:
            number = heapq.heappop(self._free)
        elif self._last is not None and self._next > self._last:
            return None
        else:
            number = self._next
            self._next += 1
        self._objects[number] = thing
        return number

    def get(self, number: int) -> T | None:
        """The object of a number, or None."""
        return self._objects.get(number)

    def remove(self, number: int) -> T | None:
        """Free a number; returns its object."""
        thing = self._objects.pop(number, None)
        if thing is not None:
            heapq.heappush(self._free, number)
        return thing

    def values(self) -> list[T]:
        """All objects that have a number."""
        return list(self._objects.values())

    def number_of(self, thing: T) -> int | None:
        """The number of an object."""
        return next((number for number, held in self._objects.items() if held is thing), None)

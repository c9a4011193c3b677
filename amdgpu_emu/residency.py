"""Where the lines lie that a dispatch reads: what it, its workgroups or earlier dispatches touched before.

Workgroups that run at once ask at once: a line that several of them ask for in one instruction is where it was before
it. Caches keep what was touched last; what was touched since is counted in bytes of distinct lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from amdgpu_emu.core.counters import LINE
from amdgpu_emu.core.state import Array

OWN, L2, INFINITY, MEMORY = range(4)
LEVELS: Final = ("vector cache", "L2", "Infinity Cache", "memory")
_BITS = 13  # lines of a map: 1 MiB
_LINES = 1 << _BITS
_NEVER = -(1 << 62)


class _Map:
    """1 MiB of addresses in a dispatch. level: where each line lies; fresh: not touched by the dispatch yet; seen: by
    workgroup of the batch.
    """

    __slots__ = ("fresh", "level", "seen")

    def __init__(self, level: Array) -> None:
        self.level, self.fresh = level, np.ones(_LINES, np.bool_)
        self.seen: Array | None = None


class Residency:
    """l2, infinity: bytes of the caches, 0 for none.

    sources: of the dispatch, distinct lines read by the level that they came from; asked: lines that its workgroups
    read first, once for each workgroup. held: ranges of addresses whose level is known otherwise.
    """

    def __init__(self, l2: int, infinity: int) -> None:
        self._l2, self._infinity = l2, infinity
        self._last: dict[int, Array] = {}
        self._maps: dict[int, _Map] = {}
        self._clock = self._dropped = 0
        self._first, self._count, self._waves = 0, 1, 1
        self.held: list[tuple[int, int, int]] = []
        self.sources = np.zeros(4, np.int64)
        self.asked = 0

    def begin(self, *, dropped: bool = False) -> None:
        """Start a dispatch. dropped: the L2 was invalidated since the last one."""
        self._maps.clear()
        self.sources, self.asked = np.zeros(4, np.int64), 0
        if dropped:
            self._dropped = self._clock

    def batch(self, first: int, count: int, waves: int) -> None:
        """Name the workgroups that run at once, `waves` waves each."""
        self._first, self._count, self._waves = first, count, waves
        for each in self._maps.values():
            each.seen = None

    def end(self) -> None:
        """End the dispatch: what it touched is the newest there is."""
        touched = {number: ~each.fresh for number, each in self._maps.items()}
        self._clock += LINE * sum(int(np.count_nonzero(which)) for which in touched.values())
        for number, which in touched.items():
            self._last.setdefault(number, np.full(_LINES, _NEVER, np.int64))[which] = self._clock

    def read(self, addresses: Array, waves: Array, n: int) -> Array:
        """Read `n` bytes at each address. waves: their numbers, ascending. The share of these waves whose furthest line
        lies in a level or beyond it, f64[4].
        """
        lines, waves = _lines(addresses, waves, n)
        furthest = np.zeros(len(lines), np.uint8)
        group = waves // self._waves - self._first
        for number, which in _parts(lines):
            each, at, owner = self._map(number), (lines[which] & (_LINES - 1)).astype(np.intp), group[which]
            if each.seen is None:
                each.seen = np.zeros((self._count, _LINES), np.bool_)
            new = ~each.seen[owner, at]
            furthest[which] = np.where(new, each.level[at], OWN)
            if new.any():
                self.asked += len(np.unique(owner[new] * _LINES + at[new]))
                each.seen[owner, at] = True
                first = np.unique(at[each.fresh[at]])
                self.sources += np.bincount(each.level[first], minlength=4)
                self._touch(each, first)
        starts = np.flatnonzero(np.concatenate([[True], waves[1:] != waves[:-1]]))
        deepest = np.maximum.reduceat(furthest, starts)
        share: Array = (deepest[:, None] >= np.arange(4)).mean(axis=0)
        return share

    def write(self, addresses: Array, n: int) -> None:
        """Write `n` bytes at each address, into the L2."""
        lines, _ = _lines(addresses, np.zeros(len(addresses), np.int64), n)
        for number, which in _parts(lines):
            self._touch(self._map(number), (lines[which] & (_LINES - 1)).astype(np.intp))

    @staticmethod
    def _touch(each: _Map, at: Array) -> None:
        each.fresh[at] = False
        each.level[at] = L2

    def _map(self, number: int) -> _Map:
        found = self._maps.get(number)
        if found is None:
            level = np.full(_LINES, MEMORY, np.uint8)
            last = self._last.get(number)
            if last is not None:
                age = self._clock - last
                level[age < self._infinity] = INFINITY
                level[(age < self._l2) & (last > self._dropped)] = L2
            start = number << _BITS
            for first, behind, where in self.held:
                low, high = first // LINE - start, -(-behind // LINE) - start
                if low < _LINES and high > 0:
                    level[max(low, 0) : min(high, _LINES)] = where
            found = self._maps[number] = _Map(level)
        return found


def _lines(addresses: Array, waves: Array, n: int) -> tuple[Array, Array]:
    """Lines and the waves that touch them, without repetitions of neighbours."""
    start = addresses.astype(np.int64)
    first, last = start // LINE, (start + n - 1) // LINE
    if (first != last).any():
        first = np.stack([first, last], axis=1).reshape(-1)
        waves = np.repeat(waves, 2)
    keep = np.ones(len(first), np.bool_)
    keep[1:] = (first[1:] != first[:-1]) | (waves[1:] != waves[:-1])
    return first[keep], waves[keep]


def _parts(lines: Array) -> Iterator[tuple[int, Any]]:
    """The lines of each map."""
    numbers = lines >> _BITS
    if len(numbers) and (numbers == numbers[0]).all():
        yield int(numbers[0]), slice(None)
        return
    for number in np.unique(numbers).tolist():
        yield number, numbers == number

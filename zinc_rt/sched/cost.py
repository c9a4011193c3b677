"""What rows of a step cost in milliseconds, learned from the steps that were run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.sched.request import BatchKind

_RATE = 0.5  # of an error that a step corrects
_LEAST = 1e-6  # milliseconds: no row is free
_STALL = 4.0
"""A step that takes so many times as long as expected was held up by something else: no more of it is believed."""
_MOST = 2.0  # times as much, or as little, that a term may become in a step
_DEPTH = 512  # positions that the first class of depth has; each further one has twice as many


@dataclass(frozen=True, slots=True)
class CostPart:
    """Rows of one sequence in a step. depth: position of the last of them."""

    kind: BatchKind
    rows: int
    depth: int


class CostModel:
    """A step's milliseconds as a sum: of the step itself, and of each row by its kind and depth.

    Each step that was measured moves the terms that it is made of, towards what was measured, by normalised least mean
    squares.
    """

    def __init__(self, step_ms: float = 1.0, row_ms: float = 1.0) -> None:
        self._step, self._first = step_ms, row_ms
        self._rows: dict[tuple[BatchKind, int], float] = {}
        self._learned = False

    @property
    def learned(self) -> bool:
        """Whether any step was measured."""
        return self._learned

    def row_ms(self, kind: BatchKind, depth: int) -> float:
        """Milliseconds of one more row."""
        wanted = (depth // _DEPTH).bit_length()
        known = {level: ms for (of, level), ms in self._rows.items() if of is kind}
        if wanted in known:
            return known[wanted]
        if not known:
            known = {level: ms for (_, level), ms in self._rows.items()}
        return known[min(known, key=lambda level: (abs(level - wanted), level))] if known else self._first

    def step_ms(self, parts: Sequence[CostPart]) -> float:
        """Milliseconds that a step of these parts is expected to take."""
        return self._step + sum(self.row_ms(part.kind, part.depth) * part.rows for part in parts)

    def shares(self, parts: Sequence[CostPart]) -> list[float]:
        """Which part of a step's time belongs to each of its parts; they sum to 1. The step itself is split by rows."""
        if len(parts) == 1:
            return [1.0]
        a_row = self._step / sum(part.rows for part in parts)
        costs = [(self.row_ms(part.kind, part.depth) + a_row) * part.rows for part in parts]
        total = sum(costs)
        return [cost / total for cost in costs]

    def learn(self, parts: Sequence[CostPart], ms: float) -> None:
        """A step of these parts took `ms` milliseconds."""
        rows: dict[tuple[BatchKind, int], int] = {}
        for part in parts:
            key = (part.kind, (part.depth // _DEPTH).bit_length())
            if key not in rows:
                rows[key] = 0
                self._rows.setdefault(key, self.row_ms(part.kind, part.depth))
            rows[key] += part.rows
        expected = self._step + sum(self._rows[key] * n for key, n in rows.items())
        if not self._learned:  # nothing was known but a guess, which may be far off
            self._learned = True
            scale = ms / expected
            self._step = max(self._step * scale, _LEAST)
            for key in rows:
                self._rows[key] = max(self._rows[key] * scale, _LEAST)
            return
        error = _RATE * (min(ms, _STALL * expected) - expected) / (1 + sum(n * n for n in rows.values()))
        self._step = _moved(self._step, error)
        for key, n in rows.items():
            self._rows[key] = _moved(self._rows[key], error * n)


def _moved(term: float, by: float) -> float:
    return max(min(max(term + by, term / _MOST), term * _MOST), _LEAST)

"""How late a thread may be when a phase opens, computed from the reads and writes of operations.

A phase must not write memory that a late thread still reads or writes. Only units of repeatable operations can be late,
and their memory is taken to be shared with nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Protocol

from zinc_rt.backends.stages import Ordered

NEVER: Final = 1 << 30
"""Phases, where no late thread is in the way."""


class Repeatable(Ordered, Protocol):
    """again: whether two threads may do the same units."""

    again: bool


def safe_distances(operations: Sequence[Repeatable]) -> list[int]:
    """For each phase, how many phases back a thread may still be when the phase opens. Example: 3 where the phase
    writes memory that the fourth phase before it touched.
    """
    last: dict[Hashable, int] = {}
    out: list[int] = []
    for op in operations:
        if op.phase == len(out):
            out.append(NEVER)
        for key in op.writes:
            if key in last and last[key] < op.phase:
                out[op.phase] = min(out[op.phase], op.phase - last[key] - 1)
        if op.again:
            last |= dict.fromkeys((*op.reads, *op.writes), op.phase)
    return out


def first_writers(operations: Sequence[Repeatable]) -> list[int]:
    """For each phase of repeatable operations, the first phase of a step that writes memory which it touches."""
    first: dict[Hashable, int] = {}
    for op in operations:
        for key in op.writes:
            first.setdefault(key, op.phase)
    out = [NEVER] * (max((op.phase for op in operations), default=-1) + 1)
    for op in (op for op in operations if op.again):
        out[op.phase] = min(out[op.phase], *(first.get(key, op.phase) for key in (*op.reads, *op.writes)))
    return out

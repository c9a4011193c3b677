"""Operations in order become phases: what one phase holds may run at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol


class Ordered(Protocol):
    """reads, writes: names of what it touches; phase: the number that `into_phases` gives it."""

    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]
    phase: int


def into_phases(operations: Sequence[Ordered]) -> int:
    """Give each operation its phase: it joins the current one unless it depends on an operation in it."""
    phase, reads, writes = 0, set[Hashable](), set[Hashable]()
    for op in operations:
        if (set(op.reads) & writes) or (set(op.writes) & (reads | writes)):
            phase, reads, writes = phase + 1, set(), set()
        op.phase = phase
        reads |= set(op.reads)
        writes |= set(op.writes)
    return phase + 1 if operations else 0

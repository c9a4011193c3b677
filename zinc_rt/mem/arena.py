"""Placement of step temporaries: buffers whose lifetimes do not overlap share memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
REACH = 64
"""Bytes behind a temporary that kernels may touch: whole vectors reach over."""


@dataclass(frozen=True)
class Lifetime:
    """A temporary of `size` bytes, alive from node `first` (which writes it) through node `last`, inclusive."""

    key: int
    size: int
    first: int
    last: int


def align_up(value: int, alignment: int = ALIGNMENT) -> int:
    """The next multiple of `alignment`."""
    return -(-value // alignment) * alignment


def place(lifetimes: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
    """Place temporaries in an arena; returns offsets by key and the arena's total bytes.

    Greedy by size (largest first, then by birth): each buffer takes the lowest aligned gap that is free during its
    whole life. Two buffers alive at one node never overlap, so a node's inputs and outputs are disjoint.
    """
    offsets: dict[int, int] = {}
    placed: dict[int, list[tuple[int, int]]] = {}  # by node: where the buffers alive there begin and end
    total = 0
    for item in sorted(lifetimes, key=lambda t: (-t.size, t.first, t.key)):
        life = range(item.first, item.last + 1)
        at = 0
        for start, end in sorted({stretch for node in life for stretch in placed.get(node, ())}):
            if at + item.size <= start:
                break
            at = max(at, end)
        offsets[item.key] = at
        for node in life:
            placed.setdefault(node, []).append((at, at + align_up(item.size)))
        total = max(total, at + align_up(item.size))
    return offsets, total

"""Where sequences can go on: the state that recurrent layers hold now, and copies of what they held earlier.

Keys and values of a sequence can be cut at any position. The state of a recurrent layer is that of one position: what
came before cannot be had from it. So going back takes a copy that was made there, or starts at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zinc_rt.backends.base import Backend, LoweredGraph, SequenceState

SNAPSHOTS: Final = 3
"""Copies kept of a sequence: a conversation goes back into the last prompt, to the end of the turn before it, or into
that turn's prompt.
"""


def copies(n_slots: int) -> int:
    """Copies kept of all sequences together."""
    return n_slots + SNAPSHOTS - 1


class Snapshots:
    """The positions of all sequences' states on a backend, by slot, and copies of some. The oldest copy goes first."""

    def __init__(self, backend: Backend, lowered: LoweredGraph, limit: int) -> None:
        """limit: copies of all sequences together, see `copies`; with 0 none is ever made."""
        self._backend, self._lowered, self._limit = backend, lowered, limit
        self._at: dict[int, int | None] = {}  # positions that the state has seen; None where a step broke off
        self._kept: dict[tuple[int, int], SequenceState] = {}  # by slot and position, the oldest first

    def position(self, slot: int) -> int | None:
        """How many positions the state has seen, at which rows may go on; None where a step did not come to its end."""
        return self._at.get(slot, 0)

    def _positions(self, slot: int) -> list[int]:
        """Where there are copies of a sequence, the oldest first."""
        return [at for of, at in self._kept if of == slot]

    def resumable(self, slot: int, n: int) -> int:
        """The greatest number of positions, at most n, after which the sequence can go on."""
        known = [self.position(slot) or 0, *self._positions(slot)]
        return max((p for p in known if p <= n), default=0)

    def keep(self, slot: int) -> None:
        """Copy the state, unless there is a copy of this position or the limit is 0."""
        at, there = self.position(slot), self._positions(slot)
        if not at or at in there or not self._limit:
            return
        if len(there) >= SNAPSHOTS:
            self._drop(slot, there[0])
        elif len(self._kept) >= self._limit:
            self._drop(*next(iter(self._kept)))
        self._kept[slot, at] = self._backend.save_state(self._lowered, slot)

    def _drop(self, slot: int, at: int) -> None:
        self._kept.pop((slot, at)).close()

    def go_back(self, slot: int, n: int) -> int:
        """Put back the last state of at most n positions; returns of how many. Copies of later ones are dropped."""
        n = self.resumable(slot, n)
        for later in [p for p in self._positions(slot) if p > n]:
            self._drop(slot, later)
        if n and n != self.position(slot):
            self._at[slot] = None  # until all of it is there
            self._backend.load_state(self._lowered, slot, self._kept[slot, n])
        self._at[slot] = n
        return n

    def begin(self, starts: Mapping[int, int]) -> None:
        """A step begins, with the first position of each of its sequences: their states are not known until its end."""
        for slot, start in starts.items():
            if start == 0:
                self.forget(slot)
            self._at[slot] = None

    def end(self, ends: Mapping[int, int]) -> None:
        """The step is over; the positions that its sequences have seen."""
        self._at.update(ends)

    def forget(self, slot: int) -> None:
        """The sequence begins anew, or is closed."""
        self._at.pop(slot, None)
        for at in self._positions(slot):
            self._drop(slot, at)

    def close(self) -> None:
        """Give all copies back."""
        for slot, at in list(self._kept):
            self._drop(slot, at)

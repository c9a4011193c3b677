"""Where sequences can go on: the state that recurrent layers hold now, and copies of what they held earlier.

Keys and values of a sequence can be cut at any position. The state of a recurrent layer is that of one position: what
came before cannot be had from it. So going back takes a copy that was made there, or starts at 0.

A copy that was made where a known page of the KV cache ends belongs to that page: every sequence that begins with the
page's text can load it. Another copy belongs to its sequence.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend, LoweredGraph, SequenceState

SNAPSHOTS: Final = 3
"""Copies kept of a sequence beside those of pages: a conversation goes back into the last prompt, to the end of the
turn before it, or into that turn's prompt.
"""

_Owner = tuple[int, int] | int  # a slot and its position, or a page


def copies(n_slots: int) -> int:
    """Copies kept of all sequences together, where nobody says how much memory they may take."""
    return n_slots + SNAPSHOTS - 1


class Snapshots:
    """The positions of all sequences' states on a backend, by slot, and at most `limit` copies.

    The copy that was not used for longest goes first. limit: see `copies`; with 0 none is ever made.
    """

    def __init__(self, backend: Backend, lowered: LoweredGraph, limit: int) -> None:
        self._backend, self._lowered, self.limit = backend, lowered, limit
        self._at: dict[int, int | None] = {}  # positions that the state has seen; None where a step broke off
        self._kept: OrderedDict[_Owner, SequenceState] = OrderedDict()  # the one unused for longest first
        self._before: dict[int, tuple[int, SequenceState]] = {}  # of slots: before the last step that had guesses

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def n_bytes(self) -> int:
        """Bytes of all copies."""
        return sum(state.n_bytes for state in self._kept.values())

    def position(self, slot: int) -> int | None:
        """How many positions the state has seen, at which rows may go on; None where a step did not come to its end."""
        return self._at.get(slot, 0)

    def positions(self, slot: int) -> list[int]:
        """Where there are copies of a sequence itself, the one unused for longest first."""
        return [owner[1] for owner in self._kept if isinstance(owner, tuple) and owner[0] == slot]

    def pages(self) -> list[int]:
        """Pages that have a copy."""
        return [owner for owner in self._kept if isinstance(owner, int)]

    def of_page(self, page: int) -> bool:
        """Whether there is a copy of the position where a page ends."""
        return page in self._kept

    def keep(self, slot: int, page: int | None = None) -> None:
        """Copy the state, for the page that ends where it is if one is given, unless there is a copy.

        Raises what `Backend.save_state` raises.
        """
        at = self.position(slot)
        if not at or not self.limit:
            return
        owner: _Owner = (slot, at) if page is None else page
        if owner in self._kept:
            self._kept.move_to_end(owner)
            return
        there = [] if page is not None else self.positions(slot)
        if len(there) >= SNAPSHOTS:
            self._drop((slot, there[0]))
        while len(self._kept) >= self.limit:
            self._drop(next(iter(self._kept)))
        self._kept[owner] = self._backend.save_state(self._lowered, slot)

    def read(self, page: int) -> dict[str, npt.NDArray[np.float32]]:
        """The arrays of a page's copy. Raises what `Backend.read_copy` raises."""
        return self._backend.read_copy(self._kept[page])

    def put(self, page: int, arrays: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """A page's copy, of arrays that `read` gave. Nothing where no copies are kept. Raises what `Backend.make_copy`
        raises.
        """
        if not self.limit or page in self._kept:
            return
        state = self._backend.make_copy(self._lowered, arrays)
        while len(self._kept) >= self.limit:
            self._drop(next(iter(self._kept)))
        self._kept[page] = state

    def _drop(self, owner: _Owner) -> None:
        self._kept.pop(owner).close()

    def cut(self, slot: int, n: int) -> None:
        """The sequence gives up its text from position n on, and with it its own copies and the state of that."""
        if (self.position(slot) or 0) > n:
            self._at[slot] = None  # a state of as many positions may come to be asked for, of another text
        for later in [p for p in self.positions(slot) if p > n]:
            self._drop((slot, later))

    def load(self, slot: int, n: int, page: int | None) -> None:
        """Put the state of n positions into a slot: zero, what is there, the sequence's own copy, or that of the page
        which ends there. Raises what `Backend.load_state` raises.
        """
        if n and n != self.position(slot):
            owner: _Owner = (slot, n) if page is None or (slot, n) in self._kept else page
            state = self._kept[owner]
            self._kept.move_to_end(owner)
            self._at[slot] = None  # until all of it is there
            self._backend.load_state(self._lowered, slot, state)
        self._at[slot] = n

    def keep_before(self, slot: int, at: int) -> None:
        """A step with guesses begins at a position: copy the state, where `take_back` finds it.

        The memory of the slot's last such copy is used again. Raises what `Backend.save_state` raises.
        """
        _, old = self._before.pop(slot, (0, None))
        if at:
            self._before[slot] = at, self._backend.save_state(self._lowered, slot, old)
        elif old is not None:
            old.close()

    def take_back(self, slot: int) -> int:
        """The state as it was before the last step, which had guesses; returns its position.

        Raises what `Backend.load_state` raises.
        """
        at, state = self._before.get(slot, (0, None))
        self.cut(slot, at)
        if state is not None:
            self._at[slot] = None  # until all of it is there
            self._backend.load_state(self._lowered, slot, state)
        self._at[slot] = at
        return at

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
        self.cut(slot, 0)

    def forget_page(self, page: int) -> None:
        """The page will have other contents."""
        if page in self._kept:
            self._drop(page)

    def close(self) -> None:
        """Give all copies back."""
        for owner in list(self._kept):
            self._drop(owner)
        for _, state in self._before.values():
            state.close()
        self._before.clear()

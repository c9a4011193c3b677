"""`Snapshots`: the state that recurrent layers have now, and copies of earlier states that a sequence can go back to.

Keys and values of a sequence can be cut at any position. The state of a recurrent layer belongs to one position, and no
earlier state follows from it. So a sequence goes back to a position with a copy, or to 0.

A copy made at the end of a page with a key belongs to the page: every sequence that begins with the page's text can
load it. Another copy belongs to its sequence. docs/how/kv_cache.md has a drawing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend, LoweredGraph, SequenceState
from zinc_rt.engine.batch import EngineError
from zinc_rt.errors import IntegrityError

SNAPSHOTS: Final = 3
"""Copies that a sequence keeps of its own. A conversation goes back to three positions: within the last prompt, at the
end of the turn before it, and within that turn's prompt.
"""

_Owner = tuple[int, int] | int  # a sequence and its position, or a page

CHECKPOINT_TOKENS: Final = 512
"""Positions between the copies that a text keeps wherever it is edited later."""

TAIL_TOKENS: Final = 9
"""The last tokens of a prompt, which no copy has seen: templates render the beginning of an answer otherwise once the
answer is there (Qwen 3: an empty thought of 4 tokens), and the last token's row is always computed.
"""


def copies(n_slots: int) -> int:
    """How many copies all sequences together keep at least, unless the options give bytes: of ends of prompts."""
    return n_slots + SNAPSHOTS - 1


def wanted_copies(n_slots: int, n_tokens: int) -> int:
    """How many copies let texts of so many positions in all go back to any position with less than
    `CHECKPOINT_TOKENS` computed again.
    """
    return copies(n_slots) + n_tokens // CHECKPOINT_TOKENS


class _Copy(NamedTuple):
    state: SequenceState
    between: bool  # not at a page's end at a multiple of `CHECKPOINT_TOKENS`


class Snapshots:
    """The position of each sequence's state on a backend, and at most `limit` copies. When there are as many,
    the copy unused for longest goes: of those between the regular positions, where they are more than `n_between`, else
    of all. So the turns of a long text do not push out the copies that an edit needs.

    limit: see `wanted_copies`; 0 makes none. n_between: see `copies`.
    """

    def __init__(self, backend: Backend, lowered: LoweredGraph, limit: int, n_between: int) -> None:
        self._backend, self._lowered, self.limit, self._n_between = backend, lowered, limit, n_between
        self._at: dict[int, int | None] = {}  # positions that the state has seen; None where a step broke off
        self._kept: OrderedDict[_Owner, _Copy] = OrderedDict()  # the one unused for longest first
        self._before: dict[int, tuple[int, SequenceState]] = {}  # of sequences: before the last step that had guesses

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def n_bytes(self) -> int:
        """Bytes of all copies."""
        return sum(copy.state.n_bytes for copy in self._kept.values())

    def position(self, seq_id: int) -> int | None:
        """The position behind the state: rows may go on there. None if a step broke off."""
        return self._at.get(seq_id, 0)

    def positions(self, seq_id: int) -> list[int]:
        """Where there are copies of a sequence itself, the one unused for longest first."""
        return [owner[1] for owner in self._kept if isinstance(owner, tuple) and owner[0] == seq_id]

    def pages(self) -> list[int]:
        """Pages that have a copy."""
        return [owner for owner in self._kept if isinstance(owner, int)]

    def has_page(self, page: int) -> bool:
        """Whether there is a copy of the position where a page ends."""
        return page in self._kept

    def keep(self, seq_id: int, page: int | None = None) -> None:
        """Copy the state unless there is a copy. page: it ends at the state's position and shall own the copy.

        Raises what `Backend.save_state` raises.
        """
        at = self.position(seq_id)
        if not at or not self.limit:
            return
        owner: _Owner = (seq_id, at) if page is None else page
        if owner in self._kept:
            self._kept.move_to_end(owner)
            return
        own = [] if page is not None else self.positions(seq_id)
        if len(own) >= SNAPSHOTS:
            self._drop((seq_id, own[0]))
        self._make_room()
        state = self._backend.save_state(self._lowered, seq_id)
        self._kept[owner] = _Copy(state, page is None or at % CHECKPOINT_TOKENS != 0)

    def _make_room(self) -> None:
        while len(self._kept) >= self.limit:
            between = [owner for owner, copy in self._kept.items() if copy.between]
            self._drop(between[0] if len(between) > self._n_between else next(iter(self._kept)))

    def read(self, page: int) -> dict[str, npt.NDArray[np.float32]]:
        """The arrays of a page's copy. Raises what `Backend.read_copy` raises."""
        return self._backend.read_copy(self._kept[page].state)

    def put(self, page: int, arrays: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """A page's copy, of arrays that `read` gave. Nothing where no copies are kept. Raises what `Backend.make_copy`
        raises.
        """
        if not self.limit or page in self._kept:
            return
        state = self._backend.make_copy(self._lowered, arrays)
        self._make_room()
        self._kept[page] = _Copy(state, between=True)

    def _drop(self, owner: _Owner) -> None:
        self._kept.pop(owner).state.close()

    def cut(self, seq_id: int, n: int) -> None:
        """The sequence gives up its text from position n on, with its state and its own copies behind n."""
        if (self.position(seq_id) or 0) > n:
            self._at[seq_id] = None  # a state of as many positions may come to be asked for, of another text
        for later in [p for p in self.positions(seq_id) if p > n]:
            self._drop((seq_id, later))

    def load(self, seq_id: int, n: int, page: int | None) -> None:
        """Give a sequence the state of n positions: zero, its present state, its own copy, or the copy of the page that
        ends there. Raises what `Backend.load_state` raises.
        """
        if n and n != self.position(seq_id):
            owner: _Owner = (seq_id, n) if page is None or (seq_id, n) in self._kept else page
            state = self._kept[owner].state
            self._kept.move_to_end(owner)
            self._at[seq_id] = None  # until all of it is there
            self._backend.load_state(self._lowered, seq_id, state)
        self._at[seq_id] = n

    def keep_before(self, seq_id: int, at: int) -> None:
        """A step with guesses begins at a position: copy the state, where `take_back` finds it.

        The memory of its last such copy is used again. Raises what `Backend.save_state` raises.
        """
        _, old = self._before.pop(seq_id, (0, None))
        if at:
            self._before[seq_id] = at, self._backend.save_state(self._lowered, seq_id, old)
        elif old is not None:
            old.close()

    def take_back(self, seq_id: int) -> int:
        """The state as it was before the last step, which had guesses; returns its position.

        Raises what `Backend.load_state` raises.
        """
        at, state = self._before.get(seq_id, (0, None))
        self.cut(seq_id, at)
        if state is not None:
            self._at[seq_id] = None  # until all of it is there
            self._backend.load_state(self._lowered, seq_id, state)
        self._at[seq_id] = at
        return at

    def check_start(self, seq_id: int, start: int) -> None:
        """Raise `EngineError` unless rows may start at a position: where the state is, or at 0, anew."""
        position = self.position(seq_id)
        if not start or start == position:
            return
        if position is None:
            raise EngineError(
                f"sequence {seq_id}: a step broke off, so the state of its recurrent layers is lost; rows cannot"
                f" start at {start} before truncate() has gone back"
            )
        raise EngineError(
            f"sequence {seq_id}: recurrent layers hold the state after {position} positions, rows cannot start"
            f" at {start}; truncate() goes back to a checkpoint"
        )

    def begin(self, starts: Mapping[int, int]) -> None:
        """A step begins, with the first position of each of its sequences: their states are not known until its end."""
        for seq_id, start in starts.items():
            if start == 0:
                self.forget(seq_id)
            self._at[seq_id] = None

    def end(self, ends: Mapping[int, int]) -> None:
        """The step is over; the positions that its sequences have seen."""
        self._at.update(ends)

    def forget(self, seq_id: int) -> None:
        """The sequence begins anew, or is closed."""
        self._at.pop(seq_id, None)
        self.cut(seq_id, 0)

    def forget_page(self, page: int) -> None:
        """The page will have other contents."""
        if page in self._kept:
            self._drop(page)

    def check_integrity(self, known: Container[int]) -> None:
        """Raise `IntegrityError` unless there are at most `limit` copies, and those of pages are of known ones."""
        unknown = [page for page in self.pages() if page not in known]
        if unknown or len(self) > self.limit:
            raise IntegrityError(
                f"there are {len(self)} copies of states, at most {self.limit} are planned; of unknown KV pages:"
                f" {unknown}"
            )

    def close(self) -> None:
        """Give all copies back."""
        for owner in list(self._kept):
            self._drop(owner)
        for _, state in self._before.values():
            state.close()
        self._before.clear()

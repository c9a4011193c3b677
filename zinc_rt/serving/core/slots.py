"""The engine's sequences as the core uses them: which run, which hold a finished text, and the KV pages they may have.

A request that is admitted is promised pages, so that what others need later cannot keep it from its first token. A
sequence whose request is over stays open with its text: the next request that begins alike goes on there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from zinc_rt.engine import Rows, StepResult
from zinc_rt.mem.kv_pages import pages_for
from zinc_rt.sampling.request import SampledStep, SamplingRequest


class Sizes(Protocol):
    """What the core reads of an engine's capacity."""

    @property
    def n_rows(self) -> int: ...
    @property
    def n_logits(self) -> int: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def n_slots(self) -> int: ...
    @property
    def n_pages(self) -> int: ...


class StepEngine(Protocol):
    """What the core needs of an engine; `Engine` says what each member does."""

    @property
    def sizes(self) -> Sizes | None: ...
    @property
    def keeps_recurrent_state(self) -> bool: ...
    @property
    def whole_sequences(self) -> bool: ...
    def open_sequence(self) -> int: ...
    def close_sequence(self, slot: int) -> None: ...
    def resumable(self, slot: int, n_tokens: int) -> int: ...
    def truncate(self, slot: int, n_tokens: int) -> int: ...
    def checkpoint(self, slot: int) -> None: ...
    def check_integrity(self) -> None: ...
    @overload
    def step(self, rows: Sequence[Rows]) -> StepResult: ...
    @overload
    def step(self, rows: Sequence[Rows], sampling: Sequence[SamplingRequest]) -> SampledStep: ...


@dataclass(slots=True)
class _Kept:
    tokens: list[int]  # whose keys and values the sequence holds
    salt: bytes


class Slots:
    """Sequences of one engine. n_pages: KV pages of all; n_slots: sequences at once."""

    def __init__(self, engine: StepEngine, sizes: Sizes) -> None:
        self._engine = engine
        self.n_pages, self.n_slots = sizes.n_pages, sizes.n_slots
        self._most = pages_for(sizes.n_ctx)  # of one sequence
        self._running: dict[int, int] = {}  # pages promised
        self._kept: dict[int, _Kept] = {}  # the one unused for longest first
        self.freed = 0  # pages ever given back

    @property
    def n_running(self) -> int:
        """Sequences of requests."""
        return len(self._running)

    @property
    def pages_used(self) -> int:
        """Pages promised to requests."""
        return sum(self._running.values())

    @property
    def pages_cached(self) -> int:
        """Pages of finished texts, which requests can have."""
        return sum(pages_for(len(kept.tokens)) for kept in self._kept.values())

    def pages(self, slot: int) -> int:
        """Pages promised to a request's sequence."""
        return self._running[slot]

    def needed(self, n_tokens: int) -> int:
        """Pages that a sequence of so many tokens must be promised: theirs and one to go on."""
        return min(pages_for(n_tokens) + 1, self._most, self.n_pages)

    def longest(self, tokens: Sequence[int], salt: bytes) -> tuple[int | None, int]:
        """The finished text that shares most of a text's beginning, its last token aside; and how many tokens."""
        best, most = None, 0
        for slot, kept in self._kept.items():
            if kept.salt == salt and (n := self._engine.resumable(slot, _shared(kept.tokens, tokens))) > most:
                best, most = slot, n
        return best, most

    def take(self, tokens: Sequence[int], salt: bytes, pages: int) -> tuple[int, int] | None:
        """A sequence for a text and the pages promised to it, at the cost of finished texts.

        Returns the slot and how many of the text's tokens it holds; None without a free sequence or the pages.
        """
        if self.n_running == self.n_slots or pages > self.n_pages - self.pages_used:
            return None
        slot, held = self.longest(tokens, salt)
        if slot is not None:
            kept = self._kept.pop(slot)
            held = self._engine.truncate(slot, held)
            self.freed += pages_for(len(kept.tokens)) - pages_for(held)
        else:
            if self.n_running + len(self._kept) == self.n_slots:
                self._forget_oldest()
            slot = self._engine.open_sequence()
        self._running[slot] = pages
        self._make_room()
        return slot, held

    def grow(self, slot: int, pages: int) -> bool:
        """Promise a running sequence so many pages in all, at the cost of finished texts; whether they are there."""
        if pages - self._running[slot] > self.n_pages - self.pages_used:
            return False
        self._running[slot] = pages
        self._make_room()
        return True

    def _make_room(self) -> None:
        while self.pages_used + self.pages_cached > self.n_pages:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        slot = next(iter(self._kept))
        self.freed += pages_for(len(self._kept.pop(slot).tokens))
        self._engine.close_sequence(slot)

    def close(self, slot: int) -> None:
        """End a request's sequence and free its pages."""
        self._engine.close_sequence(slot)
        self.freed += self._running.pop(slot)

    def keep(self, slot: int, tokens: list[int], salt: bytes) -> None:
        """End a request's sequence, which holds these tokens, and keep the text while nothing else needs its pages."""
        if not tokens:
            self.close(slot)
            return
        self._engine.truncate(slot, len(tokens))
        self.freed += self._running.pop(slot) - pages_for(len(tokens))
        self._kept[slot] = _Kept(tokens, salt)

    def forget_texts(self) -> None:
        """Drop all finished texts."""
        while self._kept:
            self._forget_oldest()


def _shared(old: Sequence[int], new: Sequence[int]) -> int:
    """How many tokens both begin with, the last one of `new` aside."""
    most = min(len(old), len(new) - 1)
    if old[:most] == new[:most]:
        return most
    return next(i for i in range(most) if old[i] != new[i])

"""What `Engine` offers of sequences: opening them, what they find in the cache, going back, and room for more.

A text's keys and values live in pages of 16 positions. A page is shared from the moment it is full: any sequence whose
text begins with the same tokens, and which was opened with the same salt, reads it in place of computing it again. The
bits are the same. Full pages stay behind when a sequence is closed, until their memory is needed for others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend, Bytes, CachePages, LoweredGraph
from zinc_rt.engine.kv_cache import CacheStats, Sequences
from zinc_rt.engine.rows import EngineError
from zinc_rt.numerics import PAGE_TOKENS

CHECKPOINT_TOKENS: Final = 512
"""Positions between the copies of recurrent layers' states that `next_checkpoint` asks for."""


PAGES_AT_ONCE: Final = 64
"""Of one cache, on their way from or to a file."""


class SequenceCalls(ABC):
    """The part of `Engine` that deals with sequences."""

    _backend: Backend

    @abstractmethod
    def _books(self) -> Sequences:
        """The sequences of the model. Raises `EngineError` where none is loaded."""

    @abstractmethod
    def _graph(self) -> LoweredGraph:
        """The model's graph on the backend. Raises `EngineError` where none is loaded."""

    def open_sequence(self, prompt: Sequence[int] | None = None, salt: bytes | None = b"") -> int:
        """A free slot, holding what `adopt` finds of a prompt.

        Args:
            prompt: token ids; None for an empty sequence.
            salt: of a tenant; texts are shared only among sequences with the same one. None shares nothing.

        Raises:
            EngineError: all slots are taken.
            TokenOutOfRange: a token id outside every vocabulary.
            BackendError: the device failed. With these the slot stays free.
        """
        sequences = self._books()
        slot = sequences.open(salt)
        if prompt is not None:
            try:
                self.adopt(slot, prompt)
            except BaseException:
                sequences.close(slot)
                raise
        return slot

    def close_sequence(self, slot: int) -> None:
        """Free the slot; its full pages stay cached. Raises `EngineError` when it is not open."""
        self._books().close(slot)

    def adopt(self, slot: int, ids: Sequence[int]) -> int:
        """Make the sequence hold as many of a text's first tokens as need not be computed: those that it holds already,
        and those of full pages that any sequence of its salt has computed. What else it holds is forgotten.

        With recurrent layers a sequence goes on only where a copy of their state was kept; see `checkpoint`. May be
        called again at any time between steps, as other sequences compute more of the same text.

        Args:
            slot: an open sequence.
            ids: the whole text.

        Returns:
            How many tokens it holds now, at most len(ids) - 1: rows go on there.

        Raises:
            EngineError: the sequence is not open.
            TokenOutOfRange: a token id outside every vocabulary.
            BackendError: the device failed; `truncate` says what the sequence still holds.
        """
        sequences = self._books()
        self._backend.drain()
        return sequences.adopt(slot, ids)

    def cached_prefix(self, ids: Sequence[int], salt: bytes | None = b"") -> int:
        """What `adopt` would return now for a new sequence; nothing changes. Raises `TokenOutOfRange`."""
        return self._books().lookup(ids, salt)

    def fork(self, slot: int) -> int:
        """Another sequence that begins as this one does; returns its slot.

        It shares the full pages; the tokens behind them, at most 15, it has to compute itself (`length` says where it
        goes on). With recurrent layers it goes on at the last full page that has a copy of their state. Raises
        `EngineError` when the sequence is not open or all slots are taken, `BackendError`.
        """
        sequences = self._books()
        self._backend.drain()
        return sequences.fork(slot)

    def length(self, slot: int) -> int:
        """How many positions the sequence holds. Raises `EngineError` when it is not open."""
        return len(self._books().ids(slot))

    def tokens(self, slot: int) -> list[int]:
        """The tokens of the positions that the sequence holds. Raises `EngineError` when it is not open."""
        return list(self._books().ids(slot))

    @property
    def keeps_recurrent_state(self) -> bool:
        """Whether the model has recurrent layers: sequences then go back only to positions of a checkpoint."""
        return self._books().snapshots is not None

    def checkpoint(self, slot: int) -> None:
        """Keep what recurrent layers hold now, so that a sequence can go on at this position.

        At a page's edge the copy is for every sequence that begins with this text, and it stays when this one is
        closed. Elsewhere it is for this sequence alone, which keeps the last few. The copies that were not used for
        longest make room; of a model that was loaded to embed there are none. Without recurrent layers there is nothing
        to do: every position will serve. Raises `EngineError` when the sequence is not open, `BackendError`.
        """
        sequences = self._books()
        self._backend.drain()
        sequences.checkpoint(slot)

    def next_checkpoint(self, start: int, n_prompt: int) -> int | None:
        """Where a prompt of `n_prompt` tokens should have its next `checkpoint`, when rows go on at `start`.

        Steps should end there: every 512 tokens, and at the last page's edge before the prompt's last token. None where
        there is none, as without recurrent layers.
        """
        last = (n_prompt - 1) // PAGE_TOKENS * PAGE_TOKENS
        if not self.keeps_recurrent_state or start >= last:
            return None
        return min((start // CHECKPOINT_TOKENS + 1) * CHECKPOINT_TOKENS, last)

    def resumable(self, slot: int, n_tokens: int) -> int:
        """What `truncate` would keep: of the first `n_tokens` positions as many as the sequence can go on after.

        Raises `EngineError` when it is not open.
        """
        return self._books().resumable(slot, n_tokens)

    def truncate(self, slot: int, n_tokens: int) -> int:
        """Forget the sequence's positions from `n_tokens` on.

        With recurrent layers those after the last checkpoint go, too, and where another sequence reads the page of
        position `n_tokens`, so do the page's first ones. A page that is this sequence's alone is written to again, and
        no longer found by others.

        Returns how many positions it holds then: rows go on there. Raises `EngineError` when it is not open,
        `BackendError`.
        """
        sequences = self._books()
        self._backend.drain()  # a step that was interrupted may still write them
        return sequences.truncate(slot, n_tokens)

    def settle(self, slot: int, n_tokens: int) -> int:
        """Keep the guesses of a sequence's last step (`Rows.draft`) that are before position `n_tokens`, forget others.

        What is kept is found by others from now on. With recurrent layers the sequence goes back to where that step
        began if a guess is forgotten. A sequence that goes on behind its guesses has confirmed them.

        Returns how many positions it holds then: rows go on there. Raises `EngineError` when it is not open, or where
        more would be lost than guesses, `BackendError`.
        """
        sequences = self._books()
        self._backend.drain()
        return sequences.settle(slot, n_tokens)

    @property
    def caches(self) -> Mapping[str, CachePages]:
        """The model's KV caches by name."""
        return self._graph().caches

    def resumable_pages(self, slot: int) -> list[int]:
        """The KV pages that a sequence fills, behind the last of which a text can go on; 16 tokens each.

        Raises `EngineError` when it is not open.
        """
        return self._books().resumable_pages(slot)

    def read_pages(self, cache: str, pages: Sequence[int]) -> Bytes:
        """The contents of pages: u8[len(pages), page_bytes], the same on every backend (`backends.cache_pages`).

        Raises `EngineError` without a model, `BackendError`.
        """
        self._backend.drain()
        return self._backend.read_pages(self._graph(), cache, pages)

    def state_behind(self, page: int) -> dict[str, npt.NDArray[np.float32]]:
        """The state of recurrent layers behind one of `resumable_pages`, by name; empty without such layers.

        Raises `BackendError`.
        """
        snapshots = self._books().snapshots
        self._backend.drain()
        return {} if snapshots is None else snapshots.read(page)

    def restore(
        self,
        slot: int,
        ids: Sequence[int],
        contents: Callable[[str, range], Bytes],
        states: Mapping[str, npt.NDArray[np.float32]],
    ) -> None:
        """Make a sequence hold a text that was computed elsewhere. Other texts find it as one of this engine.

        Args:
            slot: an open sequence; what it holds is forgotten.
            ids: the text, a multiple of 16 tokens.
            contents: of a cache and of page numbers of the text, what `read_pages` gave of them.
            states: what `state_behind` gave of the last page.

        Raises:
            EngineError: the sequence is not open, or there is no such number of tokens.
            PagesExhausted: the text does not fit.
            BackendError: contents or states of another model.
        """
        if not ids or len(ids) % PAGE_TOKENS:
            raise EngineError(f"a text of {len(ids)} tokens cannot be restored; it must fill pages of {PAGE_TOKENS}")
        books, graph = self._books(), self._graph()
        self._backend.drain()
        pages = books.empty_pages(slot, len(ids))
        try:
            for cache in graph.caches:
                for first in range(0, len(pages), PAGES_AT_ONCE):
                    some = range(first, min(first + PAGES_AT_ONCE, len(pages)))
                    self._backend.write_pages(graph, cache, pages[some.start : some.stop], contents(cache, some))
            books.filled(slot, ids, states)
        except BaseException:
            books.truncate(slot, 0)
            raise

    @property
    def free_pages(self) -> int:
        """KV pages that sequences can have, those that only wait to be found again included."""
        return self._books().free_pages

    def distinct_pages(self, slots: Iterable[int]) -> int:
        """How many KV pages these sequences have; one that several share counts once."""
        return self._books().distinct_pages(slots)

    def missing_pages(self, slot: int, n_tokens: int) -> int:
        """KV pages that the sequence lacks to hold `n_tokens` positions in all; a step takes them from `free_pages`.

        Raises `EngineError` when it is not open.
        """
        return self._books().missing_pages(slot, n_tokens)

    def can_grow(self, slot: int, n_tokens: int) -> bool:
        """Whether there are pages for the sequence to hold `n_tokens` positions in all.

        Raises `EngineError` when it is not open.
        """
        return self.missing_pages(slot, n_tokens) <= self.free_pages

    def cache_stats(self) -> CacheStats:
        """The KV cache now, and what was found in it since the model was loaded."""
        return self._books().stats()

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the books of KV pages, tokens and copies of states add up."""
        self._books().check_integrity()

"""`SequencePool`: the engine's sequences, those of requests and those of finished texts, and the KV pages promised to
each.

A request that is admitted is promised pages. So later requests cannot take the pages that it needs for its first token.
When a request is over, its sequence stays open with its text. The next request that begins with the same tokens goes on
there at the exact token, while the prefix cache alone would go on at the end of a page.
"""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.backends.base import Capacity
from zinc_rt.engine.batch import EngineError
from zinc_rt.engine.kv_cache import KVCacheManager, common
from zinc_rt.numerics import PAGE_TOKENS, pages_for


class SequencePool:
    """Sequences of one engine, and promises of its KV pages.

    Attributes:
        n_pages, n_slots: KV pages and sequences that there are.
        promised: KV pages promised to each sequence of a request. To be read only.
        given_back: sequences of requests that ended so far.
    """

    def __init__(self, cache: KVCacheManager, sizes: Capacity) -> None:
        self._cache = cache
        self.n_pages, self.n_slots = sizes.n_pages, sizes.n_slots
        self._most = pages_for(sizes.n_ctx)  # of one sequence
        self.promised: dict[int, int] = {}
        self._kept: dict[int, bytes] = {}  # salts of finished texts, the one unused for longest first
        self._short: tuple[int, Sequence[int]] | None = None  # `given_back` when there was no room, and for what text
        self.given_back = 0

    @property
    def n_running(self) -> int:
        """Sequences of requests."""
        return len(self.promised)

    def kept_pages(self) -> int:
        """Pages that finished texts alone have. Those of all other sequences are of requests that run."""
        return self._cache.pages_alone(self._kept) if self._kept else 0

    @property
    def n_tokens(self) -> int:
        """Positions that all sequences together may hold."""
        return self.n_pages * PAGE_TOKENS

    def pages_of(self, n_tokens: int) -> int:
        """Pages for so many positions of one sequence. Raises `EngineError` for more than there are."""
        pages = pages_for(n_tokens)
        if pages > self.n_pages:
            raise EngineError(
                f"{n_tokens} tokens need {pages} KV pages of {PAGE_TOKENS} positions, there are {self.n_pages};"
                " load with more kv_tokens or kv_memory"
            )
        return pages

    def needed(self, n_tokens: int) -> int:
        """Pages promised to a sequence of so many tokens at its admission: one more than they fill, if that may be, for
        the tokens to come. Example: 4 for 40 tokens.
        """
        return min(pages_for(n_tokens) + 1, self._most, self.n_pages)

    def _longest(self, tokens: Sequence[int], salt: bytes) -> int | None:
        """The finished text that shares most of a text's beginning, its last token aside."""
        best, most = None, 0
        for seq_id, own in self._kept.items():
            if own == salt and (n := self.shared(seq_id, tokens)) > most:
                best, most = seq_id, n
        return best

    def shared(self, seq_id: int, tokens: Sequence[int]) -> int:
        """How many of a text's tokens a sequence holds and can go on after, the text's last token aside."""
        return self._cache.resumable(seq_id, common(self._cache.tokens(seq_id), tokens))

    def cached(self, tokens: Sequence[int], salt: bytes) -> int:
        """How many of a text's first tokens need not be computed."""
        seq_id = self._longest(tokens, salt)
        known = self._cache.cached_prefix(tokens, salt)
        return known if seq_id is None else max(known, self.shared(seq_id, tokens))

    def take(self, tokens: Sequence[int], salt: bytes, pages: int) -> tuple[int, int] | None:
        """A sequence for a text and the pages promised to it, at the cost of finished texts.

        Returns the seq_id and how many of the text's tokens it holds; None without a free sequence or the pages. Raises
        `BackendError`.
        """
        if self.n_running == self.n_slots:
            return None
        if self._short is not None and self._short[0] == self.given_back and self._short[1] is tokens:
            return None  # nothing has come free since
        seq_id = self._longest(tokens, salt)
        if seq_id is None:
            if self.n_running + len(self._kept) == self.n_slots:
                self._forget_oldest()
            seq_id = self._cache.open_sequence(None, salt)
        else:
            del self._kept[seq_id]
        try:
            held = self._cache.attach_prefix(seq_id, tokens)
            there = self._find_room(self._cache.missing_pages(seq_id, pages * PAGE_TOKENS))
        except BaseException:
            self._cache.close_sequence(seq_id)
            raise
        if not there:
            self._cache.close_sequence(seq_id)
            self._short = self.given_back, tokens
            return None
        self.promised[seq_id] = pages
        return seq_id, held

    def grow(self, seq_id: int, pages: int) -> bool:
        """Promise a running sequence so many pages in all, at the cost of finished texts; whether they are there."""
        missing = self._cache.missing_pages
        more = missing(seq_id, pages * PAGE_TOKENS) - missing(seq_id, self.promised[seq_id] * PAGE_TOKENS)
        if not self._find_room(more):
            return False
        self.promised[seq_id] = pages
        return True

    def _find_room(self, pages: int) -> bool:
        """Whether so many pages are free and promised to nobody, with finished texts forgotten as need be."""
        while pages > self._cache.free_pages - self._cache.outstanding(self.promised):
            if not self._kept:
                return False
            self._forget_oldest()
        return True

    def _forget_oldest(self) -> None:
        seq_id = next(iter(self._kept))
        del self._kept[seq_id]
        self._cache.close_sequence(seq_id)

    def close(self, seq_id: int) -> None:
        """End a request's sequence; its full pages stay where they are found again, until others need them."""
        del self.promised[seq_id]
        self._cache.close_sequence(seq_id)
        self.given_back += 1

    def keep(self, seq_id: int, n_tokens: int, salt: bytes) -> None:
        """End a request's sequence, and keep its first tokens while nothing else needs them."""
        del self.promised[seq_id]
        self.given_back += 1
        self._kept[seq_id] = salt
        if not self._cache.truncate(seq_id, n_tokens):
            del self._kept[seq_id]
            self._cache.close_sequence(seq_id)

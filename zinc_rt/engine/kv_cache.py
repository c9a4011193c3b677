"""The sequences of an engine: which tokens each holds, its pages and recurrent state, and where it may go on."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.snapshots import Snapshots
from zinc_rt.engine.rows import EngineError, Rows, write_rows
from zinc_rt.errors import BackendError, IntegrityError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.mem.kv_pages import KVPages, pages_for
from zinc_rt.mem.page_keys import packed
from zinc_rt.numerics import PAGE_TOKENS


@dataclass(frozen=True)
class CacheStats:
    """The KV cache at a moment, and what was found in it since the model was loaded.

    pages: all of them. free: pages of which nothing is known; cached: those that no sequence has, whose text is known;
    used: those of sequences. hits, misses: tokens of prompts that were, and were not, taken from what is there.
    evictions: cached pages that were taken for another text. collisions: keys that two texts had. states,
    state_bytes: copies of recurrent layers' states.
    """

    pages: int
    free: int
    cached: int
    used: int
    hits: int
    misses: int
    evictions: int
    collisions: int
    states: int
    state_bytes: int


@dataclass(slots=True)
class _Held:
    """An open sequence. ids: its tokens, those of its positions; root: the parent key of its first page, None for a
    sequence that shares nothing. guessed: how many of the last tokens are guesses, which no page is published for.
    """

    ids: list[int]
    root: bytes | None
    guessed: int = 0


class Sequences:
    """The books of at most `sizes.n_slots` sequences.

    Args:
        sizes: what the graph was lowered for.
        page_table: i32[n_slots, max_pages], the step's input, all zero; written in place.
        snapshots: of the states of recurrent layers, where the model has them.
        root: the parent key of first pages, from a tenant's salt; None where pages cannot be shared.
    """

    def __init__(
        self,
        sizes: Capacity,
        page_table: npt.NDArray[np.int32],
        snapshots: Snapshots | None = None,
        root: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._sizes, self.snapshots, self._root = sizes, snapshots, root
        self._pages = KVPages(sizes.n_pages, sizes.n_slots, sizes.max_pages, page_table)
        self._open: dict[int, _Held] = {}
        self._hits = self._misses = 0
        if snapshots is not None:
            self._pages.pool.forgotten = snapshots.forget_page

    # -- opening and closing

    def open(self, salt: bytes | None = b"") -> int:
        """A free slot. salt: see `root`; None for a sequence that shares nothing.

        Raises `EngineError` when all are taken.
        """
        return self._open_root(self._root_key(salt))

    def _root_key(self, salt: bytes | None) -> bytes | None:
        return None if salt is None or self._root is None else self._root(salt)

    def _open_root(self, root: bytes | None) -> int:
        for slot in range(self._sizes.n_slots):
            if slot not in self._open:
                self._open[slot] = _Held([], root)
                return slot
        raise EngineError(f"all {self._sizes.n_slots} sequences are in use; close one or raise n_slots")

    def close(self, slot: int) -> None:
        """Free the slot; its full pages stay cached. Raises `EngineError` when it is not open."""
        self._held(slot)
        del self._open[slot]
        self._pages.release(slot)
        if self.snapshots is not None:
            self.snapshots.forget(slot)

    def close_all(self) -> None:
        """Give back what lies outside the lowered graph."""
        if self.snapshots is not None:
            self.snapshots.close()

    def _held(self, slot: int) -> _Held:
        held = self._open.get(slot)
        if held is None:
            raise EngineError(f"sequence {slot} is not open")
        return held

    def ids(self, slot: int) -> list[int]:
        """The tokens of the sequence's positions; not to be changed. Raises `EngineError` when it is not open."""
        return self._held(slot).ids

    # -- what is there already

    def lookup(self, ids: Sequence[int], salt: bytes | None = b"") -> int:
        """How many of a text's first tokens a new sequence would find in the cache; all but the last one at most.

        Raises `TokenOutOfRange`.
        """
        return self._edge(self._find(self._root_key(salt), ids, [])) * PAGE_TOKENS

    def adopt(self, slot: int, ids: Sequence[int]) -> int:
        """Hold as many of a text's first tokens as need not be computed; returns the number.

        Raises `EngineError` when it is not open, `TokenOutOfRange`, `BackendError`.
        """
        held, ids = self._held(slot), list(map(int, ids))
        common = 0
        for mine, wanted in zip(held.ids, ids[:-1], strict=False):
            if mine != wanted:
                break
            common += 1
        sure = len(held.ids) - held.guessed
        if common > sure and (self.snapshots is None or common == len(held.ids)):
            self._confirm(slot, sure, common)  # guesses that are the text; pages behind them can be found then
        n, full = self.resumable(slot, common), common // PAGE_TOKENS
        pages = self._pages.pages(slot)[:full]
        pages += self._find(held.root, ids, pages)
        edge = self._edge(pages)
        if edge * PAGE_TOKENS <= n:
            self._go_to(slot, n)
        else:
            n = edge * PAGE_TOKENS
            if self.snapshots is not None:
                self.snapshots.cut(slot, full * PAGE_TOKENS)
                self.snapshots.load(slot, n, pages[edge - 1])
            self._pages.shrink(slot, full * PAGE_TOKENS)
            self._pages.extend(slot, pages[full:edge])
            held.ids[full * PAGE_TOKENS :] = ids[full * PAGE_TOKENS : n]
            held.guessed = 0  # what is found was confirmed, and is found behind confirmed pages alone
        self._hits += n
        self._misses += len(ids) - n
        return n

    def _find(self, root: bytes | None, ids: Sequence[int], behind: Sequence[int]) -> list[int]:
        try:
            return self._pages.lookup(root, ids, len(ids) - 1, behind)
        except struct.error:
            raise TokenOutOfRange("a token id is outside every vocabulary") from None

    def _edge(self, pages: Sequence[int]) -> int:
        """Of pages of a text, how many can be gone on behind."""
        n = len(pages)
        if self.snapshots is not None:
            while n and not self.snapshots.of_page(pages[n - 1]):
                n -= 1
        return n

    def fork(self, slot: int) -> int:
        """Another sequence with the same full pages, but those with guesses; returns its slot. Its tokens behind them
        are to be computed.

        Raises `EngineError` when the sequence is not open or all slots are taken, `BackendError`.
        """
        held = self._held(slot)
        full = (len(held.ids) - held.guessed) // PAGE_TOKENS
        if self.snapshots is not None and self.snapshots.position(slot) == full * PAGE_TOKENS:
            self.checkpoint(slot)
        pages = self._pages.pages(slot)[:full]
        edge = self._edge(pages)
        other = self._open_root(held.root)
        try:
            if self.snapshots is not None:
                self.snapshots.load(other, edge * PAGE_TOKENS, pages[edge - 1] if edge else None)
        except BackendError:
            self.close(other)
            raise
        self._pages.extend(other, pages[:edge])
        self._open[other].ids = held.ids[: edge * PAGE_TOKENS]
        return other

    # -- contents that come from elsewhere, or go there

    def resumable_pages(self, slot: int) -> list[int]:
        """The sequence's full pages, with recurrent layers as far as there is a copy of their state.

        Raises `EngineError` when it is not open.
        """
        pages = self._pages.pages(slot)[: len(self._held(slot).ids) // PAGE_TOKENS]
        return pages[: self._edge(pages)]

    def empty_pages(self, slot: int, n_tokens: int) -> list[int]:
        """Pages for so many positions of a sequence that holds nothing from now on; `filled` follows.

        Raises `EngineError` when it is not open, `PagesExhausted`, `BackendError`.
        """
        self.truncate(slot, 0)
        self._pages.grow(slot, n_tokens)
        return self._pages.pages(slot)

    def filled(self, slot: int, ids: Sequence[int], states: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """The pages have the contents of this text, whole pages of it; states: of recurrent layers behind it.

        Raises `EngineError` when it is not open, `BackendError`.
        """
        held = self._held(slot)
        held.ids[:] = ids
        self._publish(slot, held, 0, len(held.ids))
        if self.snapshots is not None:
            page = self._pages.pages(slot)[-1]
            self.snapshots.put(page, states)
            self.snapshots.load(slot, len(held.ids), page)

    # -- going back

    def checkpoint(self, slot: int) -> None:
        """Keep what recurrent layers hold now. Raises `EngineError` when the sequence is not open, `BackendError`."""
        n = len(self._held(slot).ids)
        if self.snapshots is None or self.snapshots.position(slot) != n:
            return
        page = self._pages.pages(slot)[n // PAGE_TOKENS - 1] if n and not n % PAGE_TOKENS else None
        self.snapshots.keep(slot, page if page in self._pages.pool.known else None)

    def resumable(self, slot: int, n_tokens: int) -> int:
        """Of the first `n_tokens` positions, as many as the sequence can go on after.

        A page that others read is not written to, so a sequence goes on before it. Raises `EngineError` when it is not
        open.
        """
        held = self._held(slot)
        n = min(len(held.ids), max(0, n_tokens))
        if self.snapshots is None:
            return self._writable(slot, n)
        full = self._pages.pages(slot)[: n // PAGE_TOKENS]
        known = [self.snapshots.position(slot) or 0, *self.snapshots.positions(slot)]
        known = [p for p in known if p <= n and self._writable(slot, p) == p]
        return max([self._edge(full) * PAGE_TOKENS, *known])

    def _writable(self, slot: int, n: int) -> int:
        if n < len(self._held(slot).ids) and n % PAGE_TOKENS and self._pages.shared(slot, n):
            return n - n % PAGE_TOKENS
        return n

    def truncate(self, slot: int, n_tokens: int) -> int:
        """Go back to the last resumable position and say which. Raises `EngineError`, `BackendError`."""
        n = self.resumable(slot, n_tokens)
        self._go_to(slot, n)
        return n

    def _go_to(self, slot: int, n: int) -> None:
        if self.snapshots is not None:
            page = int(self._pages.table[slot, n // PAGE_TOKENS - 1]) if n and not n % PAGE_TOKENS else None
            self.snapshots.cut(slot, n)
            self.snapshots.load(slot, n, page)
        self._cut(slot, n)

    def settle(self, slot: int, n_tokens: int) -> int:
        """Of the last step's guesses keep those before position `n_tokens`; the position at which rows go on.

        Raises `EngineError` when the sequence is not open, or where it would lose more than guesses; `BackendError`.
        """
        held = self._held(slot)
        n, sure = len(held.ids), len(held.ids) - held.guessed
        if not sure <= n_tokens <= n:
            raise EngineError(f"sequence {slot} holds {sure} to {n} positions, it cannot be settled at {n_tokens}")
        if n_tokens < n and self.snapshots is not None:
            at = self.snapshots.take_back(slot)
            self._cut(slot, at)
            return at
        self._cut(slot, n_tokens)
        self._confirm(slot, sure, n_tokens)
        return n_tokens

    def _confirm(self, slot: int, start: int, end: int) -> None:
        """The sequence's positions from start to end - 1 are no guesses: full pages can be found from now on."""
        held = self._open[slot]
        held.guessed = len(held.ids) - end
        self._publish(slot, held, start, end)

    def _cut(self, slot: int, n: int) -> None:
        held = self._open[slot]
        held.guessed = max(0, held.guessed - max(0, len(held.ids) - n))
        del held.ids[n:]
        self._pages.shrink(slot, n)

    # -- a step

    def schedule(self, rows: Sequence[Rows], inputs: Mapping[str, npt.NDArray[np.int32]]) -> tuple[int, int]:
        """Write a step's inputs, but for the page table; returns its row and logit counts.

        Raises `EngineError`, `TokenOutOfRange`.
        """
        return write_rows(rows, inputs, self._sizes, self._check_start)

    def _check_start(self, part: Rows) -> None:
        """Sequences have no gaps, and recurrent layers go on where their state is, or begin anew at 0."""
        slot, start = part.slot, part.start
        length = len(self._held(slot).ids)
        if start > length:
            raise EngineError(f"sequence {slot} holds {length} positions, rows cannot start at {start}")
        if self._writable(slot, start) != start:
            raise EngineError(
                f"sequence {slot}: other sequences read the KV page of position {start}, so rows cannot start there;"
                f" truncate() goes back to {start - start % PAGE_TOKENS}"
            )
        if self.snapshots is None or not start:
            return
        position = self.snapshots.position(slot)
        if position is None:
            raise EngineError(
                f"sequence {slot}: a step broke off, so the state of its recurrent layers is lost; rows cannot"
                f" start at {start} before truncate() has gone back"
            )
        if start != position:
            raise EngineError(
                f"sequence {slot}: recurrent layers hold the state after {position} positions, rows cannot start"
                f" at {start}; truncate() goes back to a checkpoint"
            )

    def begin(self, rows: Sequence[Rows]) -> None:
        """The step of these rows begins: their sequences get the pages. Raises `PagesExhausted`; nothing has changed
        then.
        """
        starts: dict[int, int] = {}
        for part in rows:
            starts.setdefault(part.slot, part.start)
        ends = {part.slot: part.start + len(part.tokens) for part in rows}
        self._pages.check_room([(slot, start, ends[slot]) for slot, start in starts.items()])
        for slot, start in starts.items():
            self._cut(slot, start)  # also what a step that broke off had been given
            if guessed := self._open[slot].guessed:
                self._confirm(slot, start - guessed, start)
        for slot, end in ends.items():
            self._pages.grow(slot, end)
        if self.snapshots is not None:
            for slot in {part.slot for part in rows if part.draft}:
                self.snapshots.keep_before(slot, starts[slot])
            self.snapshots.begin(starts)

    def end(self, rows: Sequence[Rows]) -> None:
        """The step of these rows is over: what it filled can be found from now on, but for guesses; of a sequence with
        recurrent layers and guesses nothing, as it goes back to where the step began if one is wrong.
        """
        returns = {part.slot for part in rows if part.draft} if self.snapshots is not None else ()
        for part in rows:
            self._open[part.slot].ids += map(int, part.tokens)
            if part.slot in returns:
                self._open[part.slot].guessed += len(part.tokens)
            else:
                self._confirm(part.slot, part.start, part.start + len(part.tokens) - part.draft)
        if self.snapshots is not None:
            self.snapshots.end({part.slot: part.start + len(part.tokens) for part in rows})

    def _publish(self, slot: int, held: _Held, start: int, end: int) -> None:
        """Positions from start to end of a sequence are there: what is full of it can be found."""
        if held.root is not None:
            for at in range(start // PAGE_TOKENS, end // PAGE_TOKENS):
                self._pages.publish(slot, at, held.root, held.ids[at * PAGE_TOKENS : (at + 1) * PAGE_TOKENS])

    # -- room

    @property
    def free_pages(self) -> int:
        """Pages that sequences can have: free ones, and cached ones."""
        return self._pages.n_free

    def distinct_pages(self, slots: Iterable[int]) -> int:
        """How many KV pages these sequences have; one that several share counts once."""
        return self._pages.distinct(slots)

    def missing_pages(self, slot: int, n_tokens: int) -> int:
        """Pages that the sequence lacks for `n_tokens` positions. Raises `EngineError` when it is not open."""
        self._held(slot)
        return self._pages.missing(slot, n_tokens)

    def stats(self) -> CacheStats:
        """The cache now."""
        pool, snapshots = self._pages.pool, self.snapshots
        return CacheStats(
            pages=pool.n_pages,
            free=pool.n_free,
            cached=pool.n_cached,
            used=pool.n_pages - pool.available,
            hits=self._hits,
            misses=self._misses,
            evictions=pool.evictions,
            collisions=pool.collisions,
            states=0 if snapshots is None else len(snapshots),
            state_bytes=0 if snapshots is None else snapshots.n_bytes,
        )

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the books of pages, tokens and copies add up."""
        self._pages.check_integrity()
        known = self._pages.pool.known
        for slot in range(self._sizes.n_slots):
            pages, held = self._pages.pages(slot), self._open.get(slot)
            if len(pages) < pages_for(len(held.ids) if held else 0) or (pages and held is None):
                raise IntegrityError(f"sequence {slot} has {len(pages)} KV pages, which its positions do not fit")
            for at, page in enumerate(pages):
                if held and page in known and known[page].ids != _packed_or_none(held.ids, at):
                    raise IntegrityError(f"KV page {page} does not hold the tokens of sequence {slot}")
        if self.snapshots is not None:
            strange = [page for page in self.snapshots.pages() if page not in known]
            if strange or len(self.snapshots) > self.snapshots.limit:
                raise IntegrityError(
                    f"there are {len(self.snapshots)} copies of states, at most {self.snapshots.limit} are planned;"
                    f" of unknown KV pages: {strange}"
                )


def _packed_or_none(ids: Sequence[int], at: int) -> bytes | None:
    """The ids of a text's page number `at`; None where it is not full."""
    part = ids[at * PAGE_TOKENS : (at + 1) * PAGE_TOKENS]
    return packed(part) if len(part) == PAGE_TOKENS else None

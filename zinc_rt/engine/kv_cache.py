"""`KVCacheManager`: the sequences of an engine, the KV pages and recurrent state of each, and the prefix cache.

A sequence's keys and values live in pages of 16 positions. A page is shared from the moment it is full: any sequence
whose text begins with the same tokens, and which was opened with the same salt, reads it and need not compute it again.
The bits are the same. Full pages stay behind when a sequence is closed, until their memory is needed for others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend, Bytes, CachePages, Capacity, LoweredGraph
from zinc_rt.engine.batch import EngineError, SequenceChunk, write_batch
from zinc_rt.engine.page_pool import packed
from zinc_rt.engine.page_tables import PageTables
from zinc_rt.engine.pictures import Pictures
from zinc_rt.engine.recurrent_state import CHECKPOINT_TOKENS, TAIL_TOKENS, Snapshots
from zinc_rt.errors import BackendError, IntegrityError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.numerics import PAGE_TOKENS, pages_for

PAGES_AT_ONCE: Final = 64
"""Pages of one cache that are copied from or to a file together."""


@dataclass(frozen=True)
class CacheStats:
    """The KV cache now, and totals since the model was loaded.

    pages: all of them. free: those without known contents; cached: those with known contents that no sequence uses;
    used: those of sequences. hits, misses: tokens of prompts that were, and were not, in the cache. evictions: cached
    pages that were taken for another text. collisions: times that two texts had one key. states, state_bytes: snapshots
    of recurrent layers.
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
class _Sequence:
    """An open sequence. ids: the tokens of its positions. root: the parent key of its first page, None for a sequence
    that shares nothing. n_draft: how many of the last tokens are a draft; a page with draft tokens is not published.
    """

    ids: list[int]
    root: bytes | None
    n_draft: int = 0

    @property
    def sure(self) -> int:
        """How many of its tokens are no draft."""
        return len(self.ids) - self.n_draft


class KVCacheManager:
    """At most `sizes.n_slots` sequences of an engine's model; `Engine.cache`. Belongs to the engine's thread.

    A sequence is named by a number, `seq_id`, while it is open. Each method that takes one raises `EngineError` when it
    is not open. What touches the device first waits for a step that was interrupted, and raises `BackendError` when the
    device fails.

    Args:
        backend: runs the model.
        lowered: the model's graph. Its page table, i32[n_slots, max_pages], is written in place, where it has one.
        sizes: what the graph was lowered for.
        snapshots: of the states of recurrent layers, where the model has them.
        root: the parent key of first pages, from a tenant's salt; None where pages cannot be shared.
        pictures: of the sequences; None for a model that reads none.
    """

    def __init__(
        self,
        backend: Backend,
        lowered: LoweredGraph,
        sizes: Capacity,
        snapshots: Snapshots | None = None,
        root: Callable[[bytes], bytes] | None = None,
        pictures: Pictures | None = None,
    ) -> None:
        self._backend, self._lowered, self.sizes = backend, lowered, sizes
        self._snapshots, self._root, self.pictures = snapshots, root, pictures
        self._pages = PageTables(sizes.n_pages, sizes.n_slots, sizes.max_pages, lowered.inputs.get("page_table"))
        self._open: dict[int, _Sequence] = {}
        self._hits = self._misses = 0
        if snapshots is not None:
            self._pages.pool.forgotten = snapshots.forget_page

    # -- opening and closing

    def open_sequence(self, prompt: Sequence[int] | None = None, salt: bytes | None = b"") -> int:
        """A new sequence, holding what `attach_prefix` finds of a prompt; returns its number.

        Args:
            prompt: token ids; None for an empty sequence.
            salt: of a tenant; pages are shared only among sequences with the same one. None shares nothing.

        Raises:
            EngineError: `n_slots` sequences are open.
            TokenOutOfRange: a token id outside every vocabulary.
            BackendError: the device failed. With these no sequence is opened.
        """
        seq_id = self._open_root(self._root_key(salt))
        if prompt is not None:
            try:
                self.attach_prefix(seq_id, prompt)
            except BaseException:
                self.close_sequence(seq_id)
                raise
        return seq_id

    def _root_key(self, salt: bytes | None) -> bytes | None:
        return None if salt is None or self._root is None else self._root(salt)

    def _open_root(self, root: bytes | None) -> int:
        for seq_id in range(self.sizes.n_slots):
            if seq_id not in self._open:
                self._open[seq_id] = _Sequence([], root)
                return seq_id
        raise EngineError(f"all {self.sizes.n_slots} sequences are in use; close one or raise n_slots")

    def close_sequence(self, seq_id: int) -> None:
        """End a sequence; its full pages stay cached."""
        self._sequence(seq_id)
        del self._open[seq_id]
        self._changed(seq_id, 0)
        self._pages.release(seq_id)
        if self._snapshots is not None:
            self._snapshots.forget(seq_id)

    def close(self) -> None:
        """End all sequences and give back the copies of states. Whoever still has this object keeps no memory of the
        model by it.
        """
        self._open.clear()
        snapshots, self._snapshots = self._snapshots, None
        self._lowered, self._root = LoweredGraph((0, 0), {}, {}), None
        if snapshots is not None:
            snapshots.close()

    def _sequence(self, seq_id: int) -> _Sequence:
        sequence = self._open.get(seq_id)
        if sequence is None:
            raise EngineError(f"sequence {seq_id} is not open")
        return sequence

    def tokens(self, seq_id: int) -> list[int]:
        """The tokens of the positions that a sequence holds; not to be changed. The list grows with the sequence."""
        return self._sequence(seq_id).ids

    def length(self, seq_id: int) -> int:
        """How many positions a sequence holds."""
        return len(self._sequence(seq_id).ids)

    # -- the prefix cache

    def cached_prefix(self, ids: Sequence[int], salt: bytes | None = b"") -> int:
        """What `attach_prefix` would return now for a new sequence; nothing changes. Raises `TokenOutOfRange`."""
        return self._last_resumable(self._find(self._root_key(salt), ids, [])) * PAGE_TOKENS

    def attach_prefix(self, seq_id: int, ids: Sequence[int]) -> int:
        """Make a sequence hold as many of a text's first tokens as need not be computed: those that it holds already,
        and those of full pages that any sequence of its salt has computed. What else it holds is forgotten.

        With recurrent layers a sequence goes on only where a copy of their state was kept; see `checkpoint`. May be
        called again at any time between steps, as other sequences compute more of the same text.

        Args:
            seq_id: an open sequence.
            ids: the whole text.

        Returns:
            How many tokens it holds now, at most len(ids) - 1: rows go on there.

        Raises:
            EngineError: the sequence is not open.
            TokenOutOfRange: a token id outside every vocabulary.
            BackendError: the device failed; `truncate` says what the sequence still holds.
        """
        self._backend.drain()
        sequence, ids = self._sequence(seq_id), list(map(int, ids))
        same = common(sequence.ids, ids)
        if same > sequence.sure and (self._snapshots is None or same == len(sequence.ids)):
            self._confirm(seq_id, sequence.sure, same)  # drafts that are the text; pages behind them can be found then
        n, full = self.resumable(seq_id, same), same // PAGE_TOKENS
        pages = self._pages.pages(seq_id)[:full]
        pages += self._find(sequence.root, ids, pages)
        n_pages = self._last_resumable(pages)
        if n_pages * PAGE_TOKENS <= n:
            self._go_back(seq_id, n)
        else:
            n = n_pages * PAGE_TOKENS
            self._take_pages(seq_id, ids, pages[:n_pages], full)
        self._hits += n
        self._misses += len(ids) - n
        return n

    def _take_pages(self, seq_id: int, ids: Sequence[int], pages: Sequence[int], n_own: int) -> None:
        """Make a sequence hold full pages of a text, and no more. n_own: how many of them it has already."""
        start, end = n_own * PAGE_TOKENS, len(pages) * PAGE_TOKENS
        if self._snapshots is not None:
            self._snapshots.cut(seq_id, start)
            self._snapshots.load(seq_id, end, pages[-1] if pages else None)
        self._pages.shrink(seq_id, start)
        self._pages.extend(seq_id, pages[n_own:])
        self._changed(seq_id, start)
        sequence = self._open[seq_id]
        sequence.ids[start:] = ids[start:end]
        sequence.n_draft = 0  # such pages were confirmed, and are found behind confirmed ones alone

    def _find(self, root: bytes | None, ids: Sequence[int], behind: Sequence[int]) -> list[int]:
        try:
            return self._pages.lookup(root, ids, len(ids) - 1, behind)
        except struct.error:
            raise TokenOutOfRange("a token id is outside every vocabulary") from None

    def _last_resumable(self, pages: Sequence[int]) -> int:
        """Of a text's first pages, the number of those up to the last one that a sequence can go on behind."""
        n = len(pages)
        if self._snapshots is not None:
            while n and not self._snapshots.has_page(pages[n - 1]):
                n -= 1
        return n

    def fork(self, seq_id: int) -> int:
        """Another sequence that begins as this one does; returns its number.

        It shares the full pages; the tokens behind them, at most 15, it has to compute itself (`length` says where it
        goes on), and those of a draft. With recurrent layers it goes on at the last full page that has a copy of their
        state. Raises `EngineError` also when `n_slots` sequences are open, `BackendError`.
        """
        self._backend.drain()
        sequence = self._sequence(seq_id)
        full = sequence.sure // PAGE_TOKENS
        if self._snapshots is not None and self._snapshots.position(seq_id) == full * PAGE_TOKENS:
            self.checkpoint(seq_id)
        pages = self._pages.pages(seq_id)[:full]
        other = self._open_root(sequence.root)
        try:
            self._take_pages(other, sequence.ids, pages[: self._last_resumable(pages)], 0)
        except BackendError:
            self.close_sequence(other)
            raise
        return other

    # -- contents that go to a file, or come from one

    @property
    def caches(self) -> Mapping[str, CachePages]:
        """The model's KV caches by name."""
        return self._lowered.caches

    def resumable_pages(self, seq_id: int) -> list[int]:
        """The KV pages that a sequence fills, behind the last of which a text can go on; 16 tokens each."""
        pages = self._pages.pages(seq_id)[: len(self._sequence(seq_id).ids) // PAGE_TOKENS]
        return pages[: self._last_resumable(pages)]

    def read_pages(self, cache: str, pages: Sequence[int]) -> Bytes:
        """The contents of pages: u8[len(pages), page_bytes], the same on every backend (`backends.cache_pages`).

        Raises `BackendError`.
        """
        self._backend.drain()
        return self._backend.read_pages(self._lowered, cache, pages)

    def state_behind(self, page: int) -> dict[str, npt.NDArray[np.float32]]:
        """The state of recurrent layers behind one of `resumable_pages`, by name; empty without such layers.

        Raises `BackendError`.
        """
        self._backend.drain()
        return {} if self._snapshots is None else self._snapshots.read(page)

    def restore(
        self,
        seq_id: int,
        ids: Sequence[int],
        contents: Callable[[str, range], Bytes],
        states: Mapping[str, npt.NDArray[np.float32]],
    ) -> None:
        """Make a sequence hold a text that was computed elsewhere. Other sequences find it as one of this engine.

        Args:
            seq_id: an open sequence; what it holds is forgotten.
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
        self.truncate(seq_id, 0)
        self._pages.grow(seq_id, len(ids))
        pages, sequence = self._pages.pages(seq_id), self._sequence(seq_id)
        try:
            for cache in self._lowered.caches:
                for first in range(0, len(pages), PAGES_AT_ONCE):
                    part = range(first, min(first + PAGES_AT_ONCE, len(pages)))
                    data = contents(cache, part)
                    self._backend.write_pages(self._lowered, cache, pages[part.start : part.stop], data)
            sequence.ids[:] = ids
            self._publish(seq_id, 0, len(ids))
            if self._snapshots is not None:
                last = self._pages.pages(seq_id)[-1]
                self._snapshots.put(last, states)
                self._snapshots.load(seq_id, len(ids), last)
        except BaseException:
            self.truncate(seq_id, 0)
            raise

    # -- going back

    @property
    def keeps_recurrent_state(self) -> bool:
        """Whether the model has recurrent layers: sequences then go back only to positions of a checkpoint."""
        return self._snapshots is not None

    def checkpoint(self, seq_id: int) -> None:
        """Copy the state of recurrent layers, so that the sequence can go back to this position.

        At a page's edge the copy is for every sequence that begins with this text, and it stays when this one is
        closed. Elsewhere it is for this sequence alone, which keeps the last few. The copies that were not used for
        longest make room; of a model that was loaded to embed there are none. Without recurrent layers there is nothing
        to do: every position will serve. Raises `BackendError`.
        """
        n = len(self._sequence(seq_id).ids)
        if self._snapshots is None:
            return
        self._backend.drain()
        if self._snapshots.position(seq_id) != n:
            return
        page = self._pages.pages(seq_id)[n // PAGE_TOKENS - 1] if n and not n % PAGE_TOKENS else None
        self._snapshots.keep(seq_id, page if page in self._pages.pool.known else None)

    def next_checkpoint(self, start: int, n_prompt: int) -> int | None:
        """Where a prompt of `n_prompt` tokens should have its next `checkpoint`, when rows go on at `start`.

        Steps should end there: every 512 tokens, and at the last page's edge before the prompt's last `TAIL_TOKENS`.
        None where there is none, as without recurrent layers.
        """
        last = (n_prompt - TAIL_TOKENS) // PAGE_TOKENS * PAGE_TOKENS
        if self._snapshots is None or start >= last:
            return None
        return min((start // CHECKPOINT_TOKENS + 1) * CHECKPOINT_TOKENS, last)

    def wants_checkpoint(self, end: int) -> bool:
        """Whether a text that a step continues up to position `end` should have its `checkpoint` there."""
        return self._snapshots is not None and end % CHECKPOINT_TOKENS == 0

    def draft_room(self, n_tokens: int) -> int:
        """Most draft tokens of a step that continues a text of `n_tokens`, so that another step has the text end at its
        next `checkpoint`.
        """
        return CHECKPOINT_TOKENS if self._snapshots is None else max(0, -n_tokens % CHECKPOINT_TOKENS - 1)

    def resumable(self, seq_id: int, n_tokens: int) -> int:
        """How many of the first `n_tokens` positions `truncate` would keep.

        A page that other sequences read is never written to, so a position inside it becomes the page's first.
        """
        n = min(len(self._sequence(seq_id).ids), max(0, n_tokens))
        if self._snapshots is None:
            return self._writable(seq_id, n)
        full = self._pages.pages(seq_id)[: n // PAGE_TOKENS]
        known = [self._snapshots.position(seq_id) or 0, *self._snapshots.positions(seq_id)]
        known = [p for p in known if p <= n and self._writable(seq_id, p) == p]
        return max([self._last_resumable(full) * PAGE_TOKENS, *known])

    def _writable(self, seq_id: int, n: int) -> int:
        """The last position up to n that the sequence may write to."""
        if n % PAGE_TOKENS and n < len(self._sequence(seq_id).ids) and self._pages.shared(seq_id, n):
            return n - n % PAGE_TOKENS
        return n

    def truncate(self, seq_id: int, n_tokens: int) -> int:
        """Forget a sequence's positions from `n_tokens` on.

        With recurrent layers those after the last checkpoint go, too, and where another sequence reads the page of
        position `n_tokens`, so do the page's first ones. A page that is this sequence's alone is written to again, and
        no longer found by others.

        Returns how many positions it holds then: rows go on there. Raises `BackendError`.
        """
        self._backend.drain()
        n = self.resumable(seq_id, n_tokens)
        self._go_back(seq_id, n)
        return n

    def _go_back(self, seq_id: int, n: int) -> None:
        if self._snapshots is not None:
            page = self._pages.page(seq_id, n // PAGE_TOKENS - 1) if n and not n % PAGE_TOKENS else None
            self._snapshots.cut(seq_id, n)
            self._snapshots.load(seq_id, n, page)
        self._cut(seq_id, n)

    def accept_drafts(self, seq_id: int, n_tokens: int) -> int:
        """Keep drafts of a sequence's last step (`SequenceChunk.n_draft`) up to `n_tokens` positions, forget others.

        Other sequences find the kept pages from now on. With recurrent layers the sequence goes back to where that step
        began if a draft is forgotten. A sequence that goes on behind its drafts has accepted them.

        Returns how many positions it holds then: rows go on there. Raises `EngineError` also where more would be lost
        than drafts, `BackendError`.
        """
        self._backend.drain()
        sequence = self._sequence(seq_id)
        n, sure = len(sequence.ids), sequence.sure
        if not sure <= n_tokens <= n:
            raise EngineError(
                f"sequence {seq_id} holds {sure} to {n} positions, drafts cannot be accepted up to {n_tokens}"
            )
        if n_tokens < n and self._snapshots is not None:
            start = self._snapshots.take_back(seq_id)
            self._cut(seq_id, start)
            return start
        self._cut(seq_id, n_tokens)
        self._confirm(seq_id, sure, n_tokens)
        return n_tokens

    def _confirm(self, seq_id: int, start: int, end: int) -> None:
        """The sequence's positions from start to end - 1 are no drafts: full pages can be found from now on."""
        sequence = self._open[seq_id]
        sequence.n_draft = len(sequence.ids) - end
        self._publish(seq_id, start, end)

    def _publish(self, seq_id: int, start: int, end: int) -> None:
        """Let pages that positions from start to end - 1 filled be found."""
        if start // PAGE_TOKENS == end // PAGE_TOKENS:
            return
        sequence = self._open[seq_id]
        if sequence.root is not None:
            for number in range(start // PAGE_TOKENS, end // PAGE_TOKENS):
                ids = sequence.ids[number * PAGE_TOKENS : (number + 1) * PAGE_TOKENS]
                self._pages.publish(seq_id, number, sequence.root, ids)

    def _cut(self, seq_id: int, n: int) -> None:
        sequence = self._open[seq_id]
        sequence.n_draft = max(0, sequence.n_draft - max(0, len(sequence.ids) - n))
        del sequence.ids[n:]
        self._changed(seq_id, n)
        self._pages.shrink(seq_id, n)

    def _changed(self, seq_id: int, n: int) -> None:
        """The sequence's tokens from position n on are others from now on."""
        if self.pictures is not None:
            self.pictures.forget(seq_id, n)

    # -- a step

    def write_batch(self, chunks: Sequence[SequenceChunk]) -> tuple[int, int]:
        """Write a step's inputs, but for the page table; returns the numbers of rows and of logits.

        Raises `EngineError`, `TokenOutOfRange`.
        """
        looked_up = None if self.pictures is None else self._looked_up
        return write_batch(chunks, self._lowered.inputs, self.sizes, self._check_start, looked_up)

    def _looked_up(
        self, chunk: SequenceChunk, first: int, before: SequenceChunk | None
    ) -> Sequence[int] | npt.NDArray[np.integer]:
        assert self.pictures is not None
        return self.pictures.write(chunk, first, self._open[chunk.seq_id].ids, before)

    def _check_start(self, chunk: SequenceChunk) -> None:
        """Sequences have no gaps, and recurrent layers go on where their state is, or begin anew at 0."""
        seq_id, start = chunk.seq_id, chunk.start
        length = len(self._sequence(seq_id).ids)
        if start == length and self._snapshots is None:  # as in every decode step
            return
        if start > length:
            raise EngineError(f"sequence {seq_id} holds {length} positions, rows cannot start at {start}")
        if self._writable(seq_id, start) != start:
            raise EngineError(
                f"sequence {seq_id}: other sequences read the KV page of position {start}, so rows cannot start there;"
                f" truncate() goes back to {start - start % PAGE_TOKENS}"
            )
        if self._snapshots is not None:
            self._snapshots.check_start(seq_id, start)

    def begin_step(self, chunks: Sequence[SequenceChunk]) -> None:
        """The step of these chunks begins: their sequences get the pages. Raises `PagesExhausted`; nothing has changed
        then.
        """
        if others := [chunk for chunk in chunks if not self._has_pages(chunk)]:
            starts = _starts(others)
            ends = {chunk.seq_id: chunk.start + len(chunk.tokens) for chunk in others}
            self._pages.check_room([(seq_id, start, ends[seq_id]) for seq_id, start in starts.items()])
            for seq_id, start in starts.items():
                self._cut(seq_id, start)  # also what a step that broke off had been given
                if n_draft := self._open[seq_id].n_draft:
                    self._confirm(seq_id, start - n_draft, start)
            for seq_id, end in ends.items():
                self._pages.grow(seq_id, end)
        if self._snapshots is not None:
            starts = _starts(chunks)
            for seq_id in {chunk.seq_id for chunk in chunks if chunk.n_draft}:
                self._snapshots.keep_before(seq_id, starts[seq_id])
            self._snapshots.begin(starts)

    def _has_pages(self, chunk: SequenceChunk) -> bool:
        """Whether a sequence goes on where it ends, without drafts, in the pages that it has: most decode steps."""
        sequence, room = self._open[chunk.seq_id], self._pages.n_owned[chunk.seq_id] * PAGE_TOKENS
        return (
            room - PAGE_TOKENS < chunk.start == len(sequence.ids)
            and chunk.start + len(chunk.tokens) <= room
            and not sequence.n_draft
        )

    def end_step(self, chunks: Sequence[SequenceChunk]) -> None:
        """The step of these chunks is over: pages that it filled can be found from now on, but for drafts. A sequence
        with recurrent layers and drafts publishes nothing, as it goes back to where the step began if one is wrong.
        """
        returns = {chunk.seq_id for chunk in chunks if chunk.n_draft} if self._snapshots is not None else ()
        for chunk in chunks:
            seq_id, start = chunk.seq_id, chunk.start
            sequence = self._open[seq_id]
            sequence.ids += map(int, chunk.tokens)
            if seq_id in returns:
                sequence.n_draft += len(chunk.tokens)
            elif chunk.n_draft or sequence.n_draft or start // PAGE_TOKENS != len(sequence.ids) // PAGE_TOKENS:
                self._confirm(seq_id, start, len(sequence.ids) - chunk.n_draft)
        if self._snapshots is not None:
            self._snapshots.end({chunk.seq_id: chunk.start + len(chunk.tokens) for chunk in chunks})

    # -- room

    @property
    def free_pages(self) -> int:
        """KV pages that sequences can have: free ones, and cached ones."""
        return self._pages.n_free

    def pages_alone(self, seq_ids: Iterable[int]) -> int:
        """How many KV pages these sequences have that no other one has."""
        return self._pages.owned_alone(seq_ids)

    def outstanding(self, promised: Mapping[int, int]) -> int:
        """KV pages that open sequences lack to have as many as they were promised, all together."""
        owned = self._pages.n_owned
        return sum([n - owned[seq_id] for seq_id, n in promised.items() if n > owned[seq_id]])

    def missing_pages(self, seq_id: int, n_tokens: int) -> int:
        """KV pages that a sequence lacks to hold `n_tokens` positions in all; a step takes them from `free_pages`."""
        self._sequence(seq_id)
        return self._pages.missing(seq_id, n_tokens)

    def can_grow(self, seq_id: int, n_tokens: int) -> bool:
        """Whether there are pages for a sequence to hold `n_tokens` positions in all."""
        return self.missing_pages(seq_id, n_tokens) <= self.free_pages

    def stats(self) -> CacheStats:
        """The KV cache now, and what was found in it since the model was loaded."""
        pool, snapshots = self._pages.pool, self._snapshots
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
        """Raise `IntegrityError` unless page tables, tokens and copies of states agree."""
        self._pages.check_integrity()
        known = self._pages.pool.known
        for seq_id in range(self.sizes.n_slots):
            pages, sequence = self._pages.pages(seq_id), self._open.get(seq_id)
            if len(pages) < pages_for(len(sequence.ids) if sequence else 0) or (pages and sequence is None):
                raise IntegrityError(f"sequence {seq_id} has {len(pages)} KV pages, which its positions do not fit")
            for number, page in enumerate(pages):
                if sequence and page in known and known[page].ids != _packed_or_none(sequence.ids, number):
                    raise IntegrityError(f"KV page {page} does not hold the tokens of sequence {seq_id}")
        if self._snapshots is not None:
            self._snapshots.check_integrity(known)


def common(old: Sequence[int], new: Sequence[int]) -> int:
    """How many tokens both begin with, the last one of `new` aside."""
    most = min(len(old), max(0, len(new) - 1))
    if old[:most] == new[:most]:
        return most
    return next(i for i in range(most) if old[i] != new[i])


def _starts(chunks: Sequence[SequenceChunk]) -> dict[int, int]:
    """The first position of each sequence."""
    starts: dict[int, int] = {}
    for chunk in chunks:
        starts.setdefault(chunk.seq_id, chunk.start)
    return starts


def _packed_or_none(ids: Sequence[int], number: int) -> bytes | None:
    """The ids of a text's page of that number; None where it is not full."""
    part = ids[number * PAGE_TOKENS : (number + 1) * PAGE_TOKENS]
    return packed(part) if len(part) == PAGE_TOKENS else None

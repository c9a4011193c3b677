"""The page tables of sequences over the pages of the KV cache, which they share where their texts begin alike.

The cache itself belongs to the backend, one array per layer. Page p has the same index in each array, so one page table
per sequence serves all layers. This module only counts pages. It never touches cache contents, and a page's old
contents are meaningless to its next owner: positions are written before they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from zinc_rt.engine.page_pool import ROOT, PagePool, packed, page_key
from zinc_rt.errors import IntegrityError
from zinc_rt.mem.errors import PagesExhausted
from zinc_rt.numerics import PAGE_TOKENS, pages_for


class PageTables:
    """Page tables of `n_slots` sequences over `n_pages` pages, each sequence at most `max_pages` long.

    table: i32[n_slots, max_pages], the step input that kernels read; entries past a sequence's pages are 0. It may be
    given, all zero, and is then written in place. pool: the pages. n_owned: pages of each sequence.
    """

    def __init__(self, n_pages: int, n_slots: int, max_pages: int, table: npt.NDArray[np.int32] | None = None) -> None:
        self.pool = PagePool(n_pages)
        self.table = np.zeros((n_slots, max_pages), np.int32) if table is None else table
        self.n_owned = [0] * n_slots

    @property
    def n_pages(self) -> int:
        """Pages of all sequences and of the cache together."""
        return self.pool.n_pages

    @property
    def n_free(self) -> int:
        """Pages that sequences can have: free ones, and cached ones."""
        return self.pool.available

    def pages(self, seq_id: int) -> list[int]:
        """The pages of the sequence."""
        pages: list[int] = self.table[seq_id, : self.n_owned[seq_id]].tolist()
        return pages

    def page(self, seq_id: int, number: int) -> int:
        """The sequence's page of that number."""
        return int(self.table[seq_id, number])

    def owned_alone(self, seq_ids: Iterable[int]) -> int:
        """How many pages these sequences have that no other one has; what several of them share counts once."""
        counts = Counter(chain.from_iterable(map(self.pages, seq_ids)))
        return sum(n == self.pool.refs[page] for page, n in counts.items())

    def missing(self, seq_id: int, n_tokens: int) -> int:
        """Pages that the sequence lacks for positions 0 .. n_tokens - 1."""
        return max(0, pages_for(n_tokens) - self.n_owned[seq_id])

    def check_room(self, wishes: Sequence[tuple[int, int, int]]) -> None:
        """Raise `PagesExhausted` unless every sequence can `shrink` to its second number, and then each `grow` to its
        third.

        wishes: of seq_ids, each once, positions to keep and positions to have.
        """
        available = self.pool.available
        for seq_id, keep, _ in wishes:
            gone = self.table[seq_id, pages_for(keep) : self.n_owned[seq_id]]
            available += sum(self.pool.refs[page] == 1 for page in gone.tolist())
        for seq_id, keep, n_tokens in wishes:
            missing = pages_for(n_tokens) - min(self.n_owned[seq_id], pages_for(keep))
            self._check_fits(seq_id, n_tokens, missing, available)
            available -= missing

    def _check_fits(self, seq_id: int, n_tokens: int, missing: int, available: int) -> None:
        pages = pages_for(n_tokens)
        if pages > self.table.shape[1]:
            raise PagesExhausted(
                f"sequence {seq_id} needs {pages} KV pages for {n_tokens} tokens;"
                f" a sequence may have {self.table.shape[1]}"
            )
        if missing > available:
            raise PagesExhausted(
                f"sequence {seq_id} needs {missing} more KV pages for {n_tokens} tokens; {available} of"
                f" {self.n_pages} are free"
            )

    def grow(self, seq_id: int, n_tokens: int) -> None:
        """Give the sequence the pages for positions 0 .. n_tokens - 1; all or nothing.

        Raises `PagesExhausted` with the numbers.
        """
        missing = self.missing(seq_id, n_tokens)
        if not missing:
            return
        self._check_fits(seq_id, n_tokens, missing, self.pool.available)
        for _ in range(missing):
            self.table[seq_id, self.n_owned[seq_id]] = self.pool.take()
            self.n_owned[seq_id] += 1

    def shared(self, seq_id: int, n_tokens: int) -> bool:
        """Whether others read the page that position `n_tokens` is in, so that it must not be written to."""
        at = n_tokens // PAGE_TOKENS
        return at < self.n_owned[seq_id] and self.pool.refs[int(self.table[seq_id, at])] > 1

    def shrink(self, seq_id: int, n_tokens: int) -> None:
        """Keep the pages for the first `n_tokens` positions and let go of the rest, the last one first.

        The positions behind those can be written to then; within a page this must not be asked of a `shared` one.
        """
        keep = pages_for(n_tokens)
        while self.n_owned[seq_id] > keep:
            self.n_owned[seq_id] -= 1
            self.pool.drop(int(self.table[seq_id, self.n_owned[seq_id]]))
            self.table[seq_id, self.n_owned[seq_id]] = 0
        if n_tokens % PAGE_TOKENS and self.n_owned[seq_id] == keep:
            self.pool.reopen(int(self.table[seq_id, keep - 1]))

    def release(self, seq_id: int) -> None:
        """Let go of all pages of the sequence."""
        self.shrink(seq_id, 0)

    def extend(self, seq_id: int, pages: Iterable[int]) -> None:
        """Let the sequence go on with pages that have contents; it has full ones only."""
        for page in pages:
            self.pool.share(page)
            self.table[seq_id, self.n_owned[seq_id]] = page
            self.n_owned[seq_id] += 1

    def lookup(self, root: bytes | None, ids: Sequence[int], n_tokens: int, behind: Sequence[int] = ()) -> list[int]:
        """Known pages of a text's first `n_tokens` tokens that follow on others.

        Args:
            root: the parent key of first pages; None finds nothing.
            ids: the text. n_tokens: how far to look.
            behind: the full pages that hold the text's beginning.

        Raises `struct.error` for ids outside int32.
        """
        found: list[int] = []
        key, parent = self._last_key(root, behind)
        for at in range(len(behind), n_tokens // PAGE_TOKENS):
            if key is None:
                break
            tokens = packed(ids[at * PAGE_TOKENS : (at + 1) * PAGE_TOKENS])
            key = page_key(key, tokens)
            page = self.pool.find(key, parent, tokens)
            if page is None:
                break
            found.append(page)
            parent = page
        return found

    def _last_key(self, root: bytes | None, pages: Sequence[int]) -> tuple[bytes | None, int]:
        """Key and page that the next page of a text has for its parent; no key where that cannot be found."""
        if not pages or root is None:
            return root, ROOT
        contents = self.pool.known.get(pages[-1])
        return None if contents is None else contents.key, pages[-1]

    def publish(self, seq_id: int, at: int, root: bytes, ids: Sequence[int]) -> None:
        """Say which 16 tokens page number `at` of the sequence holds, so that other sequences can find it.

        The seq_id's page is given up for one that is known to hold the same. A page stays unknown where the one before
        it is.
        """
        pages = self.table[seq_id, :at].tolist()[-1:]
        key, parent = self._last_key(root, pages)
        if key is None:
            return
        tokens = packed(ids)
        mine = int(self.table[seq_id, at])
        known = self.pool.publish(mine, page_key(key, tokens), parent, tokens)
        if known is not None and known != mine:
            self.pool.share(known)
            self.table[seq_id, at] = known
            self.pool.drop(mine)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless free, cached and used pages are all pages, each with its references, and
        every known page follows on the one before it.
        """
        references: Counter[int] = Counter()
        for seq_id, owned in enumerate(self.n_owned):
            pages = self.pages(seq_id)
            references.update(pages)
            if self.table[seq_id, owned:].any():
                raise IntegrityError(f"the page table of sequence {seq_id} has entries past its {owned} pages")
            for before, page in zip([ROOT, *pages], pages, strict=False):
                contents = self.pool.known.get(page)
                if contents is not None and contents.parent != before:
                    raise IntegrityError(
                        f"KV page {page} of sequence {seq_id} stands behind page {before}, not behind its parent"
                        f" {contents.parent}"
                    )
        self.pool.check(references)

"""The page allocator of the KV cache: which sequence owns which pages.

The cache itself belongs to the backend, one array per layer. Page p has the same index in each array, so one page table
per sequence serves all layers. This module only counts pages. It never touches cache contents, and a page's old
contents are meaningless to its next owner: positions are written before they are read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.mem.errors import PageIntegrityError, PagesExhausted
from zinc_rt.numerics import PAGE_TOKENS


def pages_for(n_tokens: int) -> int:
    """Number of pages that hold `n_tokens` positions."""
    return -(-n_tokens // PAGE_TOKENS)


class KVPages:
    """Page tables of `n_slots` sequences over `n_pages` pages, each sequence at most `max_pages` long.

    table: i32[n_slots, max_pages], the step input that kernels read; entries past a sequence's pages are 0. It may be
    given, all zero, and is then written in place.
    """

    def __init__(self, n_pages: int, n_slots: int, max_pages: int, table: npt.NDArray[np.int32] | None = None) -> None:
        self.n_pages = n_pages
        self.table = np.zeros((n_slots, max_pages), np.int32) if table is None else table
        self._owned = [0] * n_slots
        self._free = list(range(n_pages - 1, -1, -1))  # a stack; low pages first

    @property
    def n_free(self) -> int:
        """Number of free pages."""
        return len(self._free)

    def grow(self, slot: int, n_tokens: int) -> None:
        """Give the slot the pages for positions 0 .. n_tokens - 1; all or nothing.

        Raises `PagesExhausted` with the numbers.
        """
        pages = pages_for(n_tokens)
        if pages > self.table.shape[1]:
            raise PagesExhausted(
                f"sequence {slot} needs {pages} KV pages for {n_tokens} tokens;"
                f" a sequence may have {self.table.shape[1]}"
            )
        missing = pages - self._owned[slot]
        if missing > len(self._free):
            raise PagesExhausted(
                f"sequence {slot} needs {missing} more KV pages for {n_tokens} tokens; {len(self._free)} of"
                f" {self.n_pages} are free"
            )
        for _ in range(missing):
            self.table[slot, self._owned[slot]] = self._free.pop()
            self._owned[slot] += 1

    def shrink(self, slot: int, n_tokens: int) -> None:
        """Keep the pages for the first `n_tokens` positions and free the rest."""
        keep = pages_for(n_tokens)
        while self._owned[slot] > keep:
            self._owned[slot] -= 1
            self._free.append(int(self.table[slot, self._owned[slot]]))
            self.table[slot, self._owned[slot]] = 0

    def release(self, slot: int) -> None:
        """Free all pages of the slot."""
        self.shrink(slot, 0)

    def check_integrity(self) -> None:
        """Raise `PageIntegrityError` unless every page is either free or owned, exactly once."""
        seen: dict[int, str] = {}
        places = [(page, "free") for page in self._free]
        for slot, owned in enumerate(self._owned):
            places += [(int(page), f"sequence {slot}") for page in self.table[slot, :owned]]
            if self.table[slot, owned:].any():
                raise PageIntegrityError(f"the page table of sequence {slot} has entries past its {owned} pages")
        for page, place in places:
            if page in seen:
                raise PageIntegrityError(f"KV page {page} is both {seen[page]} and {place}")
            if not 0 <= page < self.n_pages:
                raise PageIntegrityError(f"KV page {page} ({place}) is outside 0 .. {self.n_pages - 1}")
            seen[page] = place
        if len(seen) != self.n_pages:
            lost = sorted(set(range(self.n_pages)) - set(seen))[:8]
            raise PageIntegrityError(f"{self.n_pages - len(seen)} KV pages are lost, among them {lost}")

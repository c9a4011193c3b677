"""Page books: a model-based test of every operation, and corruption that the check must catch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zinc_rt.mem.errors import PageIntegrityError, PagesExhausted
from zinc_rt.mem.kv_pages import KVPages, pages_for
from zinc_rt.numerics import PAGE_TOKENS

SLOTS = 4


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (4096, 256)])
def test_pages_for(tokens: int, pages: int) -> None:
    assert pages_for(tokens) == pages


class Books(RuleBasedStateMachine):
    """Against a plain description: how many pages each slot has. Which ones is the allocator's own business, but a
    page stays where it is until its slot gives it back.
    """

    @initialize(n_pages=st.integers(0, 12), max_pages=st.integers(1, 6))
    def begin(self, n_pages: int, max_pages: int) -> None:
        self.pages = KVPages(n_pages, SLOTS, max_pages)
        self.n_pages, self.max_pages = n_pages, max_pages
        self.held: list[list[int]] = [[] for _ in range(SLOTS)]

    def free(self) -> int:
        return self.n_pages - sum(map(len, self.held))

    @rule(slot=st.integers(0, SLOTS - 1), tokens=st.integers(0, 7 * PAGE_TOKENS))
    def grow(self, slot: int, tokens: int) -> None:
        need = -(-tokens // PAGE_TOKENS)
        fits = need <= self.max_pages and need - len(self.held[slot]) <= self.free()
        if not fits:
            before = self.pages.table.copy()
            with pytest.raises(PagesExhausted, match=f"sequence {slot} needs"):
                self.pages.grow(slot, tokens)
            assert (self.pages.table == before).all()  # all or nothing
            return
        self.pages.grow(slot, tokens)
        now = [int(p) for p in self.pages.table[slot, : max(need, len(self.held[slot]))]]
        assert now[: len(self.held[slot])] == self.held[slot]
        self.held[slot] = now

    @rule(slot=st.integers(0, SLOTS - 1), tokens=st.integers(0, 7 * PAGE_TOKENS))
    def shrink(self, slot: int, tokens: int) -> None:
        self.pages.shrink(slot, tokens)
        del self.held[slot][-(-tokens // PAGE_TOKENS) :]

    @rule(slot=st.integers(0, SLOTS - 1))
    def release(self, slot: int) -> None:
        self.pages.release(slot)
        self.held[slot] = []

    @invariant()
    def the_books_add_up(self) -> None:
        if not hasattr(self, "pages"):
            return
        self.pages.check_integrity()
        assert self.pages.n_free == self.free()
        owned = [p for held in self.held for p in held]
        assert len(set(owned)) == len(owned)
        assert all(0 <= p < self.n_pages for p in owned)
        for slot, held in enumerate(self.held):
            assert self.pages.table[slot].tolist() == held + [0] * (self.max_pages - len(held))


Books.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestBooks = Books.TestCase


def test_errors_give_the_numbers() -> None:
    pages = KVPages(n_pages=3, n_slots=2, max_pages=2)
    with pytest.raises(PagesExhausted, match="sequence 1 needs 3 KV pages for 33 tokens; a sequence may have 2"):
        pages.grow(1, 33)
    pages.grow(0, 32)
    with pytest.raises(PagesExhausted, match="sequence 1 needs 2 more KV pages for 20 tokens; 1 of 3 are free"):
        pages.grow(1, 20)


def filled() -> KVPages:
    pages = KVPages(n_pages=8, n_slots=3, max_pages=4)
    pages.grow(0, 30)
    pages.grow(1, 50)
    pages.grow(2, 1)
    pages.shrink(1, 20)
    pages.check_integrity()
    return pages


def own_twice(p: KVPages) -> None:
    p.table[2, 0] = p.table[0, 1]


def own_and_free(p: KVPages) -> None:
    p._free.append(int(p.table[0, 0]))


def free_twice(p: KVPages) -> None:
    p._free.append(p._free[0])


def lose_a_free_page(p: KVPages) -> None:
    p._free.pop()


def lose_an_owned_page(p: KVPages) -> None:
    p._owned[0] -= 1
    p.table[0, 1] = 0


def point_outside(p: KVPages) -> None:
    p.table[0, 0] = 8


def point_below(p: KVPages) -> None:
    p.table[0, 0] = -1


def free_a_stranger(p: KVPages) -> None:
    p._free[0] = 99


def leave_an_entry_behind(p: KVPages) -> None:
    p.table[2, 3] = 5


def own_more_than_there_is_room(p: KVPages) -> None:
    p._owned[1] = 5


CORRUPTIONS: list[tuple[Callable[[KVPages], None], str]] = [
    (own_twice, "is both sequence 0 and sequence 2"),
    (own_and_free, "is both free and sequence 0"),
    (free_twice, "is both free and free"),
    (lose_a_free_page, "1 KV pages are lost"),
    (lose_an_owned_page, "1 KV pages are lost"),
    (point_outside, r"KV page 8 \(sequence 0\) is outside 0 .. 7"),
    (point_below, r"KV page -1 \(sequence 0\) is outside"),
    (free_a_stranger, r"KV page 99 \(free\) is outside"),
    (leave_an_entry_behind, "sequence 2 has entries past its 1 pages"),
    (own_more_than_there_is_room, "KV page 0"),
]


@pytest.mark.parametrize(("damage", "message"), CORRUPTIONS, ids=lambda v: getattr(v, "__name__", ""))
def test_planted_corruption_is_found(damage: Callable[[KVPages], None], message: str) -> None:
    pages = filled()
    damage(pages)
    with pytest.raises(PageIntegrityError, match=message):
        pages.check_integrity()


def test_a_table_that_is_given_is_written_in_place() -> None:
    table = np.zeros((2, 3), np.int32)
    pages = KVPages(4, 2, 3, table)
    pages.grow(1, 2 * PAGE_TOKENS)
    assert table[1].tolist() == [0, 1, 0]
    pages.grow(0, 1)
    assert table[0].tolist() == [2, 0, 0]
    pages.shrink(1, PAGE_TOKENS)
    assert table[1].tolist() == [0, 0, 0]
    pages.check_integrity()

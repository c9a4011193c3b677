"""Page books: a model-based test of every operation, and corruption that the check must catch."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zinc_rt.engine.page_pool import ROOT, packed, page_key, root_key
from zinc_rt.engine.page_tables import PageTables
from zinc_rt.errors import IntegrityError
from zinc_rt.mem.errors import PagesExhausted
from zinc_rt.numerics import PAGE_TOKENS, pages_for

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
        self.pages = PageTables(n_pages, SLOTS, max_pages)
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
    pages = PageTables(n_pages=3, n_slots=2, max_pages=2)
    with pytest.raises(PagesExhausted, match="sequence 1 needs 3 KV pages for 33 tokens; a sequence may have 2"):
        pages.grow(1, 33)
    pages.grow(0, 32)
    with pytest.raises(PagesExhausted, match="sequence 1 needs 2 more KV pages for 20 tokens; 1 of 3 are free"):
        pages.grow(1, 20)


ROOT_KEY = root_key(b"model", b"tenant")


def text(n_pages: int, seed: int = 0) -> list[int]:
    return [1000 * seed + i for i in range(n_pages * PAGE_TOKENS)]


def publish(pages: PageTables, slot: int, ids: list[int]) -> None:
    for at in range(len(ids) // PAGE_TOKENS):
        pages.publish(slot, at, ROOT_KEY, ids[at * PAGE_TOKENS : (at + 1) * PAGE_TOKENS])


def filled() -> PageTables:
    """Sequence 0 has pages 0 and 1, 1 has 2 and 3, 2 has 6; sequence 3 was closed: 4 and 5 are cached."""
    pages = PageTables(n_pages=9, n_slots=4, max_pages=4)
    pages.grow(0, 32)
    pages.grow(1, 50)
    pages.grow(2, 1)
    pages.shrink(1, 20)
    pages.grow(3, 1)
    pages.grow(3, 32)
    publish(pages, 0, text(2))
    publish(pages, 3, text(2, seed=1))
    pages.release(3)
    pages.check_integrity()
    assert pages.table[:, :2].tolist() == [[0, 1], [2, 3], [6, 0], [0, 0]]
    assert (list(pages.pool._cached), sorted(pages.pool._free)) == ([5, 4], [7, 8])
    return pages


def own_twice(p: PageTables) -> None:
    p.table[1, 1] = p.table[0, 0]


def own_and_free(p: PageTables) -> None:
    p.pool._free.append(int(p.table[1, 0]))


def own_and_cached(p: PageTables) -> None:
    p.pool._cached[0] = None


def free_twice(p: PageTables) -> None:
    p.pool._free.append(p.pool._free[0])


def lose_a_free_page(p: PageTables) -> None:
    p.pool._free.pop()


def lose_a_cached_page(p: PageTables) -> None:
    p.pool._cached.popitem()


def lose_an_owned_page(p: PageTables) -> None:
    p.n_owned[0] -= 1
    p.table[0, 1] = 0


def point_outside(p: PageTables) -> None:
    p.table[1, 0] = 9


def point_below(p: PageTables) -> None:
    p.table[2, 0] = -1


def free_a_stranger(p: PageTables) -> None:
    p.pool._free[0] = 99


def leave_an_entry_behind(p: PageTables) -> None:
    p.table[2, 3] = 5


def own_more_than_there_is_room(p: PageTables) -> None:
    p.n_owned[1] = 5


def count_one_too_many(p: PageTables) -> None:
    p.pool.refs[2] += 1


def swap_pages(p: PageTables) -> None:
    p.table[0, :2] = p.table[0, 1::-1]


def leave_contents_of_a_free_page(p: PageTables) -> None:
    p.pool.publish(7, b"k" * 16, ROOT, packed(range(16)))


def forget_contents(p: PageTables) -> None:
    p.pool._forget(5)


def forget_a_parent(p: PageTables) -> None:
    del p.pool._index[p.pool.known.pop(4).key]


def change_an_id(p: PageTables) -> None:
    p.pool.known[5].ids = packed(range(1, 17))


def forget_a_child(p: PageTables) -> None:
    p.pool.known[4].children.clear()


def add_a_child(p: PageTables) -> None:
    p.pool.known[5].children.add(0)


def leave_a_key_behind(p: PageTables) -> None:
    p.pool._index[b"k" * 16] = 4


def evict_parents_first(p: PageTables) -> None:
    p.pool._cached.move_to_end(5)


CORRUPTIONS: list[tuple[Callable[[PageTables], None], str]] = [
    (own_twice, "KV page 0 of sequence 1 stands behind page 2, not behind its parent -1"),
    (own_and_free, "KV page 2 is in 2 places"),
    (own_and_cached, "KV page 0 is in 2 places"),
    (free_twice, "KV page 8 is in 2 places"),
    (lose_a_free_page, "1 KV pages are lost"),
    (lose_a_cached_page, "1 KV pages are lost"),
    (lose_an_owned_page, "KV page 1 counts 1 references, page tables have 0"),
    (point_outside, r"KV page 9 is outside 0 .. 8"),
    (point_below, r"KV page -1 is outside"),
    (free_a_stranger, r"KV page 99 is outside"),
    (leave_an_entry_behind, "sequence 2 has entries past its 1 pages"),
    (own_more_than_there_is_room, "KV page 0"),
    (count_one_too_many, "KV page 2 counts 2 references, page tables have 1"),
    (swap_pages, "KV page 1 of sequence 0 stands behind page -1, not behind its parent 0"),
    (leave_contents_of_a_free_page, "KV page 7 is free, but its contents are known"),
    (forget_contents, "KV page 5 is cached, but its contents are not known"),
    (forget_a_parent, "KV page 4 is cached, but its contents are not known"),
    (change_an_id, "the key of KV page 5 does not follow from page 4"),
    (forget_a_child, "the key of KV page 5 does not follow from page 4"),
    (add_a_child, "children that do not name them"),
    (leave_a_key_behind, "the index of KV pages and their keys differ"),
    (evict_parents_first, "KV page 4 would be evicted before page 5"),
]


@pytest.mark.parametrize(("damage", "message"), CORRUPTIONS, ids=lambda v: getattr(v, "__name__", ""))
def test_planted_corruption_is_found(damage: Callable[[PageTables], None], message: str) -> None:
    pages = filled()
    damage(pages)
    with pytest.raises(IntegrityError, match=message):
        pages.check_integrity()


def test_a_table_that_is_given_is_written_in_place() -> None:
    table = np.zeros((2, 3), np.int32)
    pages = PageTables(4, 2, 3, table)
    pages.grow(1, 2 * PAGE_TOKENS)
    assert table[1].tolist() == [0, 1, 0]
    pages.grow(0, 1)
    assert table[0].tolist() == [2, 0, 0]
    pages.shrink(1, PAGE_TOKENS)
    assert table[1].tolist() == [0, 0, 0]
    pages.check_integrity()


def test_keys_are_told_apart() -> None:
    """Where a field ends is part of a root, and no root is a page's key."""
    ids = packed(range(16))
    keys = [
        root_key(b"ab", b"c"),
        root_key(b"a", b"bc"),
        root_key(b"abc"),
        root_key(b"abc", b""),
        root_key(ROOT_KEY, ids),
        page_key(ROOT_KEY, ids),
        page_key(page_key(ROOT_KEY, ids), ids),
        page_key(ROOT_KEY, packed(range(1, 17))),
    ]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {16}
    for wrong in (range(15), range(17), [*range(15), 1 << 31]):
        with pytest.raises(struct.error):
            packed(wrong)


def test_a_text_is_found_as_far_as_it_is_known() -> None:
    pages = filled()
    ids = text(4)
    assert pages.lookup(ROOT_KEY, ids, 64) == [0, 1]
    assert pages.lookup(ROOT_KEY, ids, 31) == [0]
    assert pages.lookup(ROOT_KEY, ids, 15) == []
    assert pages.lookup(ROOT_KEY, ids, 64, behind=[0]) == [1]
    assert pages.lookup(ROOT_KEY, ids, 64, behind=[2]) == []  # nobody knows what is in it
    assert pages.lookup(None, ids, 64) == []
    assert pages.lookup(root_key(b"another tenant"), ids, 64) == []
    assert pages.lookup(ROOT_KEY, [*ids[:20], 7, *ids[21:]], 64) == [0]
    assert pages.lookup(ROOT_KEY, text(2, seed=1), 32) == [4, 5]


def test_the_pages_unused_for_longest_go_first_and_tails_before_beginnings() -> None:
    pages = filled()
    assert pages.n_free == 4
    pages.extend(3, pages.lookup(ROOT_KEY, text(2, seed=1), 32))
    pages.release(3)
    pages.release(0)
    assert list(pages.pool._cached) == [5, 4, 1, 0]
    pages.grow(3, 3 * PAGE_TOKENS)
    assert sorted(pages.pages(3)) == [5, 7, 8]  # free ones first
    assert pages.pool.evictions == 1
    assert pages.lookup(ROOT_KEY, text(2, seed=1), 32) == [4]  # nothing stale is found
    pages.check_integrity()


def test_one_page_for_one_text() -> None:
    """Two sequences compute the same text at once: the one that is later takes the other's pages."""
    pages = PageTables(n_pages=6, n_slots=2, max_pages=3)
    pages.grow(0, 40)
    pages.grow(1, 40)
    publish(pages, 0, text(2))
    publish(pages, 1, text(2))
    assert pages.table.tolist() == [[0, 1, 2], [0, 1, 5]]
    assert pages.pool.refs == [2, 2, 1, 0, 0, 1]
    assert pages.shared(0, 20)
    assert not pages.shared(0, 40)
    pages.check_integrity()
    pages.shrink(1, 16)
    pages.shrink(0, 20)  # it is alone on page 1 now, and may write there
    assert pages.lookup(ROOT_KEY, text(2), 32) == [0]
    pages.check_integrity()


def test_writing_to_a_page_forgets_what_is_behind_it() -> None:
    pages = PageTables(n_pages=6, n_slots=2, max_pages=4)
    for end in (2, 1):  # two texts that part behind the first page
        pages.grow(0, 64)
        publish(pages, 0, text(1) + text(3, seed=end))
        pages.shrink(0, 16)
    assert pages.pool.n_cached == 5
    gone: list[int] = []
    pages.pool.forgotten = gone.append
    pages.shrink(0, 5)
    assert sorted(gone) == list(range(6))
    assert (pages.pool.n_cached, pages.pool.n_free) == (0, 5)
    pages.check_integrity()


def test_two_texts_of_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is not found, nor is what stands behind it, and no text is taken for another."""
    monkeypatch.setattr("zinc_rt.engine.page_tables.page_key", lambda parent, ids: parent[:8] + ids[:1] * 8)
    monkeypatch.setattr("zinc_rt.engine.page_pool.page_key", lambda parent, ids: parent[:8] + ids[:1] * 8)
    one, other = text(1) + text(1, seed=5), [0, *text(2, seed=3)[1:]]
    pages = PageTables(n_pages=8, n_slots=2, max_pages=4)
    pages.grow(0, 32)
    publish(pages, 0, one)
    assert pages.lookup(ROOT_KEY, one, 32) == [0, 1]
    assert pages.lookup(ROOT_KEY, other, 32) == []
    assert pages.pool.collisions == 1
    pages.grow(1, 32)
    publish(pages, 1, other)
    assert pages.pages(1) == [2, 3]
    assert sorted(pages.pool.known) == [0, 1]
    assert pages.lookup(ROOT_KEY, other, 32) == []
    pages.check_integrity()


def test_room_is_checked_for_all_at_once() -> None:
    pages = PageTables(n_pages=4, n_slots=3, max_pages=4)
    pages.grow(0, 48)
    pages.check_room([(0, 48, 50)])
    pages.check_room([(0, 16, 16), (1, 0, 48)])  # what one gives up the other can have
    with pytest.raises(PagesExhausted, match="sequence 1 needs 1 more KV pages for 3 tokens; 0 of 4 are free"):
        pages.check_room([(0, 48, 50), (1, 0, 3)])
    with pytest.raises(PagesExhausted, match="sequence 2 needs 5 KV pages"):
        pages.check_room([(2, 0, 65)])
    publish(pages, 0, text(3))
    pages.extend(1, pages.lookup(ROOT_KEY, text(3), 48))
    with pytest.raises(PagesExhausted, match="sequence 2 needs 2 more KV pages for 17 tokens; 1 of 4 are free"):
        pages.check_room([(0, 16, 16), (2, 0, 17)])  # the other still has them

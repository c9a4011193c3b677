"""Placing temporaries: never two live buffers in one place, and not much more room than needed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.mem.arena import ALIGNMENT, Lifetime, align_up, place

lifetimes = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 12), st.integers(0, 6)), min_size=0, max_size=15
).map(lambda rows: [Lifetime(i, size, first, first + length) for i, (size, first, length) in enumerate(rows)])


@pytest.mark.parametrize(("value", "up"), [(0, 0), (1, 64), (63, 64), (64, 64), (65, 128)])
def test_align_up(value: int, up: int) -> None:
    assert align_up(value) == up
    assert align_up(value, 1) == value


@given(lifetimes)
@settings(max_examples=80, deadline=None)
def test_live_buffers_never_overlap(items: list[Lifetime]) -> None:
    offsets, total = place(items)
    assert offsets.keys() == {t.key for t in items}
    for t in items:
        assert offsets[t.key] >= 0
        assert offsets[t.key] % ALIGNMENT == 0
        assert offsets[t.key] + t.size <= total
    for i, a in enumerate(items):
        for b in items[:i]:
            if a.first <= b.last and b.first <= a.last:  # alive at one node
                apart = offsets[a.key] + a.size <= offsets[b.key] or offsets[b.key] + b.size <= offsets[a.key]
                assert apart, (a, b)


@given(lifetimes)
@settings(max_examples=40, deadline=None)
def test_the_arena_is_no_larger_than_everything_apart(items: list[Lifetime]) -> None:
    total = place(items)[1]
    assert total <= sum(align_up(t.size) for t in items)
    alive = [sum(align_up(t.size) for t in items if t.first <= at <= t.last) for at in range(20)]
    assert total >= max(alive)


def test_a_chain_takes_turns() -> None:
    """Each node's output is the next one's input: two places are enough for any number of them."""
    offsets, total = place([Lifetime(i, 1000, i, i + 1) for i in range(20)])
    assert total == 2 * align_up(1000)
    assert len(set(offsets.values())) == 2


def test_the_order_given_does_not_matter() -> None:
    items = [Lifetime(i, 100 * (i % 3 + 1), i, i + 2) for i in range(9)]
    assert place(items) == place(items[::-1])


def test_nothing_to_place() -> None:
    assert place([]) == ({}, 0)

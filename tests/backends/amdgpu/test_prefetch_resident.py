"""What a resident program asks for before its workgroups meet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from zinc_rt.backends.amdgpu.prefetch_resident import (
    IDLE_BYTES,
    MEETING_BYTES,
    MOST_BYTES,
    PrefetchRange,
    prefetch_ranges,
)

MB = 1 << 20


def works(*weights: tuple[tuple[int, int], ...]) -> list[Any]:
    return [SimpleNamespace(weights=each) for each in weights]


def test_what_is_read_first() -> None:
    """Of a product its first rows, of two matrices side by side half each; what was asked for is not again."""
    one, two, three = ((1 << 30, 8 * MB),), ((2 << 30, 5 * MB), (3 << 30, 5 * MB)), ((4 << 30, 9 * MB),)
    found = prefetch_ranges([works(one), works(two), works(three, one)], 256)
    half = MEETING_BYTES // 2
    assert found == [
        PrefetchRange(0, 1, 2 << 30, half),
        PrefetchRange(0, 1, 3 << 30, half),
        PrefetchRange(1, 2, 4 << 30, MEETING_BYTES),
    ]


def test_phases_without_weights() -> None:
    """At their end more is asked for, also of the phase behind the next; before them nothing is."""
    small, large, none = ((1 << 30, 2 * MB),), ((2 << 30, 30 * MB),), ()
    found = prefetch_ranges([works(large), works(none), works(small), works(((3 << 30, 9 * MB),))], 256)
    left = IDLE_BYTES - 2 * MB
    assert found[:2] == [PrefetchRange(1, 2, 1 << 30, 2 * MB), PrefetchRange(1, 3, 3 << 30, left)]
    assert found[2:] == [PrefetchRange(2, 3, (3 << 30) + left, MEETING_BYTES)]


def test_limits() -> None:
    """Half of the L2 for a phase; a line for each work-item that does not wait; whole lines."""
    found = prefetch_ranges([works(()), works(()), works(()), works(((1 << 30, 30 * MB),))], 256)
    assert [each.size for each in found] == [IDLE_BYTES, MOST_BYTES - IDLE_BYTES]
    (few,) = prefetch_ranges([works(()), works(((1 << 30, 30 * MB),))], 2)
    assert few.size == 2 * 224 * 128
    (whole,) = prefetch_ranges([works(()), works(((1 << 30, 1000),))], 256)
    assert whole.size == 896
    assert not prefetch_ranges([works(()), works(((1 << 30, 100),))], 256)
    assert not prefetch_ranges([works(()), works(())], 256)

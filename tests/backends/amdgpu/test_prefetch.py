"""Which weights are brought before the phases that read them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from zinc_rt.backends.gpu.prefetch import END_BYTES, IDLE_BYTES, MOST_BYTES, prefetched
from zinc_rt.lang.occupancy import workgroups_at_once


def at_once(kernel: Any) -> int:
    """Workgroups that a card of 64 compute units holds."""
    return workgroups_at_once(64, **vars(kernel))


def work(groups: int, *weights: tuple[int, int], vgprs: int = 96) -> Any:
    """A dispatch of 256 work-items that reads matrices at these addresses."""
    loaded = SimpleNamespace(wave=32, vgprs=vgprs, lds_bytes=0, workgroup=256, wgp=True)
    return SimpleNamespace(
        groups=(groups, 1, 1),
        weights=weights,
        program=SimpleNamespace(kernel=loaded),
        kernel=SimpleNamespace(function=SimpleNamespace(workgroup=256)),
    )


MIB = 1 << 20
LARGE = work(512, (0x1000_0000, 20 * MIB))


def test_a_phase_without_weights_brings_more_than_the_end_of_another() -> None:
    after = work(512, (0x4000_0000, 16 * MIB))
    assert prefetched([[work(8)], [LARGE], [after]], at_once) == [
        [(0x1000_0000, IDLE_BYTES)],
        [(0x4000_0000, END_BYTES)],
        [],
    ]


def test_what_was_brought_is_not_brought_again() -> None:
    assert prefetched([[LARGE], [work(8)], [work(512, (0x4000_0000, 16 * MIB))]], at_once) == [
        [(0x4000_0000, END_BYTES)],
        [(0x4000_0000 + END_BYTES, IDLE_BYTES)],
        [],
    ]
    assert END_BYTES + IDLE_BYTES == MOST_BYTES
    small = work(512, (0x4000_0000, MIB))
    brought = prefetched([[work(8)], [small], [LARGE]], at_once)
    assert brought == [[(0x4000_0000, MIB), (0x1000_0000, 3 * MIB)], [(0x1000_0000 + 3 * MIB, END_BYTES)], []]


def test_matrices_that_are_read_side_by_side_are_brought_side_by_side() -> None:
    pair = work(512, (0x4000_0000, 16 * MIB), (0x5000_0000, 16 * MIB))
    assert prefetched([[work(8)], [pair]], at_once)[0] == [
        (0x4000_0000, IDLE_BYTES // 2),
        (0x5000_0000, IDLE_BYTES // 2),
    ]


def test_a_phase_that_leaves_room_on_the_card_brings_nothing_unless_all_it_reads_is_under_way() -> None:
    """A SIMD holds 16 waves of up to 96 registers: 256 workgroups of 8 waves fill a card of 64 units."""
    after = [work(512, (0x4000_0000, 16 * MIB))]
    for groups, room in ((256, END_BYTES), (255, 0)):
        found = prefetched([[work(groups, (0x1000_0000, 40 * MIB))], after], at_once)
        assert sum(n for _, n in found[0]) == room
    assert prefetched([[work(128, (0x1000_0000, 128 * 8 * 4608))], after], at_once)[0] == [(0x4000_0000, END_BYTES)]
    assert prefetched([[work(512, vgprs=32)], [work(8)]], at_once) == [[], []]

"""Arithmetic of save areas, against figures of real cards and of the driver's source; names of graphics cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.amdgpu.kfd.sizes import SaveArea, compute_units, eop_bytes, save_area
from zinc_rt.seed.kfd import TopologyNode, align_up, compute_cwsr_bo_size, format_gfx_target

CARDS = [  # simd_count, gfx_target_version, control stack, save area, allocation
    (128, 120001, 0x7000, 0x1D47000, 0x1D57000),
    (112, 120001, 0x6000, 0x199E000, 0x19AC000),
    (64, 120000, 0x4000, 0xEA4000, 0xEAC000),
]


@pytest.mark.parametrize(("simds", "gfx", "stack", "context", "allocation"), CARDS)
def test_known_cards(simds: int, gfx: int, stack: int, context: int, allocation: int) -> None:
    told = TopologyNode(1, 7, gfx, simds, 2, 1, context, stack)
    silent = TopologyNode(1, 7, gfx, simds, 2, 1)
    assert save_area(told) == save_area(silent) == SaveArea(context, stack, allocation)
    assert compute_cwsr_bo_size(context, simds, 2, 1, gfx) == allocation
    assert compute_units(told) == simds // 2


def test_what_the_topology_says_wins() -> None:
    area = save_area(TopologyNode(1, 7, 120001, 128, 2, 1, 0x1D48000, 0x8000))
    assert area == SaveArea(0x1D48000, 0x8000, 0x1D58000)


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ((0x1D47000, 128, 0, 0, 120001), 0x1D57000),  # defaults: 2 SIMDs a CU, one XCC
        ((0x1000, 8, 0, 0, 90402), 0x1000),  # before gfx10.1: no part for the debugger
        ((0x1001, 8, 4, 1, 90402), 0x2000),
        ((0x1000, 8, 0, 1, 100000), 0x1000),
        ((0x1000, 8, 0, 1, 100100), 0x1000 + 0x1000),  # 4 CU: 4096 bytes
        ((0x1000, 16, 2, 2, 120001), 2 * 0x2000),  # each XCC has its own
        ((0x1000, 8, 0, 1, 130000), 0x1000 + 0x1000),  # 4 SIMDs a CU again: 2 CU, 2048 bytes, a page
    ],
)
def test_the_rule(arguments: tuple[int, int, int, int, int], size: int) -> None:
    assert compute_cwsr_bo_size(*arguments) == size


@given(st.integers(0, 1 << 64), st.integers(1, 1 << 32))
def test_align_up(value: int, alignment: int) -> None:
    aligned = align_up(value, alignment)
    assert aligned % alignment == 0
    assert 0 <= aligned - value < alignment
    assert align_up(value, 0) == value
    assert align_up(aligned, alignment) == aligned


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (120001, "gfx1201"),
        (120000, "gfx1200"),
        (110003, "gfx1103"),
        (110501, "gfx1151"),
        (100306, "gfx1036"),
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (80003, "gfx803"),
        (0, "gfx?"),
    ],
)
def test_names(version: int, name: str) -> None:
    assert format_gfx_target(version) == name


def test_end_of_pipe_buffer() -> None:
    assert [eop_bytes(v) for v in (70000, 80000, 90010, 120001)] == [0, 4096, 4096, 4096]

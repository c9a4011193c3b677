"""Addresses on the GPU: what REPLACE, CLEAR and UNMAP leave, when changes take effect."""

from __future__ import annotations

import errno
import threading
import time

import pytest

from amdgpu_emu.abi.gem import (
    AMDGPU_VA_OP_CLEAR,
    AMDGPU_VA_OP_REPLACE,
    AMDGPU_VA_OP_UNMAP,
    AMDGPU_VM_PAGE_READABLE,
    AMDGPU_VM_PAGE_WRITEABLE,
)
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.drm.card import DATA_VA, IB_VA, Card, refused, write_data
from tests.amdgpu_emu.drm.checks import covers

PAGE = 4096


def layout(card: Card) -> list[tuple[int, int, int, int]]:
    """Page, pages, page of the buffer, size of the buffer in pages."""
    return [
        ((m.va - DATA_VA) // PAGE, m.size // PAGE, m.offset // PAGE, m.bo.size // PAGE)
        for m in card.file.vm
        if m.va >= DATA_VA
    ]


@pytest.fixture
def eight(card: Card) -> Card:
    """Eight pages mapped at `DATA_VA`."""
    card.va(card.create(8 * PAGE), DATA_VA, 8 * PAGE)
    return card


@covers("3.va-replace")
def test_replace_cuts_a_hole(eight: Card) -> None:
    eight.va(eight.create(2 * PAGE), DATA_VA + 3 * PAGE, 2 * PAGE, AMDGPU_VA_OP_REPLACE)
    assert layout(eight) == [(0, 3, 0, 8), (3, 2, 0, 2), (5, 3, 5, 8)]


@covers("3.va-clear")
@pytest.mark.parametrize(
    ("first", "pages", "left"),
    [
        (0, 8, []),
        (0, 3, [(3, 5, 3, 8)]),
        (6, 2, [(0, 6, 0, 8)]),
        (2, 1, [(0, 2, 0, 8), (3, 5, 3, 8)]),
        (7, 30, [(0, 7, 0, 8)]),
        (8, 4, [(0, 8, 0, 8)]),
    ],
)
def test_clear_splits(eight: Card, first: int, pages: int, left: list[tuple[int, int, int, int]]) -> None:
    eight.va(0, DATA_VA + first * PAGE, pages * PAGE, AMDGPU_VA_OP_CLEAR)
    assert layout(eight) == left


@covers("3.va-unmap")
def test_unmap_looks_at_the_start_alone(eight: Card) -> None:
    eight.va(1, DATA_VA, PAGE, AMDGPU_VA_OP_UNMAP)
    assert layout(eight) == []


@covers("3.va-mask")
def test_high_bits_are_masked_off(card: Card) -> None:
    card.va(card.create(), 0xFFFF_8000_0010_0000)
    assert [m.va for m in card.file.vm] == [0x8000_0010_0000]


def test_rights_of_pages(card: Card) -> None:
    card.va(card.create(), DATA_VA, flags=AMDGPU_VM_PAGE_READABLE)
    card.va(card.create(), DATA_VA + PAGE, flags=AMDGPU_VM_PAGE_WRITEABLE)
    assert [(m.readable, m.writable, m.executable) for m in card.file.vm] == [
        (True, False, False),
        (False, True, False),
    ]


@covers("3.va-ordered")
@pytest.mark.parametrize("machine", [{"time_scale": 1.0}], indirect=True)
def test_changes_wait_for_earlier_submissions_and_come_before_later_ones(ready: Card) -> None:
    """A page changes its buffer while a submission that writes there is under way."""
    first, second = ready.create(), ready.create()
    held = ready.bo_list(0, handles=(first, second))
    ready.va(first, IB_VA + 0x100000 * 4)
    there = IB_VA + 0x100000 * 4
    blocked = ready.submit([*_wait(), *write_data(there, 1)], bo_list=held)
    ready.va(first, there, op=AMDGPU_VA_OP_UNMAP)
    ready.va(second, there)
    later = ready.submit(write_data(there, 2), bo_list=held)
    ready.unblock()
    assert (ready.wait(blocked), ready.wait(later)) == (0, 0)
    values = [int(ready.file.gems.get(handle).bo.bytes[0]) for handle in (first, second)]  # type: ignore[union-attr]
    assert values == [1, 2]


def _wait() -> list[int]:
    return [0xC0053C00, 0x13, DATA_VA & 0xFFFFFFFF, DATA_VA >> 32, 1, 0xFFFFFFFF, 4]


@covers("3.va-timeline")
@pytest.mark.parametrize("machine", [LINUX_6_17, LINUX_7_3], indirect=True)
def test_the_timeline_of_the_page_tables(card: Card) -> None:
    timeline = card.syncobj()
    card.va(card.create(), vm_timeline_syncobj_out=timeline, vm_timeline_point=5)
    assert card.timeline_query(timeline) == 5
    lone = card.syncobj()
    card.va(card.create(), DATA_VA + PAGE, vm_timeline_syncobj_out=lone)
    assert card.syncobj_wait(lone) == 0
    with refused(errno.ENOENT):
        card.va(card.create(), DATA_VA + 2 * PAGE, vm_timeline_syncobj_out=99)


@covers("3.va-input-waits")
@pytest.mark.parametrize("machine", [{"profile": LINUX_6_17, "time_scale": 1.0}], indirect=True)
def test_input_fences_are_waited_for(ready: Card) -> None:
    sequence = ready.block()
    fence = ready.fence_to(0, sequence)
    handle = ready.create()
    threading.Timer(0.05, ready.unblock).start()
    started = time.monotonic()  # of the host, as is the timer
    ready.va(handle, DATA_VA + PAGE, num_syncobj_handles=1, input_fence_syncobj_handles=ready.array("I", [fence]))
    assert time.monotonic() - started > 0.03
    assert ready.wait(sequence, 0) == 0

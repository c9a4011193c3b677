"""Sync objects by themselves: waiting, timelines, transfers."""

from __future__ import annotations

import ctypes
import errno
import threading

import pytest

from amdgpu_emu.abi import drm, requests
from amdgpu_emu.drm import syncobj_ioctls
from tests.amdgpu_emu.drm.card import Card, nop
from tests.amdgpu_emu.drm.checks import covers

ALL, LATER = drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL, drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT
RESET, SIGNAL = requests.DRM_SYNCOBJ_RESET, requests.DRM_SYNCOBJ_SIGNAL
NO_INDEX = 0xFFFF_FFFF


def refused(call: object) -> int:
    assert callable(call)
    with pytest.raises(OSError) as error:
        call()
    return error.value.errno or 0


@covers("4.sync-time", "4.sync-no-fence")
def test_signal_reset_and_wait(card: Card) -> None:
    first, second = card.syncobj(), card.syncobj(1)
    assert card.syncobj_wait(first, second, flags=LATER) == 1
    assert refused(lambda: card.syncobj_wait(first, second, flags=LATER | ALL)) == errno.ETIME
    assert refused(lambda: card.syncobj_wait(first, second)) == errno.EINVAL
    card.syncobj_array(SIGNAL, first)
    assert card.syncobj_wait(first, second, flags=ALL) == 0
    card.syncobj_array(RESET, first, second)
    assert refused(lambda: card.syncobj_wait(first, flags=LATER)) == errno.ETIME


def test_someone_signals_while_another_waits(card: Card) -> None:
    handle = card.syncobj()
    threading.Timer(0.03, lambda: card.syncobj_array(SIGNAL, handle)).start()
    assert card.syncobj_wait(handle, timeout=card.soon(), flags=LATER) == 0
    other = card.syncobj()
    threading.Timer(0.03, lambda: card.syncobj_array(SIGNAL, other)).start()
    assert card.syncobj_wait(other, timeout=card.soon(), flags=LATER | ALL) == NO_INDEX  # none was done at first


def test_timelines(card: Card) -> None:
    line = card.syncobj()
    assert card.timeline_query(line) == 0
    card.timeline_signal(line, 3)
    card.timeline_signal(line, 8)
    assert (card.timeline_query(line), card.timeline_query(line, 1)) == (8, 8)
    assert [card.timeline_wait(line, point) for point in (1, 3, 8)] == [0, 0, 0]
    assert refused(lambda: card.timeline_wait(line, 9)) == errno.EINVAL
    assert refused(lambda: card.timeline_wait(line, 9, flags=LATER)) == errno.ETIME
    threading.Timer(0.03, lambda: card.timeline_signal(line, 9)).start()
    assert card.timeline_wait(line, 9, card.soon(), LATER) == 0
    card.syncobj_array(RESET, line)
    assert card.timeline_query(line) == 0


@pytest.mark.parametrize("machine", [{"time_scale": 1.0}], indirect=True)
def test_points_are_reached_in_order(ready: Card) -> None:
    """A point counts once those before it are done."""
    line = ready.syncobj()
    blocked = ready.fence_to(0, ready.block())
    transfer(ready, blocked, line, point=5)
    ready.timeline_signal(line, 6)
    assert (ready.timeline_query(line), ready.timeline_query(line, 1)) == (0, 6)
    assert refused(lambda: ready.timeline_wait(line, 6)) == errno.ETIME
    assert ready.timeline_wait(line, 6, flags=drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE) == 0
    ready.unblock()
    assert ready.timeline_wait(line, 6, ready.soon()) == 0
    assert ready.timeline_query(line) == 6


def transfer(card: Card, source: int, target: int, point: int = 0, source_point: int = 0, pad: int = 0) -> None:
    args = drm.DrmSyncobjTransfer(source, target, source_point, point, 0, pad)
    card.call(requests.DRM_SYNCOBJ_TRANSFER, args)


def test_a_transfer_waits_for_somebody_to_submit(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds on a real kernel."""
    monkeypatch.setattr(syncobj_ioctls, "WAIT_FOR_SUBMIT_NS", 20_000_000)
    source, target = card.syncobj(), card.syncobj()
    late = drm.DrmSyncobjTransfer(source, target, 0, 0, LATER)
    assert refused(lambda: card.call(requests.DRM_SYNCOBJ_TRANSFER, late)) == errno.ETIME
    monkeypatch.undo()
    threading.Timer(0.02, lambda: card.syncobj_array(SIGNAL, source)).start()
    card.call(requests.DRM_SYNCOBJ_TRANSFER, late)
    assert card.syncobj_wait(target) == 0


def test_transfers(card: Card) -> None:
    done, line, lone = card.syncobj(1), card.syncobj(), card.syncobj()
    transfer(card, done, line, point=4)
    assert card.timeline_query(line) == 4
    transfer(card, line, lone, source_point=4)
    assert card.syncobj_wait(lone) == 0
    assert refused(lambda: transfer(card, done, 99)) == errno.ENOENT
    assert refused(lambda: transfer(card, 99, line)) == errno.ENOENT
    assert refused(lambda: transfer(card, card.syncobj(), line, 5)) == errno.EINVAL
    assert refused(lambda: transfer(card, done, line, pad=1)) == errno.EINVAL


def test_arrays_of_bad_pointers(card: Card) -> None:
    handles = card.array("I", [card.syncobj(1)])
    wait = drm.DrmSyncobjWait(handles=16, count_handles=1)
    points = drm.DrmSyncobjTimelineWait(handles=handles, points=16, count_handles=1)
    query = drm.DrmSyncobjTimelineArray(handles=handles, points=16, count_handles=1)
    assert refused(lambda: card.call(requests.DRM_SYNCOBJ_WAIT, wait)) == errno.EFAULT
    assert refused(lambda: card.call(requests.DRM_SYNCOBJ_TIMELINE_WAIT, points)) == errno.EFAULT
    assert refused(lambda: card.call(requests.DRM_SYNCOBJ_QUERY, query)) == errno.EFAULT


def test_a_sync_object_travels_as_a_file(card: Card) -> None:
    handle = card.syncobj()
    fd = card.owns(card.call(requests.DRM_SYNCOBJ_HANDLE_TO_FD, drm.DrmSyncobjHandle(handle=handle)).fd)
    other = Card(card.machine, 0, card.process)
    there = other.call(requests.DRM_SYNCOBJ_FD_TO_HANDLE, drm.DrmSyncobjHandle(fd=fd)).handle
    other.syncobj_array(SIGNAL, there)
    assert card.syncobj_wait(handle) == 0  # one object, two handles
    other.close()


def test_a_sync_file_is_a_copy_of_the_fence(ready: Card) -> None:
    handle = ready.fence_to(0, ready.submit(nop(8)))
    flags = drm.DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE
    fd = ready.owns(ready.call(requests.DRM_SYNCOBJ_HANDLE_TO_FD, drm.DrmSyncobjHandle(handle=handle, flags=flags)).fd)
    ready.syncobj_array(RESET, handle)
    line = drm.DrmSyncobjHandle(handle=handle, fd=fd, point=7, flags=3)
    ready.call(requests.DRM_SYNCOBJ_FD_TO_HANDLE, line)
    assert ready.timeline_wait(handle, 7, ready.soon()) == 0
    assert ctypes.sizeof(line) == 24

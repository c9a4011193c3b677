"""Waiting: deadlines, statuses, old numbers, fences that become sync objects and files."""

from __future__ import annotations

import errno
import threading

import pytest

from amdgpu_emu.abi import cs, drm, requests
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.drm.card import DATA_VA, FOREVER, Card, nop, refused, wait_memory
from tests.amdgpu_emu.drm.checks import covers

slow = pytest.mark.parametrize("machine", [{"time_scale": 1.0}], indirect=True)
MS = 1_000_000


@covers("4.wait-poll", "4.wait-status")
@slow
def test_deadlines_are_absolute(ready: Card) -> None:
    sequence = ready.block()
    now = ready.process.monotonic_ns()
    assert [ready.wait(sequence, 0), ready.wait(sequence, 1), ready.wait(sequence, now)] == [1, 1, 1]
    assert ready.process.monotonic_ns() - now < 2000 * MS
    assert ready.wait(sequence, now + 60 * MS) == 1
    assert ready.process.monotonic_ns() - now >= 60 * MS
    ready.unblock()
    assert ready.wait(sequence, ready.soon()) == 0
    assert [ready.wait(sequence, 0), ready.wait(sequence, 1)] == [0, 0]


@covers("4.wait-forever")
@slow
@pytest.mark.parametrize("deadline", [FOREVER, 1 << 63])
def test_negative_deadlines_wait_for_ever(ready: Card, deadline: int) -> None:
    sequence = ready.block()
    threading.Timer(0.03, ready.unblock).start()
    assert ready.wait(sequence, deadline) == 0


@covers("4.wait-later", "4.wait-last", "4.wait-old")
@slow
def test_numbers(ready: Card) -> None:
    for _ in range(40):
        last = ready.submit(nop(8))
    assert ready.wait(last) == 0
    blocked = ready.block()
    assert [ready.wait(handle, 0) for handle in (0, 1, 8, 40, blocked, FOREVER)] == [0, 0, 0, 0, 1, 1]
    with refused(errno.EINVAL):
        ready.wait(blocked + 1, 0)
    ready.unblock()
    assert ready.wait(FOREVER) == 0


@covers("4.fences-status")
@slow
def test_wait_fences_says_the_opposite(ready: Card) -> None:
    done = ready.submit(nop(8))
    assert ready.wait(done) == 0
    blocked = ready.block()
    assert ready.wait_fences(done, blocked, every=True, timeout=0) == (0, 0)
    assert ready.wait_fences(blocked, done, every=False, timeout=0) == (1, 1)
    assert ready.wait_fences(blocked, every=False, timeout=0)[0] == 0
    ready.unblock()
    assert ready.wait_fences(done, blocked, every=True) == (1, 0)
    assert ready.wait_fences(blocked, done, every=False) == (1, 0)


@covers("4.to-handle")
@slow
def test_a_fence_as_sync_object_and_files(ready: Card) -> None:
    blocked = ready.block()
    syncobj = ready.fence_to(cs.AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ, blocked)
    shared = ready.owns(ready.fence_to(cs.AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ_FD, blocked))
    sync_file = ready.owns(ready.fence_to(cs.AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD, blocked))
    imported = ready.call(requests.DRM_SYNCOBJ_FD_TO_HANDLE, drm.DrmSyncobjHandle(fd=shared)).handle
    from_file = ready.syncobj()
    ready.call(
        requests.DRM_SYNCOBJ_FD_TO_HANDLE,
        drm.DrmSyncobjHandle(handle=from_file, fd=sync_file, flags=drm.DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE),
    )
    for handle in (syncobj, imported, from_file):
        with refused(errno.ETIME):
            ready.syncobj_wait(handle)
    ready.unblock()
    deadline = ready.soon()
    assert [ready.syncobj_wait(handle, timeout=deadline) for handle in (syncobj, imported, from_file)] == [0, 0, 0]


@covers("4.to-handle-stub")
def test_a_done_fence_as_sync_object(ready: Card) -> None:
    sequence = ready.submit(nop(8))
    assert ready.wait(sequence) == 0
    assert ready.syncobj_wait(ready.fence_to(0, sequence), ready.fence_to(0, 0)) == 0


@pytest.mark.parametrize("machine", [LINUX_6_17, LINUX_7_3], indirect=True)
def test_waiting_for_any_of_none_is_refused(ready: Card) -> None:
    with refused(errno.EINVAL):
        ready.wait_fences(every=False)


@slow
def test_late_fences(ready: Card) -> None:
    ready.file.gpu.fence_delay = 0.06
    started = ready.process.monotonic_ns()
    sequence = ready.submit(nop(8))
    assert ready.wait(sequence, started + 20 * MS) == 1
    assert ready.wait(sequence) == 0
    assert ready.process.monotonic_ns() - started >= 60 * MS


@slow
def test_a_packet_that_waits_sees_the_programs_store(ready: Card) -> None:
    sequence = ready.submit(wait_memory(DATA_VA + 8, 3))
    ready.process.store32(ready.data_address + 8, 3)
    assert ready.wait(sequence) == 0

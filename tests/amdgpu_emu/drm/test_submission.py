"""Submissions: order, numbers, what they may touch, what they wait for and signal."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest

from amdgpu_emu.abi import cs, gem
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.drm.card import (
    ALWAYS_VALID,
    COMPUTE,
    DATA_VA,
    FOREVER,
    GFX,
    Card,
    nop,
    refused,
    wait_memory,
    write_data,
)
from tests.amdgpu_emu.drm.checks import covers

KERNELS = [{"profile": kernel, "time_scale": 1.0} for kernel in (LINUX_6_12, LINUX_6_17, LINUX_7_3)]
ELSEWHERE = 0x3_0000_0000
slow = pytest.mark.parametrize("machine", [{"time_scale": 1.0}], indirect=True)


def at(offset: int) -> int:
    """An address in the data page."""
    return DATA_VA + offset


@covers("4.cs-sequence")
@pytest.mark.parametrize("machine", KERNELS, indirect=True)
def test_numbers_per_context_engine_and_ring(ready: Card) -> None:
    other = ready.ctx()
    sequences = [
        ready.submit(nop(8)),
        ready.submit(nop(8)),
        ready.submit(nop(8), ring=1),
        ready.submit(nop(8), ctx=other),
        ready.submit(nop(8), ip=GFX),
        ready.submit(nop(8)),
    ]
    assert sequences == [1, 2, 1, 1, 1, 3]
    assert [ready.wait(3), ready.wait(1, ring=1), ready.wait(1, ctx=other), ready.wait(1, ip=GFX)] == [0] * 4


@slow
def test_the_call_returns_before_the_work_is_done(ready: Card) -> None:
    sequence = ready.block()
    assert ready.wait(sequence, 0) == 1
    ready.unblock()
    assert ready.wait(sequence) == 0


def test_submissions_of_a_ring_run_in_order(ready: Card) -> None:
    for value in range(1, 20):
        last = ready.submit(write_data(at(0x100), value))
    assert ready.wait(last) == 0
    assert ready.word(0x100) == 19


@covers("4.cs-blocks")
@slow
def test_the_thirty_third_outstanding_submission_blocks(ready: Card) -> None:
    first = ready.block()
    for _ in range(31):
        ready.submit(nop(8))
    assert ready.submit(nop(8), ring=1) == 1  # another ring is not full
    threading.Timer(0.1, ready.unblock).start()
    started = ready.process.monotonic_ns()
    assert ready.submit(nop(8)) == 33
    assert ready.process.monotonic_ns() - started > 5e7
    assert (first, ready.wait(33)) == (1, 0)


@covers("4.cs-resident")
@pytest.mark.parametrize("machine", [LINUX_6_17, LINUX_7_3], indirect=True)
def test_what_is_not_listed_is_a_finding(ready: Card) -> None:
    handle = ready.create()
    ready.va(handle, ELSEWHERE)
    write = write_data(ELSEWHERE, 5) * 2
    assert ready.wait(ready.submit(write, bo_list=ready.bo_list(0, handles=(handle,)))) == 0
    assert ready.machine.findings == []
    assert ready.wait(ready.submit(write)) == 0
    (finding,) = ready.machine.findings  # once per submission and buffer
    assert finding.kind == "not-resident"
    assert f"{ELSEWHERE:#x}" in finding.text
    ready.machine.findings.clear()


def test_always_valid_buffers_and_updated_lists_are_resident(ready: Card) -> None:
    ready.va(ready.create(flags=ALWAYS_VALID), ELSEWHERE)
    handle = ready.create()
    ready.va(handle, ELSEWHERE + 0x10000)
    held = ready.bo_list(0)
    ready.bo_list(cs.AMDGPU_BO_LIST_OP_UPDATE, held, (handle,))
    write = write_data(ELSEWHERE, 5) + write_data(ELSEWHERE + 0x10000, 6)
    assert ready.wait(ready.submit(write, bo_list=held)) == 0


@covers("4.cs-list-chunk")
def test_a_chunk_of_handles_makes_buffers_resident(ready: Card) -> None:
    handle = ready.create()
    ready.va(handle, ELSEWHERE)
    entry = cs.DrmAmdgpuBoListEntry(handle, 0)
    chunk = cs.DrmAmdgpuBoListIn(bo_number=1, bo_info_size=8, bo_info_ptr=ready.address_of(entry))
    sequence = ready.submit(write_data(ELSEWHERE, 5), (cs.AMDGPU_CHUNK_ID_BO_HANDLES, bytes(chunk)))
    assert ready.wait(sequence) == 0


def test_a_refused_submission_holds_no_buffers(ready: Card) -> None:
    handle = ready.create(8192)
    entry = cs.DrmAmdgpuBoListEntry(handle, 0)
    chunk = cs.DrmAmdgpuBoListIn(bo_number=1, bo_info_size=8, bo_info_ptr=ready.address_of(entry))
    # Refused in the first pass, and in the second.
    for wrong, code in (((0xB, b""), errno.EINVAL), ((cs.AMDGPU_CHUNK_ID_SYNCOBJ_IN, b"\7\0\0\0"), errno.ENOENT)):
        with refused(code):
            ready.submit(nop(8), (cs.AMDGPU_CHUNK_ID_BO_HANDLES, bytes(chunk)), wrong)
    before = sum(ready.file.gpu.used.values())
    ready.close_gem(handle)
    assert before - sum(ready.file.gpu.used.values()) == 8192


@covers("4.cs-fence-written")
def test_the_user_fence_gets_the_number(ready: Card) -> None:
    handle = ready.create()
    address = ready.map_offset(ready.gem_mmap(handle), 4096)
    chunk = cs.AMDGPU_CHUNK_ID_FENCE, bytes(cs.DrmAmdgpuCsChunkFence(handle, 64))
    for _ in range(2):
        last = ready.submit(nop(8), chunk)
    assert ready.wait(last) == 0
    assert ready.process.load64(address + 64) == 2


def _dependency(kind: int, sequence: int, ring: int = 0) -> tuple[int, bytes]:
    dep = cs.DrmAmdgpuCsChunkDep(ip_type=COMPUTE, ring=ring, ctx_id=1, handle=sequence)
    return kind, bytes(dep)


@covers("4.cs-dep-waits")
@slow
def test_dependencies_hold_a_submission_back(ready: Card) -> None:
    blocked = ready.block()
    ready.submit(write_data(at(0x100), 1), _dependency(cs.AMDGPU_CHUNK_ID_DEPENDENCIES, blocked), ring=1)
    started = ready.submit(
        write_data(at(0x108), 1), _dependency(cs.AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES, blocked), ring=2
    )
    assert ready.wait(started, ring=2) == 0  # what it waits for was handed to the hardware
    assert (ready.word(0x100), ready.word(0x108)) == (0, 1)
    behind = ready.submit(nop(8))
    after_behind = ready.submit(
        write_data(at(0x110), 1), _dependency(cs.AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES, behind), ring=3
    )
    assert ready.wait(after_behind, 0, ring=3) == 1  # that one has not been
    ready.unblock()
    assert (ready.wait(1, ring=1), ready.wait(after_behind, ring=3)) == (0, 0)
    assert (ready.word(0x100), ready.word(0x110)) == (1, 1)


@covers("4.cs-syncobj")
@slow
def test_sync_objects_order_submissions(ready: Card) -> None:
    between = ready.syncobj()
    sem = bytes(cs.DrmAmdgpuCsChunkSem(between))
    ready.block((cs.AMDGPU_CHUNK_ID_SYNCOBJ_OUT, sem))
    other = ready.ctx()
    after = ready.submit(write_data(at(0x100), 1), (cs.AMDGPU_CHUNK_ID_SYNCOBJ_IN, sem), ring=1, ctx=other)
    assert (ready.wait(after, 0, other, ring=1), ready.word(0x100)) == (1, 0)
    ready.unblock()
    assert ready.syncobj_wait(between, timeout=ready.soon()) == 0
    assert ready.wait(after, ctx=other, ring=1) == 0
    assert ready.word(0x100) == 1


@covers("4.cs-timeline")
@slow
def test_points_of_timelines_order_submissions(ready: Card) -> None:
    line = ready.syncobj()

    def point(kind: int, value: int) -> tuple[int, bytes]:
        return kind, bytes(cs.DrmAmdgpuCsChunkSyncobj(line, 0, value))

    signal, wait = cs.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, cs.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT
    ready.submit(nop(8), point(signal, 10))
    ready.block(point(signal, 20))
    early = ready.submit(write_data(at(0x100), 1), point(wait, 10), ring=1)
    late = ready.submit(write_data(at(0x108), 1), point(wait, 15), ring=2)
    assert (ready.wait(early, ring=1), ready.wait(late, 0, ring=2)) == (0, 1)
    assert (ready.timeline_query(line), ready.timeline_query(line, 1)) == (10, 20)
    ready.unblock()
    assert (ready.wait(late, ring=2), ready.timeline_query(line)) == (0, 20)


@covers("4.cs-gang-runs")
def test_several_rings_in_one_submission(ready: Card) -> None:
    first = ready.program(wait_memory(at(0x200), 7) + write_data(at(0x100), 1))
    second = ready.program(write_data(at(0x200), 7) + write_data(at(0x108), 2))
    sequence = ready.cs(ready.ib_chunk(*second, COMPUTE, 1), ready.ib_chunk(*first, COMPUTE, 0))
    assert ready.wait(sequence, ring=0) == 0  # the last named leads, and has the number
    assert (ready.word(0x100), ready.word(0x108)) == (1, 2)
    with refused(errno.EINVAL):
        ready.wait(1, ring=1)


def test_several_indirect_buffers_in_one_submission(ready: Card) -> None:
    chunks = [ready.ib_chunk(*ready.program(write_data(at(0x100 + 8 * i), i + 1))) for i in range(5)]
    assert ready.wait(ready.cs(*chunks)) == 0
    assert [ready.word(0x100 + 8 * i) for i in range(5)] == [1, 2, 3, 4, 5]


def test_a_submission_without_a_store_fence_is_a_finding(ready: Card) -> None:
    handle = ready.create(flags=gem.AMDGPU_GEM_CREATE_CPU_GTT_USWC)
    ready.map_offset(ready.gem_mmap(handle), 4096)
    program = ready.program(nop(8))  # with a fence
    ready.cs(ready.ib_chunk(*program))
    assert ready.machine.findings == []
    last = ready.cs(ready.ib_chunk(*program))
    assert [finding.kind for finding in ready.machine.findings] == ["missing-store-fence"]
    ready.machine.findings.clear()
    assert ready.wait(last) == 0


@slow
def test_two_threads_submit_and_wait(ready: Card) -> None:
    """Each on a ring of its own; nothing is lost or mixed up."""
    programs = [ready.program(write_data(at(0x400 + 8 * ring), ring + 1)) for ring in range(2)]
    wrong: list[object] = []

    def work(ring: int) -> None:
        for i in range(1, 41):
            sequence = ready.cs(ready.ib_chunk(*programs[ring], COMPUTE, ring))
            if (sequence, ready.wait(sequence, FOREVER, ring=ring)) != (i, 0):
                wrong.append((ring, i, sequence))

    threads = [threading.Thread(target=work, args=(ring,)) for ring in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert (ready.word(0x400), ready.word(0x408)) == (1, 2)


Blocked = Callable[[Card], object]


@slow
@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.wait(1, FOREVER),
        lambda c: c.wait_fences(1, every=True, timeout=FOREVER),
        lambda c: c.wait_idle(c.data, FOREVER),
    ],
    ids=["WAIT_CS", "WAIT_FENCES", "GEM_WAIT_IDLE"],
)
def test_who_waits_learns_that_the_device_is_gone(ready: Card, call: Blocked) -> None:
    ready.block()

    def lose() -> None:
        ready.file.gpu.lost = True

    threading.Timer(0.05, lose).start()
    with refused(errno.ENODEV):
        call(ready)
    with refused(errno.ENODEV):
        ready.submit(nop(8))

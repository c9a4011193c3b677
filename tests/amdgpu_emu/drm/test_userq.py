"""User queues: running, ids, fences with the rest of the kernel."""

from __future__ import annotations

import ctypes
import errno

import pytest

from amdgpu_emu.abi import gem, requests, userq
from amdgpu_emu.drm import userq as userq_of_the_driver
from amdgpu_emu.models import R9700
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3_USERQ
from tests.amdgpu_emu.drm.card import (
    ALWAYS_VALID,
    COMPUTE,
    DATA_VA,
    DOORBELL,
    Card,
    nop,
    refused,
    wait_memory,
    write_data,
)
from tests.amdgpu_emu.drm.checks import covers
from tests.amdgpu_emu.drm.refusals_userq import EOP_VA, QUEUE_BYTES, QUEUE_VA, RPTR_VA, WPTR_VA

pytestmark = pytest.mark.parametrize("machine", [{"profile": LINUX_7_3_USERQ, "time_scale": 1.0}], indirect=True)


class Queue:
    """A compute queue of a card and its memory."""

    def __init__(self, card: Card, at: int = 0, doorbell: int = 4) -> None:
        self.card = card
        shift = at * 0x10_0000
        uncached = gem.AMDGPU_VM_MTYPE_UC
        self.ring = card.buffer(QUEUE_VA + shift, QUEUE_BYTES, mtype=uncached)[1]
        self.wptr = card.buffer(WPTR_VA + shift, mtype=uncached)[1]
        self.rptr = card.buffer(RPTR_VA + shift, mtype=uncached)[1]
        card.va(card.create(flags=ALWAYS_VALID), EOP_VA + shift)
        pages = card.create(4096, DOORBELL, ALWAYS_VALID)
        self.doorbell = card.map_offset(card.gem_mmap(pages), 4096) + 8 * doorbell
        mqd = userq.DrmAmdgpuUserqMqdComputeGfx11(EOP_VA + shift)
        self.number = card.userq(
            op=1, ip_type=COMPUTE, doorbell_handle=pages, doorbell_offset=doorbell, queue_va=QUEUE_VA + shift,
            queue_size=QUEUE_BYTES, wptr_va=WPTR_VA + shift, rptr_va=RPTR_VA + shift, mqd=card.address_of(mqd),
            mqd_size=8,
        )  # fmt: skip
        self.written = 0

    def ring_doorbell(self, words: list[int], *, tell_memory: bool = True) -> None:
        for word in words:
            at = self.ring + 4 * (self.written % (QUEUE_BYTES // 4))
            ctypes.c_uint32.from_address(at).value = word
            self.written += 1
        if tell_memory:
            self.card.process.store64(self.wptr, self.written)
        self.card.process.store_fence()
        self.card.process.store64(self.doorbell, self.written)


@pytest.fixture
def queue(ready: Card) -> Queue:
    return Queue(ready)


@covers("5.runs", "5.ids")
def test_a_doorbell_starts_what_is_in_the_ring(ready: Card, queue: Queue) -> None:
    assert queue.number == 1
    queue.ring_doorbell([*write_data(DATA_VA + 8, 0x1234)])
    ready.machine.settle()
    assert ready.word(8) == 0x1234
    assert ready.process.load64(queue.rptr) == queue.written == 6


def test_the_ring_wraps(ready: Card, queue: Queue) -> None:
    for i in range(1, 8):
        queue.ring_doorbell(nop(1000) + write_data(DATA_VA + 8, i))
        ready.machine.settle()
        assert ready.word(8) == i
    assert queue.written > QUEUE_BYTES // 4


@covers("5.ids")
def test_queues_of_their_own(ready: Card, queue: Queue) -> None:
    second = Queue(ready, 1)
    assert second.number == 2
    queue.ring_doorbell(wait_memory(DATA_VA + 16, 1))
    second.ring_doorbell([*write_data(DATA_VA + 8, 2), *write_data(DATA_VA + 16, 1)])
    ready.machine.settle()
    assert ready.word(8) == 2
    ready.userq(op=2, queue_id=1)
    with refused(errno.ENOENT):
        ready.userq(op=2, queue_id=1)


def test_the_firmware_reads_the_write_pointer_in_memory(ready: Card, queue: Queue) -> None:
    queue.ring_doorbell(nop(2), tell_memory=False)
    assert [finding.kind for finding in ready.machine.findings] == ["stale-write-pointer"]
    ready.machine.findings.clear()


def test_a_queue_that_faults_stops(ready: Card, queue: Queue) -> None:
    queue.ring_doorbell(write_data(0x9_0000_0000, 1))
    ready.machine.settle()
    assert ready.file.user_queues.get(1).hung  # type: ignore[union-attr]
    assert any("0x900000000" in line for line in ready.machine.dmesg)
    assert ready.file.gpu.resets == 1


def _signal(card: Card, queue: Queue, syncobj: int) -> None:
    args = userq.DrmAmdgpuUserqSignal(
        queue_id=queue.number, syncobj_handles=card.array("I", [syncobj]), num_syncobj_handles=1
    )
    card.call(requests.AMDGPU_USERQ_SIGNAL, args)


@covers("5.wait-count")
def test_fences_with_the_rest_of_the_kernel(ready: Card, queue: Queue) -> None:
    syncobj = ready.syncobj()
    queue.ring_doorbell(wait_memory(DATA_VA + 16, 1) + nop(2))
    _signal(ready, queue, syncobj)
    with refused(errno.ETIME):
        ready.syncobj_wait(syncobj)
    room = (userq.DrmAmdgpuUserqFenceInfo * 2)()
    args = userq.DrmAmdgpuUserqWait(
        waitq_id=queue.number,
        syncobj_handles=ready.array("I", [syncobj]),
        num_syncobj_handles=1,
        out_fences=ctypes.addressof(room),
    )
    assert ready.call(requests.AMDGPU_USERQ_WAIT, args).num_fences == 1  # the count
    assert room[0].va == 0
    assert ready.call(requests.AMDGPU_USERQ_WAIT, args).num_fences == 1
    assert room[0].value == queue.written
    second = Queue(ready, 1)  # waits for the first one as the kernel said
    second.ring_doorbell(wait_memory(room[0].va, room[0].value) + write_data(DATA_VA + 8, 7))
    assert ready.word(8) == 0
    ready.process.store32(ready.data_address + 16, 1)
    assert ready.syncobj_wait(syncobj, timeout=ready.soon()) == 0
    ready.machine.settle()
    assert ready.word(8) == 7


@pytest.mark.parametrize("order", ["kernel first"])
def test_waiting_for_a_kernel_fence_is_done_by_the_call(ready: Card, queue: Queue, order: str) -> None:
    syncobj = ready.fence_to(0, ready.submit(nop(8)))
    args = userq.DrmAmdgpuUserqWait(
        waitq_id=queue.number,
        syncobj_handles=ready.array("I", [syncobj]),
        num_syncobj_handles=1,
        num_fences=1,
        out_fences=ready.array("Q", [0, 0]),
    )
    assert ready.call(requests.AMDGPU_USERQ_WAIT, args).num_fences == 0
    assert ready.syncobj_wait(syncobj) == 0


def _another(queue: Queue, doorbell: int) -> int:
    one = queue.card.file.user_queues.get(queue.number)
    assert one is not None
    mqd = userq.DrmAmdgpuUserqMqdComputeGfx11(EOP_VA)
    pages = queue.card.file.gems.number_of(one.doorbell)
    assert pages is not None
    return queue.card.userq(
        op=1, ip_type=COMPUTE, doorbell_handle=pages, doorbell_offset=doorbell, queue_va=QUEUE_VA,
        queue_size=QUEUE_BYTES, wptr_va=WPTR_VA, rptr_va=RPTR_VA, mqd=queue.card.address_of(mqd), mqd_size=8,
    )  # fmt: skip


def test_a_doorbell_that_has_a_queue_is_a_finding(ready: Card, queue: Queue) -> None:
    with refused(errno.EINVAL):
        _another(queue, 4)
    assert [finding.kind for finding in ready.machine.findings] == ["doorbell-shared"]
    ready.machine.findings.clear()


def test_how_many(ready: Card, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userq_of_the_driver, "MAX_QUEUES", 2)
    assert _another(queue, 5) == 2
    with refused(errno.EBUSY):
        _another(queue, 6)


def test_closing_the_file_takes_the_queues(ready: Card, queue: Queue) -> None:
    other = Card(ready.machine).prepare()
    Queue(other)
    ready.machine.strict = False
    other.process.close(other.fd)
    (finding,) = [f for f in ready.machine.findings if "user queues" in f.text]
    assert finding.kind == "leak"
    assert len(ready.file.device.doorbells) == 1
    assert not LINUX_6_17.offers_user_queues(R9700.firmware)

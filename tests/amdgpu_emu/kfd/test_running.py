"""Queues that run: ring, write pointer, doorbell, fence, interrupt; faults, hangs, resets."""

from __future__ import annotations

import ctypes
import errno
import threading
import time
from collections.abc import Callable

import pytest

from amdgpu_emu.abi import kfd as u
from amdgpu_emu.abi import requests as r
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.drm.card import Card
from tests.amdgpu_emu.kfd import pm4
from tests.amdgpu_emu.kfd.stage import (
    BASE,
    DATA,
    GTT,
    HW_EXCEPTION,
    MEMORY,
    PAGE,
    RING,
    RING_BYTES,
    RPTR,
    RWX,
    UNCACHED,
    VRAM,
    WPTR,
    Stage,
    refused,
)

EVENTS = BASE + 0x70_0000
DWORDS = RING_BYTES // 4


class Ring:
    """A queue with its ring, pointers, doorbell and a page for fences mapped by the processor."""

    def __init__(self, stage: Stage, **changes: int) -> None:
        self.stage, self.process = stage, stage.process
        flags = GTT | RWX | UNCACHED
        self.ring = stage.cpu(RING, RING_BYTES, flags)
        self.pointers = stage.cpu(RPTR, PAGE, flags)
        self.data = stage.cpu(DATA, PAGE, flags)
        stage.queue_buffers(ring=0, pointers=0)
        args = stage.create_queue(**changes)
        self.number, self.offset = args.queue_id, args.doorbell_offset
        self.bells = stage.mmap(stage.kfd, 0x2000, self.offset & ~0x1FFF)
        self.written = 0

    def put(self, *packets: tuple[int, ...]) -> None:
        """Into the ring, not rung yet."""
        for packet in packets:
            for word in packet:
                self.process.store32(self.ring + 4 * (self.written % DWORDS), word)
                self.written += 1

    def ring_bell(self, *, told: int | None = None) -> None:
        self.process.store64(self.pointers + WPTR - RPTR, self.written)
        self.process.store_fence()
        self.process.store64(self.bells + (self.offset & 0x1FFF), self.written if told is None else told)

    def submit(self, *packets: tuple[int, ...]) -> None:
        self.put(*packets)
        self.ring_bell()

    def fence(self, slot: int = 0) -> int:
        return self.process.load64(self.data + 8 * slot)

    def wait(self, value: int, slot: int = 0, seconds: float = 60.0) -> None:
        until(lambda: self.fence(slot) == value, seconds)

    @property
    def read(self) -> int:
        return self.process.load64(self.pointers)


def until(ready: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.0005)


@pytest.fixture
def ring(stage: Stage) -> Ring:
    return Ring(stage)


def found(machine: Machine) -> list[str]:
    """Kinds of findings, which are taken note of."""
    kinds = [finding.kind for finding in machine.findings]
    machine.findings.clear()
    return kinds


@pytest.mark.parametrize("machine", [LINUX_6_12, LINUX_6_17, LINUX_7_3], ids=lambda k: k.name, indirect=True)
def test_a_fence_retires(machine: Machine) -> None:
    stage = Stage(machine)
    ring = Ring(stage)
    ring.submit(pm4.NOP, pm4.release(DATA, 0x1234_5678_9ABC))
    ring.wait(0x1234_5678_9ABC)
    until(lambda: ring.read == ring.written)
    stage.close()


def test_nothing_runs_before_the_doorbell(ring: Ring) -> None:
    ring.put(pm4.release(DATA, 1))
    ring.process.store64(ring.pointers + WPTR - RPTR, ring.written)
    time.sleep(0.02)
    assert ring.fence() == 0
    ring.ring_bell()
    ring.wait(1)


def test_the_ring_wraps(ring: Ring) -> None:
    """Pointers count on; packets go over the ring's end."""
    packet = len(pm4.release(0, 0))
    for i in range(1, 2 * DWORDS // packet + 3):
        ring.put(pm4.release(DATA, i))
        if i % 512 == 0:
            ring.ring_bell()
            ring.wait(i)
    ring.put(pm4.NOP)
    ring.submit(pm4.release(DATA, 77))
    ring.wait(77)
    until(lambda: ring.read == ring.written)
    assert ring.written > 2 * DWORDS


def test_queues_run_beside_each_other(stage: Stage) -> None:
    ring = Ring(stage)
    second = stage.cpu(BASE + 0x40_0000, RING_BYTES, GTT | RWX | UNCACHED)
    pointers = stage.cpu(BASE + 0x50_0000, PAGE, GTT | RWX | UNCACHED)
    args = stage.create_queue(
        ring_base_address=BASE + 0x40_0000,
        read_pointer_address=BASE + 0x50_0000,
        write_pointer_address=BASE + 0x50_0008,
    )
    ring.submit(pm4.wait_for(DATA + 8, 5), pm4.release(DATA, 1))
    words = pm4.release(DATA + 8, 5)
    for i, word in enumerate(words):
        stage.process.store32(second + 4 * i, word)
    time.sleep(0.01)
    assert ring.fence() == 0, "it waits for the other queue"
    stage.process.store64(pointers + 8, len(words))
    stage.process.store_fence()
    stage.process.store64(ring.bells + (args.doorbell_offset & 0x1FFF), len(words))
    ring.wait(1)


def test_threads_share_a_process(machine: Machine) -> None:
    """Each makes buffers, a queue, submissions of its own; nothing is mixed up, nothing is left."""
    stage = Stage(machine)
    stage.queue_buffers(ring=0, pointers=0)
    flags, failed = GTT | RWX | UNCACHED, []

    def work(n: int) -> None:
        base = BASE + 0x4000_0000 + n * 0x100_0000
        try:
            ring, pointers = stage.cpu(base, RING_BYTES, flags), stage.cpu(base + 0x10_0000, PAGE, flags)
            for _ in range(3):
                args = stage.create_queue(
                    ring_base_address=base,
                    read_pointer_address=base + 0x10_0000,
                    write_pointer_address=base + 0x10_0008,
                )
                bells = stage.process.mmap(0, 0x2000, 3, 1, stage.kfd, args.doorbell_offset & ~0x1FFF)
                stage.process.store64(pointers + 16, 0)
                words = pm4.release(base + 0x10_0010, n + 1)
                for i, word in enumerate(words):
                    stage.process.store32(ring + 4 * i, word)
                stage.process.store64(pointers + 8, len(words))
                stage.process.store_fence()
                stage.process.store64(bells + (args.doorbell_offset & 0x1FFF), len(words))
                until(lambda: stage.process.load64(pointers + 16) == n + 1)
                stage.destroy_queue(args.queue_id)
                stage.process.munmap(bells, 0x2000)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failed
    stage.close()


def test_idle_queues_do_not_keep_the_machine_busy(ring: Ring) -> None:
    ring.submit(pm4.release(DATA, 1))
    ring.stage.machine.settle()
    assert ring.fence() == 1
    clock = ring.stage.machine.clock
    started = clock.now()
    ring.stage.machine.settle(5.0)
    assert clock.now() - started < 1


# Broken rules.


def test_a_doorbell_that_differs_from_the_write_pointer(ring: Ring) -> None:
    ring.put(pm4.NOP)
    ring.ring_bell(told=0)
    assert found(ring.stage.machine) == ["doorbell-mismatch"]


def test_a_ring_that_is_overrun(ring: Ring) -> None:
    ring.submit(pm4.wait_for(DATA + 8, 5))
    until(lambda: not ring.stage.machine.findings)
    ring.written += DWORDS
    ring.ring_bell()
    assert found(ring.stage.machine) == ["ring-overrun"]
    ring.stage.queues.remove(ring.number)
    ring.process.store64(ring.data + 8, 5)
    until(lambda: ring.stage.process.kfd is not None and bool(ring.stage.process.kfd.queues.find(0, 0).dead))
    with refused(errno.ETIME):
        ring.stage.call(r.KFD_DESTROY_QUEUE, queue_id=ring.number)


def test_a_doorbell_that_goes_back(ring: Ring) -> None:
    ring.submit(pm4.NOP)
    until(lambda: ring.read == ring.written)
    ring.written -= 1
    ring.ring_bell()
    assert "doorbell-backwards" in found(ring.stage.machine)
    ring.stage.queues.remove(ring.number)
    until(lambda: ring.stage.process.kfd is not None and bool(ring.stage.process.kfd.queues.find(0, 0).dead))
    with refused(errno.ETIME):
        ring.stage.call(r.KFD_DESTROY_QUEUE, queue_id=ring.number)


def test_a_doorbell_that_no_queue_has(ring: Ring) -> None:
    ring.process.store_fence()
    ring.process.store64(ring.bells + 8 * 7, 1)
    assert found(ring.stage.machine) == ["doorbell-without-queue"]


def test_a_doorbell_without_a_store_fence(ring: Ring) -> None:
    ring.put(pm4.release(DATA, 1))
    ring.process.store64(ring.pointers + WPTR - RPTR, ring.written)
    ring.process.store64(ring.bells, ring.written)
    assert found(ring.stage.machine) == ["missing-store-fence"]
    ring.wait(1)


def test_only_pm4_queues_are_run(stage: Stage) -> None:
    stage.queue_buffers()
    args = stage.create_queue(queue_type=u.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)
    at = stage.mmap(stage.kfd, 0x2000, args.doorbell_offset & ~0x1FFF)
    stage.process.store_fence()
    stage.process.store64(at, 1)
    assert found(stage.machine) == ["queue-type"]


# Stopping.


def test_a_stopped_queue_goes_on_later(ring: Ring) -> None:
    stage = ring.stage
    stage.call(r.KFD_UPDATE_QUEUE, queue_id=ring.number, queue_percentage=100)
    ring.submit(pm4.release(DATA, 1))
    time.sleep(0.02)
    assert ring.fence() == 0
    stage.call(
        r.KFD_UPDATE_QUEUE, queue_id=ring.number, ring_base_address=RING, ring_size=RING_BYTES, queue_percentage=100
    )
    ring.wait(1)
    stage.call(
        r.KFD_UPDATE_QUEUE, queue_id=ring.number, ring_base_address=RING, ring_size=RING_BYTES, queue_percentage=0
    )
    ring.submit(pm4.release(DATA, 2))
    time.sleep(0.02)
    assert ring.fence() == 1


def test_a_queue_that_waits_can_be_destroyed(ring: Ring) -> None:
    """The packet that waits for memory lets the queue be taken off."""
    ring.submit(pm4.wait_for(DATA + 8, 5))
    time.sleep(0.01)
    ring.stage.destroy_queue(ring.number)
    assert ring.stage.machine.gpus[0].resets == 0


def test_a_ring_that_moves_goes_on_where_the_pointers_are(ring: Ring) -> None:
    stage = ring.stage
    ring.submit(pm4.release(DATA, 1))
    ring.wait(1)
    place = BASE + 0x40_0000
    ring.ring = stage.cpu(place, RING_BYTES, GTT | RWX | UNCACHED)
    until(lambda: ring.read == ring.written)
    stage.call(
        r.KFD_UPDATE_QUEUE, queue_id=ring.number, ring_base_address=place, ring_size=RING_BYTES, queue_percentage=100
    )
    ring.submit(pm4.release(DATA, 2))
    ring.wait(2)


# Faults.


def exception(stage: Stage, number: int, timeout: int = 5000) -> u.EventData:
    events = (u.EventData * 1)()
    events[0].event_id = number
    args = stage.call(
        r.KFD_WAIT_EVENTS, events_ptr=ctypes.addressof(events), num_events=1, wait_for_all=1, timeout=timeout
    )
    assert args.wait_result == u.KFD_IOC_WAIT_RESULT_COMPLETE
    return events[0]


@pytest.mark.parametrize(("va", "reason"), [(BASE + 0x90_0000, "NotPresent"), (BASE + 0x60_0000, "ReadOnly")])
def test_a_page_fault(ring: Ring, va: int, reason: str) -> None:
    stage = ring.stage
    stage.buffer(BASE + 0x60_0000, PAGE, GTT)
    number = stage.event(MEMORY).event_id
    other = stage.create_queue().queue_id
    ring.submit(pm4.release(va + 0x18, 1))
    data = exception(stage, number).memory_exception_data
    assert (data.va, data.gpu_id) == (va, stage.gpu_id)
    reasons = {name: getattr(data.failure, name) for name in ("NotPresent", "ReadOnly", "NoExecute")}
    assert reasons == {"NotPresent": 0, "ReadOnly": 0, "NoExecute": 0} | {reason: 1}
    ring.submit(pm4.release(DATA, 1))
    time.sleep(0.01)
    assert ring.fence() == 0, "the queue runs no more"
    stage.destroy_queue(ring.number)
    stage.destroy_queue(other)
    assert stage.machine.gpus[0].resets == 0
    assert any("page fault" in line for line in stage.machine.dmesg)


def test_fences_fault_without_an_eop_buffer(stage: Stage) -> None:
    ring = Ring(stage, eop_buffer_address=0, eop_buffer_size=0)
    number = stage.event(MEMORY).event_id
    ring.submit(pm4.release(DATA, 1))
    assert exception(stage, number).memory_exception_data.gpu_id == stage.gpu_id
    assert ring.fence() == 0


def test_a_hang_is_found_when_the_queue_is_destroyed(ring: Ring) -> None:
    stage, gpu = ring.stage, ring.stage.machine.gpus[0]
    bystander = Stage(stage.machine)
    bystander.queue_buffers()
    theirs = bystander.create_queue().queue_id
    numbers = [one.event(HW_EXCEPTION).event_id for one in (stage, bystander)]
    vram = stage.cpu(BASE + 0x80_0000, PAGE, VRAM | RWX | u.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC)
    stage.process.store64(vram, 5)
    ring.submit(pm4.MALFORMED, pm4.release(DATA, 1))
    until(lambda: any("hangs" in line for line in stage.machine.dmesg))
    assert (ring.fence(), gpu.resets) == (0, 0)
    stage.queues.remove(ring.number)
    with refused(errno.ETIME):
        stage.call(r.KFD_DESTROY_QUEUE, queue_id=ring.number)
    assert gpu.resets == 1
    with refused(errno.EINVAL):
        stage.call(r.KFD_DESTROY_QUEUE, queue_id=ring.number)
    for one, number in zip((stage, bystander), numbers, strict=True):
        data = exception(one, number).hw_exception_data
        assert (data.reset_type, data.reset_cause, data.memory_lost, data.gpu_id) == (0, 0, 1, stage.gpu_id)
    assert stage.process.load64(vram) == 0, "VRAM was lost"
    assert bystander.process.kfd is not None
    assert not bystander.process.kfd.queues.find(theirs, 0).is_active()
    bystander.close()
    assert gpu.resets == 1


@pytest.mark.parametrize("machine", [{"time_scale": 1.0}], indirect=True)
def test_a_reset_ends_jobs_of_the_other_driver_too(ring: Ring) -> None:
    """A job on a kernel ring, from a render node of its own, is lost with the card: ECANCELED."""
    stage = ring.stage
    card = Card(stage.machine)
    card.prepare()
    sequence = card.block()
    ring.submit(pm4.MALFORMED)
    until(lambda: any("hangs" in line for line in stage.machine.dmesg))
    stage.queues.remove(ring.number)
    with refused(errno.ETIME):
        stage.call(r.KFD_DESTROY_QUEUE, queue_id=ring.number)
    with refused(errno.ECANCELED):
        card.wait(sequence, card.soon())
    card.close()


def test_after_a_reset_new_queues_work(ring: Ring) -> None:
    stage = ring.stage
    ring.submit(pm4.MALFORMED)
    until(lambda: any("hangs" in line for line in stage.machine.dmesg))
    stage.queues.remove(ring.number)
    with refused(errno.ETIME):
        stage.call(r.KFD_DESTROY_QUEUE, queue_id=ring.number)
    assert stage.create_queue().queue_id == 0
    stage.process.store64(ring.pointers, 0)
    ring.written = 0
    ring.submit(pm4.release(DATA, 9))
    ring.wait(9)


def test_a_gpu_that_goes_away(ring: Ring) -> None:
    stage = ring.stage
    number = stage.event(HW_EXCEPTION).event_id
    stage.machine.gpus[0].lost = True
    ring.submit(pm4.NOP, pm4.release(DATA, 1))
    assert exception(stage, number).hw_exception_data.gpu_id == stage.gpu_id
    stage.queues.remove(ring.number)
    with refused(errno.EIO):
        stage.call(r.KFD_DESTROY_QUEUE, queue_id=ring.number)


# Interrupts.


def test_an_interrupt_wakes_a_waiter(ring: Ring) -> None:
    stage = ring.stage
    stage.event_page(EVENTS)
    done = stage.event()
    mailbox = EVENTS + 8 * done.event_slot_index
    seconds: list[float] = []

    def wait() -> None:
        started = stage.machine.clock.now()
        exception(stage, done.event_id)
        seconds.append(stage.machine.clock.now() - started)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.03)
    ring.submit(pm4.release(DATA, 1), pm4.release(mailbox, done.event_id, context=done.event_trigger_data))
    thread.join(60)
    assert seconds
    assert seconds[0] < 2
    assert ring.fence() == 1


def test_the_mailbox_is_emptied(ring: Ring) -> None:
    stage = ring.stage
    stage.event_page(EVENTS)
    done = stage.event()
    ring.submit(pm4.release(EVENTS + 8 * done.event_slot_index, 1, context=done.event_id))
    exception(stage, done.event_id)
    assert stage.process.kfd is not None
    page = stage.process.kfd.events.page
    assert page is not None
    assert (page.bytes[: 8 * 16] == 0xFF).all()


def test_an_interrupt_without_its_mailbox_wakes_nobody(ring: Ring) -> None:
    stage = ring.stage
    stage.event_page(EVENTS)
    done = stage.event()
    ring.submit(pm4.release(DATA, 1, context=done.event_id))
    ring.wait(1)
    events = (u.EventData * 1)()
    events[0].event_id = done.event_id
    args = stage.call(r.KFD_WAIT_EVENTS, events_ptr=ctypes.addressof(events), num_events=1, timeout=5)
    assert args.wait_result == u.KFD_IOC_WAIT_RESULT_TIMEOUT


def test_an_interrupt_with_a_wrong_number_finds_written_mailboxes(ring: Ring) -> None:
    stage = ring.stage
    stage.event_page(EVENTS)
    done = stage.event()
    ring.submit(pm4.release(EVENTS + 8 * done.event_slot_index, 1), pm4.release(DATA, 1, context=0x7FF))
    exception(stage, done.event_id)


# Firmware that waits for the runtime.


def test_a_strict_firmware_ignores_early_doorbells(stage: Stage) -> None:
    assert stage.process.kfd is not None
    stage.process.kfd.strict_runtime = True
    ring = Ring(stage)
    ring.submit(pm4.release(DATA, 1))
    time.sleep(0.02)
    assert ring.fence() == 0
    stage.event_page(EVENTS)
    stage.call(r.KFD_RUNTIME_ENABLE, mode_mask=0)
    ring.ring_bell()
    ring.wait(1)

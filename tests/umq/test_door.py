"""The door over a user queue, on the emulated kernel and its command processor."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from zinc_rt.emu.machine import Machine
from zinc_rt.emu.process import Process
from zinc_rt.emu.profiles import LINUX_6_17, LINUX_7_3_USERQ
from zinc_rt.linux import PAGE
from zinc_rt.pm4.builder import PacketBuilder
from zinc_rt.pm4.values import CachePolicy
from zinc_rt.ring.door.base import DeviceBuffer, Heap
from zinc_rt.ring.door.proof import ProofFailed, prove
from zinc_rt.ring.errors import DeviceLost, DoorError, FenceTimeout, RingClosed, RingError
from zinc_rt.ring.umq import UmqDoor
from zinc_rt.ring.umq.door import FENCE_VA
from zinc_rt.ring.umq.queue import QUEUE_SIZE

NODE = "/dev/dri/renderD128"
WORDS = 29  # of a submission in the ring


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Closed at the end, which finds leaks and missing fences."""
    with Machine(LINUX_7_3_USERQ, time_scale=0.01) as made:
        yield made


@pytest.fixture
def linux(machine: Machine) -> Process:
    return machine.process()


@pytest.fixture
def door(linux: Process) -> Iterator[UmqDoor]:
    opened = UmqDoor(NODE, linux=linux)
    yield opened
    opened.close()


class Packets:
    """An executable buffer to put packets into, and a page that they write to."""

    def __init__(self, door: UmqDoor) -> None:
        self.door = door
        self.code = door.allocate(4 * PAGE, "gtt", "code", executable=True)
        self.data = door.allocate(PAGE, "gtt", "data")
        assert self.code.address
        self._builder = PacketBuilder((ctypes.c_uint32 * PAGE).from_address(self.code.address))

    def submit(self, build: Callable[[PacketBuilder], object]) -> int:
        """Behind what was written before."""
        self._builder.pad_to_alignment(8)
        start = self._builder.cursor
        build(self._builder)
        return self.door.submit(self.code, 4 * start, self._builder.cursor - start)

    def word(self, offset: int = 0) -> int:
        assert self.data.address
        return self.door.linux.load64(self.data.address + offset)

    def write(self, value: int, offset: int = 0) -> int:
        return self.submit(lambda b: b.write_data64(self.data.va + offset, value))


@pytest.fixture
def packets(door: UmqDoor) -> Packets:
    return Packets(door)


# Work.


def test_it_retires_a_fence(door: UmqDoor) -> None:
    assert prove(door) < 2
    assert door.retired() == 1


def test_facts(door: UmqDoor) -> None:
    facts = door.facts
    assert (facts.render_node, facts.gfx_target_version, facts.compute_units) == (NODE, 120001, 64)
    assert facts.vram == facts.visible_vram > 30 << 30
    assert facts.driver == "amdgpu 3.64 of Linux 7.3.4-amd64"
    assert door.name == "umq"


def test_submissions_run_in_order(door: UmqDoor, packets: Packets) -> None:
    numbers = [packets.write(value) for value in (11, 12, 13)]
    assert numbers == [1, 2, 3]
    door.wait(3, 2)
    assert packets.word() == 13
    assert door.retired() == 3
    door.wait(1, 0)
    door.wait(0, 0)


def test_submission_returns_before_the_work_is_done(machine: Machine, door: UmqDoor, packets: Packets) -> None:
    with machine.lock:  # the GPU's thread stands still
        number = packets.write(7)
        assert door.retired() == 0
        with pytest.raises(FenceTimeout):
            door.wait(number, 0)
    door.wait(number, 2)
    assert packets.word() == 7


def test_the_ring_wraps(door: UmqDoor, packets: Packets) -> None:
    """More submissions than the ring holds: packets go round its end, and none is overwritten."""
    packets.submit(lambda b: b.copy_data64(packets.data.va, packets.data.va + 8))
    count = QUEUE_SIZE // 4 // WORDS + 50
    for _ in range(count):
        door.submit(packets.code, 0, 6)
    last = packets.write(count, 16)
    door.wait(last, 10)
    assert packets.word(16) == count
    assert door.retired() == count + 2


def test_what_a_submission_puts_into_the_ring(door: UmqDoor, packets: Packets) -> None:
    """Word by word: earlier waves done, host writes flushed, caches as the kernel drops them, a called buffer, the
    kernel's own fence.
    """
    door.wait(packets.write(1), 2)
    ring = list(door._writer.ring[:WORDS])
    va = packets.code.va
    assert ring == [
        *(0xC0004600, 0x407),
        *(0xC0053C00, 0x45, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4),
        *(0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 10, 0xC3B1),
        *(0xC0023F00, va & 0xFFFFFFFF, va >> 32, 1 << 23 | 6),
        *(0xC0064900, 0x06600514, 0x40000000, FENCE_VA & 0xFFFFFFFF, FENCE_VA >> 32, 1, 0, 0),
    ]


def test_vram_and_gtt(door: UmqDoor, packets: Packets) -> None:
    vram = door.allocate(PAGE, "vram", "weights")
    far = door.allocate(3 << 20, "vram", "far", visible=False)
    assert far.address is None
    assert far.va % (2 << 20) == 0
    assert vram.address
    door.linux.store64(vram.address, 0x1122334455667788)

    def build(b: PacketBuilder) -> None:
        b.copy_data64(vram.va, far.va)
        b.copy_data64(far.va, packets.data.va)

    door.wait(packets.submit(build), 2)
    assert packets.word() == 0x1122334455667788
    door.release(far)
    door.release(vram)


@pytest.mark.parametrize("heap", ["gtt", "vram"])
def test_host_stores_are_seen_by_the_packets_behind_them(door: UmqDoor, packets: Packets, heap: Heap) -> None:
    """Also where the GPU's caches hold what was there before."""
    source = door.allocate(PAGE, heap, "source")
    assert source.address
    for value in (5, 6, 7):
        door.linux.store64(source.address, value)
        door.wait(packets.submit(lambda b: b.copy_data64(source.va, packets.data.va)), 2)
        assert packets.word() == value


def test_sizes_are_whole_pages_and_addresses_are_used_again(door: UmqDoor) -> None:
    first = door.allocate(1, "gtt", "small")
    assert first.size == PAGE
    second = door.allocate(PAGE, "gtt", "next")
    assert second.va >= first.va + 2 * PAGE  # a page between them stays empty
    door.release(first)
    assert door.allocate(PAGE, "gtt", "again").va == first.va


def test_a_map_that_was_taken_over_stays(door: UmqDoor, linux: Process) -> None:
    buffer = door.allocate(PAGE, "gtt", "array")
    address, buffer.address = buffer.address, None
    assert address
    linux.store64(address, 5)
    door.release(buffer)
    assert linux.load64(address) == 5
    linux.munmap(address, PAGE)


# What a caller gets wrong.


def test_packets_outside_of_their_buffer(door: UmqDoor, packets: Packets) -> None:
    for offset, n in ((-4, 1), (2, 1), (0, 0), (0, PAGE + 1), (4 * PAGE, 1), (4 * PAGE - 4, 2)):
        with pytest.raises(RingError, match="not inside code"):
            door.submit(packets.code, offset, n)


def test_numbers_that_were_never_given(door: UmqDoor) -> None:
    for number in (1, -1):
        with pytest.raises(RingError, match="was not made; the last is 0"):
            door.wait(number, 1)


@pytest.mark.parametrize("timeout", [-1.0, float("inf"), float("nan")])
def test_timeouts_are_finite(door: UmqDoor, timeout: float) -> None:
    with pytest.raises(RingError, match="must be finite and not negative"):
        door.wait(0, timeout)


def test_a_buffer_released_twice(door: UmqDoor) -> None:
    buffer = door.allocate(PAGE, "gtt", "once")
    door.release(buffer)
    with pytest.raises(RingError, match="once: the buffer was released before"):
        door.release(buffer)


def test_no_bytes(door: UmqDoor) -> None:
    with pytest.raises(RingError, match="nothing: 0 bytes"):
        door.allocate(0, "gtt", "nothing")


def test_after_close(door: UmqDoor) -> None:
    buffer = door.allocate(PAGE, "gtt", "left")
    door.close()
    door.close()
    for call in (
        lambda: door.submit(buffer, 0, 1),
        lambda: door.wait(0, 0),
        door.retired,
        lambda: door.release(buffer),
        lambda: door.allocate(PAGE, "gtt", "more"),
    ):
        with pytest.raises(RingClosed):
            call()


def test_a_forked_child_is_refused(door: UmqDoor, linux: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = door.allocate(PAGE, "gtt", "shared")
    with monkeypatch.context() as child:
        child.setattr(linux, "pid", lambda: 4321)
        with pytest.raises(RingError, match="process 4321 must open its own"):
            door.submit(buffer, 0, 1)
        with pytest.raises(RingError, match="process 4321"):
            door.allocate(PAGE, "gtt", "more")
    prove(door)


def test_a_real_fork(door: UmqDoor, machine: Machine) -> None:
    buffer = door.allocate(PAGE, "gtt", "shared")
    with machine.lock:  # so that the GPU's thread does not hold it in the child, where that thread is missing
        child = os.fork()
        if child == 0:
            try:
                door.submit(buffer, 0, 1)
            except RingError:
                door.close()  # the parent's queue stays
                os._exit(0)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    prove(door)


def test_two_threads(door: UmqDoor, packets: Packets) -> None:
    packets.submit(lambda b: b.write_data64(packets.data.va, 3))
    numbers: list[int] = []

    def work() -> None:
        for _ in range(50):
            number = door.submit(packets.code, 0, 6)
            door.wait(number, 5)
            numbers.append(number)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(numbers) == list(range(2, 102))


# A GPU that does not answer.


def stall(packets: Packets) -> None:
    """Let the GPU wait for a word of the data page."""
    packets.submit(lambda b: b.wait_mem(packets.data.va + 64, 1, policy=CachePolicy.BYPASS))


def go_on(packets: Packets) -> None:
    assert packets.data.address
    packets.door.linux.store32(packets.data.address + 64, 1)


@pytest.fixture
def patient() -> Iterator[Machine]:
    """A kernel that does not lose patience within a test."""
    with Machine(LINUX_7_3_USERQ) as made:
        yield made


@pytest.fixture
def slow_door(patient: Machine) -> Iterator[UmqDoor]:
    opened = UmqDoor(NODE, linux=patient.process())
    yield opened
    opened.close()


def test_a_timeout_says_what_to_look_at(slow_door: UmqDoor) -> None:
    packets = Packets(slow_door)
    packets.write(1)
    slow_door.wait(1, 2)
    stall(packets)
    late = packets.write(2)
    with pytest.raises(FenceTimeout) as caught:
        slow_door.wait(late, 0.05)
    text = str(caught.value)
    assert "submission 3 did not retire within 0.05 s" in text
    assert "1 was the last of 3 to retire" in text
    assert re.search(r"\d+ dwords of the ring are unread", text)
    assert "dmesg" in text
    assert packets.word() == 1
    go_on(packets)
    slow_door.wait(late, 2)
    assert packets.word() == 2


def test_a_full_ring_is_not_overrun(slow_door: UmqDoor) -> None:
    packets = Packets(slow_door)
    slow_door.room_timeout = 0.05
    packets.write(9, 8)  # at the start of the code page
    stall(packets)
    made: list[int] = []

    def fill() -> None:
        for _ in range(QUEUE_SIZE // 4 // WORDS + 10):
            made.append(slow_door.submit(packets.code, 0, 6))

    with pytest.raises(DoorError, match=r"the ring stayed full for 0\.05 s; 1 was the last of") as caught:
        fill()
    last = made[-1]
    assert f"submission {last + 1}" in str(caught.value)
    assert last > QUEUE_SIZE // 4 // WORDS - 10
    go_on(packets)
    slow_door.wait(last, 10)
    assert slow_door.submit(packets.code, 0, 6) == last + 1
    slow_door.wait(last + 1, 2)


def test_closing_waits_for_what_runs(patient: Machine) -> None:
    linux = patient.process()
    door = UmqDoor(NODE, linux=linux)
    packets = Packets(door)
    stall(packets)
    packets.write(77)
    threading.Timer(0.05, lambda: go_on(packets)).start()
    seen: list[int] = []
    door._undo.callback(lambda: seen.append(door.linux.load64(door._fence.address)))  # before the queue is freed
    door.close()
    assert seen == [2]


def test_closing_does_not_wait_for_ever(patient: Machine) -> None:
    door = UmqDoor(NODE, linux=patient.process())
    door.drain_timeout = 0.05
    stall(Packets(door))
    door.close()


def test_a_gpu_that_leaves_the_bus(machine: Machine, linux: Process) -> None:
    door = UmqDoor(NODE, linux=linux)
    packets = Packets(door)
    with machine.lock:
        number = packets.write(1)
        machine.gpus[0].lost = True
    with pytest.raises(DeviceLost, match="left the bus"):
        door.wait(number, 5)
    for call in (
        lambda: door.submit(packets.code, 0, 6),
        lambda: door.wait(number, 1),
        door.retired,
        lambda: door.allocate(PAGE, "gtt", "more"),
        lambda: door.release(packets.data),
    ):
        with pytest.raises(DeviceLost, match="left the bus"):
            call()
    door.close()


def test_a_gpu_that_is_gone_when_memory_is_asked_for(machine: Machine, linux: Process) -> None:
    door = UmqDoor(NODE, linux=linux)
    machine.gpus[0].lost = True
    with pytest.raises(DeviceLost, match="left the bus"):
        door.allocate(PAGE, "gtt", "memory")
    with pytest.raises(DeviceLost):
        door.retired()
    door.close()


def test_a_page_fault_names_address_and_buffer(machine: Machine, linux: Process) -> None:
    door = UmqDoor(NODE, linux=linux)
    door.reset_grace = 0.05
    packets = Packets(door)
    behind = packets.data.va + PAGE
    number = packets.submit(lambda b: b.write_data64(behind, 1))
    with pytest.raises(DeviceLost, match="an engine of the GPU was reset") as caught:
        door.wait(number, 3)
    assert f"page fault at {behind:#x}, {PAGE:#x} behind the start of data" in str(caught.value)
    assert "0 was the last of 1 to retire" in str(caught.value)
    door.close()


def test_a_malformed_packet(machine: Machine, linux: Process) -> None:
    door = UmqDoor(NODE, linux=linux)
    door.reset_grace = 0.05
    packets = Packets(door)
    number = packets.submit(lambda b: b.words_raw([0xDEADBEEF] * 8))
    with pytest.raises(DeviceLost, match="an engine of the GPU was reset"):
        door.wait(number, 3)
    door.close()


def test_a_reset_of_the_whole_card(machine: Machine, linux: Process) -> None:
    door = UmqDoor(NODE, linux=linux)
    door.reset_grace = 0.05
    packets = Packets(door)
    with machine.lock:
        packets.write(1)
        machine.gpus[0].reset(whole=True)
    stall(packets)
    with pytest.raises(DeviceLost, match="the GPU was reset and its memory lost"):
        door.wait(2, 2)
    with pytest.raises(DeviceLost):
        door.submit(packets.code, 0, 6)
    door.close()


# Every call of opening and allocating fails once.


OPTIONAL = {("DRM_VERSION", 0), ("AMDGPU_INFO", 2)}  # a version for messages; the page fault before ours


def calls_of_opening() -> list[tuple[str, int]]:
    """The calls that opening makes where nothing fails: name, and how many of that name came before."""
    with Machine(LINUX_7_3_USERQ) as machine:
        machine.trace = []
        maps = machine.inject("mmap", errno.ENOMEM, skip=1 << 30)
        door = UmqDoor(NODE, linux=machine.process())
        counts = Counter(line.split()[0] for line in machine.trace)
        counts["mmap"] = maps.seen
        door.close()
    return [(name, i) for name, n in counts.items() for i in range(n)]


def refusal_of_opening(linux: Process) -> DoorError | None:
    try:
        UmqDoor(NODE, linux=linux).close()
    except DoorError as error:
        return error
    return None


def test_every_failure_of_opening_is_named_and_leaks_nothing() -> None:
    tried = 0
    for name, i in calls_of_opening():
        with Machine(LINUX_7_3_USERQ) as machine:
            fault = machine.inject(name, errno.ENOMEM, skip=i)
            error = refusal_of_opening(machine.process())
            assert fault.seen > i, (name, i)
            assert (error is None) == ((name, i) in OPTIONAL), (name, i)
            if error is not None:
                assert error.errno == errno.ENOMEM, (name, i)
                assert "\n" not in str(error)
                tried += 1
    assert tried >= 30


def test_every_failure_of_allocating_leaves_the_door_as_it_was() -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        door = UmqDoor(NODE, linux=machine.process())
        first_va = door.allocate(PAGE, "vram", "weights").va
        door.close()
    for name in ("AMDGPU_GEM_CREATE", "AMDGPU_GEM_MMAP", "mmap", "AMDGPU_GEM_VA", "DRM_SYNCOBJ_TIMELINE_WAIT"):
        with Machine(LINUX_7_3_USERQ) as machine:
            door = UmqDoor(NODE, linux=machine.process())
            before = dict(machine.gpus[0].used)
            fault = machine.inject(name, errno.ENOMEM)
            with pytest.raises(DoorError, match=r"weights: 4096 bytes of vram") as caught:
                door.allocate(PAGE, "vram", "weights")
            assert caught.value.errno == errno.ENOMEM
            assert fault.seen == 1
            assert machine.gpus[0].used == before
            again = door.allocate(PAGE, "vram", "weights")
            assert again.va == first_va
            prove(door)
            door.release(again)
            door.close()


@pytest.mark.parametrize("profile", [LINUX_6_17], ids=["6.17"])
def test_a_kernel_without_slots(profile) -> None:
    with Machine(profile) as machine:
        with pytest.raises(DoorError, match="no slots for compute user queues") as caught:
            UmqDoor(NODE, linux=machine.process())
        assert "amdgpu.user_queue=1" in str(caught.value)


def test_a_proof_that_is_none(door: UmqDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence that retires although nothing ran."""
    real = door.submit

    def cheat(buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        assert buffer.address
        ctypes.memset(buffer.address, 0, 4)
        ctypes.c_uint32.from_address(buffer.address).value = 3 << 30 | 0 << 16 | 0x10 << 8
        return real(buffer, offset, 2)

    monkeypatch.setattr(door, "submit", cheat)
    with pytest.raises(ProofFailed, match="memory holds 0x0"):
        prove(door)

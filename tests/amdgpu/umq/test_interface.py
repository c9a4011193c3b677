"""The interface over a user queue, on the emulated kernel and its command processor."""

from __future__ import annotations

import ctypes
import errno
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3_USERQ
from tests.amdgpu.pm4.raw import words_raw
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.interface import DeviceBuffer, Heap
from zinc_rt.amdgpu.pm4.builder import PacketBuilder
from zinc_rt.amdgpu.selftest import ProbeFailed, probe
from zinc_rt.amdgpu.umq.interface import FENCE_VA, UserQueueInterface
from zinc_rt.amdgpu.umq.queue import QUEUE_SIZE
from zinc_rt.errors import DeviceLost, FenceTimeout
from zinc_rt.utils.linux import PAGE

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
def interface(linux: Process) -> Iterator[UserQueueInterface]:
    opened = UserQueueInterface(NODE, linux=linux)
    yield opened
    opened.close()


class Packets:
    """An executable buffer to put packets into, and a page that they write to."""

    def __init__(self, interface: UserQueueInterface) -> None:
        self.interface = interface
        self.code = interface.allocate(4 * PAGE, "gtt", "code", executable=True)
        self.data = interface.allocate(PAGE, "gtt", "data")
        self.gate = interface.allocate(PAGE, "gtt", "gate", use="polls")
        assert self.code.address
        self._builder = PacketBuilder((ctypes.c_uint32 * PAGE).from_address(self.code.address))

    def submit(self, build: Callable[[PacketBuilder], object]) -> int:
        """Behind what was written before."""
        self._builder.pad_to_alignment(8)
        start = self._builder.cursor
        build(self._builder)
        return self.interface.submit(self.code, 4 * start, self._builder.cursor - start)

    def word(self, offset: int = 0) -> int:
        assert self.data.address
        return self.interface.linux.load64(self.data.address + offset)

    def write(self, value: int, offset: int = 0) -> int:
        return self.submit(lambda b: b.write_data64(self.data.va + offset, value))


@pytest.fixture
def packets(interface: UserQueueInterface) -> Packets:
    return Packets(interface)


# Work.


def test_it_retires_a_fence(interface: UserQueueInterface) -> None:
    assert probe(interface) < 2
    assert interface.retired() == 1


def test_facts(interface: UserQueueInterface) -> None:
    device = interface.device
    assert (device.render_node, device.gfx_target_version, device.compute_units) == (NODE, 120001, 64)
    assert device.vram == device.visible_vram > 30 << 30
    assert device.driver == "amdgpu 3.64 of Linux 7.3.4-amd64"
    assert interface.name == "umq"


def test_submissions_run_in_order(interface: UserQueueInterface, packets: Packets) -> None:
    numbers = [packets.write(value) for value in (11, 12, 13)]
    assert numbers == [1, 2, 3]
    interface.wait(3, 2)
    assert packets.word() == 13
    assert interface.retired() == 3
    interface.wait(1, 0)
    interface.wait(0, 0)


def test_submission_returns_before_the_work_is_done(
    machine: Machine, interface: UserQueueInterface, packets: Packets
) -> None:
    with machine.lock:  # the GPU's thread stands still
        number = packets.write(7)
        assert interface.retired() == 0
        with pytest.raises(FenceTimeout):
            interface.wait(number, 0)
    interface.wait(number, 2)
    assert packets.word() == 7


def test_the_ring_wraps(interface: UserQueueInterface, packets: Packets) -> None:
    """More submissions than the ring holds: packets go round its end, and none is overwritten."""
    packets.submit(lambda b: b.copy_data64(packets.data.va, packets.data.va + 8))
    count = QUEUE_SIZE // 4 // WORDS + 50
    for _ in range(count):
        interface.submit(packets.code, 0, 6)
    last = packets.write(count, 16)
    interface.wait(last, 10)
    assert packets.word(16) == count
    assert interface.retired() == count + 2


def test_what_a_submission_puts_into_the_ring(interface: UserQueueInterface, packets: Packets) -> None:
    """Word by word: earlier waves done, host writes flushed, caches as the kernel drops them, a called buffer, the
    kernel's own fence.
    """
    interface.wait(packets.write(1), 2)
    ring = list(interface._ring.words[:WORDS])
    va = packets.code.va
    assert ring == [
        *(0xC0004600, 0x407),
        *(0xC0053C00, 0x45, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4),
        *(0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 10, 0xC3B1),
        *(0xC0023F00, va & 0xFFFFFFFF, va >> 32, 1 << 30 | 1 << 23 | 6),
        *(0xC0064900, 0x06600514, 0x40000000, FENCE_VA & 0xFFFFFFFF, FENCE_VA >> 32, 1, 0, 0),
    ]


def test_vram_and_gtt(interface: UserQueueInterface, packets: Packets) -> None:
    vram = interface.allocate(PAGE, "vram", "weights")
    far = interface.allocate(3 << 20, "vram", "far", visible=False)
    assert far.address is None
    assert far.va % (2 << 20) == 0
    assert vram.address
    interface.linux.store64(vram.address, 0x1122334455667788)

    def build(b: PacketBuilder) -> None:
        b.copy_data64(vram.va, far.va)
        b.copy_data64(far.va, packets.data.va)

    interface.wait(packets.submit(build), 2)
    assert packets.word() == 0x1122334455667788
    interface.release(far)
    interface.release(vram)


@pytest.mark.parametrize("heap", ["gtt", "vram"])
def test_host_stores_are_seen_by_the_packets_behind_them(
    interface: UserQueueInterface, packets: Packets, heap: Heap
) -> None:
    """Also where the GPU's caches hold what was there before."""
    source = interface.allocate(PAGE, heap, "source")
    assert source.address
    for value in (5, 6, 7):
        interface.linux.store64(source.address, value)
        interface.wait(packets.submit(lambda b: b.copy_data64(source.va, packets.data.va)), 2)
        assert packets.word() == value


def test_sizes_are_whole_pages_and_addresses_are_used_again(interface: UserQueueInterface) -> None:
    first = interface.allocate(1, "gtt", "small")
    assert first.size == PAGE
    second = interface.allocate(PAGE, "gtt", "next")
    assert second.va >= first.va + 2 * PAGE  # a page between them stays empty
    interface.release(first)
    assert interface.allocate(PAGE, "gtt", "again").va == first.va


def test_a_map_that_was_taken_over_stays(interface: UserQueueInterface, linux: Process) -> None:
    buffer = interface.allocate(PAGE, "gtt", "array")
    address, buffer.address = buffer.address, None
    assert address
    linux.store64(address, 5)
    interface.release(buffer)
    assert linux.load64(address) == 5
    linux.munmap(address, PAGE)


# A GPU that does not answer.


def stall(packets: Packets) -> None:
    """Let the GPU wait for a word of the gate."""
    packets.submit(lambda b: b.wait_mem(packets.gate.va, 1))


def go_on(packets: Packets) -> None:
    assert packets.gate.address
    packets.interface.linux.store32(packets.gate.address, 1)


@pytest.fixture
def patient() -> Iterator[Machine]:
    """A kernel that does not lose patience within a test."""
    with Machine(LINUX_7_3_USERQ) as made:
        yield made


@pytest.fixture
def slow_interface(patient: Machine) -> Iterator[UserQueueInterface]:
    opened = UserQueueInterface(NODE, linux=patient.process())
    yield opened
    opened.close()


def test_a_timeout_says_what_to_look_at(slow_interface: UserQueueInterface) -> None:
    packets = Packets(slow_interface)
    packets.write(1)
    slow_interface.wait(1, 2)
    stall(packets)
    late = packets.write(2)
    with pytest.raises(FenceTimeout) as caught:
        slow_interface.wait(late, 0.05)
    text = str(caught.value)
    assert "submission 3 did not retire within 0.05 s" in text
    assert "1 was the last of 3 to retire" in text
    assert re.search(r"\d+ dwords of the ring are unread", text)
    assert "dmesg" in text
    assert packets.word() == 1
    go_on(packets)
    slow_interface.wait(late, 2)
    assert packets.word() == 2


def test_a_full_ring_is_not_overrun(slow_interface: UserQueueInterface) -> None:
    packets = Packets(slow_interface)
    slow_interface.room_timeout = 0.05
    packets.write(9, 8)  # at the start of the code page
    stall(packets)
    made: list[int] = []

    def fill() -> None:
        for _ in range(QUEUE_SIZE // 4 // WORDS + 10):
            made.append(slow_interface.submit(packets.code, 0, 6))

    with pytest.raises(InterfaceError, match=r"the ring stayed full for 0\.05 s; 1 was the last of") as caught:
        fill()
    last = made[-1]
    assert f"submission {last + 1}" in str(caught.value)
    assert last > QUEUE_SIZE // 4 // WORDS - 10
    go_on(packets)
    slow_interface.wait(last, 10)
    assert slow_interface.submit(packets.code, 0, 6) == last + 1
    slow_interface.wait(last + 1, 2)


def test_closing_waits_for_what_runs(patient: Machine) -> None:
    linux = patient.process()
    interface = UserQueueInterface(NODE, linux=linux)
    packets = Packets(interface)
    stall(packets)
    packets.write(77)
    threading.Timer(0.05, lambda: go_on(packets)).start()
    seen: list[int] = []
    interface._undo.callback(lambda: seen.append(interface.linux.load64(interface._fence)))  # before the queue is freed
    interface.close()
    assert seen == [2]


def test_closing_does_not_wait_for_ever(patient: Machine) -> None:
    interface = UserQueueInterface(NODE, linux=patient.process())
    interface.drain_timeout = 0.05
    stall(Packets(interface))
    interface.close()


def test_a_gpu_that_leaves_the_bus(machine: Machine, linux: Process) -> None:
    interface = UserQueueInterface(NODE, linux=linux)
    packets = Packets(interface)
    with machine.lock:
        number = packets.write(1)
        machine.gpus[0].lost = True
    with pytest.raises(DeviceLost, match="left the bus"):
        interface.wait(number, 5)
    with pytest.raises(DeviceLost, match="left the bus"):
        interface.allocate(PAGE, "gtt", "more")
    interface.close()


def test_a_gpu_that_is_gone_when_memory_is_asked_for(machine: Machine, linux: Process) -> None:
    interface = UserQueueInterface(NODE, linux=linux)
    machine.gpus[0].lost = True
    with pytest.raises(DeviceLost, match="left the bus"):
        interface.allocate(PAGE, "gtt", "memory")
    interface.close()


def test_a_page_fault_names_address_and_buffer(machine: Machine, linux: Process) -> None:
    interface = UserQueueInterface(NODE, linux=linux)
    interface.reset_grace = 0.05
    packets = Packets(interface)
    behind = packets.data.va + PAGE
    number = packets.submit(lambda b: b.write_data64(behind, 1))
    with pytest.raises(DeviceLost, match="an engine of the GPU was reset") as caught:
        interface.wait(number, 3)
    assert f"page fault at {behind:#x}, {PAGE:#x} behind the start of data" in str(caught.value)
    assert "0 was the last of 1 to retire" in str(caught.value)
    interface.close()


def test_a_malformed_packet(machine: Machine, linux: Process) -> None:
    interface = UserQueueInterface(NODE, linux=linux)
    interface.reset_grace = 0.05
    packets = Packets(interface)
    number = packets.submit(lambda b: words_raw(b, [0xDEADBEEF] * 8))
    with pytest.raises(DeviceLost, match="an engine of the GPU was reset"):
        interface.wait(number, 3)
    interface.close()


def test_a_reset_of_the_whole_card(machine: Machine, linux: Process) -> None:
    interface = UserQueueInterface(NODE, linux=linux)
    interface.reset_grace = 0.05
    packets = Packets(interface)
    with machine.lock:
        packets.write(1)
        machine.gpus[0].reset(whole=True)
    stall(packets)
    with pytest.raises(DeviceLost, match="the GPU was reset and its memory lost"):
        interface.wait(2, 2)
    interface.close()


# Every call of opening and allocating fails once.


OPTIONAL = {("DRM_VERSION", 0), ("AMDGPU_INFO", 2)}  # a version for messages; the page fault before ours


def calls_of_opening() -> list[tuple[str, int]]:
    """The calls that opening makes where nothing fails: name, and how many of that name came before."""
    with Machine(LINUX_7_3_USERQ) as machine:
        machine.trace = []
        maps = machine.inject("mmap", errno.ENOMEM, skip=1 << 30)
        interface = UserQueueInterface(NODE, linux=machine.process())
        counts = Counter(line.split()[0] for line in machine.trace)
        counts["mmap"] = maps.seen
        interface.close()
    return [(name, i) for name, n in counts.items() for i in range(n)]


def refusal_of_opening(linux: Process) -> InterfaceError | None:
    try:
        UserQueueInterface(NODE, linux=linux).close()
    except InterfaceError as error:
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


def test_every_failure_of_allocating_leaves_the_interface_as_it_was() -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        interface = UserQueueInterface(NODE, linux=machine.process())
        first_va = interface.allocate(PAGE, "vram", "weights").va
        interface.close()
    for name in ("AMDGPU_GEM_CREATE", "AMDGPU_GEM_MMAP", "mmap", "AMDGPU_GEM_VA", "DRM_SYNCOBJ_TIMELINE_WAIT"):
        with Machine(LINUX_7_3_USERQ) as machine:
            interface = UserQueueInterface(NODE, linux=machine.process())
            before = dict(machine.gpus[0].used)
            fault = machine.inject(name, errno.ENOMEM)
            with pytest.raises(InterfaceError, match=r"weights: .*4096 bytes") as caught:
                interface.allocate(PAGE, "vram", "weights")
            assert caught.value.errno == errno.ENOMEM
            assert fault.seen == 1
            assert machine.gpus[0].used == before
            again = interface.allocate(PAGE, "vram", "weights")
            assert again.va == first_va
            probe(interface)
            interface.release(again)
            interface.close()


@pytest.mark.parametrize("profile", [LINUX_6_17], ids=["6.17"])
def test_a_kernel_without_slots(profile) -> None:
    with Machine(profile) as machine:
        with pytest.raises(InterfaceError, match="no slots for compute user queues") as caught:
            UserQueueInterface(NODE, linux=machine.process())
        assert "amdgpu.user_queue=1" in str(caught.value)


def test_a_proof_that_is_none(interface: UserQueueInterface, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence that retires although nothing ran."""
    real = interface.submit

    def cheat(buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        assert buffer.address
        ctypes.memset(buffer.address, 0, 4)
        ctypes.c_uint32.from_address(buffer.address).value = 3 << 30 | 0 << 16 | 0x10 << 8
        return real(buffer, offset, 2)

    monkeypatch.setattr(interface, "submit", cheat)
    with pytest.raises(ProbeFailed, match="memory holds 0x0"):
        probe(interface)

"""The interface at work: fences, order, the ring's end, waiting, memory, several interfaces."""

from __future__ import annotations

import dataclasses
import errno
import threading
import time

import numpy as np
import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL, RX7900XTX, RX9060XT, SMALL_BAR, GpuModel
from amdgpu_emu.profiles import LINUX_6_12, LINUX_7_3, PROFILES, KernelProfile
from amdgpu_emu.shader import Dispatch, RecordingShader
from amdgpu_emu.shader_memory import ShaderMemory
from tests.amdgpu.kfd.gear import Writer, dwords, opened
from tests.amdgpu_emu.cp.rig import LEFT
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.interface import HostUse
from zinc_rt.amdgpu.kfd import queue as queue_memory
from zinc_rt.amdgpu.kfd import submissions as tuning
from zinc_rt.amdgpu.kfd.constants import ALLOC_MEM_FLAGS_COHERENT as COHERENT
from zinc_rt.amdgpu.kfd.constants import ALLOC_MEM_FLAGS_EXECUTABLE as EXECUTABLE
from zinc_rt.amdgpu.kfd.constants import ALLOC_MEM_FLAGS_UNCACHED as UNCACHED
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.pm4 import PacketBuilder, hi32, lo32
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.selftest import probe
from zinc_rt.errors import FenceTimeout
from zinc_rt.seed.kfd import bring_up_default

OLD = dataclasses.replace(LINUX_6_12, name="old", kfd_minor=11)


@pytest.mark.parametrize("profile", [*PROFILES.values(), OLD], ids=lambda profile: profile.name)
def test_retires(profile: KernelProfile) -> None:
    with opened(Machine(profile)) as (_, interface):
        assert probe(interface) < 2
        assert interface.retired() == 1
        device = interface.device
        assert (device.render_node, device.gfx_target_version, device.compute_units) == (
            "/dev/dri/renderD128",
            120001,
            64,
        )
        assert device.vram == device.visible_vram == R9700.vram
        assert profile.release in device.driver
        assert f"amdkfd 1.{profile.kfd_minor}, MEC firmware 3470, MES firmware 150" in device.driver


@pytest.mark.parametrize("model", [RX9060XT, RX7900XTX, SMALL_BAR], ids=lambda model: model.name)
def test_other_cards(model: GpuModel) -> None:
    with opened(Machine(models=[model])) as (_, interface):
        probe(interface)
        assert interface.device.compute_units == model.cu


def test_numbers_retire_in_order_around_the_rings_end() -> None:
    """4096 bytes are room for about thirty submissions: a thousand go around many times and never overrun."""
    with opened(ring_bytes=4096) as (machine, interface):
        writer = Writer(interface)
        for i in range(1, 1001):
            assert writer.write(i % 1024, i) == i
        interface.wait(1000, 10)
        assert interface.retired() == 1000
        assert (writer.numbers()[1:1001] == np.arange(1, 1001)).all()
        assert machine.findings == []


def test_an_overrun_is_waited_out() -> None:
    """Fences that come late keep the ring full: nothing that was not read is overwritten."""
    with opened(ring_bytes=4096) as (machine, interface):
        machine.gpus[0].fence_delay = 0.002
        writer = Writer(interface)
        for i in range(1, 101):
            writer.write(i, i)
        interface.wait(100, 10)
        assert (writer.numbers()[1:101] == np.arange(1, 101)).all()


def test_a_ring_that_stays_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FULL_SECONDS", 0.05)
    with opened(ring_bytes=4096) as (_, interface):
        writer = Writer(interface)
        first = writer.wait_for(0, 7)
        with pytest.raises(
            InterfaceError, match=r"stayed full.*submission 0 of \d+ was the last.*packets\+0x0 is next"
        ) as e:
            [writer.write(1 + i, i) for i in range(100)]
        assert "write pointer" in str(e.value)
        assert interface.retired() < first
        writer.open_gate(0, 7)  # the hang ends, and everything that was taken runs
        last = writer.write(200, 99)
        interface.wait(last, 10)
        assert writer.numbers()[200] == 99


def test_the_read_pointer_is_believed_where_it_is_possible() -> None:
    """It may be reported late, or modulo the ring; what has retired was read in any case."""
    with opened(ring_bytes=4096) as (_, interface):
        writer, queue = Writer(interface), interface._queue
        for i in range(100):
            interface.wait(writer.write(i, i), 5)
        hanging = writer.wait_for(0, 7)
        retired, written = queue._retired_end, queue.ring.written
        assert written > retired > 1024
        free = 1024 - 64 - (written - retired)
        for told, room in (
            (retired, free),
            (retired + 5, free + 5),
            (written, 1024 - 64),
            (written + 1, free),
            (retired - 1, free),
            (0, free),
            (written % 1024, free),
            (1 << 63, free),
        ):
            queue.ring.read_pointer = lambda told=told: told  # type: ignore[method-assign]
            assert queue.room() == room
        del queue.ring.read_pointer
        writer.open_gate(0, 7)
        interface.wait(hanging, 5)


def test_what_the_host_wrote_is_seen_and_what_the_gpu_wrote_too() -> None:
    """The same memory again and again, by both sides: a missing acquire or release would show the value before."""
    for heap in ("gtt", "vram"):
        with opened() as (_, interface):
            code = interface.allocate(4096, heap, "packets", executable=True)
            a, b = interface.allocate(4096, heap, "source"), interface.allocate(4096, heap, "target")
            builder = PacketBuilder(dwords(code))
            builder.copy_data32(a.va, b.va)
            for value in range(1, 20):
                dwords(a)[0] = value
                interface.wait(interface.submit(code, 0, builder.cursor), 5)
                assert dwords(b)[0] == value


def test_an_earlier_submission_is_done_before_the_next() -> None:
    """Without a barrier of its own, a submission sees what waves of the one before wrote, by copy and by kernel; and
    the host sees what the last one's waves wrote.
    """
    shader = RecordingShader()
    with opened(Machine(shader=shader)) as (_, interface):
        program = interface.allocate(4096, "vram", "program", executable=True)
        writer = Writer(interface)
        at = writer.data.va

        def add_one(dispatch: Dispatch, memory: ShaderMemory) -> None:
            source, target = dispatch.user_data[0] * 4 + at, dispatch.user_data[1] * 4 + at
            value = int.from_bytes(memory.read(source, 4).tobytes(), "little") + 1
            memory.write(target, value.to_bytes(4, "little"))

        def dispatch(source: int, target: int) -> int:
            def build(b: PacketBuilder) -> None:
                b.set_sh_reg(reg.PGM_LO, (lo32(program.va >> 8), hi32(program.va >> 8)))
                b.set_sh_reg(reg.PGM_RSRC1, (0xE0000001, 0x90))
                b.set_sh_reg(reg.NUM_THREAD_X, (32, 1, 1))
                b.set_sh_regs(LEFT)
                b.set_sh_reg(reg.USER_DATA_0, (source, target))
                b.dispatch_direct_initiator(1, 1, 1, 0x8005)

            return writer.submit(build)

        shader.add(program.va, add_one)
        for i in range(20):
            dispatch(3 * i, 3 * i + 1)
            writer.submit(lambda b, i=i: b.copy_data32(at + 4 * (3 * i + 1), at + 4 * (3 * i + 2)))
            last = dispatch(3 * i + 2, 3 * i + 3)
        interface.wait(last, 5)
        numbers = writer.numbers().tolist()
        assert [numbers[3 * i] for i in range(21)] == list(range(0, 41, 2))
        assert len(shader.dispatches) == 40


def test_waiting_sleeps_and_asks_for_one_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as (machine, interface):
        kfd = machine.processes[0].kfd  # type: ignore[index]
        interrupts: list[int] = []
        real = kfd.events.interrupt
        kfd.events.interrupt = lambda number: (interrupts.append(number), real(number))
        machine.gpus[0].fence_delay = 0.05
        writer = Writer(interface)
        for i in range(4):
            writer.write(i, i)
        machine.trace = []
        started = machine.clock.now()
        interface.wait(4, 10)
        assert 0.15 < machine.clock.now() - started < 2
        assert len(interrupts) <= 1
        assert machine.trace.count("KFD_WAIT_EVENTS -> 0") <= 5


def test_an_interrupt_wakes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SLEEP_SECONDS", 60.0)
    with opened() as (machine, interface):
        machine.gpus[0].fence_delay = 0.05
        writer = Writer(interface)
        for i in range(5):
            interface.wait(writer.write(i, i), 30)


def test_a_number_before_the_last_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes when the last one is done, which here it never is."""
    monkeypatch.setattr(tuning, "SLEEP_SECONDS", 60.0)
    with opened() as (machine, interface):
        machine.gpus[0].fence_delay = 0.02
        writer = Writer(interface)
        first = writer.write(0, 1)
        hanging = writer.wait_for(1, 7)
        started = machine.clock.now()
        interface.wait(first, 5)
        assert machine.clock.now() - started < 2
        with pytest.raises(FenceTimeout):
            interface.wait(hanging, 0.05)
        writer.open_gate(1, 7)
        interface.wait(hanging, 5)


def test_timeout_says_everything() -> None:
    with opened() as (_, interface):
        writer = Writer(interface)
        interface.wait(writer.write(0, 1), 5)
        hanging = writer.wait_for(1, 7)
        writer.write(2, 2)
        with pytest.raises(FenceTimeout) as e:
            interface.wait(hanging, 0.05)
        text = str(e.value)
        for part in (
            "submission 2 (packets+0x100)",
            "0.05 s",
            "/dev/dri/renderD128",
            "submission 1 of 3 was the last to retire",
            "write pointer is at",
            "read pointer at",
            "dmesg",
            "6.17.0-24-generic",
        ):
            assert part in text, text
        writer.open_gate(1, 7)
        interface.wait(3, 5)


def test_a_timeout_of_nothing_only_looks() -> None:
    with opened() as (_, interface):
        writer = Writer(interface)
        hanging = writer.wait_for(1, 7)
        with pytest.raises(FenceTimeout):
            interface.wait(hanging, 0)
        writer.open_gate(1, 7)
        interface.wait(hanging, 5)
        interface.wait(hanging, 0)
        interface.wait(0, 0)


def test_firmware_that_wants_runtime_and_event_page() -> None:
    """Some is said to ignore doorbells without them."""
    with Machine(LINUX_7_3) as machine:
        process = machine.process()
        process.close(process.open("/dev/kfd"))
        assert process.kfd is not None
        process.kfd.strict_runtime = True
        interface = KfdInterface(linux=process)
        probe(interface)
        interface.close()


def rights(address: int) -> str:
    """Of this process at an address."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            span, found = line.split()[:2]
            low, high = (int(end, 16) for end in span.split("-"))
            if low <= address < high:
                return found
    return "nothing"


def test_memory_of_all_kinds() -> None:
    with opened() as (machine, interface):
        used = dict(machine.gpus[0].used)
        made = [
            interface.allocate(size, heap, f"{heap} {size}", executable=executable, visible=visible)
            for size in (1, 5000, 3 << 20)
            for heap in ("vram", "gtt")
            for executable in (False, True)
            for visible in (False, True)
        ]
        for buffer in made:
            assert buffer.size % 4096 == 0
            assert buffer.va % (2 << 20 if buffer.size >= 2 << 20 else 4096) == 0
            assert (buffer.address is None) == (made.index(buffer) % 2 == 0)
            if buffer.address is not None:
                assert buffer.address == buffer.va
                assert not dwords(buffer).any()
                dwords(buffer)[-1] = 1
            assert rights(buffer.va + buffer.size) == "---p"  # a page that is nobody's
        for buffer in made[::2]:
            interface.release(buffer)
        for buffer in made[1::2]:
            interface.release(buffer)
        assert machine.gpus[0].used == used


def test_a_map_that_somebody_has_taken_over() -> None:
    with opened() as (machine, interface):
        for size in (4096, 5 << 20):
            buffer = interface.allocate(size, "gtt", "array")
            view, address = dwords(buffer), buffer.address
            assert address is not None
            view[0] = 12
            buffer.address = None
            interface.release(buffer)
            assert view[0] == 12
            interface.linux.munmap(address, buffer.size)
        kept = interface.allocate(4096, "gtt", "array")
        address, kept.address = kept.address, None
        interface.close()
        assert address is not None
        interface.linux.munmap(address, kept.size)
        assert machine.findings == []


def test_two_interfaces_and_again() -> None:
    """On one GPU, together and one after the other, and after a bring-up: address space and event page are shared."""
    with Machine(LINUX_7_3) as machine:
        process = machine.process()
        assert bring_up_default(linux=process).ok()
        for _ in range(3):
            one, two = KfdInterface(linux=process), KfdInterface(linux=process)
            probe(one)
            probe(two)
            one.close()
            probe(two)
            two.close()


def test_two_cards() -> None:
    with Machine(LINUX_7_3, models=[R9700, RX9060XT]) as machine:
        process = machine.process()
        interfaces = [KfdInterface(f"/dev/dri/renderD{128 + i}", linux=process) for i in range(2)]
        machine.gpus[1].fence_delay = 0.05
        for interface in interfaces:
            probe(interface)
        for interface in interfaces:
            interface.close()


def test_old_kernels_are_not_asked_for_what_they_lack() -> None:
    with Machine(OLD) as machine:
        process = machine.process()
        machine.trace = []
        interface = KfdInterface(linux=process)
        machine.gpus[0].fence_delay = 0.01
        probe(interface)
        interface.close()
        assert not [line for line in machine.trace if "RUNTIME" in line or "EVENT" in line]


def test_the_first_supported_card_is_taken() -> None:
    with opened(Machine(models=[RAPHAEL, R9700])) as (_, interface):
        assert interface.device.render_node == "/dev/dri/renderD129"


def test_close_drains_and_comes_once() -> None:
    with Machine() as machine:
        interface = KfdInterface(linux=machine.process())
        machine.gpus[0].fence_delay = 0.1
        writer = Writer(interface)
        writer.write(0, 1)
        started = machine.clock.now()
        interface.close()
        assert machine.clock.now() - started > 0.05
        interface.close()


def test_close_of_a_hang_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.amdgpu.kfd.interface.DRAIN_SECONDS", 0.05)
    with Machine() as machine:
        process = machine.process()
        interface = KfdInterface(linux=process)
        Writer(interface).wait_for(0, 7)
        with pytest.raises(FenceTimeout, match="submission 1 "):
            interface.close()
        interface.close()
        other = KfdInterface(linux=process)
        hanging = Writer(other).wait_for(0, 7)
        with pytest.raises(FenceTimeout):
            other.wait(hanging, 0.05)
        other.close()


def test_threads_one_after_the_other() -> None:
    with opened() as (_, interface):
        writer = Writer(interface)
        turn = threading.Lock()
        failed: list[BaseException] = []

        def work(slot: int) -> None:
            try:
                for i in range(50):
                    with turn:
                        interface.wait(writer.write(slot, i), 5)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert (writer.numbers()[:4] == 49).all()


def test_many_queues_are_created_one_at_a_time() -> None:
    """CREATE_QUEUE calls of several threads never overlap."""
    with Machine() as machine:
        process = machine.process()
        inside, most, real = 0, 0, process.ioctl
        guard = threading.Lock()

        def ioctl(fd, request, argument):  # type: ignore[no-untyped-def]
            nonlocal inside, most
            if request & 0xFF != 0x02:
                return real(fd, request, argument)
            with guard:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            try:
                return real(fd, request, argument)
            finally:
                with guard:
                    inside -= 1

        process.ioctl = ioctl  # type: ignore[method-assign]
        interfaces: list[KfdInterface] = []
        threads = [threading.Thread(target=lambda: interfaces.append(KfdInterface(linux=process))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(interfaces) == 4
        assert most == 1
        for interface in interfaces:
            probe(interface)
            interface.close()


@pytest.mark.parametrize("ring_bytes", [0, 100, 4095, 5000, 1 << 11])
def test_ring_sizes(ring_bytes: int) -> None:
    with Machine() as machine, pytest.raises(InterfaceError, match="power of two"):
        KfdInterface(linux=machine.process(), ring_bytes=ring_bytes)


def test_errno_of_a_interface_error() -> None:
    with Machine(has_kfd=False) as machine, pytest.raises(InterfaceError) as e:
        KfdInterface(linux=machine.process())
    assert e.value.errno == errno.ENOENT


def test_memory_of_the_queue_and_what_the_processor_reads() -> None:
    """The queue's buffers on the GPU alone are executable, as in libhsakmt; what both look at is uncached."""
    with opened() as (machine, interface):
        (process,) = machine.processes
        assert process.kfd is not None
        flags = {memory.va: (memory.flags, memory.bo.uncached) for _, memory in process.kfd.memories}
        own = {m.label: (bool(flags[m.va][0] & EXECUTABLE), flags[m.va][1]) for m in interface._queue._memories}
        assert own == {
            "ring": (True, True),
            "ring pointers": (False, True),
            "fence page": (False, True),
            "end-of-pipe buffer": (True, False),
            "save area of waves": (True, False),
        }
        wanted: dict[HostUse, int] = {"writes": 0, "reads": COHERENT, "polls": COHERENT | UNCACHED}
        for use, bits in wanted.items():
            buffer = interface.allocate(4096, "gtt", use, use=use)
            assert process.kfd.memory(buffer.handle, 0).flags & (COHERENT | UNCACHED) == bits
            interface.release(buffer)


def test_a_ring_that_the_l2_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag is what keeps the GPU from reading what the ring held before."""
    monkeypatch.setattr(queue_memory, "_BOTH_SEE", queue_memory._BOTH_SEE & ~UNCACHED)
    with Machine(strict=False, time_scale=0.01) as machine:
        interface = KfdInterface(linux=machine.process())
        writer = Writer(interface)
        for value in (1, 2):
            writer.write(0, value)
            machine.settle(0.2)
        assert {"stale-ring", "doorbell-mismatch"} >= {finding.kind for finding in machine.findings} != set()
        assert interface.retired() == 0
        with pytest.raises(FenceTimeout):
            interface.wait(1, 0.05)
        interface.close()

"""What the interface says when it cannot open, cannot allocate, or loses the GPU."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from amdgpu_emu.machine import DeviceFile, Machine
from amdgpu_emu.models import R9700, RAPHAEL, SMALL_BAR
from amdgpu_emu.profiles import LINUX_7_3
from tests.amdgpu.kfd.gear import Writer, dwords, opened
from tests.amdgpu.kfd.tamper import Files, NotLinux, after
from tests.amdgpu.pm4.raw import words_raw
from tests.seed.kfd.test_bring_up import high_addresses, no_aperture, none_mapped, too_old
from zinc_rt.amdgpu.abi.kfd import AcquireVmArgs
from zinc_rt.amdgpu.abi.requests import KFD_ACQUIRE_VM
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.amdgpu.selftest import probe
from zinc_rt.errors import DeviceLost, FenceTimeout

MIB = 1 << 20


def refused(machine: Machine, node: str | None = None) -> str:
    """The message with which the interface does not open; nothing stays behind."""
    with machine, pytest.raises(InterfaceError) as e:
        KfdInterface(node, linux=machine.process())
    return str(e.value)


# Opening.


def test_no_device_files() -> None:
    text = refused(Machine(has_kfd=False))
    assert text.startswith("opening /dev/kfd (/dev/dri/renderD128) failed: No such file or directory")
    assert "--device /dev/kfd --device /dev/dri" in text
    machine = Machine()
    machine.inject("open", errno.ENOENT, match="renderD")
    assert "opening /dev/dri/renderD128" in refused(machine)
    assert "shows none; in a container pass --device" in refused(Machine(has_dri=False))


def test_no_permission() -> None:
    text = refused(Machine(device_file=DeviceFile(gid=109, mode=0o660)))
    for part in (
        "Permission denied",
        "mode 0660",
        "owner 0",
        "group 109",
        "is in 992, 1000",
        "sudo usermod -aG 109 $USER",
        "--group-add 109",
    ):
        assert part in text, text


def test_kfd_without_a_usable_gpu() -> None:
    machine = Machine(LINUX_7_3)
    machine.inject("open", errno.EINVAL, match="kfd")
    assert "no GPU that it can use, or a reset holds it" in refused(machine)


def test_unsupported_cards() -> None:
    text = refused(Machine(models=[RAPHAEL]))
    assert "gfx11, gfx11.5 and gfx12 are supported; there are /dev/dri/renderD128 gfx1036" in text
    assert "opening /dev/dri/renderD128 failed" in refused(Machine(models=[RAPHAEL]), "/dev/dri/renderD128")
    assert "opening /dev/dri/renderD7 failed" in refused(Machine(), "/dev/dri/renderD7")
    assert "shows none" in refused(Machine(models=[]))


def test_no_amdkfd_no_linux() -> None:
    with pytest.raises(InterfaceError, match="modprobe amdgpu"):
        KfdInterface(linux=Files({}))
    with pytest.raises(InterfaceError, match="on Linux alone"):
        KfdInterface(linux=NotLinux())


def test_the_process_is_bound_already() -> None:
    with Machine() as machine:
        process = machine.process()
        kfd, render = process.open("/dev/kfd"), process.open("/dev/dri/renderD128")
        process.ioctl(kfd, KFD_ACQUIRE_VM.value, AcquireVmArgs(render, machine.gpus[0].gpu_id))
        process.close(kfd)
        process.close(render)
        with pytest.raises(InterfaceError, match=r"ACQUIRE_VM .*busy.*one per process"):
            KfdInterface(linux=process)


def test_wrong_save_area() -> None:
    """EINVAL from CREATE_QUEUE has one usual reason; the message has all figures of it."""
    with Machine() as machine:
        process = machine.process()
        real = process.read_text
        process.read_text = lambda path: real(path).replace("30699520", "30695424")  # type: ignore[method-assign]
        with pytest.raises(InterfaceError) as e:
            KfdInterface(linux=process)
    text = str(e.value)
    for part in ("CREATE_QUEUE", "Invalid argument", "6.17.0-24-generic", "gfx1201", "0x1d46000", "0x7000", "6.12"):
        assert part in text, text


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "end some"), (errno.EBUSY, "end some"), (errno.EIO, "being reset"), (errno.ESRCH, "dmesg")],
)
def test_other_reasons_against_a_queue(code: int, advice: str) -> None:
    machine = Machine()
    machine.inject("KFD_CREATE_QUEUE", code)
    assert advice in refused(machine)


@pytest.mark.parametrize(
    ("tamper", "part"),
    [
        (too_old, "1.0 is the oldest"),
        (no_aperture, "no address range of GPU"),
        (high_addresses, "cannot reach"),
        (none_mapped, "MAP_MEMORY_TO_GPU of event page"),
    ],
)
def test_odd_answers(tamper: Any, part: str) -> None:
    with Machine() as machine:
        process = machine.process()
        tamper(process)
        with pytest.raises(InterfaceError, match=part):
            KfdInterface(linux=process)


# Memory.


def test_small_bar() -> None:
    with opened(Machine(models=[SMALL_BAR])) as (_, interface):
        with pytest.raises(InterfaceError, match="Resizable BAR"):
            interface.allocate(MIB, "vram", "weights")
        assert interface.allocate(MIB, "vram", "weights", visible=False).address is None
        assert interface.allocate(MIB, "gtt", "staging").address is not None
        probe(interface)


def test_out_of_memory() -> None:
    with opened() as (machine, interface):
        machine.gpus[0].limits["VRAM"] = machine.gpus[0].used["VRAM"] + 64 * MIB  # type: ignore[index]
        with pytest.raises(
            InterfaceError, match=r"allocating .*weights, 134217728 bytes.*64 MiB of VRAM are free.*pins"
        ):
            interface.allocate(128 * MIB, "vram", "weights")
        interface.allocate(32 * MIB, "vram", "fewer weights")
        machine.inject("KFD_ALLOC_MEMORY_OF_GPU", errno.ENOMEM)
        machine.inject("KFD_AVAILABLE_MEMORY", errno.EINVAL)
        with pytest.raises(InterfaceError, match="pins what it allocates"):
            interface.allocate(MIB, "vram", "more")


def test_a_release_that_fails_can_be_repeated() -> None:
    with opened() as (machine, interface):
        buffer = interface.allocate(MIB, "gtt", "staging")
        for call in ("KFD_UNMAP_MEMORY_FROM_GPU", "KFD_FREE_MEMORY_OF_GPU"):
            machine.inject(call, errno.EBUSY)
            with pytest.raises(InterfaceError, match=r"busy"):
                interface.release(buffer)
        interface.release(buffer)


# Loss.


def lost(interface: KfdInterface, sequence: int) -> str:
    """What the loss says; that it stays is the queue's to say."""
    with pytest.raises(DeviceLost) as error:
        interface.wait(sequence, 10)
    return str(error.value)


def test_a_page_fault_names_the_buffer() -> None:
    with opened() as (_, interface):
        writer = Writer(interface)
        weights = interface.allocate(8192, "vram", "weights")
        interface.wait(writer.write(0, 1), 5)
        text = lost(interface, writer.submit(lambda b: b.write_data32(weights.va + weights.size + 16, 1)))
        assert (
            f"page fault at {weights.va + weights.size:#x} (nothing is mapped there), 0x0 bytes behind the end of"
            in text
        )
        assert "weights" in text
        assert "submission 1 of 2 was the last to retire" in text
        assert "/dev/dri/renderD128 is lost" in text
        assert "new process" in text


def test_a_write_that_is_not_allowed() -> None:
    """Packets fetched from memory that is not executable."""
    with opened() as (_, interface):
        data = interface.allocate(8192, "gtt", "data")
        PacketBuilder(dwords(data)).write_nop(10)
        text = lost(interface, interface.submit(data, 4096, 11))
        assert f"page fault at {data.va + 4096:#x} (it may not be executed), in data at +0x1000" in text


def test_a_fault_is_heard_while_waiting_for_another_number() -> None:
    with opened() as (_, interface):
        writer = Writer(interface)
        writer.submit(lambda b: b.write_data32(0x20000, 1))
        text = lost(interface, writer.write(0, 1))
        assert "submission 0 of 2 was the last to retire, packets+0x0 is next" in text


def test_a_reset_by_somebody_else() -> None:
    with opened() as (machine, interface):
        hanging = Writer(interface).wait_for(0, 7)
        with machine.lock:
            machine.gpus[0].reset(whole=True)
        text = lost(interface, hanging)
        assert "the GPU was reset after a hang, its memory is lost" in text


def test_another_process_hangs() -> None:
    """Its queue can only be stopped by a reset, which takes ours along."""
    with Machine() as machine:
        ours, theirs = KfdInterface(linux=machine.process()), KfdInterface(linux=machine.process())
        broken = Writer(theirs).submit(lambda b: words_raw(b, (0xDEADBEEF,)))
        hanging = Writer(ours).wait_for(0, 7)
        with pytest.raises(FenceTimeout):
            theirs.wait(broken, 0.05)
        theirs.close()
        assert "reset" in lost(ours, hanging)
        ours.close()


def test_off_the_bus() -> None:
    with Machine() as machine:
        process = machine.process()
        interface = KfdInterface(linux=process)
        machine.gpus[0].lost = True
        with pytest.raises(DeviceLost, match="left the bus"):
            interface.allocate(MIB, "gtt", "staging")
        interface.close()
        machine.strict = False  # a GPU that is gone takes nothing back


def test_another_cards_fault_is_not_ours() -> None:
    with Machine(models=[R9700, R9700]) as machine:
        process = machine.process()
        one, two = (KfdInterface(f"/dev/dri/renderD{128 + i}", linux=process) for i in range(2))
        bad = Writer(one).submit(lambda b: b.write_data32(0x20000, 1))
        writer = Writer(two)
        hanging = writer.wait_for(0, 7)
        lost(one, bad)
        with pytest.raises(FenceTimeout):
            two.wait(hanging, 0.05)
        writer.open_gate(0, 7)
        two.wait(hanging, 5)
        probe(two)
        one.close()
        two.close()


def test_another_cards_reset_is_not_ours() -> None:
    with Machine(models=[R9700, R9700]) as machine:
        process = machine.process()
        one, two = (KfdInterface(f"/dev/dri/renderD{128 + i}", linux=process) for i in range(2))
        writer = Writer(two)
        hanging = writer.wait_for(0, 7)
        with machine.lock:
            machine.gpus[0].reset(whole=True)
        with pytest.raises(FenceTimeout):
            two.wait(hanging, 0.05)
        writer.open_gate(0, 7)
        two.wait(hanging, 5)
        one.close()
        two.close()


def test_a_wait_that_the_kernel_refuses() -> None:
    with opened() as (machine, interface):
        writer = Writer(interface)
        hanging = writer.wait_for(0, 7)
        machine.inject("KFD_WAIT_EVENTS", errno.EFAULT)
        with pytest.raises(InterfaceError, match="WAIT_EVENTS"):
            interface.wait(hanging, 5)
        machine.inject("KFD_WAIT_EVENTS", errno.EIO)
        with pytest.raises(DeviceLost, match="being reset"):
            interface.wait(hanging, 5)


def test_an_old_event_page_is_not_lost() -> None:
    """amdkfd took the page, but the event behind it failed: the page stays, the next interface goes on with it."""
    with Machine(LINUX_7_3) as machine:
        process = machine.process()
        seen: list[int] = []

        def fail(args: Any) -> None:
            seen.append(args.event_id)
            if len(seen) == 1:
                raise OSError(errno.ENOSPC, "no room")

        after(process, "KFD_CREATE_EVENT", fail)
        with pytest.raises(InterfaceError, match="CREATE_EVENT"):
            KfdInterface(linux=process)
        with machine.lock:
            process.kfd.events.destroy(seen[0])  # type: ignore[union-attr]
        interface = KfdInterface(linux=process)
        probe(interface)
        interface.close()

"""`CsInterface`: memory, lists, fences, loss, as the kernel sees them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from amdgpu_emu.models import R9700, RAPHAEL, RX7900XTX, SMALL_BAR
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu.cs.machines import NODE, process
from zinc_rt.amdgpu.cs.interface import VA_START, CsInterface
from zinc_rt.amdgpu.errors import BufferFailed, InterfaceError, StepFailed
from zinc_rt.amdgpu.interface import DeviceBuffer
from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.errors import DeviceLost, FenceTimeout
from zinc_rt.utils.linux import Linux


@contextmanager
def interface_of(*, always_valid: bool = True, **how: Any) -> Iterator[tuple[CsInterface, Process]]:
    with process(**how) as linux:
        interface = CsInterface(NODE, linux=linux, always_valid=always_valid)
        try:
            yield interface, linux
        finally:
            interface.close()


def packets(interface: CsInterface, *, wait_va: int | None = None) -> tuple[DeviceBuffer, int]:
    """A buffer with 64 dwords of NOPs; wait_va: an address that never holds what is waited for."""
    buffer = interface.allocate(4096, "gtt", "packets", executable=True)
    builder = PacketBuilder([0] * 64)
    if wait_va is not None:
        builder.wait_mem(wait_va, 1 << 31)
    builder.pad_to_alignment(64)
    builder.write_nop(1) if not builder.cursor else None
    builder.pad_to_alignment(64)
    assert buffer.address is not None
    for i, word in enumerate(builder.written()):
        interface.linux.store32(buffer.address + 4 * i, word)
    return buffer, 64


@pytest.mark.parametrize("profile", [LINUX_6_12, LINUX_6_17, LINUX_7_3], ids=lambda p: p.name)
@pytest.mark.parametrize(("model", "version"), [(R9700, 120001), (RX7900XTX, 110000), (RAPHAEL, 100306)])
def test_what_it_says_of_the_device(profile: Any, model: Any, version: int) -> None:
    with interface_of(profile=profile, models=[model]) as (interface, _):
        device = interface.device
        assert (device.render_node, device.gfx_target_version, device.compute_units) == (NODE, version, model.cu)
        assert (device.vram, device.visible_vram) == (model.vram, model.mappable_vram)
        assert device.driver == f"amdgpu 3.{profile.drm_minor} of Linux {profile.release}"
        buffer, n = packets(interface)
        interface.wait(interface.submit(buffer, 0, n), 5)


def test_addresses() -> None:
    with interface_of() as (interface, _):
        small = [interface.allocate(100, "gtt", "small") for _ in range(3)]
        assert [buffer.va for buffer in small] == [VA_START, VA_START + 0x2000, VA_START + 0x4000]
        assert all(buffer.size == 4096 for buffer in small)
        large = interface.allocate(5 << 20, "vram", "large")
        assert large.va % (2 << 20) == 0
        interface.release(small[1])
        assert interface.allocate(1, "gtt", "again").va == small[1].va


def test_kinds_of_memory() -> None:
    with interface_of(models=[SMALL_BAR]) as (interface, linux):
        code = interface.allocate(4096, "gtt", "code", executable=True)
        data = interface.allocate(4096, "vram", "data")
        hidden = interface.allocate(512 << 20, "vram", "hidden", visible=False)
        (file,) = linux._files.values()
        rights = {m.va: (m.bo.placement.name, m.writable, m.executable) for m in file.vm}  # type: ignore[attr-defined]
        assert rights == {
            code.va: ("GTT", True, True),
            data.va: ("VRAM", True, False),
            hidden.va: ("VRAM", True, False),
        }
        assert (code.address is None, data.address is None, hidden.address is None) == (False, False, True)
        assert {bo.write_combined for _, bo in linux._maps.values() if bo is not None} == {True}
        for use, combined, uncached in (("reads", False, False), ("polls", False, True)):
            read = interface.allocate(4096, "gtt", "for the processor", use=use)
            assert read.address is not None
            _, _, bo = linux.map_at(read.address)
            assert (bo.write_combined, bo.uncached) == (combined, uncached)
            interface.release(read)
        with pytest.raises(
            InterfaceError, match=r"268435456 of 17179869184 bytes and 4096 of them are taken.*Resizable BAR"
        ):
            interface.allocate(256 << 20, "vram", "too much")


@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("AMDGPU_GEM_CREATE", "allocating 8192 bytes"),
        ("AMDGPU_GEM_MMAP", "into the process"),
        ("mmap", "into the process"),
        ("AMDGPU_GEM_VA", "the GPU address 0x100000000"),
    ],
)
def test_a_failed_allocation_leaves_nothing(call: str, step: str) -> None:
    with interface_of() as (interface, linux):
        linux.machine.inject(call, errno.ENOMEM)
        with pytest.raises(BufferFailed, match=f"weights: .*{step}.*Cannot allocate memory.*memory is short") as caught:
            interface.allocate(5000, "gtt", "weights")
        assert caught.value.errno == errno.ENOMEM
        assert not linux._maps
        assert interface.allocate(5000, "gtt", "weights").va == VA_START


def test_buffers_need_no_list() -> None:
    with interface_of() as (interface, linux):
        linux.machine.trace = trace = []
        buffer, n = packets(interface)
        other = interface.allocate(4096, "vram", "other")
        interface.wait(interface.submit(buffer, 0, n), 5)
        interface.release(other)
        interface.wait(interface.submit(buffer, 0, n), 5)
        assert "AMDGPU_BO_LIST" not in {line.split()[0] for line in trace}


def test_a_buffer_on_no_list_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated kernel sees a submission that touches what nothing keeps resident."""
    with process(strict=False) as linux:
        interface = CsInterface(NODE, linux=linux, always_valid=False)
        monkeypatch.setattr(interface, "_lists", False)
        buffer, n = packets(interface)
        interface.wait(interface.submit(buffer, 0, n), 5)
        interface.close()
        assert {finding.kind for finding in linux.machine.findings} == {"not-resident"}


def test_the_list_follows_the_buffers() -> None:
    with interface_of(always_valid=False) as (interface, linux):
        buffer, n = packets(interface)
        linux.machine.trace = trace = []
        for _ in range(3):
            interface.submit(buffer, 0, n)
        other = interface.allocate(4096, "gtt", "other")
        interface.wait(interface.submit(buffer, 0, n), 5)
        assert [line.split()[0] for line in trace].count("AMDGPU_BO_LIST") == 2
        linux.machine.inject("AMDGPU_BO_LIST", errno.ENOMEM, times=2)
        interface.release(other)
        with pytest.raises(StepFailed, match="listing 1 buffers"):
            interface.submit(buffer, 0, n)
        interface.wait(interface.submit(buffer, 0, n), 5)
        assert linux.machine.gpus[0].used == {"VRAM": 0, "GTT": 4096}


def test_fences() -> None:
    with interface_of() as (interface, linux):
        buffer, n = packets(interface)
        assert interface.retired() == 0
        linux.machine.gpus[0].fence_delay = 0.05
        sequences = [interface.submit(buffer, 0, n) for _ in range(5)]
        assert sequences == [1, 2, 3, 4, 5]
        with pytest.raises(FenceTimeout, match=r"fence 5 did not retire within 0 s; \d of 5 have"):
            interface.wait(5, 0)
        interface.wait(3, 5)
        assert 3 <= interface.retired() <= 5
        interface.wait(5, 5)
        assert interface.retired() == 5
        interface.wait(1, 0)


def test_closing_waits_for_what_runs() -> None:
    with interface_of() as (interface, linux):
        buffer, n = packets(interface)
        linux.machine.gpus[0].fence_delay = 0.1
        interface.submit(buffer, 0, n)
        interface.close()
        assert not linux.machine.gpus[0].busy()
        interface.close()


def test_a_hang_is_a_loss_with_the_reset_told() -> None:
    with interface_of() as (interface, linux):
        buffer, n = packets(interface, wait_va=interface.allocate(4096, "gtt", "never").va)
        good, _ = packets(interface)
        interface.wait(interface.submit(good, 0, n), 5)
        with pytest.raises(DeviceLost) as caught:
            interface.wait(interface.submit(buffer, 0, n), 5)
        text = str(caught.value)
        for part in (
            "it hung (errno 62)",
            "the GPU was reset",
            "a submission of this context caused it",
            "1 of 2",
            "dmesg",
        ):
            assert part in text
        assert "\n" not in text
        assert "stays lost" in text
        assert linux.machine.dmesg


def test_a_page_fault_names_the_buffer() -> None:
    with interface_of() as (interface, _):
        weights = interface.allocate(4096, "gtt", "weights")
        buffer, n = packets(interface, wait_va=weights.va + weights.size + 8)  # in the empty page behind it
        with pytest.raises(DeviceLost) as caught:
            interface.wait(interface.submit(buffer, 0, n), 5)
        fault = f"page fault in the page at {weights.va + weights.size:#x}, 0x0 bytes behind the end of weights"
        assert fault in str(caught.value)


def test_an_innocent_bystander_is_lost_with_vram() -> None:
    with process(models=[RAPHAEL]) as linux:  # its hangs reset the whole card
        guilty, innocent = CsInterface(NODE, linux=linux), CsInterface(NODE, linux=linux)
        good, n = packets(innocent)
        innocent.wait(innocent.submit(good, 0, n), 5)
        bad, _ = packets(guilty, wait_va=guilty.allocate(4096, "gtt", "never").va)
        with pytest.raises(DeviceLost, match=r"the contents of VRAM are lost.*caused it"):
            guilty.wait(guilty.submit(bad, 0, n), 5)
        with pytest.raises(DeviceLost, match=r"lost with others \(errno 125\).*VRAM") as caught:
            innocent.wait(innocent.submit(good, 0, n), 5)
        assert "caused it" not in str(caught.value)
        guilty.close()
        innocent.close()
        fresh = CsInterface(NODE, linux=linux)
        good, n = packets(fresh)
        fresh.wait(fresh.submit(good, 0, n), 5)
        fresh.close()


@pytest.mark.parametrize("skip", range(4))
def test_opening_fails_cleanly(skip: int) -> None:
    with process() as linux:
        linux.machine.inject("AMDGPU_INFO", errno.EFAULT, skip=skip)
        if skip < 3:
            with pytest.raises(InterfaceError, match="Bad address"):
                CsInterface(NODE, linux=linux)
        else:
            CsInterface(NODE, linux=linux).close()
        assert not linux._files


def test_on_this_machine() -> None:
    with pytest.raises(InterfaceError, match=r"/dev/dri/renderD255 does not exist.*modprobe amdgpu") as caught:
        CsInterface("/dev/dri/renderD255")
    assert caught.value.errno == errno.ENOENT

    class Elsewhere(Linux):
        is_linux = False

    with pytest.raises(StepFailed, match="amdgpu is a driver of Linux"):
        CsInterface(linux=Elsewhere())

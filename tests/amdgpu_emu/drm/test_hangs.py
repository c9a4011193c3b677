"""Hangs: timeouts, who is guilty, what a reset of a ring or of the card leaves."""

from __future__ import annotations

import errno
import struct

import pytest

from amdgpu_emu.abi import cs, gem, info
from amdgpu_emu.models import R9700, RAPHAEL, RX7900XTX
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, KernelProfile
from tests.amdgpu_emu.drm.card import ALWAYS_VALID, DATA_VA, FOREVER, VRAM, Card, nop, wait_memory, write_data
from tests.amdgpu_emu.drm.checks import covers

KERNELS = [LINUX_6_12, LINUX_6_17, LINUX_7_3]
each_kernel = pytest.mark.parametrize(
    "machine", [{"profile": kernel, "time_scale": 0.08 / kernel.job_timeout} for kernel in KERNELS], indirect=True
)
GUILTY, RESET, LOST = (
    cs.AMDGPU_CTX_QUERY2_FLAGS_GUILTY,
    cs.AMDGPU_CTX_QUERY2_FLAGS_RESET,
    cs.AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST,
)
NOTHING = 0x7_0000_0000


def error_of(call: object, *args: object, **kwargs: object) -> int:
    """The errno of a call that fails."""
    assert callable(call)
    with pytest.raises(OSError) as refused:
        call(*args, **kwargs)
    return refused.value.errno or 0


@covers("4.wait-error", "4.entity-dead", "4.cs-guilty", "4.ctx-guilty", "4.hang-ring")
@each_kernel
def test_a_ring_reset(ready: Card) -> None:
    """The guilty context is lost; the others go on, and see that something happened."""
    innocent = ready.ctx()
    running = ready.submit(nop(8), ctx=innocent, ring=1)
    guilty = ready.submit(wait_memory(DATA_VA, 77))
    queued = ready.submit(nop(8))
    behind = ready.submit(nop(8), ctx=innocent)
    assert error_of(ready.wait, guilty, FOREVER) == errno.ETIME
    old = not ready.file.since(7, 0)
    assert error_of(ready.submit, nop(8)) == (errno.ECANCELED if old else errno.ETIME)
    assert {error_of(ready.wait, n) for n in (guilty, queued, 0)} == {errno.ETIME}  # the entity is dead
    assert error_of(ready.wait_fences, guilty, every=True) == errno.ETIME
    assert (ready.wait(running, ctx=innocent, ring=1), ready.wait(behind, ctx=innocent)) == (0, 0)
    assert ready.wait(ready.submit(nop(8), ctx=innocent), ctx=innocent) == 0
    assert (ready.query2(1), ready.query2(innocent)) == (RESET | GUILTY, RESET)
    assert (ready.query(innocent), ready.query2(ready.ctx())) == (cs.AMDGPU_CTX_UNKNOWN_RESET, 0)
    assert any("timeout" in line for line in ready.machine.dmesg)
    assert any("reset succeeded" in line for line in ready.machine.dmesg)


@covers("4.hang-full", "4.hang-canceled", "4.ctx-vram", "4.cs-vram-lost")
@each_kernel
def test_a_reset_of_the_whole_card(ready: Card) -> None:
    ready.file.gpu.ring_reset = False
    handle = ready.create(4096, VRAM, ALWAYS_VALID)
    address = ready.map_offset(ready.gem_mmap(handle), 4096)
    ready.process.store32(address, 5)
    ready.process.store_fence()
    innocent = ready.ctx()
    guilty = ready.submit(wait_memory(DATA_VA, 77))
    elsewhere = ready.submit(wait_memory(DATA_VA, 78), ctx=innocent, ring=1)
    behind = ready.submit(nop(8), ctx=innocent)
    assert error_of(ready.wait, guilty, FOREVER) == errno.ETIME
    assert error_of(ready.wait, behind, FOREVER, ctx=innocent) == errno.ECANCELED
    assert error_of(ready.wait, elsewhere, FOREVER, ctx=innocent, ring=1) == errno.ECANCELED
    assert ready.process.load32(address) == 0
    assert error_of(ready.submit, nop(8), ctx=innocent, ring=2) == errno.ECANCELED
    assert (ready.query2(1), ready.query2(innocent)) == (RESET | LOST | GUILTY, RESET | LOST)
    assert struct.unpack("<I", ready.info(info.AMDGPU_INFO_VRAM_LOST_COUNTER, 4)) == (1,)
    new = ready.ctx()
    assert ready.wait(ready.submit(write_data(DATA_VA + 8, 3), ctx=new), ctx=new) == 0
    assert (ready.word(8), ready.query2(new)) == (3, 0)


@pytest.mark.parametrize("machine", [{"time_scale": 1.0}], indirect=True)
def test_a_reset_that_others_ask_for(ready: Card) -> None:
    """As when a queue of amdkfd hangs: what runs here is lost, and the rings work again."""
    running, queued = ready.block(), ready.submit(nop(8))
    with ready.machine.lock:
        ready.file.gpu.reset(whole=True)
    assert error_of(ready.wait, running, FOREVER) == errno.ECANCELED
    assert error_of(ready.wait, queued, FOREVER) == errno.ECANCELED
    new = ready.ctx()
    assert ready.wait(ready.submit(nop(8), ctx=new), ctx=new) == 0


@covers("4.cs-unmapped")
@each_kernel
def test_an_address_that_is_not_mapped(ready: Card) -> None:
    sequence = ready.cs(ready.ib_chunk(NOTHING, 64))
    assert error_of(ready.wait, sequence, FOREVER) == errno.ETIME
    assert any("page fault" in line and f"{NOTHING:#x}" in line for line in ready.machine.dmesg)
    fault = info.DrmAmdgpuInfoGpuvmFault.from_buffer_copy(ready.info(info.AMDGPU_INFO_GPUVM_FAULT, 16))
    assert fault.addr == NOTHING


@each_kernel
def test_a_page_without_the_right(ready: Card) -> None:
    ready.va(ready.create(flags=ALWAYS_VALID), NOTHING, flags=gem.AMDGPU_VM_PAGE_READABLE)
    sequence = ready.submit(write_data(NOTHING, 1))
    assert error_of(ready.wait, sequence, FOREVER) == errno.ETIME
    fault = info.DrmAmdgpuInfoGpuvmFault.from_buffer_copy(ready.info(info.AMDGPU_INFO_GPUVM_FAULT, 16))
    assert (fault.addr, fault.status >> 18 & 1) == (NOTHING, 1)


def test_a_malformed_packet_hangs_and_the_log_says_where(ready: Card) -> None:
    sequence = ready.submit([*nop(8), 0x12345678, *nop(7)])
    assert error_of(ready.wait, sequence, FOREVER) == errno.ETIME
    assert any("0x12345678" in line for line in ready.machine.dmesg)


def test_the_log_names_the_packet_that_waits(ready: Card) -> None:
    sequence = ready.submit([*nop(8), *wait_memory(DATA_VA + 64, 77)])
    assert error_of(ready.wait, sequence, FOREVER) == errno.ETIME
    assert any("WAIT_REG_MEM" in line for line in ready.machine.dmesg)


@covers("4.hang-timeout")
@pytest.mark.parametrize(("kernel", "seconds"), [(LINUX_6_12, 60), (LINUX_6_17, 10), (LINUX_7_3, 2)])
def test_timeouts_of_the_kernels(kernel: KernelProfile, seconds: float) -> None:
    assert kernel.job_timeout == seconds


@pytest.mark.parametrize("machine", [{"time_scale": 0.006}], indirect=True)
def test_the_timeout_is_kept(ready: Card) -> None:
    clock = ready.machine.clock
    started = clock.now()
    assert error_of(ready.wait, ready.submit(wait_memory(DATA_VA, 77)), FOREVER) == errno.ETIME
    assert 0.06 <= clock.now() - started < 5.0


@pytest.mark.parametrize(("model", "ring"), [(R9700, True), (RX7900XTX, True), (RAPHAEL, False)])
def test_who_can_reset_a_ring(model: object, ring: bool) -> None:
    from amdgpu_emu.machine import Machine

    machine = Machine(models=(model,))  # type: ignore[arg-type]
    assert machine.gpus[0].ring_reset is ring


@pytest.mark.parametrize("machine", [{"time_scale": 1e-4}], indirect=True)
def test_slow_work_is_no_hang(ready: Card) -> None:
    """What makes progress may take longer than the timeout of a real GPU, a millisecond here."""
    clock = ready.machine.clock
    started = clock.now()
    last = ready.submit(nop(2) * 4000)
    assert ready.wait(last) == 0
    assert clock.now() - started > 0.001

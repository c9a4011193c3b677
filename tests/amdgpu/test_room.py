"""A tenth of a GPU's memory stays free: the pools take no more, and a backend offers no more.

On a part of the processor that memory is the larger of two heaps, the carve-out (VRAM) and system memory (GTT).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from amdgpu_emu.memory import Placement
from amdgpu_emu.models import R9700, STRIX_HALO
from tests.amdgpu.queue.stage import INTERFACES, NODE, machine, queue_of
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.mem.plan import MIB
from zinc_rt.utils.linux import Linux

SMALL = replace(R9700, vram=400 * MIB)
PIECE = 32 * MIB


def used(linux: Linux) -> int:
    return int(linux.read_text("/sys/class/drm/renderD128/device/mem_info_vram_used"))


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_tenth_stays_free(interface: str) -> None:
    with queue_of(interface, {"models": [SMALL]}) as (queue, linux):
        pieces = []
        while used(linux) + PIECE <= 360 * MIB:
            pieces.append(queue.alloc(PIECE, heap="vram", label="weights"))
        assert len(pieces) > 5
        with pytest.raises(InterfaceError, match=r"of 400 MiB are used and 40 MiB \(10 %\) stay free.*smaller model"):
            queue.alloc(PIECE, heap="vram")
        assert used(linux) <= 360 * MIB
        queue.alloc(PIECE, heap="gtt")  # system memory is not counted
        for _ in range(2):
            queue.free(pieces.pop())
        queue.alloc(PIECE, heap="vram")


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize(("carved", "mapped", "heap"), [(64, 400, "gtt"), (400, 200, "vram")])
def test_a_part_of_the_processor(interface: str, carved: int, mapped: int, heap: str) -> None:
    """The larger heap holds what is allocated, in memory that the processor reaches and caches."""
    small = replace(STRIX_HALO, vram=carved * MIB, gtt=mapped * MIB)
    with queue_of(interface, {"models": [small]}) as (queue, _):
        device = queue.device
        assert (device.data_heap, device.memory) == (heap, 400 * MIB)
        assert queue.default_heap == heap
        assert queue.host_reaches_all
        memory = queue.alloc(2 * PIECE, label="weights")
        assert memory.buffer.heap == heap
        queue.write(memory, bytes(range(256)))
        assert queue.read(memory, 256) == bytes(range(256))
        with pytest.raises(InterfaceError, match=rf"MiB of {heap.upper()}, where \d+ of 400 MiB are used and 40 MiB"):
            queue.alloc(330 * MIB)


def test_weights_of_a_part_of_the_processor_are_not_write_combined() -> None:
    with machine(models=[STRIX_HALO]) as on, GpuQueue(CsInterface(NODE, linux=on.process())) as queue:
        queue.write(queue.alloc(PIECE, label="weights"), b"weights")
        (gpu,) = on.gpus
        assert gpu.used[Placement.GTT] > PIECE
        assert not [bo for bo in gpu.buffers if bo.size >= PIECE and bo.write_combined]


def test_what_a_backend_offers_of_system_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the processor has left."""
    with machine(models=[replace(STRIX_HALO, gtt=600 * MIB)]) as on:
        linux = on.process()
        with AmdBackend(CsInterface(NODE, linux=linux)) as backend:
            (gpu,) = on.gpus
            assert backend.memory_kept_free == 60 * MIB
            for there, offered in ((None, 540 * MIB - gpu.used[Placement.GTT]), (100 * MIB, 100 * MIB)):
                monkeypatch.setattr("zinc_rt.backends.amdgpu.backend.available_memory", lambda there=there: there)
                assert backend.memory_available == offered


def test_what_a_backend_offers() -> None:
    with machine(models=[SMALL]) as on:
        linux = on.process()
        with AmdBackend(CsInterface(NODE, linux=linux)) as backend:
            assert backend.memory_kept_free == 40 * MIB
            assert backend.memory_available == 360 * MIB - used(linux)
            (gpu,) = on.gpus
            before, gpu.used = gpu.used, dict.fromkeys(gpu.used, 390 * MIB)
            assert backend.memory_available == 0
            gpu.used = before

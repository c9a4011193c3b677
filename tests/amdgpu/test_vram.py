"""A tenth of VRAM stays free: the pools take no more, and a backend offers no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amdgpu_emu.models import R9700
from tests.amdgpu.queue.stage import INTERFACES, NODE, machine, queue_of
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.errors import InterfaceError
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

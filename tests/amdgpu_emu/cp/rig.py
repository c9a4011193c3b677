"""A GPU with a few buffers, and packets run on it to their end, in the test's own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from amdgpu_emu.clock import Clock
from amdgpu_emu.cp import CommandProcessor
from amdgpu_emu.gpu import POLLING, Gpu
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.models import R9700, GpuModel
from amdgpu_emu.shader import Dispatch, RecordingShader
from amdgpu_emu.vm import GpuVm, Mapping
from tests.amdgpu.pm4.raw import words_raw
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4.builder import ACQUIRE_HOST, DISPATCH_INITIATOR_COMPUTE, PacketBuilder

IB, IB2, DATA, CODE, UNCACHED, READ_ONLY = (0x1_0000_0000 + 0x10_0000 * i for i in range(6))
FENCE = DATA + 0x3000  # a page of its own
SIZE = 0x4000

Build = Callable[[PacketBuilder], None]


class StandInMachine:
    """What a GPU asks of its machine."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.clock = Clock(lambda: False)
        self.changed = threading.Condition(self.lock)
        self.findings: list[tuple[str, str]] = []
        self.report_redundant: list[str] | None = None
        self.shader = RecordingShader()
        self.gpus: list[Gpu] = []

    def report(self, kind: str, text: str) -> None:
        self.findings.append((kind, text))

    def dispatch_hangs(self, kind: str) -> bool:
        return False


class Rig:
    """Buffers at `IB` and `CODE` (executable; `IB` uncached), `IB2` (executable), `DATA`, `UNCACHED`, `READ_ONLY`."""

    def __init__(self, model: GpuModel = R9700, **how: Any) -> None:
        self.machine = StandInMachine()
        self.gpu = Gpu(self.machine, 0, model)  # type: ignore[arg-type]
        self.machine.gpus.append(self.gpu)
        self.vm = GpuVm("test")
        self.interrupts: list[int] = []
        self.processor = CommandProcessor(self.gpu, "queue", interrupt=self.interrupts.append, **how)
        self.buffers: dict[int, BufferObject] = {}
        for va, name in (
            (IB, "ib"),
            (IB2, "ib2"),
            (DATA, "data"),
            (CODE, "code"),
            (UNCACHED, "unc"),
            (READ_ONLY, "ro"),
        ):
            bo = BufferObject(SIZE, Placement.GTT, name, uncached=name in ("unc", "ib"))
            self.buffers[va] = bo
            executable = name in ("ib", "ib2", "code")
            self.vm.insert(Mapping(va, SIZE, bo, 0, True, name != "ro", executable))

    # Memory, as the processor sees it.

    def _place(self, va: int) -> tuple[BufferObject, int]:
        base = va & ~0xFFFFF
        return self.buffers[base], va - base

    def peek(self, va: int) -> int:
        """A dword of memory."""
        bo, offset = self._place(va)
        return int(bo.words(offset, 1)[0])

    def poke(self, va: int, *values: int) -> None:
        """Write dwords to memory."""
        bo, offset = self._place(va)
        bo.words(offset, len(values))[:] = values

    # Packets.

    def place(self, build: Build, va: int = IB) -> int:
        """Write packets to a buffer; returns how many dwords."""
        bo, offset = self._place(va)
        builder = PacketBuilder(bo.words(offset, (bo.size - offset) // 4))
        build(builder)
        return builder.cursor

    def steps(self, build: Build, *, mem_sync: bool = True) -> Iterator[str]:
        """Packets as a job of a kernel ring, without its fence."""
        return self.processor.indirect(self.vm, IB, self.place(build), mem_sync=mem_sync)

    def run(self, build: Build, *, mem_sync: bool = True, finish: bool = True) -> None:
        """Run packets to their end; with the kernel's fence behind them. They must not wait for anything."""
        for state in self.steps(build, mem_sync=mem_sync):
            assert state != POLLING, "it waits"
        if finish:
            self.finish()

    def words(self, *words: int, **how: bool) -> None:
        """Run dwords as they are."""
        self.run(lambda b: words_raw(b, words), **how)

    def finish(self) -> None:
        """The kernel's fence."""
        for state in self.processor.end_of_pipe():
            assert state != POLLING

    def copy(self, source: int, target: int = FENCE) -> int:
        """What the command processor reads at an address now."""
        self.run(lambda b: b.copy_data32(source, target), mem_sync=False, finish=False)
        return self.peek(target)

    @property
    def kinds(self) -> list[str]:
        """Kinds of the findings."""
        return [kind for kind, _ in self.machine.findings]

    @property
    def dispatches(self) -> list[Dispatch]:
        """All of them."""
        return self.machine.shader.dispatches


LEFT = {
    **dict.fromkeys((reg.PGM_RSRC3, reg.RESOURCE_LIMITS, *reg.USER_ACCUM, reg.DISPATCH_TUNNEL), 0),
    **dict.fromkeys(reg.STATIC_THREAD_MGMT[:8], 0xFFFFFFFF),
    reg.DISPATCH_INTERLEAVE: 64,
}
"""Registers that another program left, as most dispatches want them."""


def dispatch(
    b: PacketBuilder, address: int = CODE, initiator: int = DISPATCH_INITIATOR_COMPUTE, **registers: int
) -> None:
    """All that a dispatch of one group of 64 threads needs. registers: by offset, as `r213=...`."""
    values = {
        0x20C: address >> 8 & 0xFFFFFFFF,
        0x20D: address >> 40,
        0x212: 0,
        0x213: 0x90,
        0x207: 64,
        0x208: 1,
        0x209: 1,
        **LEFT,
    }
    values |= {int(name[1:], 16): value for name, value in registers.items()}
    b.set_sh_regs(values)
    b.dispatch_direct_initiator(1, 1, 1, initiator)


def acquire_all(b: PacketBuilder) -> None:
    """The full acquire."""
    b.acquire_mem(ACQUIRE_HOST)

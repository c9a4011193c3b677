"""The state that the packets of one queue share, and its unfinished work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from amdgpu_emu.clock import Clock
from amdgpu_emu.cp.position import Position
from amdgpu_emu.cp.registers import Registers
from amdgpu_emu.errors import GpuHang
from amdgpu_emu.gpu import POLLING, Gpu
from amdgpu_emu.shader import Dispatch
from amdgpu_emu.vm import GpuVm
from zinc_rt.amdgpu.pm4 import values as v

Fields = dict[str, Any]
"""A packet's fields by name, from `zinc_rt.amdgpu.pm4`: numbers, and tuples where a packet ends in a list."""


class Pipe:
    """The unfinished work of one queue: waves, and the fences that wait for them.

    The work happens only when something waits for it: hardware may be that late. Unordered work happens in the worst
    order: of the dispatches between two waits the last one runs first. So a missing barrier shows every time, for each
    kind of dependence (read after write, write after read, write after write).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waves: list[Callable[[], None]] = []
        self._fences: deque[tuple[float, Callable[[], None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waves or self._fences)

    @property
    def has_waves(self) -> bool:
        """Whether there are waves that nothing has waited for."""
        return bool(self._waves)

    def waves(self, run: Callable[[], None]) -> None:
        """Add a dispatch, which runs when something waits for it."""
        self._waves.append(run)

    def fence(self, act: Callable[[], None], delay: float) -> None:
        """Add an action for the time when all earlier work is done and `delay` seconds have passed."""
        self._fences.append((self._clock.now() + delay if delay else 0.0, act))

    def drain(self) -> Iterator[str]:
        """Finish all work; yields while a delayed fence is not due. After an error the rest is lost."""
        try:
            while self._waves:
                self._waves.pop()()
            while self._fences:
                due, act = self._fences[0]
                while due and self._clock.now() < due:
                    yield POLLING
                self._fences.popleft()
                act()
        except Exception:
            self._waves.clear()
            self._fences.clear()
            raise


class CpQueue:
    """The state of a queue. A packet's function leaves the processor a request in `call`, `jump` or `skip`.

    call: an indirect buffer to run next, then to come back; jump: one to go on with; skip: dwords to leave out; inner:
    whether the packet lies in an indirect buffer; position: of the packet, which the processor keeps; interrupt,
    eop_buffer, kind, longest: as the processor was told; temporal: whether packets have TEMPORAL bits in place of
    a cache policy.
    """

    def __init__(
        self,
        gpu: Gpu,
        name: str,
        interrupt: Callable[[int], None] | None,
        eop_buffer: bool,
        kind: str,
        longest: float | None,
    ) -> None:
        self.gpu, self.name, self.interrupt, self.eop_buffer = gpu, name, interrupt, eop_buffer
        self.kind, self.longest = kind, longest
        self.temporal = gpu.model.gfx[0] >= 12
        self._began = 0.0
        self.vm = GpuVm("none")
        self.registers = Registers(gpu.model, self.report, kind)
        self.pipe = Pipe(gpu.machine.clock)
        self.on_user_ring = False
        self.inner = False
        self.call: tuple[int, int] | None = None
        self.jump: tuple[int, int] | None = None
        self.skip = 0
        self.position = Position(name)
        self._reported: set[str] = set()

    def begin(self, vm: GpuVm) -> None:
        """Start a stream in an address space; requests left by a failed stream are dropped."""
        self.vm, self.call, self.jump, self.skip = vm, None, None, 0

    def begin_buffer(self) -> None:
        """Start an indirect buffer: its own time, and no register that an earlier one wrote can be counted on."""
        self._began = self.gpu.elapsed
        self.registers.begin_buffer()

    def spend(self, dispatch: Dispatch) -> None:
        """Let the time pass that a dispatch takes on the modelled card. Raises `GpuHang` when it is too long for the
        indirect buffer.
        """
        if self.gpu.seconds_of is None:
            return
        self.gpu.elapsed += self.gpu.seconds_of(dispatch)
        taken = self.gpu.elapsed - self._began
        if self.longest is not None and taken > self.longest:
            raise GpuHang(
                f"the indirect buffer has run for {taken:.3g} s; the kernel gives up after {self.longest:g} s"
            )

    def bypasses(self, policy: int) -> bool:
        """Whether bits of a packet send an access past the L2."""
        return not self.temporal and policy == v.CachePolicy.BYPASS

    def report(self, kind: str, text: str) -> None:
        """Report a finding, once."""
        if text not in self._reported:
            self._reported.add(text)
            self.gpu.machine.report(kind, f"{self.name}: {text}")

    def redundant(self, text: str) -> None:
        """Report a barrier that did nothing."""
        if self.gpu.machine.report_redundant is not None:
            self.gpu.machine.report_redundant.append(f"{self.name}: {text}")

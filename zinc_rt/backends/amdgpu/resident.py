"""Steps as one resident program: one dispatch runs the phases of a batch, and its workgroups meet between them.

`zinc_rt.kernels.amd.resident` is the program. This module gives it the tasks of a step and its number of workgroups.
All workgroups must run at once, so there are at most half as many as fit on the card. The other half is left to other
programs, a second program of this kind included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel
from zinc_rt.amdgpu.pool import GpuMemory
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.backends.amdgpu.prefetch_resident import prefetch_ranges
from zinc_rt.backends.devices import ResidentUse
from zinc_rt.backends.gpu.work import StepDispatch
from zinc_rt.kernels.amd import resident
from zinc_rt.lang.amd import AmdKernel
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.resident import may_be_part, resident_kernel

PREEMPTED: Final = ("cs", "kfd")
"""Interfaces on which a dispatch of milliseconds is safe: jobs on the kernel's rings are not taken off, and amdkfd
saves the waves of a queue that it takes off. A user queue without a save area has neither."""
PRODUCTS_A_PHASE: Final = 16_000_000
"""Products of a step, for each of its phases, up to which one program is taken to be faster. By the cost model it saves
1.1 us a phase of a small model (packets: 1.5 us a barrier and the first latency; the program: 0.6 us a meeting, in
which weights come). It may lose as much as 4 % of the rest, since all of it has the registers of the greatest kernel:
of 28 us that is as much, and in these an R9700 reads 16 MB, a byte of weights a product."""
Phase = Sequence[StepDispatch]
Words = npt.NDArray[np.uint32]


class ResidentPrograms:
    """The resident programs of a backend: compiled and loaded when first asked for.

    min_workgroups, max_workgroups: of a program; None: half of what fits on the card. patience: see
    `kernels.amd.resident`. proven: whether the card has run such a program, with right results; gave_up: whether one
    ended early; forecast: whether none is run, but asked about.
    """

    def __init__(
        self, queue: GpuQueue, cache: CompileCache | None, notify: Callable[[str], None] | None, use: ResidentUse
    ) -> None:
        self._queue, self._cache, self._notify, self.use = queue, cache, notify, use
        self.min_workgroups = 1
        self.max_workgroups: int | None = None
        self.patience = resident.PATIENCE
        self.proven = self.gave_up = self.forecast = False
        self._loaded: dict[tuple[str, ...], LoadedKernel | None] = {}

    @property
    def programs(self) -> tuple[LoadedKernel, ...]:
        """The programs that were compiled so far."""
        return tuple(program for program in self._loaded.values() if program is not None)

    @property
    def possible(self) -> bool:
        """Whether there may be any."""
        return self.forecast or (self._allowed and (self.use == "always" or (self.use == "auto" and self.proven)))

    @property
    def _allowed(self) -> bool:
        return self._queue.interface.name in PREEMPTED and self._queue.gfx.resident

    def give_up(self) -> None:
        """Make no more of them."""
        self.use, self.gave_up = "never", True

    def record(self, batch: CommandList, phases: Sequence[Phase], allocated: list[GpuMemory]) -> Words | None:
        """Add a step to a batch; None where it cannot be one program or should not. allocated: gets the memory of its
        table and its counters. Gives what the program leaves where it ends early: u32[1], the meeting's number, from 1
        on.

        Raises `InterfaceError`.
        """
        products = sum(work.products for part in phases for work in part)
        program = self.program(phases) if self._wanted(phases, products) else None
        if program is None or program.kernel is None:
            return None
        n = self.workgroups(program.kernel, phases)
        table = tasks(phases, symbols(phases), n)
        room = np.zeros((resident.ROWS_AHEAD, resident.TASK_WORDS), np.uint32)
        held = self._held(np.concatenate([table, room]), "tasks of a resident program", allocated)
        counters = self._held(np.zeros(resident.COUNTER_WORDS, np.uint32), "counters of a resident program", allocated)
        notice = self._queue.alloc(4, heap="gtt", use="reads", label="early end of a resident program")
        allocated.append(notice)
        early: Words = self._queue.map(notice)[:4].view(np.uint32)
        early[0] = 0
        batch.memory += [held, counters, notice]
        batch.dispatch(program, n, held, len(table), counters, n, notice, self.patience)
        return early

    def _wanted(self, phases: Sequence[Phase], products: int) -> bool:
        """Whether a step may be one program, and should be."""
        if self.use == "never" or not self._allowed:
            return False
        return self.use == "always" or (self.proven and products <= PRODUCTS_A_PHASE * len(phases))

    def _held(self, data: Words, label: str, allocated: list[GpuMemory]) -> GpuMemory:
        memory = self._queue.alloc(data.nbytes, label=label)
        allocated.append(memory)
        self._queue.write(memory, data)
        return memory

    def workgroups(self, kernel: AmdKernel, phases: Sequence[Phase]) -> int:
        """How many a step's program has: what its largest phase can use, of what may run at once."""
        most = self.max_workgroups
        if most is None:
            most = max(self.fitting(kernel) // 2, 1)
        return min(most, max(self.min_workgroups, *(sum(turns(work) for work in part) for part in phases)))

    def fitting(self, kernel: AmdKernel) -> int:
        """Workgroups of a program that run at once on the whole card."""
        return self._queue.at_once(kernel)

    def program(self, phases: Sequence[Phase]) -> LoadedKernel | None:
        """The program of a step's kernels; None where they make none: one cannot be a part, together they want more
        registers than there are, or LLVM does not compile them.
        """
        kernels = list({work.kernel.symbol: work.kernel for part in phases for work in part}.values())
        key = tuple(kernel.symbol for kernel in kernels)
        if not all(may_be_part(kernel) for kernel in kernels):
            return None
        if key not in self._loaded:
            self._loaded[key] = None
            main = Spec(resident.resident, {"PARTS": len(kernels)})
            try:
                made = resident_kernel(
                    main, kernels, self._queue.gfx.kernel_target, cache=self._cache, notify=self._notify
                )
            except CompileError as error:
                if self._notify is not None:
                    self._notify(f"steps stay a list of dispatches: {error}")
                return None
            if not made.scratch_bytes:
                self._loaded[key] = self._queue.load_kernel(made)
        return self._loaded[key]


def turns(work: StepDispatch) -> int:
    """Workgroups of a resident program that a dispatch keeps busy where small ones run side by side."""
    return -(-prod(work.groups) * work.kernel.function.resident // resident.LANES)


def words_of(work: StepDispatch) -> tuple[int, ...]:
    """The dwords of a dispatch's arguments."""
    assert work.program.kernel is not None
    return work.program.kernel.user_data(*work.arguments)


def symbols(phases: Sequence[Phase]) -> list[str]:
    """The kernels of a step, in the order of their numbers."""
    return list(dict.fromkeys(work.kernel.symbol for part in phases for work in part))


def tasks(phases: Sequence[Phase], symbols: Sequence[str], n: int) -> Words:
    """The table of a step for n workgroups, u32[tasks, TASK_WORDS]. symbols: the kernels by number."""
    rows = np.zeros((sum(map(len, phases)), resident.TASK_WORDS), np.uint32)
    at = 0
    ends = []  # of phases, in the table
    for part in phases:
        first = 0
        for work in part:
            x, y, z = work.groups
            row = rows[at]
            row[resident.KERNEL] = symbols.index(work.kernel.symbol)
            row[resident.GROUPS], row[resident.WIDE], row[resident.PLANE] = x * y * z, x, x * y
            row[resident.FIRST] = first
            words = words_of(work)
            row[resident.ARGUMENTS : resident.ARGUMENTS + len(words)] = words
            first = (first + turns(work)) % n
            at += 1
        rows[at - 1][resident.MEET] = part is not phases[-1]
        ends.append(at - 1)
    used: dict[int, int] = {}  # ranges of a meeting
    for each in prefetch_ranges(phases, n):
        place = resident.ASKED + resident.RANGE_WORDS * used.get(each.meeting, 0)
        used[each.meeting] = used.get(each.meeting, 0) + 1
        low, high = each.start & 0xFFFFFFFF, each.start >> 32
        rows[ends[each.meeting]][place : place + 3] = low, high, each.size // resident.LINE
    return rows

"""Steps of a model whose matrices are more than memory holds: read from their file when phases need them.

All matrices have their addresses for good, in one mapping whose pages are there only while they are needed. So kernels
and programs know nothing of it. A step runs by ranges of phases. Between two ranges no thread reads matrices: there
pages are given back, reads begin, and the step waits for those that its next range needs. Reads go on while a range
runs: dense matrices of the following phases, the down matrices of experts whose gate and up are computed, and in long
prompts the experts of the next layer.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.cpu.program import CpuProgram
from zinc_rt.backends.cpu.stream_plan import ExpertLayer, StreamPlan
from zinc_rt.backends.host_memory import HUGE
from zinc_rt.mem.disk import DirectFile, DiskRead, DiskReaders, Range
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import format_bytes

Bytes = npt.NDArray[np.uint8]
DECAY: Final = 0.98
"""By which the count of an expert's choices falls at each step of its layer."""
NEARLY_ALL: Final = 2
"""Choices for each expert, from which on a step reads the experts of the next layer before they are chosen."""
_NORESERVE: Final = (
    0x4000  # include/uapi/asm-generic/mman-common.h, the same on x86 and arm; Python names it since 3.13
)


class TileMemory:
    """Room for all matrices at the offsets of their file, without pages at first. huge: what may have huge pages.

    Raises `MemoryPlanError`.
    """

    def __init__(self, n_bytes: int, huge: Iterable[Range] = ()) -> None:
        try:
            self._area = mmap.mmap(-1, n_bytes + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        except (OSError, ValueError, OverflowError) as error:
            raise MemoryPlanError(
                f"the system refused {format_bytes(n_bytes)} of addresses for weights: {error}; allow overcommit"
                " (vm.overcommit_memory)"
            ) from None
        whole = np.frombuffer(self._area, np.uint8)
        self._start = -whole.ctypes.data % HUGE
        with suppress(AttributeError, OSError):  # a system without huge pages
            # A read into a huge page takes all of it, which is more than what is counted elsewhere.
            self._area.madvise(mmap.MADV_NOHUGEPAGE)
            for start, stop in huge:
                self._area.madvise(mmap.MADV_HUGEPAGE, self._start + start, stop - start)
        self.bytes: Bytes = whole[self._start : self._start + n_bytes]
        self.view = memoryview(self._area)[self._start : self._start + n_bytes]

    def drop(self, ranges: Iterable[Range]) -> None:
        """Give pages back to the system."""
        for start, stop in ranges:
            if stop > start:
                self._area.madvise(mmap.MADV_DONTNEED, self._start + start, stop - start)


@dataclass
class StreamCounts:
    """What was read since the start. chosen, present: experts that steps chose, and those that were there already."""

    steps: int = 0
    bytes_read: int = 0
    chosen: int = 0
    present: int = 0


@dataclass(eq=False)
class _Experts:
    """The experts of a layer. first: the place of its first one among those of all layers; route: where a step's choice
    is found; state by phase and expert: the reads that are under way.
    """

    layer: ExpertLayer
    first: int
    n_bytes: int
    used: npt.NDArray[np.int32]
    expert: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    coming: dict[tuple[int, int], DiskRead] = field(default_factory=dict)

    @property
    def phases(self) -> tuple[int, ...]:
        return tuple(self.layer.phases)


class WeightStream:
    """Reads matrices for the steps of one program. Belongs to the thread that runs the steps."""

    def __init__(self, plan: StreamPlan, program: CpuProgram, file: DirectFile, memory: TileMemory) -> None:
        self.plan, self.counts = plan, StreamCounts()
        self._program, self._memory, self._file = program, memory, file
        self._readers = DiskReaders(file, memory.view)
        self._passing = {  # phases in order, with what they read that does not stay
            phase: wanted for phase, names in plan.phases.items() if (wanted := tuple(set(names) - plan.pinned))
        }
        self._window: dict[str, DiskRead] = {}
        self._layers = [_experts(plan, program, key, layer) for key, layer in plan.layers.items()]
        first = 0
        for experts in self._layers:
            experts.first = first
            first += experts.layer.n_experts
        self._bytes = np.concatenate(
            [np.full(e.layer.n_experts, e.n_bytes, np.int64) for e in self._layers] or [np.zeros(0, np.int64)]
        )
        self._score = np.zeros(first)
        self._there = np.zeros(first, bool)  # whether it has pages: read, or being read
        self._reading = np.zeros(first, bool)
        self._used = 0
        self._by_phase = {phase: (number, e) for number, e in enumerate(self._layers) for phase in e.phases}
        self._stops = sorted({*self._passing, *self._by_phase})
        of_logits = {op.phase for op in program.operations if op.arguments.get("by_logit")}
        self._without_logits = [phase for phase in self._stops if phase not in of_logits]

    def close(self) -> None:
        """End the threads that read."""
        self._readers.close()

    def read_pinned(self, progress: Callable[[int, int], None] | None) -> None:
        """Read what stays in memory. progress: gets bytes read and bytes in all. Raises `ReadFailed`."""
        shared = list(self.plan.shared_pages())
        ranges = [[self.plan.matrix_range(name)] for name in self.plan.places if name in self.plan.pinned]
        total, done = sum(stop - start for part in ranges for start, stop in part), 0
        tickets = [self._read(part) for part in ([shared] if shared else []) + ranges]
        for ticket, part in zip(tickets, ([shared] if shared else []) + ranges, strict=True):
            ticket.wait()
            _check(ticket)
            if part is not shared:
                done += part[0][1] - part[0][0]
                if progress is not None:
                    progress(done, total)

    # -- a step

    def run(self, run: Callable[[], None], n_rows: int, n_logits: int) -> None:
        """A prepared step. run: runs the program's words. Raises `ReadFailed`; then the step is given up, and another
        one may run.
        """
        words, begin = self._program.words, 0
        n_phases = int(words["n_phases"][0])
        stops = self._stops if n_logits else self._without_logits
        passing = [phase for phase in stops if phase in self._passing]
        turns = {phase: i for i, phase in enumerate(passing)}
        self._settle()
        try:
            for phase in stops:
                if phase > begin:
                    self._run(run, begin, phase)
                begin = phase
                if phase in turns:
                    self._pass(passing[turns[phase] :] + passing[: turns[phase]])
                if phase in self._by_phase:
                    self._choose(phase, n_rows)
                if phase in turns:
                    for name in self._passing[phase]:
                        self._window[name].wait()
                        _check(self._window[name])
            self._run(run, begin, n_phases)
            self.counts.steps += 1
        except BaseException:
            for ticket in self._window.values():  # what fails now is not the next step's failure
                ticket.wait()
            self._settle()
            raise
        finally:
            words["first_phase"], words["n_phases"] = 0, n_phases

    def _run(self, run: Callable[[], None], first: int, stop: int) -> None:
        self._program.words["first_phase"], self._program.words["n_phases"] = first, stop
        run()

    def _read(self, ranges: Iterable[Range], *, urgent: bool = True) -> DiskRead:
        wanted = list(ranges)
        self.counts.bytes_read += sum(stop - start for start, stop in wanted)
        return self._readers.read(wanted, urgent=urgent)

    def _settle(self) -> None:
        """Wait for all reads of experts; forget what could not be read, dense matrices too."""
        for experts in self._layers:
            for (_, expert), ticket in experts.coming.items():
                ticket.wait()
                if ticket.error is not None:
                    self._drop(experts, [expert])
            experts.coming.clear()
        self._reading[:] = False
        for name, ticket in list(self._window.items()):
            if ticket.error is not None:
                self._leave(name)

    # -- dense matrices

    def _pass(self, phases: list[int]) -> None:
        """Read what these phases need, as far as the window has room. The first one is next, the last one was."""
        left, wanted = self.plan.window, dict[str, Range]()
        for phase in phases:
            more = {name: self.plan.matrix_range(name) for name in self._passing[phase] if name not in wanted}
            left -= sum(stop - start for start, stop in more.values())
            if left < 0:
                break
            wanted |= more
        for name in [name for name in self._window if name not in wanted]:
            self._leave(name)
        for name, place in wanted.items():
            if name not in self._window:
                self._window[name] = self._read([place], urgent=False)

    def _leave(self, name: str) -> None:
        self._window[name].wait()
        del self._window[name]
        self._memory.drop([self.plan.matrix_range(name)])

    # -- experts

    def _choose(self, phase: int, n_rows: int) -> None:
        """Have the chosen experts' matrices of a phase there."""
        number, experts = self._by_phase[phase]
        used = experts.expert[: int(experts.used[0])]
        if phase == experts.phases[0]:
            ids = used + experts.first
            score = self._score[experts.first : experts.first + experts.layer.n_experts]
            score *= DECAY
            score[used] += experts.count[: len(used)] / n_rows
            kept = np.zeros(len(self._there), bool)
            kept[ids] = True
            missing = used[~self._there[ids]]
            self.counts.chosen += len(used)
            self.counts.present += len(used) - len(missing)
            if len(missing):
                self._make_room(experts.n_bytes * len(missing), kept)
                self._begin(experts, missing, urgent=True)
            if number + 1 < len(self._layers) and n_rows * experts.layer.k >= NEARLY_ALL * experts.layer.n_experts:
                self._guess(self._layers[number + 1], kept)
        for expert in used:
            ticket = experts.coming.get((phase, int(expert)))
            if ticket is not None:
                ticket.wait()
                _check(ticket)
                del experts.coming[phase, int(expert)]
        if phase == experts.phases[-1]:
            self._reading[used + experts.first] = False

    def _guess(self, experts: _Experts, kept: npt.NDArray[np.bool_]) -> None:
        """Begin to read the experts of a layer that are absent, as many as take the place of others."""
        mine = slice(experts.first, experts.first + experts.layer.n_experts)
        kept = kept.copy()
        kept[mine] = True
        free = self.plan.room - self._used + int(self._bytes[self._there & ~self._reading & ~kept].sum())
        missing = np.flatnonzero(~self._there[mine])[: max(0, free) // experts.n_bytes]
        if len(missing):
            self._make_room(experts.n_bytes * len(missing), kept)
            self._begin(experts, missing, urgent=False)

    def _begin(self, experts: _Experts, missing: npt.NDArray[Any], *, urgent: bool) -> None:
        for phase, names in experts.layer.phases.items():
            for expert in map(int, missing):
                ranges = [self.plan.expert_range(name, expert) for name in names]
                experts.coming[phase, expert] = self._read(ranges, urgent=urgent)
        self._there[missing + experts.first] = self._reading[missing + experts.first] = True
        self._used += experts.n_bytes * len(missing)

    def _make_room(self, n_bytes: int, kept: npt.NDArray[np.bool_]) -> None:
        """Drop the experts that were chosen least, but those that are kept."""
        excess = self._used + n_bytes - self.plan.room
        if excess <= 0:
            return
        there = np.flatnonzero(self._there & ~self._reading & ~kept)
        if int(self._bytes[there].sum()) < excess:  # some are guesses that were wrong
            self._finish_reads(kept)
            there = np.flatnonzero(self._there & ~self._reading & ~kept)
        order = there[np.argsort(self._score[there], kind="stable")]
        gone = order[: int(np.searchsorted(np.cumsum(self._bytes[order]), excess)) + 1]
        for experts in self._layers:
            mine = gone[(gone >= experts.first) & (gone < experts.first + experts.layer.n_experts)] - experts.first
            if len(mine):
                self._drop(experts, mine.tolist())

    def _finish_reads(self, kept: npt.NDArray[np.bool_]) -> None:
        """Wait for reads of experts that are not kept."""
        for experts in self._layers:
            others = [key for key in experts.coming if not kept[experts.first + key[1]]]
            for phase, expert in others:
                ticket = experts.coming[phase, expert]
                ticket.wait()
                if ticket.error is not None:
                    self._drop(experts, [expert])
                del experts.coming[phase, expert]
                self._reading[experts.first + expert] = False

    def _drop(self, experts: _Experts, gone: list[int]) -> None:
        for expert in gone:
            if self._there[experts.first + expert]:
                self._there[experts.first + expert] = False
                self._used -= experts.n_bytes
                self._memory.drop(
                    self.plan.expert_range(name, expert) for names in experts.layer.phases.values() for name in names
                )


def _experts(plan: StreamPlan, program: CpuProgram, key: Hashable, layer: ExpertLayer) -> _Experts:
    """A layer whose route is read where the program's operations write it."""
    phase = min(layer.phases)
    op = next(op for op in program.operations if op.phase == phase and "route" in op.arguments)
    route = op.arguments["route"]
    n = layer.n_experts

    def array(part: str, size: int) -> npt.NDArray[np.int32]:
        return np.ctypeslib.as_array((ctypes.c_int32 * size).from_address(int(route[part][0])))

    used = array("used", 2)
    return _Experts(layer, 0, plan.expert_bytes(key), used, array("expert", n), array("count", n))


def _check(ticket: DiskRead) -> None:
    if ticket.error is not None:
        raise ticket.error

"""`Profiler`: a shader core that measures every dispatch, and a table of the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from amdgpu_emu.constants import Interval, spread
from amdgpu_emu.core.core import LIMIT, ShaderCore
from amdgpu_emu.core.counters import Counters
from amdgpu_emu.core.program import CompiledInstruction, Program
from amdgpu_emu.core.state import Array, Group, Pending, Step
from amdgpu_emu.cost import PredictedTime, phase_seconds, predict, step_seconds
from amdgpu_emu.errors import GpuHang
from amdgpu_emu.models import R9700, GpuModel
from amdgpu_emu.residency import INFINITY, L2, Residency
from amdgpu_emu.work import Work

if TYPE_CHECKING:
    from amdgpu_emu.shader import Dispatch
    from amdgpu_emu.shader_memory import ShaderMemory

_WAIT: Final = "s_wait"
"""s_wait_* and, on gfx11, s_waitcnt*."""


@dataclass(frozen=True)
class DispatchRecord:
    """A measured dispatch. name: of its kernel; phase: dispatches with the same number had no barrier between them;
    full: whether the barrier before its phase dropped the L2.
    """

    name: str
    dispatch: Dispatch
    work: Work
    cost: PredictedTime
    phase: int = 0
    full: bool = False


class Profiler(ShaderCore):
    """A `ShaderCore` that keeps a `DispatchRecord` of each dispatch in `records`, in the order in which they ran.

    Args:
        models: cards of the machine; costs are those of the first one of a dispatch's generation, caches those of the
            first of all.
        limit: as for `ShaderCore`.

    Callers may fill `names` with kernel names by address; other kernels are called by their address. `residency` says
    where lines lie, from the first dispatch on.
    """

    def __init__(self, models: Sequence[GpuModel] = (R9700,), *, limit: int = LIMIT) -> None:
        self.names: dict[int, str] = {}
        super().__init__(limit=limit, measure=True, keep=1, name_of=self.names.get)
        self.models = tuple(models)
        self.residency = Residency(self.models[0].l2, self.models[0].infinity)
        self.records: list[DispatchRecord] = []
        self.lds_rounds = 0
        self._reached: dict[int, Array] = {}  # by the address of the wait: rounds, those beyond each level
        self._by_wave: dict[int, list[Array]] = {}  # by the address of the wait: the waves that waited, each time
        self._waited: dict[int, Pending] = {}
        self._phase, self._running = 0, False
        self._dropped: int | None = None
        self._full = False

    def issued(self, dispatch: Dispatch) -> None:
        """Start a new phase if a dispatch has run since the last packet."""
        # Waves run when something waits for them, so dispatches issued after that are behind a barrier.
        if self._running:
            self._phase, self._running, self._full = self._phase + 1, False, False

    def run(self, dispatch: Dispatch, memory: ShaderMemory) -> None:
        """Execute a dispatch, add its `DispatchRecord`. Raises as `ShaderCore.run`; `GpuHang` if no workgroup fits."""
        dropped = self._dropped is not None and memory.dropped != self._dropped
        self._running, self._dropped, self._full = True, memory.dropped, self._full or dropped
        self.residency.begin(dropped=dropped)
        self.keep_record(dispatch, self.measured(dispatch, memory))
        self.residency.end()

    def measured(self, dispatch: Dispatch, memory: ShaderMemory) -> Work:
        """Execute a dispatch, and say what it did."""
        self.lds_rounds = 0
        self._reached.clear()
        self._by_wave.clear()
        try:
            super().run(dispatch, memory)
        finally:
            self._waited.clear()
        counters, zero = self.counters[-1], np.zeros(4)
        late = {at for at, n in self._reached.items() if at > counters.alone and n[0] < counters.workgroups}
        early = sum((n for at, n in self._reached.items() if at not in late), zero)
        late_rounds = round(sum((self._reached[at] for at in late), zero)[0])
        # As if all went on as the wave that waits most often; others have less to do, or nothing.
        waited = [ids for at in late for ids in self._by_wave[at]]
        late_waves = late_rounds / int(np.bincount(np.concatenate(waited)).max()) if waited else 0.0
        beyond = [round(n) for n in early.tolist()]
        levels = {level: n - m for level, (n, m) in enumerate(zip(beyond, [*beyond[1:], 0], strict=True)) if n > m}
        return Work.of(
            dispatch, counters, beyond[0] + late_rounds, self.lds_rounds, late_rounds=late_rounds,
            late_waves=late_waves, levels=levels, asked_lines=self.residency.asked,
            l2_lines=int(self.residency.sources[L2]), infinity_lines=int(self.residency.sources[INFINITY]),
        )  # fmt: skip

    def keep_record(self, dispatch: Dispatch, work: Work) -> None:
        """Add the `DispatchRecord` of a dispatch that did this. Raises `GpuHang` if no workgroup fits."""
        model = next((model for model in self.models if model.gfx == dispatch.gfx), self.models[0])
        name = self.names.get(dispatch.address, f"{dispatch.address:#x}")
        try:
            cost = predict(work, model)
        except ValueError as error:
            raise GpuHang(f"{name} never starts: {error}") from error
        self.records.append(DispatchRecord(name, dispatch, work, cost, self._phase, self._full))

    def new_counters(self) -> Counters:
        """Counters that tell `residency` of every access."""
        return Counters(self.measure, self.residency)

    def batch(self, first: int, count: int, waves: int) -> None:
        """Tell `residency` which workgroups run at once."""
        self.residency.batch(first, count, waves)

    def program(self, dispatch: Dispatch, memory: ShaderMemory, n_vgprs: int, lanes: int) -> Program:
        """The compiled program of a dispatch, with its waits counted."""
        found = super().program(dispatch, memory, n_vgprs, lanes)
        return _Watched(self, found)

    def load(self, g: Group, fn: Step) -> Any:
        """Run an instruction that brings results, and note how far its waves reach for them."""
        counters = g.shared.counters
        counters.reach = None
        result = fn(g)
        if counters.reach is not None:
            for queue in g.queues.values():
                if queue:
                    queue[-1].reach = counters.reach
        return result

    def wait(self, g: Group, fn: Step) -> Any:
        """Run a wait and count a round if it brings results that no earlier wait has brought.

        Loads that were issued before an earlier wait have arrived when that one is over.
        """
        before = {name: queue.copy() for name, queue in g.queues.items()}
        result = fn(g)
        came = {name: self._fresh(queue[: len(queue) - len(g.queues[name])]) for name, queue in before.items()}
        if found := [p for fresh in came.values() for p in fresh]:
            if all(p.kind.startswith("ds_") for p in found):
                self.lds_rounds += g.n
            else:
                reach = np.array([1.0, 0.0, 0.0, 0.0])
                for pending in found:
                    reach = reach if pending.reach is None else np.maximum(reach, pending.reach)
                self._reached[g.pc] = self._reached.get(g.pc, 0.0) + g.n * reach
                self._by_wave.setdefault(g.pc, []).append(g.ids.copy())
            for queue in before.values():
                self._waited.update((id(pending), pending) for pending in queue)
        return result

    def _fresh(self, arrived: list[Pending]) -> list[Pending]:
        # GLOBAL_INV, which counts as a load, brings nothing and goes no way to memory.
        return [p for p in arrived if p.kind != "global_inv" and id(p) not in self._waited]


class _Watched(Program):
    """A program whose loads and waits go through the profiler. It shares the instructions of another one."""

    def __init__(self, profiler: Profiler, program: Program) -> None:
        super().__init__(program.fetch, program.n_vgprs, program.lanes, program.gfx)
        self.profiler, self.ops = profiler, program.ops

    def at(self, address: int) -> CompiledInstruction:
        """The compiled instruction at an address; loads and waits go through the profiler."""
        known = address in self.ops
        op = super().at(address)
        if not known and (op.counters or op.name.startswith(_WAIT)):
            op.fn = self._watch(op.fn, self.profiler.load if op.counters else self.profiler.wait)
        return op

    @staticmethod
    def _watch(fn: Step, through: Callable[[Group, Step], Any]) -> Step:
        return lambda g: through(g, fn)


def side_by_side(records: Sequence[DispatchRecord]) -> float:
    """Predicted seconds of all dispatches if those of a phase run at once, without what barriers cost."""
    return sum(phase_seconds([record.cost for record in part]) for _, part in groupby(records, lambda r: r.phase))


def total(records: Sequence[DispatchRecord], submissions: int, model: GpuModel = R9700) -> Interval:
    """Predicted seconds of steps in so many submissions, barriers included."""
    phases = [list(part) for _, part in groupby(records, lambda r: r.phase)]
    works = [([record.work for record in part], part[0].full) for part in phases]
    return spread(lambda constants: step_seconds(works, submissions, model, constants))


def table(records: Sequence[DispatchRecord]) -> list[dict[str, Any]]:
    """A row for each kernel and shape of dispatch, in the order of their first runs; figures are sums over its calls,
    but for occupancy, bound (of the longest call) and bandwidth (the share over all of its time).
    """
    groups: dict[tuple[Any, ...], list[DispatchRecord]] = {}
    for record in records:
        key = (record.name, record.dispatch.address, record.dispatch.groups, record.dispatch.threads)
        groups.setdefault(key, []).append(record)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[DispatchRecord]) -> dict[str, Any]:
    works = [record.work for record in group]
    seconds = sum(record.cost.seconds for record in group)
    longest = max(group, key=lambda record: record.cost.seconds)
    kinds = sorted({kind for work in works for kind in work.instructions})
    return {
        "kernel": group[0].name,
        "groups": list(group[0].dispatch.groups),
        "threads": list(group[0].dispatch.threads),
        "calls": len(group),
        "waves": sum(work.waves for work in works),
        "occupancy": longest.work.occupancy,
        "instructions": {kind: sum(work.instructions.get(kind, 0) for work in works) for kind in kinds},
        "bytes_read": sum(work.bytes_read for work in works),
        "bytes_written": sum(work.bytes_written for work in works),
        "unique_read": sum(work.unique_read for work in works),
        "unique_written": sum(work.unique_written for work in works),
        "lines": sum(work.lines for work in works),
        "stray": sum(work.stray for work in works),
        "memory_bytes": sum(work.memory_bytes for work in works),
        "microseconds": seconds * 1e6,
        "bound": longest.cost.bound,
        "parts": {name: 1e6 * sum(record.cost.parts[name] for record in group) for name in longest.cost.parts},
        "bandwidth": sum(record.cost.bandwidth * record.cost.seconds for record in group) / seconds,
    }

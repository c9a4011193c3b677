"""`Profiler`: a shader core that measures every dispatch, and a table of the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from amdgpu_emu.core.core import LIMIT, ShaderCore
from amdgpu_emu.core.program import Op, Program
from amdgpu_emu.core.state import Group, Pending, Step
from amdgpu_emu.cost import Cost, Work, predict
from amdgpu_emu.errors import GpuHang
from amdgpu_emu.models import R9700, GpuModel

if TYPE_CHECKING:
    from amdgpu_emu.shader import Dispatch
    from amdgpu_emu.shader_memory import ShaderMemory

_WAIT: Final = "s_wait_"


@dataclass(frozen=True)
class Record:
    """A measured dispatch. name: of its kernel; phase: dispatches with the same number had no barrier between them."""

    name: str
    dispatch: Dispatch
    work: Work
    cost: Cost
    phase: int = 0


class Profiler(ShaderCore):
    """A `ShaderCore` that keeps a `Record` of each dispatch in `records`, in the order in which they ran.

    Args:
        models: cards of the machine; costs are those of the first one of a dispatch's generation.
        limit: as for `ShaderCore`.

    Callers may fill `names` with kernel names by address; other kernels are called by their address.
    """

    def __init__(self, models: Sequence[GpuModel] = (R9700,), *, limit: int = LIMIT) -> None:
        self.names: dict[int, str] = {}
        super().__init__(limit=limit, measure=True, keep=1, name_of=self.names.get)
        self.models = tuple(models)
        self.records: list[Record] = []
        self.rounds = self.lds_rounds = 0
        self._rounds_at: Counter[int] = Counter()  # by the address of the wait
        self._waited: dict[int, Pending] = {}
        self._phase, self._running = 0, False

    def issued(self, dispatch: Dispatch) -> None:
        """Start a new phase if a dispatch has run since the last packet."""
        # Waves run when something waits for them, so dispatches issued after that are behind a barrier.
        if self._running:
            self._phase, self._running = self._phase + 1, False

    def run(self, dispatch: Dispatch, memory: ShaderMemory) -> None:
        """Execute a dispatch and add its `Record`. Raises as `ShaderCore.run`; `GpuHang` too if no workgroup fits."""
        self._running = True
        self.rounds = self.lds_rounds = 0
        self._rounds_at.clear()
        try:
            super().run(dispatch, memory)
        finally:
            self._waited.clear()
        counters = self.counters[-1]
        late = sum(n for at, n in self._rounds_at.items() if at > counters.alone and n < counters.workgroups)
        work = Work.of(dispatch, counters, self.rounds, self.lds_rounds, late)
        model = next((model for model in self.models if model.gfx == dispatch.gfx), self.models[0])
        name = self.names.get(dispatch.address, f"{dispatch.address:#x}")
        try:
            cost = predict(work, model)
        except ValueError as error:
            raise GpuHang(f"{name} never starts: {error}") from error
        self.records.append(Record(name, dispatch, work, cost, self._phase))

    def program(self, dispatch: Dispatch, memory: ShaderMemory, n_vgprs: int, lanes: int) -> Program:
        """The compiled program of a dispatch, with its waits counted."""
        found = super().program(dispatch, memory, n_vgprs, lanes)
        return _Watched(self, found)

    def wait(self, g: Group, fn: Step) -> Any:
        """Run an s_wait_* and count a round if it brings results that no earlier wait has brought.

        Loads that were issued before an earlier wait have arrived when that one is over.
        """
        before = {name: queue.copy() for name, queue in g.queues.items()}
        result = fn(g)
        came = [name for name, queue in before.items() if self._fresh(queue[: len(queue) - len(g.queues[name])])]
        if came:
            if came == ["dscnt"]:
                self.lds_rounds += g.n
            else:
                self.rounds += g.n
                self._rounds_at[g.pc] += g.n
            for queue in before.values():
                self._waited.update((id(pending), pending) for pending in queue)
        return result

    def _fresh(self, arrived: list[Pending]) -> bool:
        # What brings nothing, GLOBAL_INV, goes no way to memory.
        return any(pending.kind != "global_inv" and id(pending) not in self._waited for pending in arrived)


class _Watched(Program):
    """A program whose waits go through the profiler. It shares the instructions of another one."""

    def __init__(self, profiler: Profiler, program: Program) -> None:
        super().__init__(program.fetch, program.n_vgprs, program.lanes)
        self.profiler, self.ops = profiler, program.ops

    def at(self, address: int) -> Op:
        """The compiled instruction at an address; a wait goes through the profiler."""
        known = address in self.ops
        op = super().at(address)
        if not known and op.ins.name.startswith(_WAIT):
            op.fn = self._watch(op.fn)
        return op

    def _watch(self, fn: Step) -> Step:
        profiler = self.profiler
        return lambda g: profiler.wait(g, fn)


def side_by_side(records: Sequence[Record]) -> float:
    """Predicted seconds of all dispatches if those of a phase run at once.

    A phase takes as long as its longest dispatch, and no less than the sum of their memory times or launches. The model
    assumes that compute units are free for each.
    """
    phases: dict[int, list[Cost]] = {}
    for record in records:
        phases.setdefault(record.phase, []).append(record.cost)
    return sum(
        max(
            *(cost.seconds for cost in costs),
            *(sum(cost.parts[part] for cost in costs) for part in ("memory", "launch")),
        )
        for costs in phases.values()
    )


def table(records: Sequence[Record]) -> list[dict[str, Any]]:
    """A row for each kernel and shape of dispatch, in the order of their first runs; figures are sums over its calls,
    but for occupancy, bound (of the longest call) and bandwidth (the share over all of its time).
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        key = (record.name, record.dispatch.address, record.dispatch.groups, record.dispatch.threads)
        groups.setdefault(key, []).append(record)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[Record]) -> dict[str, Any]:
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

"""`EmulatedBackend`: the GPU backend on an emulated card, and what its dispatches would take on the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from amdgpu_emu.constants import Interval
from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.errors import EmulatorFinding
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import MODELS, R9700, GpuModel
from amdgpu_emu.profiler import DispatchRecord, Profiler, side_by_side, table, total
from amdgpu_emu.shader import Dispatch, Shader
from amdgpu_emu.shader_memory import ShaderMemory
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.base import LoweredGraph, StepFence
from zinc_rt.backends.devices import ResidentUse
from zinc_rt.backends.diagnostics.calibration import SMALL
from zinc_rt.backends.gpu.backend import SubmittedStep
from zinc_rt.backends.gpu.profile import trace_of
from zinc_rt.errors import BackendError, UsageError
from zinc_rt.lang.cache import CompileCache
from zinc_rt.mem.plan import available_memory
from zinc_rt.utils.checks import show

_NODE = "/dev/dri/renderD128"
_PATIENCE = 86_400.0
"""Seconds that a step may take: the emulator is slow, and finds endless loops itself."""


@dataclass(frozen=True)
class Prediction:
    """The cost model's prediction for dispatches that ran on the emulator (`docs/how/emulator.md`).

    records: dispatches in order; steps: submissions that they were in; resident: seconds of a step as one resident
    program, None where that is not known.
    """

    model: GpuModel
    records: Sequence[DispatchRecord]
    steps: int
    resident: Interval | None = None

    @property
    def seconds(self) -> float:
        """Predicted, of all dispatches one after the other."""
        return sum(record.cost.seconds for record in self.records)

    @property
    def overlapped(self) -> float:
        """Predicted seconds if dispatches without a barrier between them run at once; barriers are free."""
        return side_by_side(self.records)

    @property
    def barriers(self) -> int:
        """Barriers within steps."""
        return len({record.phase for record in self.records}) - self.steps

    @property
    def full_barriers(self) -> int:
        """Of these, such that drop the L2."""
        return len({record.phase for record in self.records if record.full})

    @cached_property
    def total(self) -> Interval:
        """Predicted seconds of all steps, barriers and submissions included."""
        return total(self.records, self.steps, self.model)

    @property
    def n_events(self) -> int:
        """Spans of the trace."""
        return len(self.records)

    def lines(self) -> Iterator[str]:
        """A table of kernels, the longest first."""
        if not self.steps:
            yield "no step ran"
            return
        count = f"{self.steps} step" if self.steps == 1 else f"{self.steps} steps"
        together, whole = self.overlapped / self.steps * 1e3, self.total
        low, likely, high = (s / self.steps * 1e3 for s in (whole.low, whole.likely, whole.high))
        yield (
            f"predicted for {self.model.name}: {count}, {low:.3f}-{high:.3f} ms each, likely {likely:.3f}"
            f" ({together:.3f} in dispatches, the rest in {self.barriers / self.steps:.4g} barriers and the submission)"
        )
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in table(self.records):
            rows.setdefault(row["kernel"], []).append(row)
        wide = max(map(len, ("kernel", *rows)))
        yield f"  {'kernel':<{wide}}{'us a step':>11}{'share':>8}{'calls':>8}{'MB a step':>12}{'bandwidth':>11}  bound"
        for name, group in sorted(rows.items(), key=lambda item: -_microseconds(item[1])):
            us, longest = _microseconds(group), max(group, key=lambda row: float(row["microseconds"]))
            mb = sum(row["unique_read"] + row["unique_written"] for row in group) / 1e6
            bandwidth = sum(row["bandwidth"] * row["microseconds"] for row in group) / us
            calls = sum(row["calls"] for row in group) / self.steps
            yield (
                f"  {name:<{wide}}{us / self.steps:>11.2f}{us / self.seconds / 1e6:>8.1%}{calls:>8.4g}"
                f"{mb / self.steps:>12.3f}{bandwidth:>11.1%}  {longest['bound']}"
            )

    def chrome_trace(self) -> str:
        """JSON that chrome://tracing and Perfetto read: dispatches one after the other, in predicted microseconds."""
        lengths = [record.cost.seconds for record in self.records]
        return trace_of(
            (record.name, at, seconds, {"groups": list(record.dispatch.groups), "bound": record.cost.bound})
            for record, at, seconds in zip(self.records, accumulate(lengths, initial=0.0), lengths, strict=False)
        )


def _microseconds(rows: Sequence[dict[str, Any]]) -> float:
    return sum(float(row["microseconds"]) for row in rows)


def gpu_model(name: str | None) -> GpuModel:
    """A GPU to emulate by name, None for the R9700. Raises `UsageError`."""
    if name is None:
        return R9700
    if name not in MODELS:
        raise UsageError(f"unknown GPU {show(name)}; these can be emulated: {', '.join(MODELS)}")
    return MODELS[name]


class Idle(Shader):
    """Runs nothing, at once."""

    def run(self, dispatch: Dispatch, memory: ShaderMemory) -> None:
        pass


class EmulatedBackend(AmdBackend):
    """As `AmdBackend`, on a machine of its own that ends with it. model: the card."""

    calibration = SMALL

    def __init__(
        self,
        model: GpuModel = R9700,
        *,
        cache: CompileCache | None = None,
        notify: Callable[[str], None] | None = None,
        resident: ResidentUse = "auto",
    ) -> None:
        self.machine = Machine(models=[model], shader=ShaderCore(keep=0), time_scale=_PATIENCE, strict=False)
        self._profiler: Profiler | None = None
        self._steps = 0
        try:
            interface = KfdInterface(_NODE, linux=self.machine.process())
            super().__init__(interface, cache=cache, timeout=_PATIENCE, notify=notify, resident=resident)
        except BaseException:
            self.machine.close()
            raise

    @property
    def description(self) -> str:
        """The kernels and the card."""
        return f"GPU kernels for {self.features.isa} on an emulated {self.machine.gpus[0].model.name}"

    @property
    def memory_available(self) -> int | None:
        """The card's memory, or less if this process cannot allocate as much."""
        limits = [n for n in (super().memory_available, available_memory()) if n is not None]
        return min(limits, default=None)

    def _submit(self, step: SubmittedStep) -> StepFence:
        if self._profiler is not None:  # a step may have loaded kernels of its own
            self._profiler.names.update({program.va: program.name for program in self.programs})
        fence = super()._submit(step)
        self._steps += 1
        return fence

    def start_profile(self, lowered: LoweredGraph) -> None:
        """Measure every dispatch from now on; steps take several times as long."""
        self._profiler = self._measuring()
        self.machine.shader, self._steps = self._profiler, 0

    def _measuring(self) -> Profiler:
        """A shader core that measures."""
        return Profiler([self.machine.gpus[0].model])

    def finish_profile(self) -> Prediction:
        """What the dispatches since `start_profile` would take on the card. Raises `BackendError` without one."""
        if self._profiler is None:
            raise BackendError("no profile was started")
        found = Prediction(self.machine.gpus[0].model, self._profiler.records, self._steps)
        self.machine.shader, self._profiler = ShaderCore(keep=0), None
        return found

    def close(self) -> None:
        """End the machine, too. Raises `EmulatorFinding` when the emulator saw a rule broken."""
        if self._undrained:  # the rest of a step that was left alone: nobody reads what comes of it
            self.machine.shader = Idle()
        try:
            super().close()
        finally:
            self.machine.close()
        # Arrays that the caller still holds count as leaks there.
        broken = [str(finding) for finding in self.machine.findings if finding.kind != "leak"]
        if broken:
            raise EmulatorFinding(f"{len(broken)} findings: {'; '.join(broken)}")

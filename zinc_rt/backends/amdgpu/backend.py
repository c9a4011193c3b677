"""`AmdBackend`: runs graphs on an AMD GPU, through any interface to the driver."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.amdgpu.gfx import gfx_name
from zinc_rt.amdgpu.interface import Interface
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel
from zinc_rt.amdgpu.queue import TIMEOUT, GpuQueue
from zinc_rt.amdgpu.room import memory_used
from zinc_rt.backends.amdgpu.resident import ResidentPrograms
from zinc_rt.backends.base import BackendFeatures
from zinc_rt.backends.devices import ResidentUse
from zinc_rt.backends.diagnostics.calibration import CARD, measure
from zinc_rt.backends.gpu.backend import GpuBackend, SubmittedStep
from zinc_rt.errors import BackendError
from zinc_rt.lang.cache import CompileCache
from zinc_rt.mem.plan import available_memory, kept_free


class AmdBackend(GpuBackend):
    """Runs steps in order on the GPU behind an interface. calibration: how much `card_constants` measures.

    Args:
        interface: the way to the GPU; the backend closes it, also when this raises.
        cache: where compiled kernels are kept, None for nowhere.
        timeout: seconds that a step of up to 64 rows may take; larger steps may take as many times as long.
        notify: gets lines worth showing.
        resident: when steps are one resident program (`ResidentUse`); never on user queues. If it ends early, the step
            is run again as dispatches, and so are all later steps.

    Raises:
        BackendError: the kernels are not for this GPU.
        InterfaceError: the driver refused a call.
    """

    calibration = CARD
    gpu: GpuQueue

    def __init__(
        self,
        interface: Interface,
        *,
        cache: CompileCache | None = None,
        timeout: float = TIMEOUT,
        notify: Callable[[str], None] | None = None,
        resident: ResidentUse = "auto",
    ) -> None:
        queue = GpuQueue(interface, timeout=timeout)
        self.resident = ResidentPrograms(queue, cache, notify, resident)
        self.on_early_end: Callable[[str], None] | None = None
        """Gets a reason when a resident program ended before its time."""
        super().__init__(
            queue,
            BackendFeatures("rdna", gfx_name(interface.device.gfx_target_version), samples=True),
            cache=cache,
            notify=notify,
            programs_of_steps=self.resident,
        )

    @property
    def description(self) -> str:
        """The kernels, the GPU and the interface."""
        device = self.gpu.device
        return f"GPU kernels for {self.features.isa} on {device.render_node} through {self.gpu.interface.name}"

    @property
    def memory_available(self) -> int | None:
        """GPU memory that nobody uses, as sysfs says, without the part that stays free; else all there is. Of system
        memory at most what the processor has left.
        """
        device = self.gpu.device
        if not device.memory:
            return None
        used = memory_used(device, self.gpu.interface.linux) or 0
        left = max(0, device.memory - used - self.memory_kept_free)
        there = available_memory() if device.data_heap == "gtt" else None
        return left if there is None else min(left, there)

    @property
    def memory_kept_free(self) -> int:
        """A tenth of the GPU's memory."""
        return kept_free(self.gpu.device.memory)

    def card_constants(self) -> dict[str, float]:
        """See `Backend.card_constants`. Raises `DeviceLost`, `InterfaceError`."""
        self.drain()
        return measure(self.gpu, cache=self._cache, notify=self._notify, extent=self.calibration)

    @property
    def programs(self) -> tuple[LoadedKernel, ...]:
        """The kernels of all batches lowered here."""
        loaded = (*super().programs, *self.resident.programs)
        return tuple(program for program in loaded if isinstance(program, LoadedKernel))  # all are: a queue loaded them

    def _ended(self, step: SubmittedStep, seconds: float, *, last: bool) -> None:
        if meeting := step.graph.recorded.ended_early(step.shape, step.sampling):
            self._again(step, meeting, seconds, last=last)

    def _again(self, step: SubmittedStep, meeting: int, seconds: float, *, last: bool) -> None:
        """Run a step as dispatches whose resident program ended early, and all that come. Raises `BackendError` where
        it cannot be run again: states of recurrent layers have been changed, or another step has been submitted.
        """
        self.resident.give_up()
        reason = f"the workgroups of a resident program did not all come to its meeting {meeting} in time"
        if self.on_early_end is not None:
            self.on_early_end(reason)
        for graph in self._batches:
            graph.recorded.forget_programs()
        if not last or (step.graph.slots and meeting > 1):
            raise BackendError(f"{reason}, and its step cannot be run again; --resident never avoids this")
        if self._notify is not None:
            self._notify(f"{self.gpu.device.render_node}: {reason}; steps are lists of dispatches from now on")
        self._await(self._start(step), seconds, own_limit=True)

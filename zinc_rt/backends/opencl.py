"""`OpenClBackend`: runs graphs on an OpenCL device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from zinc_rt.backends.base import BackendFeatures
from zinc_rt.backends.gpu.device import DeviceKernel
from zinc_rt.backends.gpu.driver_backend import DriverBackend
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.mem.plan import available_memory
from zinc_rt.opencl.device import OpenClDevice
from zinc_rt.opencl.devices import OpenClCard

_KEPT_FREE: Final = 10
"""Of the device's memory, one part in this many stays free."""


class OpenClBackend(DriverBackend):
    """Runs steps in order on an OpenCL device. options: of the driver's compiler. Raises `BackendError`."""

    gpu: OpenClDevice

    def __init__(
        self,
        card: OpenClCard,
        *,
        cache: CompileCache | None = None,
        notify: Callable[[str], None] | None = None,
        options: str | None = None,
    ) -> None:
        super().__init__(
            OpenClDevice(card, cache=cache, options=options),
            BackendFeatures("opencl", "spirv", samples=True),
            cache=cache,
            notify=notify,
            programs_of_steps=None,
        )

    def _brought(self, kernels: Iterable[GpuKernel]) -> Iterable[DeviceKernel]:
        # The driver compiles each for seconds.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            return list(threads.map(self.gpu.load_kernel, kernels))

    @property
    def description(self) -> str:
        """The kernels, the device and its driver."""
        return f"OpenCL kernels on {self.gpu.card.name} ({self.gpu.card.driver})"

    @property
    def memory_available(self) -> int | None:
        """What the device has beside what stays free; of a processor what the machine has."""
        if self.gpu.card.processor:
            return available_memory()
        return max(0, self.gpu.card.memory - self.gpu.allocated - self.memory_kept_free)

    @property
    def memory_kept_free(self) -> int:
        """A tenth of the device's memory."""
        return self.gpu.card.memory // _KEPT_FREE

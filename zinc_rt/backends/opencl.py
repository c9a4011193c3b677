"""`OpenClBackend`: runs graphs on an OpenCL device."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.backends.base import BackendFeatures
from zinc_rt.backends.gpu.driver_backend import DriverBackend
from zinc_rt.lang.cache import CompileCache
from zinc_rt.mem.plan import available_memory
from zinc_rt.opencl.device import OpenClDevice
from zinc_rt.opencl.devices import OpenClCard


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
        )

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

"""`CudaBackend`: runs graphs on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.backends.base import BackendFeatures
from zinc_rt.backends.gpu.backend import GpuBackend
from zinc_rt.cuda.calls import DriverCalls
from zinc_rt.cuda.device import TIMEOUT, CudaDevice
from zinc_rt.lang.cache import CompileCache

_KEPT_FREE = 512 << 20


class CudaBackend(GpuBackend):
    """Runs steps in order on an NVIDIA GPU.

    Args:
        number: the GPU, as the driver counts.
        cuda: the driver's functions, None to load them.
        cache: where compiled kernels are kept, None for nowhere.
        timeout: seconds that a step of up to 64 rows may take; larger steps may take as many times as long.
        notify: gets lines worth showing.

    Raises:
        CudaMissing: there is no driver, or an old one.
        CudaCallFailed: the driver refused a call.
        BackendError: kernels cannot run on this GPU.
    """

    gpu: CudaDevice

    def __init__(
        self,
        number: int = 0,
        *,
        cuda: DriverCalls | None = None,
        cache: CompileCache | None = None,
        timeout: float = TIMEOUT,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        device = CudaDevice(number, cuda=cuda, cache=cache, timeout=timeout)
        super().__init__(
            device,
            BackendFeatures("cuda", device.gpu.architecture, samples=True),
            cache=cache,
            notify=notify,
            tiles=None,
            programs_of_steps=None,
        )

    @property
    def description(self) -> str:
        """The kernels and the GPU."""
        gpu = self.gpu.gpu
        return f"GPU kernels for {self.features.isa} on {gpu.name} (cuda:{gpu.number}) through CUDA's driver"

    @property
    def memory_available(self) -> int | None:
        """GPU memory that nobody uses, without the part that stays free."""
        free, _ = self.gpu.memory_info()
        return max(0, free - self.memory_kept_free)

    @property
    def memory_kept_free(self) -> int:
        """A tenth, on a card without a display 512 MiB at most: machine code and the driver's own need some."""
        tenth = self.gpu.gpu.memory // 10
        return tenth if self.gpu.drives_display else min(tenth, _KEPT_FREE)

"""`CudaBackend`: runs graphs on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.backends.base import BackendFeatures
from zinc_rt.backends.gpu.driver_backend import DriverBackend
from zinc_rt.cuda.device import TIMEOUT, CudaDevice
from zinc_rt.cuda.devices import CudaCard
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.gpu import GpuKernel

_KEPT_FREE = 512 << 20


class CudaBackend(DriverBackend):
    """Runs steps in order on an NVIDIA GPU.

    Args:
        card: the GPU.
        cache: where compiled kernels are kept, None for nowhere.
        timeout: seconds that a step of up to 64 rows may take; larger steps may take as many times as long.
        notify: gets lines worth showing.

    Raises:
        CudaCallFailed: the driver refused a call.
        BackendError: kernels cannot run on this GPU.
    """

    gpu: CudaDevice

    def __init__(
        self,
        card: CudaCard,
        *,
        cache: CompileCache | None = None,
        timeout: float = TIMEOUT,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        device = CudaDevice(card, cache=cache, timeout=timeout)
        super().__init__(
            device,
            BackendFeatures("cuda", card.architecture, samples=True),
            cache=cache,
            notify=notify,
        )

    @property
    def description(self) -> str:
        """The kernels and the GPU."""
        card = self.gpu.card
        return f"CUDA kernels for {card.architecture} on {card.name} ({card.driver})"

    def _compile(self, kernel: GpuKernel) -> None:
        self.gpu.compile(kernel)

    @property
    def memory_available(self) -> int | None:
        """GPU memory that nobody uses, without the part that stays free."""
        free, _ = self.gpu.memory_info()
        return max(0, free - self.memory_kept_free)

    @property
    def memory_kept_free(self) -> int:
        """A tenth, on a card without a display 512 MiB at most: machine code and the driver's own need some."""
        tenth = super().memory_kept_free
        return tenth if self.gpu.drives_display else min(tenth, _KEPT_FREE)

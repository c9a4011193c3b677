"""The contract of a driver that runs graphs: memory, kernels, lists of dispatches in one order, and fences.

A driver is one class with the methods of `GpuDevice` (`amdgpu.queue.GpuQueue` is AMD's). What it hands out comes back
to it alone, so it may be of its own types; the protocols say what is read of them here. Where the sizes of a step leave
a choice, the device says what suits it: how much work a submission may have, how many workgroups it holds.

An instruction set is a target of `lang`, with its lowerings in `lang.lower`: these differ in the ids of work-items and
workgroups, the exchange of lanes' values, the barrier of a workgroup, address spaces, integer dot products and the
calling convention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from zinc_rt.backends.base import Bytes
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.utils.gpu_calls import Groups

Heap = Literal["vram", "gtt"]
"""The GPU's own memory; the system's, which both reach."""
HostUse = Literal["writes", "reads", "polls"]
"""What the processor does with system memory: fills it for the GPU; reads what the GPU wrote; looks while work runs."""


class DeviceMemory(Protocol):
    """A piece of memory that the GPU reaches."""

    @property
    def va(self) -> int:
        """Its address on the GPU, a multiple of 256."""

    @property
    def size(self) -> int:
        """Bytes."""


class DeviceKernel(Protocol):
    """A kernel that the device has loaded."""

    @property
    def name(self) -> str:
        """For messages and profiles."""

    @property
    def kernel(self) -> GpuKernel | None:
        """The compiled kernel that it was loaded from."""


class DispatchList(Protocol):
    """Dispatches and barriers, in order: recorded once, submitted as often as wanted, behind all earlier ones.

    memory: what it names, which must not be freed before its last submission; work: how much it is (`work.work_of`).
    """

    memory: list[Any]
    work: int

    def dispatch(self, program: Any, groups: Groups, /, *arguments: Any) -> Any:
        """Run a kernel. arguments: as it declares them, addresses or memory for pointers."""

    def barrier(self, *, light: bool = False) -> Any:
        """Dispatches behind it see the results of those before it. light: not where one dispatch rewrites what an
        earlier one read.
        """


class GpuDevice(Protocol):
    """A GPU behind its driver.

    Calls raise `DeviceLost` once the GPU is gone, `BackendError` for what the driver refuses.
    """

    timeout: float
    """Seconds that `wait` allows where nothing else is said."""

    @property
    def kernel_target(self) -> str:
        """The target of `lang` that its kernels are compiled for."""

    @property
    def host_reaches_all(self) -> bool:
        """Whether the processor reads and writes all of the GPU's memory itself."""

    @property
    def most_work(self) -> int:
        """Work that one submission shall have at most."""

    @property
    def at_once(self) -> Callable[[GpuKernel], int] | None:
        """Workgroups of a kernel that the whole GPU runs at once; None: nothing is loaded ahead (`prefetch.py`)."""

    def alloc(
        self,
        n_bytes: int,
        *,
        heap: Heap | None = None,
        visible: bool = True,
        use: HostUse = "writes",
        label: str = "memory",
    ) -> DeviceMemory:
        """Memory with undefined contents. heap: None for the GPU's own where the processor reaches all of it;
        visible: whether `map`, `read` and `write` take it.
        """

    def free(self, memory: Any) -> None:
        """Give memory back; what was submitted before may still use it."""

    def map(self, memory: Any) -> Bytes:
        """The memory itself, u8[size]: written before `submit`, read after `wait`."""

    def write(self, memory: Any, data: Any, offset: int = 0) -> None:
        """Store bytes or an array at a byte offset."""

    def read(self, memory: Any, n_bytes: int | None = None, offset: int = 0) -> bytes:
        """A copy of its bytes."""

    def load_kernel(self, kernel: GpuKernel) -> DeviceKernel:
        """Bring a compiled kernel to the device; the same one is brought once."""

    def commands(self, label: str) -> DispatchList:
        """An empty list. label: for messages."""

    def submit(self, commands: Any) -> Any:
        """Start a list behind all earlier ones; its fence."""

    def wait(self, fence: Any, timeout: float | None = None) -> None:
        """Return once the fence has retired. Raises `FenceTimeout`."""

    def drain(self, timeout: float | None = None) -> None:
        """Return once everything that was submitted has retired. Raises `FenceTimeout`."""

    def close(self) -> None:
        """Wait for what runs and give everything back."""

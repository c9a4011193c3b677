"""The contract of an interface to the driver: memory that the GPU reaches, indirect buffers, fences as numbers.

CS, KFD and UMQ implement it. Above an interface everything is the same: the same packets, the same pools, the same
kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

from zinc_rt.utils.linux import Linux

Heap = Literal["vram", "gtt"]
HostUse = Literal["writes", "reads", "polls"]
"""What the processor does with system memory. "writes": fills it for the GPU, so its maps may be write-combined.
"reads": reads what the GPU has written, so it caches it. "polls": both sides look at it while work runs, as at fences,
so the processor caches it and the GPU does not.
"""

CLOCK_HZ = 100_000_000
"""Of the GPU's counter, on the cards that are known."""
DEFAULT_RENDER_NODE = "/dev/dri/renderD128"
"""The render node of the first GPU of most machines."""


@dataclass(frozen=True)
class DeviceInfo:
    """The GPU behind an interface. gfx_target_version: 120001 for gfx1201; vram, visible_vram: bytes, the second of
    them within reach of the processor; gtt: of a GPU that is part of the processor, bytes of system memory that it
    maps, 0 for cards; driver: which kernel and interface version answered, for messages; clock_hz: of
    the counter that packets store; partial_flush: whether CS_PARTIAL_FLUSH waits for waves; where not, packets wait for
    a number that RELEASE_MEM stores.
    """

    render_node: str
    gfx_target_version: int
    compute_units: int
    vram: int
    visible_vram: int
    driver: str
    clock_hz: int = CLOCK_HZ
    partial_flush: bool = True
    gtt: int = 0

    @property
    def data_heap(self) -> Heap:
        """Where weights and caches lie: on a part of the processor in the larger heap, all of which both sides reach
        and cache; amdkfd chooses the same way.
        """
        return "gtt" if self.gtt > self.vram else "vram"

    @property
    def memory(self) -> int:
        """Bytes of that heap; 0 when they are not known."""
        return max(self.gtt, self.vram)


@dataclass(eq=False)
class DeviceBuffer:
    """A large piece of memory from the driver. va: on the GPU; address: in this process, None when only the GPU
    reaches it, or when somebody has taken the map over (arrays look at it) and will undo it; handle: the driver's own.
    """

    va: int
    size: int
    heap: Heap
    address: int | None
    handle: int
    label: str


class Interface(ABC):
    """One way to hand PM4 to the driver.

    An interface does not check its caller. `zinc_rt.amdgpu.queue.GpuQueue` does, for all interfaces alike; a caller
    without a queue keeps these rules:

    - one thread at a time, in the process that opened it, before `close`, and not after a `DeviceLost`;
    - sizes are at least 1; buffers are this interface's, and are released once;
    - packets lie inside a visible executable buffer; they begin at a multiple of 4 bytes and are 1 to 2^20 - 1 dwords,
      for CS at a multiple of 256 bytes and in multiples of 64 dwords;
    - a number that is waited for was returned by `submit`; a timeout is finite and not negative.

    Every method raises `DeviceLost` when it finds the device gone.

    longest_job: the most seconds that one submission shall take; callers cut their work by it (`submission_budget`). It
    is far below the time after which the kernel resets a GPU, and short enough for other programs on the GPU.
    saves_waves: whether a trap handler saves the waves of a queue that is preempted.
    """

    longest_job: float = 0.5
    saves_waves: bool = False
    name: str
    device: DeviceInfo
    linux: Linux

    @abstractmethod
    def allocate(
        self,
        size: int,
        heap: Heap,
        label: str,
        *,
        executable: bool = False,
        visible: bool = True,
        use: HostUse = "writes",
    ) -> DeviceBuffer:
        """Memory mapped on the GPU, and in this process when `visible`; whole pages, zeros. use: of system memory.

        Raises `InterfaceError` with the failing step, and has allocated nothing then.
        """

    @abstractmethod
    def release(self, buffer: DeviceBuffer) -> None:
        """Give it back, its map too unless `address` is None; the caller has waited for everything that uses it.

        Raises `InterfaceError` when the driver refuses.
        """

    @abstractmethod
    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        """Run `n_dwords` of PM4 at a byte offset of an executable buffer, after all earlier ones.

        Returns its sequence number, from 1 up. Host stores before the call are visible to the packets. What the
        packets wrote is visible to the host once the number has retired. Raises `InterfaceError` when the ring stays
        full.
        """

    @abstractmethod
    def retired(self) -> int:
        """The highest sequence number that has retired, without waiting."""

    @abstractmethod
    def wait(self, sequence: int, timeout: float) -> None:
        """Return once the number has retired; seconds. Raises `FenceTimeout`, `DeviceLost`."""

    def wait_by_release(self) -> None:
        """From now on no packets count on CS_PARTIAL_FLUSH, see `DeviceInfo`. Nothing is running."""
        self.device = replace(self.device, partial_flush=False)

    @abstractmethod
    def close(self) -> None:
        """Wait for what runs, for a time, then give everything back; calling it again does nothing."""

"""What an interface does: memory that the GPU reaches, indirect buffers of PM4 handed to the driver, fences that
retire.

CS, KFD and UMQ implement it. Above an interface everything is the same: the same packets, the same pools, the same
kernels.
An interface belongs to one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from zinc_rt.linux import Linux

Heap = Literal["vram", "gtt"]


KERNELS_FOR = 1200
"""gfx_target_version // 100 of what the kernel compiler's gfx1201 code runs on."""


def gfx_name(version: int) -> str:
    """A gfx_target_version as people write it: 120001 is gfx1201."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


@dataclass(frozen=True)
class DeviceInfo:
    """The GPU behind an interface. gfx_target_version: 120001 for gfx1201; vram, visible_vram: bytes, the second of
    them
    within reach of the processor; driver: which kernel and interface version answered, for messages.
    """

    render_node: str
    gfx_target_version: int
    compute_units: int
    vram: int
    visible_vram: int
    driver: str


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
    """One way to hand PM4 to the driver. Every method raises `DeviceLost` once the device is gone."""

    name: str
    device: DeviceInfo
    linux: Linux

    @abstractmethod
    def allocate(
        self, size: int, heap: Heap, label: str, *, executable: bool = False, visible: bool = True
    ) -> DeviceBuffer:
        """Memory mapped on the GPU, and in this process when `visible`. Raises `InterfaceError` with the failing
        step.
        """

    @abstractmethod
    def release(self, buffer: DeviceBuffer) -> None:
        """Give it back, its map too unless `address` is None; the caller has waited for everything that uses it."""

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

    @abstractmethod
    def close(self) -> None:
        """Drain what runs, then give everything back; calling it again does nothing."""

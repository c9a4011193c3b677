"""Buffer objects: the pages behind GEM handles and KFD handles."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from zinc_rt.utils.linux import MAP_FIXED, MAP_SHARED, Linux

_HOST = Linux()


class Placement(StrEnum):
    """The memory that holds a buffer's pages."""

    VRAM = "VRAM"
    GTT = "GTT"
    DOORBELL = "doorbell"
    USERPTR = "user memory"
    ON_CHIP = "on-chip memory"


@dataclass(eq=False)
class BufferObject:
    """A buffer: pages that processor and GPU share.

    bytes: u8[size], the contents of memory; both sides' caches and write buffers stand in front of it.
    write_combined: the processor's maps collect stores, which arrive only after a store fence.
    uncached: the GPU's caches leave it alone.
    """

    size: int
    placement: Placement
    label: str
    write_combined: bool = False
    uncached: bool = False
    readable: bool = True
    executable: bool = True
    doorbell: Callable[[int, int], None] | None = None  # called with byte offset and value, for doorbell pages
    bytes: npt.NDArray[np.uint8] = field(init=False, repr=False)
    mapped_at: list[tuple[int, int]] = field(default_factory=list)  # the processor's maps: address, length

    def __post_init__(self) -> None:
        self._fd = os.memfd_create(f"zinc-emu {self.label}", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, self.size)
        self._map = mmap.mmap(self._fd, self.size)
        self.bytes = np.frombuffer(self._map, np.uint8)

    def map(self, address: int, length: int, protection: int, flags: int) -> int:
        """Map the first `length` bytes into the process, at `address` with MAP_FIXED; returns the address."""
        fixed = flags & MAP_FIXED
        at = _HOST.mmap(address if fixed else 0, length, protection, MAP_SHARED | fixed, self._fd)
        self.mapped_at.append((at, length))
        return at

    def clear(self) -> None:
        """Set all bytes to zero."""
        self._map.madvise(mmap.MADV_REMOVE)

    def words(self, offset: int, n: int) -> npt.NDArray[np.uint32]:
        """A view of `n` dwords at a byte offset, a multiple of 4."""
        return self.bytes[offset : offset + 4 * n].view(np.uint32)

    def release(self) -> None:
        """Drop the kernel's hold on the pages; maps in the process stay until they are unmapped."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.release()  # a machine that is dropped as a whole leaves no descriptors


class UserMemory(BufferObject):
    """Pages of the calling program as a buffer. The program keeps them mapped for as long as the buffer lives."""

    def __init__(self, address: int, size: int, label: str) -> None:
        self._address = address
        super().__init__(size, Placement.USERPTR, label)

    def __post_init__(self) -> None:
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self._address))

    def map(self, address: int, length: int, protection: int, flags: int) -> int:
        """Raise `AssertionError`: the driver refuses such a map earlier."""
        raise AssertionError("user memory is not mapped again")

    def clear(self) -> None:
        """Set all bytes to zero."""
        self.bytes[:] = 0

    def release(self) -> None:
        """Do nothing: the pages belong to the program."""


def address_of(array: npt.NDArray[np.uint8]) -> int:
    """The address of an array's bytes in this process."""
    return int(array.ctypes.data)

"""A process's doorbells on one GPU: two pages of 64-bit cells, one per queue."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from amdgpu_emu.abi.driver import KFD_DOORBELL_SLICE
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.memory import BufferObject, Placement

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu

CELL = 8
"""Bytes of a doorbell since SOC15."""
CELLS = KFD_DOORBELL_SLICE // CELL
MIRROR = 512
"""Distance in cells between the two copies of the cells that other engines own."""
FIRST_OTHER, LAST_OTHER = 0x100, 0x190
"""Cells of SDMA, video and interrupt engines, from `amdgpu_doorbell.h` (SDMA 0 to VPE)."""
SDMA_BASE = (0x100, 0x10A)
"""First cell of each SDMA engine."""


class Doorbells:
    """The doorbell slice of a process on one GPU. rang: called with a queue's cell and the stored value."""

    def __init__(self, gpu: Gpu, rang: Callable[[int, int], None]) -> None:
        self._gpu, self._rang = gpu, rang
        self._page: BufferObject | None = None
        others = set(range(FIRST_OTHER, LAST_OTHER + 1))
        self._reserved = others | {cell + MIRROR for cell in others}
        self._taken: set[int] = set()

    def page(self) -> BufferObject:
        """The memory that an mmap shows; allocated at the first call."""
        if self._page is None:
            label = f"doorbells of {self._gpu.model.name}"
            self._page = self._gpu.allocate(KFD_DOORBELL_SLICE, Placement.DOORBELL, label)
            self._page.doorbell = self._store
        return self._page

    def _store(self, offset: int, value: int) -> None:
        self._rang(offset // CELL, value)

    def take(self) -> int:
        """Take the lowest free cell for a compute queue. Raises `CallRefused` (EBUSY)."""
        for cell in range(CELLS):
            if cell not in self._reserved and cell not in self._taken:
                self._taken.add(cell)
                return cell
        raise CallRefused(errno.EBUSY, f"all {CELLS - len(self._reserved)} doorbells of compute queues are taken")

    def take_sdma(self, engine: int, queue: int) -> int:
        """Take the cell of a queue of an SDMA engine: even and odd queues lie in the two halves of the slice."""
        cell = SDMA_BASE[engine] + (queue & 1) * MIRROR + (queue >> 1)
        self._taken.add(cell)
        return cell

    def give_back(self, cell: int) -> None:
        """Free the cell of a queue."""
        self._taken.discard(cell)

    def release(self) -> None:
        """Free the slice at the end of the process."""
        if self._page is not None:
            self._gpu.release(self._page)
            self._page = None

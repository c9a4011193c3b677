"""All memory of a queue: pools by kind, and the processor's view of their buffers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.host_map import HostMap
from zinc_rt.amdgpu.interface import DeviceBuffer, Heap, HostUse, Interface
from zinc_rt.amdgpu.pool import GpuMemory, Pool
from zinc_rt.errors import BackendError

Bytes = npt.NDArray[np.uint8]
DATA_CHUNK = 32 << 20
_READ_CHUNK = 1 << 20
"""Bytes of a buffer: little comes back to the processor."""


class Heaps:
    """Pools over one interface. `of` makes those that callers allocate from; `add` makes others, for the queue
    itself.
    """

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self._by_kind: dict[tuple[Heap, bool, HostUse], Pool] = {}
        self._others: list[Pool] = []
        self._maps: dict[DeviceBuffer, HostMap] = {}

    def __iter__(self) -> Iterator[Pool]:
        yield from self._others
        yield from self._by_kind.values()

    @property
    def default(self) -> Heap:
        """The heap of `DeviceInfo` when the processor reaches all of it, else system memory."""
        device = self._interface.device
        return device.data_heap if device.vram and device.visible_vram >= device.vram else "gtt"

    def add(self, heap: Heap, label: str, chunk: int, *, executable: bool = False, use: HostUse = "writes") -> Pool:
        """A pool of its own kind."""
        pool = Pool(
            self._interface, heap, label, chunk=chunk, executable=executable, use=use, before_release=self._drop_map
        )
        self._others.append(pool)
        return pool

    def of(self, heap: Heap | None, visible: bool, use: HostUse = "writes") -> Pool:
        """The pool for data of this kind."""
        key = (heap or self.default, visible, use)
        if key not in self._by_kind:
            label = f"{key[0]} memory{'' if visible else ' of the GPU alone'}"
            chunk = DATA_CHUNK if use == "writes" else min(DATA_CHUNK, _READ_CHUNK)
            self._by_kind[key] = Pool(
                self._interface, key[0], label, chunk=chunk, visible=visible, use=use, before_release=self._drop_map
            )
        return self._by_kind[key]

    def owner(self, memory: GpuMemory) -> Pool:
        """The pool of data that a piece is from. Raises `BackendError` when it is from none, or was freed."""
        where = f"{memory.label}: {memory.size} bytes at {memory.va:#x}"
        if memory.freed:
            raise BackendError(f"{where} were freed before")
        pool = next((pool for pool in self._by_kind.values() if memory.buffer in pool.buffers), None)
        if pool is None:
            raise BackendError(f"{where} are not this queue's")
        return pool

    def view(self, memory: GpuMemory) -> Bytes:
        """u8[size]: the memory itself. Raises `BackendError` when the processor cannot reach it."""
        buffer = memory.buffer
        if buffer not in self._maps:
            if buffer.address is None:
                raise BackendError(f"{memory.label}: the processor cannot reach it; allocate it with visible=True")
            self._maps[buffer] = HostMap(self._interface.linux, buffer.address, buffer.size)
        return self._maps[buffer].view()[memory.offset : memory.offset + memory.size]

    def _drop_map(self, buffer: DeviceBuffer) -> None:
        held = self._maps.pop(buffer, None)
        if held is not None and held.retire():
            buffer.address = None

    def let_go(self) -> None:
        """Before the interface closes: maps that arrays look at are not undone by it."""
        for buffer in tuple(self._maps):
            self._drop_map(buffer)

    def check_integrity(self) -> None:
        """Raise `BackendError` when the books of a pool do not add up."""
        for pool in self:
            pool.check_integrity()

"""GPU memory in small pieces over few large buffers: one ioctl a buffer, not one a tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.interface import DeviceBuffer, Heap, HostUse, Interface
from zinc_rt.amdgpu.ranges import Ranges
from zinc_rt.amdgpu.room import check_room
from zinc_rt.errors import BackendError
from zinc_rt.mem.arena import align_up
from zinc_rt.utils.linux import PAGE

ALIGNMENT = 256  # COMPUTE_PGM_LO counts in it; no cache line is shared either


@dataclass(eq=False)
class GpuMemory:
    """A piece of a buffer: `size` bytes as asked for, at `offset`. freed: given back, soon its address is another's."""

    buffer: DeviceBuffer
    offset: int
    size: int
    label: str
    freed: bool = False

    @property
    def va(self) -> int:
        """Its address on the GPU."""
        return self.buffer.va + self.offset


@dataclass(eq=False)
class _Chunk:
    buffer: DeviceBuffer
    ranges: Ranges
    owned: dict[int, GpuMemory] = field(default_factory=dict)


class Pool:
    """Memory of one kind. chunk: bytes of a buffer; what is larger gets one of its own size; use: what the
    processor does with it; before_release: called
    with a buffer that is about to go back to the driver.

    A piece's bytes are zero in a fresh buffer and anything in a used one.
    """

    def __init__(
        self,
        interface: Interface,
        heap: Heap,
        label: str,
        *,
        chunk: int,
        executable: bool = False,
        visible: bool = True,
        use: HostUse = "writes",
        before_release: Callable[[DeviceBuffer], None] = lambda buffer: None,
    ) -> None:
        self.interface, self.heap, self.label, self.chunk = interface, heap, label, align_up(chunk, PAGE)
        self.executable, self.visible, self.use = executable, visible, use
        self._before_release = before_release
        self._chunks: list[_Chunk] = []

    @property
    def used(self) -> int:
        """Bytes that are handed out, rounded up to the alignment."""
        return sum(chunk.ranges.used for chunk in self._chunks)

    @property
    def reserved(self) -> int:
        """Bytes that the driver gave."""
        return sum(chunk.buffer.size for chunk in self._chunks)

    @property
    def buffers(self) -> tuple[DeviceBuffer, ...]:
        """The large buffers."""
        return tuple(chunk.buffer for chunk in self._chunks)

    def allocate(self, n_bytes: int, label: str) -> GpuMemory:
        """A piece, aligned to 256 bytes. Raises `BackendError` for a size below 1, `InterfaceError` when memory is
        short.
        """
        if n_bytes < 1:
            raise BackendError(f"{label}: {n_bytes} bytes asked of {self.label}; at least 1 can be allocated")
        size = self._span(n_bytes)
        for chunk in self._chunks:
            if (memory := self._take(chunk, size, n_bytes, label)) is not None:
                return memory
        memory = self._take(self._grow(size), size, n_bytes, label)
        assert memory is not None, "a buffer made for a piece holds it"
        return memory

    def free(self, memory: GpuMemory) -> None:
        """Give a piece back; the GPU is done with it. Raises `BackendError` for what is not in use here.

        An empty buffer goes back to the driver when another empty one is kept; `InterfaceError` then comes from there.
        """
        chunk = self.chunk_of(memory)
        chunk.ranges.give(memory.offset)
        del chunk.owned[memory.offset]
        memory.freed = True
        if not chunk.owned and any(not other.owned for other in self._chunks if other is not chunk):
            self._drop(chunk)

    def chunk_of(self, memory: GpuMemory) -> _Chunk:
        """The buffer's books. Raises `BackendError` when the piece is not this pool's, or was freed."""
        for chunk in self._chunks:
            if chunk.owned.get(memory.offset) is memory:
                return chunk
        why = "was freed before" if memory.freed else "belongs to another pool"
        raise BackendError(f"{memory.label}: {memory.size} bytes at {memory.va:#x}: the memory {why}")

    def check_integrity(self) -> None:
        """Raise `BackendError` unless every byte of every buffer is free or owned by one live piece."""
        spans = sorted((chunk.buffer.va, chunk.buffer.size) for chunk in self._chunks)
        for (va, size), (following, _) in pairwise(spans):
            if va + size > following:
                raise BackendError(f"{self.label}: two buffers share the address {following:#x}")
        for chunk in self._chunks:
            chunk.ranges.check_integrity()
            if chunk.ranges.size != chunk.buffer.size:
                raise BackendError(f"{self.label}: a buffer of {chunk.buffer.size} bytes has other books")
            owned = {at: self._span(memory.size) for at, memory in chunk.owned.items()}
            if owned != chunk.ranges.parts():
                raise BackendError(f"{self.label}: pieces {owned} are owned, {chunk.ranges.parts()} are in use")
            for at, memory in chunk.owned.items():
                if memory.offset != at or memory.buffer is not chunk.buffer:
                    raise BackendError(f"{self.label}: {memory.label} says it is elsewhere than at {at:#x}")

    def _span(self, n_bytes: int) -> int:
        """What a piece takes: a large one all of its buffer, so that no small one keeps it from going back."""
        return align_up(n_bytes, ALIGNMENT if n_bytes <= self.chunk else PAGE)

    @staticmethod
    def _take(chunk: _Chunk, size: int, n_bytes: int, label: str) -> GpuMemory | None:
        at = chunk.ranges.take(size, ALIGNMENT)
        if at is None:
            return None
        memory = GpuMemory(chunk.buffer, at, n_bytes, label)
        chunk.owned[at] = memory
        return memory

    def _grow(self, size: int) -> _Chunk:
        least = align_up(size, PAGE)
        sizes = dict.fromkeys((max(least, self.chunk), least))  # memory may be too short for a large one only
        for wanted in sizes:
            try:
                if self.heap == self.interface.device.data_heap:
                    check_room(self.interface, wanted, self.label)
                buffer = self.interface.allocate(
                    wanted, self.heap, self.label, executable=self.executable, visible=self.visible, use=self.use
                )
            except InterfaceError:
                if wanted == least:
                    raise
                continue
            chunk = _Chunk(buffer, Ranges(0, buffer.size, f"{self.label} at {buffer.va:#x}"))
            self._chunks.append(chunk)
            return chunk
        raise AssertionError("the last size returns or raises")

    def _drop(self, chunk: _Chunk) -> None:
        self._chunks.remove(chunk)
        self._before_release(chunk.buffer)
        self.interface.release(chunk.buffer)

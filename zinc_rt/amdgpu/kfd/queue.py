"""A compute queue of amdkfd with its memory, and how far the GPU has read it: what it has not is never overwritten."""

from __future__ import annotations

import errno
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from zinc_rt.amdgpu.abi.driver import KFD_DOORBELL_SLICE
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.amdgpu.kfd.calls import step
from zinc_rt.amdgpu.kfd.constants import (
    ALLOC_MEM_FLAGS_COHERENT,
    ALLOC_MEM_FLAGS_EXECUTABLE,
    ALLOC_MEM_FLAGS_GTT,
    ALLOC_MEM_FLAGS_NO_SUBSTITUTE,
    ALLOC_MEM_FLAGS_UNCACHED,
    ALLOC_MEM_FLAGS_VRAM,
    ALLOC_MEM_FLAGS_WRITABLE,
)
from zinc_rt.amdgpu.kfd.memory import Memory
from zinc_rt.amdgpu.kfd.queue_calls import create_queue, destroy_queue, queue_arguments
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.kfd.sizes import eop_bytes, save_area
from zinc_rt.amdgpu.user_ring import UserRing
from zinc_rt.utils.linux import MAP_SHARED, PAGE, PROT_READ, PROT_WRITE

RING_BYTES = 1 << 16
"""Room for some five hundred submissions on their way."""

_WPTR, _RPTR = 0x00, 0x40
"""Both pointers share a page, not a cache line."""
_GAP = 64
"""Dwords between writer and reader that stay free: the GPU fetches ahead in blocks, and full must not look empty."""
_BOTH_SEE = (
    ALLOC_MEM_FLAGS_GTT
    | ALLOC_MEM_FLAGS_WRITABLE
    | ALLOC_MEM_FLAGS_NO_SUBSTITUTE
    | ALLOC_MEM_FLAGS_COHERENT
    | ALLOC_MEM_FLAGS_UNCACHED
)
_GPU_ONLY = ALLOC_MEM_FLAGS_VRAM | ALLOC_MEM_FLAGS_WRITABLE | ALLOC_MEM_FLAGS_NO_SUBSTITUTE | ALLOC_MEM_FLAGS_EXECUTABLE
"""Executable, as in every runtime that is known to make such queues, though nothing is fetched there."""


class KfdSubmission(NamedTuple):
    """On its way. end: the write pointer behind it; label, offset: where its packets are."""

    sequence: int
    end: int
    label: str
    offset: int

    def __str__(self) -> str:
        return f"{self.label}+{self.offset:#x}"


class KfdQueue:
    """One queue. ring: there once it is open; pending: submissions that have not been seen to retire, oldest first."""

    ring: UserRing

    def __init__(self, session: KfdSession, ring_bytes: int) -> None:
        self._session, self._linux = session, session.linux
        self._memories: list[Memory] = []
        self._ring_bytes = ring_bytes
        self._queue: int | None = None
        self._doorbells = 0
        self._retired_end = 0
        self.pending: deque[KfdSubmission] = deque()

    def open(self) -> None:
        """Allocate and create. Raises `StepFailed`; `close` undoes what was reached."""
        node = self._session.node
        ring = self._memory(self._ring_bytes, _BOTH_SEE | ALLOC_MEM_FLAGS_EXECUTABLE, "ring", visible=True)
        pointers = self._memory(PAGE, _BOTH_SEE, "ring pointers", visible=True)
        self._fence = self._memory(PAGE, _BOTH_SEE, "fence page", visible=True)
        eop = self._memory(max(eop_bytes(node.gfx_target_version), PAGE), _GPU_ONLY, "end-of-pipe buffer")
        cwsr = self._memory(save_area(node).allocation, _GPU_ONLY, "save area of waves")
        wptr, rptr = pointers.va + _WPTR, pointers.va + _RPTR
        for address in (wptr, rptr, self._fence.va):
            self._linux.store64(address, 0)
        args = queue_arguments(node, ring, wptr, rptr, eop, cwsr)
        create_queue(self._session, args)
        self._queue = args.queue_id
        doorbell = self._map_doorbell(args.doorbell_offset)
        self.ring = UserRing(self._linux, ring.va, ring.size // 4, wptr, rptr, doorbell)

    @property
    def fence_va(self) -> int:
        """Where the GPU writes the sequence number of what has retired, u64."""
        return self._fence.va

    def ranges(self) -> list[tuple[int, int, str]]:
        """Address, bytes and label of the queue's own memory."""
        return [(memory.va, memory.size, memory.label) for memory in self._memories]

    def retired(self) -> int:
        """The highest sequence number that has retired."""
        sequence = self._linux.load64(self._fence.va)
        while self.pending and self.pending[0].sequence <= sequence:
            self._retired_end = self.pending.popleft().end
        return sequence

    def room(self) -> int:
        """Dwords that can be written now."""
        self.retired()
        # A fence proves that everything up to it was read. The pointer may be further; firmware that counts modulo the
        # ring or reports late cannot mislead, for it is only believed where it is possible.
        read, written = self.ring.read_pointer(), self.ring.written
        position = read if self._retired_end <= read <= written else self._retired_end
        return len(self.ring) - _GAP - (written - position)

    def destroy(self) -> StepFailed | None:
        """End the queue, so that the GPU touches its memory no more. A hung one goes with a reset (ETIME, EIO): it is
        gone, which is all that matters here.
        """
        failed = None
        if self._doorbells:
            with suppress(OSError):
                self._linux.munmap(self._doorbells, KFD_DOORBELL_SLICE)
            self._doorbells = 0
        if self._queue is not None:
            try:
                destroy_queue(self._session, self._queue)
            except StepFailed as error:
                failed = None if error.errno in (errno.ETIME, errno.EIO) else error
            self._queue = None
        return failed

    def free(self) -> StepFailed | None:
        """Give the memory back; the queue is destroyed."""
        failed = None
        for memory in reversed(self._memories):
            stuck = memory.discard()
            failed = failed or stuck
        self._memories.clear()
        return failed

    def _memory(self, size: int, flags: int, label: str, *, visible: bool = False) -> Memory:
        memory = Memory(self._session, size, label)
        self._memories.append(memory)
        memory.create(flags, visible=visible)
        return memory

    def _map_doorbell(self, offset: int) -> int:
        # One slice of doorbells per process and GPU; the low bits of the offset say which cell is ours.
        inside = KFD_DOORBELL_SLICE - 1
        with step("doorbell_failed"):
            self._doorbells = self._linux.mmap(
                0, KFD_DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_SHARED, self._session.kfd_fd, offset & ~inside
            )
        return self._doorbells + (offset & inside)

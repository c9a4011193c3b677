"""The memory of a compute user queue, at fixed addresses of the GPU; its ring, its pointers, its doorbell.

Pointers count dwords. The write pointer never wraps; what the GPU reports as its read pointer may be cut to 32 bits or
to the ring, so only its distance from the write pointer, modulo the ring, is used.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu import drm as kmd
from zinc_rt.amdgpu.umq.buffers import Buffers, QueueBuffer
from zinc_rt.linux import PAGE, PROT_WRITE, Linux

QUEUE_VA = 0x1_0000_0000
QUEUE_SIZE = 0x1_0000
WPTR_VA = QUEUE_VA + 0x2_0000
RPTR_VA = QUEUE_VA + 0x3_0000
EOP_VA = QUEUE_VA + 0x4_0000
DOORBELL_OFFSET = 4
"""In doorbells of 8 bytes, not in bytes."""
_DOORBELL_BYTES = 8
_ALWAYS = kmd.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID  # a user queue has no list of buffers: what it uses must be resident
_CLEARED = kmd.AMDGPU_GEM_CREATE_VRAM_CLEARED | _ALWAYS


def eop_bytes(eop_size: int, eop_alignment: int) -> int:
    """Of the end-of-pipe buffer: what the firmware asks for, in whole pages and whole alignments."""
    unit = max(eop_alignment, PAGE)
    return (max(eop_size, PAGE) + unit - 1) // unit * unit


@dataclass(eq=False)
class UserQueue:
    """The buffers of one queue, and its id once the kernel has it."""

    buffers: Buffers
    ring: QueueBuffer
    wptr: QueueBuffer
    rptr: QueueBuffer
    eop: QueueBuffer
    doorbell: QueueBuffer
    queue_id: int = 0

    @classmethod
    def allocate(cls, buffers: Buffers, eop_size: int, eop_alignment: int, *, readable: bool = False) -> UserQueue:
        """Everything that CREATE wants. readable: the processor will look at the read pointer, so it is in system
        memory. Raises `kmd.KmdError`; `buffers` has what was made until then.
        """
        gtt, vram = kmd.AMDGPU_GEM_DOMAIN_GTT, kmd.AMDGPU_GEM_DOMAIN_VRAM
        uswc = kmd.AMDGPU_GEM_CREATE_CPU_GTT_USWC
        ring = buffers.make(QUEUE_SIZE, gtt, uswc | _ALWAYS, va=QUEUE_VA)
        wptr = buffers.make(PAGE, gtt, _ALWAYS, va=WPTR_VA)
        if readable:
            rptr = buffers.make(PAGE, gtt, _ALWAYS, va=RPTR_VA)
        else:
            rptr = buffers.make(PAGE, vram, _CLEARED, va=RPTR_VA, prot=0)
        eop = buffers.make(eop_bytes(eop_size, eop_alignment), vram, _CLEARED, va=EOP_VA, prot=0)
        doorbell = buffers.make(PAGE, kmd.AMDGPU_GEM_DOMAIN_DOORBELL, _ALWAYS, prot=PROT_WRITE)
        return cls(buffers, ring, wptr, rptr, eop, doorbell)

    def create(self) -> None:
        """Let the kernel make the queue. Raises `kmd.IoctlFailed`."""
        self.queue_id = kmd.create_compute_userq(
            self.buffers.fd,
            doorbell_handle=self.doorbell.bo.handle,
            doorbell_offset=DOORBELL_OFFSET,
            queue_va=QUEUE_VA,
            queue_size=QUEUE_SIZE,
            rptr_va=RPTR_VA,
            wptr_va=WPTR_VA,
            eop_va=EOP_VA,
            flags=0,
            linux=self._linux,
        )

    def free(self) -> None:
        """End it; its buffers stay. Raises `kmd.IoctlFailed`."""
        kmd.free_userq(self.buffers.fd, self.queue_id, linux=self._linux)
        self.queue_id = 0

    @property
    def _linux(self) -> Linux:
        return self.buffers.linux


class QueueWriter:
    """Puts packets into the ring of a queue whose read pointer is readable, and rings its doorbell."""

    def __init__(self, queue: UserQueue) -> None:
        self._linux = queue.buffers.linux
        self.n_dwords = QUEUE_SIZE // 4
        memory = (ctypes.c_uint32 * self.n_dwords).from_address(queue.ring.address)
        self.ring: npt.NDArray[np.uint32] = np.ctypeslib.as_array(memory)  # u32[n_dwords]
        self._wptr, self._rptr = queue.wptr.address, queue.rptr.address
        self._doorbell = queue.doorbell.address + DOORBELL_OFFSET * _DOORBELL_BYTES
        self.written = 0

    def unread(self) -> int:
        """Dwords that the GPU has not fetched yet."""
        return (self.written - self._linux.load64(self._rptr)) % self.n_dwords

    def has_room(self, n: int) -> bool:
        """Whether `n` dwords can be written without touching one that is still to be read. A full ring would look
        empty, so one dword stays free.
        """
        return n < self.n_dwords - self.unread()

    def write(self, words: npt.NDArray[np.uint32]) -> None:
        """Put dwords, u32[n], behind the others, round the end of the ring, and tell the GPU. There must be room."""
        n, at = len(words), self.written % self.n_dwords
        first = min(n, self.n_dwords - at)
        self.ring[at : at + first] = words[:first]
        self.ring[: n - first] = words[first:]
        self.written += n
        # The packets first, then the pointer, then the doorbell: each must be in memory before the next is seen.
        self._linux.store_fence()
        self._linux.store64(self._wptr, self.written)
        self._linux.store_fence()
        self._linux.store64(self._doorbell, self.written)

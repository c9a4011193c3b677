"""The memory of a compute user queue, at fixed addresses of the GPU; its ring, its pointers, its doorbell.

What the GPU reports as its read pointer may be cut to 32 bits or to the ring, so only its distance from the write
pointer, modulo the ring, is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi.gem import (
    AMDGPU_GEM_CREATE_CPU_GTT_USWC,
    AMDGPU_GEM_CREATE_VM_ALWAYS_VALID,
    AMDGPU_GEM_CREATE_VRAM_CLEARED,
    AMDGPU_GEM_DOMAIN_DOORBELL,
    AMDGPU_GEM_DOMAIN_GTT,
    AMDGPU_GEM_DOMAIN_VRAM,
    AMDGPU_VM_PAGE_EXECUTABLE,
)
from zinc_rt.amdgpu.drm_memory import GPU_UNCACHED, RenderBuffer, RenderBuffers
from zinc_rt.amdgpu.user_ring import UserRing
from zinc_rt.utils.linux import PAGE, PROT_WRITE, Linux

QUEUE_VA = 0x1_0000_0000
QUEUE_SIZE = 0x1_0000
WPTR_VA = QUEUE_VA + 0x2_0000
RPTR_VA = QUEUE_VA + 0x3_0000
EOP_VA = QUEUE_VA + 0x4_0000
DOORBELL_OFFSET = 4
"""In doorbells of 8 bytes, not in bytes."""
_DOORBELL_BYTES = 8
ALWAYS = AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
"""A user queue has no list of buffers: what it uses must be resident."""
_CLEARED = AMDGPU_GEM_CREATE_VRAM_CLEARED | ALWAYS
_RING_ACCESS = GPU_UNCACHED | AMDGPU_VM_PAGE_EXECUTABLE


def eop_bytes(eop_size: int, eop_alignment: int) -> int:
    """Of the end-of-pipe buffer: what the firmware asks for, in whole pages and whole alignments."""
    unit = max(eop_alignment, PAGE)
    return (max(eop_size, PAGE) + unit - 1) // unit * unit


@dataclass(eq=False)
class UmqQueue:
    """The buffers of one queue, and its id once the kernel has it."""

    buffers: RenderBuffers
    ring: RenderBuffer
    wptr: RenderBuffer
    rptr: RenderBuffer
    eop: RenderBuffer
    doorbell: RenderBuffer
    queue_id: int = 0

    @classmethod
    def allocate(cls, buffers: RenderBuffers, eop_size: int, eop_alignment: int, *, readable: bool = False) -> UmqQueue:
        """Everything that CREATE wants. readable: the processor will look at the read pointer, so it is in system
        memory. Raises `BufferFailed`; `buffers` has what was made until then.
        """
        gtt, vram = AMDGPU_GEM_DOMAIN_GTT, AMDGPU_GEM_DOMAIN_VRAM
        # A line that the L2 kept from the submission before would hold older packets, or an older pointer.
        ring_flags = AMDGPU_GEM_CREATE_CPU_GTT_USWC | ALWAYS
        ring = buffers.make("ring", QUEUE_SIZE, gtt, ring_flags, va=QUEUE_VA, access=_RING_ACCESS)
        wptr = buffers.make("write pointer", PAGE, gtt, ALWAYS, va=WPTR_VA, access=GPU_UNCACHED)
        if readable:
            rptr = buffers.make("read pointer", PAGE, gtt, ALWAYS, va=RPTR_VA, access=GPU_UNCACHED)
        else:
            rptr = buffers.make("read pointer", PAGE, vram, _CLEARED, va=RPTR_VA, prot=0, access=GPU_UNCACHED)
        size = eop_bytes(eop_size, eop_alignment)
        eop = buffers.make("end-of-pipe buffer", size, vram, _CLEARED, va=EOP_VA, prot=0)
        doorbell = buffers.make("doorbell", PAGE, AMDGPU_GEM_DOMAIN_DOORBELL, ALWAYS, prot=PROT_WRITE)
        return cls(buffers, ring, wptr, rptr, eop, doorbell)

    def create(self) -> None:
        """Let the kernel make the queue. Raises `IoctlFailed`."""
        self.queue_id = drm.create_compute_userq(
            self.buffers.fd,
            doorbell_handle=self.doorbell.handle,
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
        """End it; its buffers stay. Raises `IoctlFailed`."""
        drm.free_userq(self.buffers.fd, self.queue_id, linux=self._linux)
        self.queue_id = 0

    def user_ring(self) -> UserRing:
        """Its ring, of a queue whose read pointer is readable."""
        doorbell = self.doorbell.mapped + DOORBELL_OFFSET * _DOORBELL_BYTES
        return UserRing(self._linux, self.ring.mapped, QUEUE_SIZE // 4, self.wptr.mapped, self.rptr.mapped, doorbell)

    @property
    def _linux(self) -> Linux:
        return self.buffers.linux

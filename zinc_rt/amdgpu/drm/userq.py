"""User queues of amdgpu: made over buffers of the caller, and ended."""

from __future__ import annotations

import ctypes

from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.abi.requests import AMDGPU_USERQ
from zinc_rt.amdgpu.abi.userq import (
    AMDGPU_USERQ_OP_CREATE,
    AMDGPU_USERQ_OP_FREE,
    DrmAmdgpuUserq,
    DrmAmdgpuUserqIn,
    DrmAmdgpuUserqMqdComputeGfx11,
)
from zinc_rt.amdgpu.drm.call import File, ioctl
from zinc_rt.utils.linux import Linux


def create_compute_userq(
    file: File,
    doorbell_handle: int,
    doorbell_offset: int,
    queue_va: int,
    queue_size: int,
    rptr_va: int,
    wptr_va: int,
    eop_va: int,
    flags: int,
    *,
    linux: Linux | None = None,
) -> int:
    """A compute user queue over buffers that are mapped on the GPU; its id. Raises `IoctlFailed`.

    doorbell_offset: in doorbells of 8 bytes from the start of its buffer; queue_size: bytes; flags: priority and
    the like, handed on as they are. The descriptor holds the end-of-pipe buffer alone; gfx12 takes gfx11's.
    """
    mqd = DrmAmdgpuUserqMqdComputeGfx11(eop_va)
    argument = DrmAmdgpuUserq(
        in_=DrmAmdgpuUserqIn(
            AMDGPU_USERQ_OP_CREATE,
            0,
            AMDGPU_HW_IP_COMPUTE,
            doorbell_handle,
            doorbell_offset,
            flags,
            queue_va,
            queue_size,
            rptr_va,
            wptr_va,
            ctypes.addressof(mqd),
            ctypes.sizeof(mqd),
        )
    )
    ioctl(file, AMDGPU_USERQ, argument, linux)
    return int(argument.out.queue_id)


def free_userq(file: File, queue_id: int, *, linux: Linux | None = None) -> None:
    """End a user queue. Raises `IoctlFailed`."""
    # The kernel refuses a FREE with any other field set.
    ioctl(file, AMDGPU_USERQ, DrmAmdgpuUserq(in_=DrmAmdgpuUserqIn(AMDGPU_USERQ_OP_FREE, queue_id)), linux)

"""User queues of amdgpu: rows of `amdgpu_drm.h` that the runtime does not use."""

from __future__ import annotations

from ctypes import Structure

from zinc_rt.amdgpu.abi.types import u16, u32, u64
from zinc_rt.amdgpu.abi.userq import *

AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_HIGH = 3
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_MASK = 3
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_SECURE = 4


class DrmAmdgpuUserqMqdGfx11(Structure):
    """Descriptor of a graphics queue."""

    _fields_ = (
        ("shadow_va", u64),
        ("csa_va", u64),
    )


class DrmAmdgpuUserqMqdSdmaGfx11(Structure):
    """Descriptor of a copy queue."""

    _fields_ = (("csa_va", u64),)


class DrmAmdgpuUserqSignal(Structure):
    """USERQ_SIGNAL: sync objects and buffers that the queue's last work signals."""

    _fields_ = (
        ("queue_id", u32),
        ("pad", u32),
        ("syncobj_handles", u64),
        ("num_syncobj_handles", u16),
        ("pad0", u16),
        ("pad1", u32),
        ("bo_read_handles", u64),
        ("bo_write_handles", u64),
        ("num_bo_read_handles", u32),
        ("num_bo_write_handles", u32),
    )


class DrmAmdgpuUserqFenceInfo(Structure):
    """An address and the value that it reaches."""

    _fields_ = (
        ("va", u64),
        ("value", u64),
    )


class DrmAmdgpuUserqWait(Structure):
    """USERQ_WAIT: what to wait for before more work."""

    _fields_ = (
        ("waitq_id", u32),
        ("pad", u32),
        ("syncobj_handles", u64),
        ("syncobj_timeline_handles", u64),
        ("syncobj_timeline_points", u64),
        ("bo_read_handles", u64),
        ("bo_write_handles", u64),
        ("num_syncobj_timeline_handles", u16),
        ("num_fences", u16),
        ("num_syncobj_handles", u16),
        ("pad0", u16),
        ("num_bo_read_handles", u32),
        ("num_bo_write_handles", u32),
        ("out_fences", u64),
    )

"""User queues of amdgpu: layouts of `amdgpu_drm.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import u16, u32, u64

AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_HIGH = 3
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_LOW = 1
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_MASK = 3
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_NORMAL_HIGH = 2
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_NORMAL_LOW = 0
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_SHIFT = 0
AMDGPU_USERQ_CREATE_FLAGS_QUEUE_SECURE = 4
AMDGPU_USERQ_OP_CREATE = 1
AMDGPU_USERQ_OP_FREE = 2


class DrmAmdgpuUserqIn(Structure):
    """What to do; for a new queue its ring, pointers, doorbell and queue descriptor."""

    _fields_ = (
        ("op", u32),
        ("queue_id", u32),
        ("ip_type", u32),
        ("doorbell_handle", u32),
        ("doorbell_offset", u32),
        ("flags", u32),
        ("queue_va", u64),
        ("queue_size", u64),
        ("rptr_va", u64),
        ("wptr_va", u64),
        ("mqd", u64),
        ("mqd_size", u64),
    )


class DrmAmdgpuUserqOut(Structure):
    """The new queue."""

    _fields_ = (
        ("queue_id", u32),
        ("_pad", u32),
    )


class DrmAmdgpuUserq(Union):
    """USERQ."""

    _fields_ = (
        ("in_", DrmAmdgpuUserqIn),
        ("out", DrmAmdgpuUserqOut),
    )


class DrmAmdgpuUserqMqdGfx11(Structure):
    """Descriptor of a graphics queue."""

    _fields_ = (
        ("shadow_va", u64),
        ("csa_va", u64),
    )


class DrmAmdgpuUserqMqdSdmaGfx11(Structure):
    """Descriptor of a copy queue."""

    _fields_ = (("csa_va", u64),)


class DrmAmdgpuUserqMqdComputeGfx11(Structure):
    """Descriptor of a compute queue: the address of its end-of-pipe buffer."""

    _fields_ = (("eop_va", u64),)


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

"""User queues of amdgpu: layouts of `amdgpu_drm.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import u32, u64

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


class DrmAmdgpuUserqMqdComputeGfx11(Structure):
    """Descriptor of a compute queue: the address of its end-of-pipe buffer."""

    _fields_ = (("eop_va", u64),)

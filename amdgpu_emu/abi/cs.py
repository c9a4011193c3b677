"""Command submission, contexts and fences of amdgpu: rows of `amdgpu_drm.h` that the runtime does not use."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.cs import *
from zinc_rt.amdgpu.abi.types import i32, u32, u64

AMDGPU_CHUNK_ID_CP_GFX_SHADOW = 0xA
AMDGPU_CHUNK_ID_DEPENDENCIES = 3
AMDGPU_CHUNK_ID_FENCE = 2
AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES = 7
AMDGPU_CHUNK_ID_SYNCOBJ_IN = 4
AMDGPU_CHUNK_ID_SYNCOBJ_OUT = 5
AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL = 9
AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT = 8
AMDGPU_CTX_NO_RESET = 0
AMDGPU_CTX_OP_GET_STABLE_PSTATE = 5
AMDGPU_CTX_OP_QUERY_STATE = 3
AMDGPU_CTX_OP_SET_STABLE_PSTATE = 6
AMDGPU_CTX_PRIORITY_HIGH = 0x200
AMDGPU_CTX_PRIORITY_LOW = -0x200
AMDGPU_CTX_PRIORITY_NORMAL = 0
AMDGPU_CTX_PRIORITY_VERY_HIGH = 0x3FF
AMDGPU_CTX_PRIORITY_VERY_LOW = -0x3FF
AMDGPU_CTX_UNKNOWN_RESET = 3
AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ = 0
AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ_FD = 1
AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD = 2
AMDGPU_HW_IP_DMA = 2
AMDGPU_HW_IP_NUM = 0xA
AMDGPU_HW_IP_UVD = 3
AMDGPU_HW_IP_VCN_JPEG = 8
AMDGPU_IB_FLAG_CE = 1
AMDGPU_VM_OP_RESERVE_VMID = 1
AMDGPU_VM_OP_UNRESERVE_VMID = 2


class DrmAmdgpuCsChunkDep(Structure):
    """A fence to wait for."""

    _fields_ = (
        ("ip_type", u32),
        ("ip_instance", u32),
        ("ring", u32),
        ("ctx_id", u32),
        ("handle", u64),
    )


class DrmAmdgpuCsChunkFence(Structure):
    """A page that gets the fence value."""

    _fields_ = (
        ("handle", u32),
        ("offset", u32),
    )


class DrmAmdgpuCsChunkSem(Structure):
    """A sync object."""

    _fields_ = (("handle", u32),)


class DrmAmdgpuCsChunkSyncobj(Structure):
    """A point of a timeline sync object."""

    _fields_ = (
        ("handle", u32),
        ("flags", u32),
        ("point", u64),
    )


class DrmAmdgpuFence(Structure):
    """A fence by context, engine and number."""

    _fields_ = (
        ("ctx_id", u32),
        ("ip_type", u32),
        ("ip_instance", u32),
        ("ring", u32),
        ("seq_no", u64),
    )


class DrmAmdgpuWaitFencesIn(Structure):
    """Several fences, all or any of them."""

    _fields_ = (
        ("fences", u64),
        ("fence_count", u32),
        ("wait_all", u32),
        ("timeout_ns", u64),
    )


class DrmAmdgpuWaitFencesOut(Structure):
    """`status` 1: signalled; 0: the time ran out. The opposite of WAIT_CS."""

    _fields_ = (
        ("status", u32),
        ("first_signaled", u32),
    )


class DrmAmdgpuWaitFences(Union):
    """WAIT_FENCES."""

    _fields_ = (
        ("in_", DrmAmdgpuWaitFencesIn),
        ("out", DrmAmdgpuWaitFencesOut),
    )


class DrmAmdgpuFenceToHandleIn(Structure):
    """Member `in` of `DrmAmdgpuFenceToHandle`."""

    _fields_ = (
        ("fence", DrmAmdgpuFence),
        ("what", u32),
        ("pad", u32),
    )


class DrmAmdgpuFenceToHandleOut(Structure):
    """Member `out` of `DrmAmdgpuFenceToHandle`."""

    _fields_ = (("handle", u32),)


class DrmAmdgpuFenceToHandle(Union):
    """FENCE_TO_HANDLE: a fence as sync object or file."""

    _fields_ = (
        ("in_", DrmAmdgpuFenceToHandleIn),
        ("out", DrmAmdgpuFenceToHandleOut),
    )


class DrmAmdgpuVmIn(Structure):
    """VMID reservation."""

    _fields_ = (
        ("op", u32),
        ("flags", u32),
    )


class DrmAmdgpuVmOut(Structure):
    """Nothing."""

    _fields_ = (("flags", u64),)


class DrmAmdgpuVm(Union):
    """VM."""

    _fields_ = (
        ("in_", DrmAmdgpuVmIn),
        ("out", DrmAmdgpuVmOut),
    )


class DrmAmdgpuSchedIn(Structure):
    """Priority of another process."""

    _fields_ = (
        ("op", u32),
        ("fd", u32),
        ("priority", i32),
        ("ctx_id", u32),
    )


class DrmAmdgpuSched(Union):
    """SCHED."""

    _fields_ = (("in_", DrmAmdgpuSchedIn),)

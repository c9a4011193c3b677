"""Contexts, buffer lists, command submission and fences of amdgpu: layouts of `amdgpu_drm.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import i32, u32, u64

AMDGPU_BO_LIST_OP_CREATE = 0
AMDGPU_BO_LIST_OP_DESTROY = 1
AMDGPU_BO_LIST_OP_UPDATE = 2
AMDGPU_CHUNK_ID_BO_HANDLES = 6
AMDGPU_CHUNK_ID_CP_GFX_SHADOW = 0xA
AMDGPU_CHUNK_ID_DEPENDENCIES = 3
AMDGPU_CHUNK_ID_FENCE = 2
AMDGPU_CHUNK_ID_IB = 1
AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES = 7
AMDGPU_CHUNK_ID_SYNCOBJ_IN = 4
AMDGPU_CHUNK_ID_SYNCOBJ_OUT = 5
AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL = 9
AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT = 8
AMDGPU_CTX_GUILTY_RESET = 1
AMDGPU_CTX_INNOCENT_RESET = 2
AMDGPU_CTX_NO_RESET = 0
AMDGPU_CTX_OP_ALLOC_CTX = 1
AMDGPU_CTX_OP_FREE_CTX = 2
AMDGPU_CTX_OP_GET_STABLE_PSTATE = 5
AMDGPU_CTX_OP_QUERY_STATE = 3
AMDGPU_CTX_OP_QUERY_STATE2 = 4
AMDGPU_CTX_OP_SET_STABLE_PSTATE = 6
AMDGPU_CTX_PRIORITY_HIGH = 0x200
AMDGPU_CTX_PRIORITY_LOW = -0x200
AMDGPU_CTX_PRIORITY_NORMAL = 0
AMDGPU_CTX_PRIORITY_UNSET = -0x800
AMDGPU_CTX_PRIORITY_VERY_HIGH = 0x3FF
AMDGPU_CTX_PRIORITY_VERY_LOW = -0x3FF
AMDGPU_CTX_QUERY2_FLAGS_GUILTY = 4
AMDGPU_CTX_QUERY2_FLAGS_RAS_CE = 8
AMDGPU_CTX_QUERY2_FLAGS_RAS_UE = 0x10
AMDGPU_CTX_QUERY2_FLAGS_RESET = 1
AMDGPU_CTX_QUERY2_FLAGS_RESET_IN_PROGRESS = 0x20
AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST = 2
AMDGPU_CTX_UNKNOWN_RESET = 3
AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ = 0
AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ_FD = 1
AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD = 2
AMDGPU_HW_IP_COMPUTE = 1
AMDGPU_HW_IP_DMA = 2
AMDGPU_HW_IP_GFX = 0
AMDGPU_HW_IP_INSTANCE_MAX_COUNT = 1
AMDGPU_HW_IP_NUM = 0xA
AMDGPU_HW_IP_UVD = 3
AMDGPU_HW_IP_UVD_ENC = 5
AMDGPU_HW_IP_VCE = 4
AMDGPU_HW_IP_VCN_DEC = 6
AMDGPU_HW_IP_VCN_ENC = 7
AMDGPU_HW_IP_VCN_JPEG = 8
AMDGPU_HW_IP_VPE = 9
AMDGPU_IB_FLAGS_SECURE = 0x20
AMDGPU_IB_FLAG_CE = 1
AMDGPU_IB_FLAG_EMIT_MEM_SYNC = 0x40
AMDGPU_IB_FLAG_PREAMBLE = 2
AMDGPU_IB_FLAG_PREEMPT = 4
AMDGPU_IB_FLAG_RESET_GDS_MAX_WAVE_ID = 0x10
AMDGPU_IB_FLAG_TC_WB_NOT_INVALIDATE = 8
AMDGPU_SCHED_OP_CONTEXT_PRIORITY_OVERRIDE = 2
AMDGPU_SCHED_OP_PROCESS_PRIORITY_OVERRIDE = 1
AMDGPU_VM_OP_RESERVE_VMID = 1
AMDGPU_VM_OP_UNRESERVE_VMID = 2


class DrmAmdgpuCtxIn(Structure):
    """What to do with which context."""

    _fields_ = (
        ("op", u32),
        ("flags", u32),
        ("ctx_id", u32),
        ("priority", i32),
    )


class DrmAmdgpuCtxOutAlloc(Structure):
    """The new context: member `out_alloc` of `DrmAmdgpuCtx`."""

    _fields_ = (
        ("ctx_id", u32),
        ("_pad", u32),
    )


class DrmAmdgpuCtxOutState(Structure):
    """What happened to it: member `out_state` of `DrmAmdgpuCtx`."""

    _fields_ = (
        ("flags", u64),
        ("hangs", u32),
        ("reset_status", u32),
    )


class DrmAmdgpuCtxOutPstate(Structure):
    """Clock state: member `out_pstate` of `DrmAmdgpuCtx`."""

    _fields_ = (
        ("flags", u32),
        ("_pad", u32),
    )


class DrmAmdgpuCtx(Union):
    """CTX: both directions in one buffer; what comes out depends on the operation."""

    _fields_ = (
        ("in_", DrmAmdgpuCtxIn),
        ("out_alloc", DrmAmdgpuCtxOutAlloc),
        ("out_state", DrmAmdgpuCtxOutState),
        ("out_pstate", DrmAmdgpuCtxOutPstate),
    )


class DrmAmdgpuBoListEntry(Structure):
    """One buffer of a list."""

    _fields_ = (
        ("bo_handle", u32),
        ("bo_priority", u32),
    )


class DrmAmdgpuBoListIn(Structure):
    """`bo_info_ptr` points to `bo_number` entries of `bo_info_size` bytes."""

    _fields_ = (
        ("operation", u32),
        ("list_handle", u32),
        ("bo_number", u32),
        ("bo_info_size", u32),
        ("bo_info_ptr", u64),
    )


class DrmAmdgpuBoListOut(Structure):
    """The new list."""

    _fields_ = (
        ("list_handle", u32),
        ("_pad", u32),
    )


class DrmAmdgpuBoList(Union):
    """BO_LIST."""

    _fields_ = (
        ("in_", DrmAmdgpuBoListIn),
        ("out", DrmAmdgpuBoListOut),
    )


class DrmAmdgpuCsChunk(Structure):
    """One part of a submission: `chunk_data` points to `length_dw` dwords."""

    _fields_ = (
        ("chunk_id", u32),
        ("length_dw", u32),
        ("chunk_data", u64),
    )


class DrmAmdgpuCsIn(Structure):
    """`chunks` points to an array of pointers to chunks."""

    _fields_ = (
        ("ctx_id", u32),
        ("bo_list_handle", u32),
        ("num_chunks", u32),
        ("flags", u32),
        ("chunks", u64),
    )


class DrmAmdgpuCsOut(Structure):
    """The fence: its number in the sequence of (context, IP, ring)."""

    _fields_ = (("handle", u64),)


class DrmAmdgpuCs(Union):
    """CS."""

    _fields_ = (
        ("in_", DrmAmdgpuCsIn),
        ("out", DrmAmdgpuCsOut),
    )


class DrmAmdgpuCsChunkIb(Structure):
    """An indirect buffer: GPU address, length in bytes, engine."""

    _fields_ = (
        ("_pad", u32),
        ("flags", u32),
        ("va_start", u64),
        ("ib_bytes", u32),
        ("ip_type", u32),
        ("ip_instance", u32),
        ("ring", u32),
    )


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


class DrmAmdgpuWaitCsIn(Structure):
    """Which fence, until when: absolute nanoseconds of CLOCK_MONOTONIC."""

    _fields_ = (
        ("handle", u64),
        ("timeout", u64),
        ("ip_type", u32),
        ("ip_instance", u32),
        ("ring", u32),
        ("ctx_id", u32),
    )


class DrmAmdgpuWaitCsOut(Structure):
    """`status` 0: retired; 1: the time ran out."""

    _fields_ = (("status", u64),)


class DrmAmdgpuWaitCs(Union):
    """WAIT_CS."""

    _fields_ = (
        ("in_", DrmAmdgpuWaitCsIn),
        ("out", DrmAmdgpuWaitCsOut),
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

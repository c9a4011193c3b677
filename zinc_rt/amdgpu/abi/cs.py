"""Contexts, buffer lists, command submission and fences of amdgpu: layouts of `amdgpu_drm.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import i32, u32, u64

AMDGPU_BO_LIST_OP_CREATE = 0
AMDGPU_BO_LIST_OP_DESTROY = 1
AMDGPU_BO_LIST_OP_UPDATE = 2
AMDGPU_CHUNK_ID_BO_HANDLES = 6
AMDGPU_CHUNK_ID_IB = 1
AMDGPU_CTX_OP_ALLOC_CTX = 1
AMDGPU_CTX_OP_FREE_CTX = 2
AMDGPU_CTX_OP_QUERY_STATE2 = 4
AMDGPU_CTX_QUERY2_FLAGS_GUILTY = 4
AMDGPU_CTX_QUERY2_FLAGS_RAS_CE = 8
AMDGPU_CTX_QUERY2_FLAGS_RAS_UE = 0x10
AMDGPU_CTX_QUERY2_FLAGS_RESET = 1
AMDGPU_CTX_QUERY2_FLAGS_RESET_IN_PROGRESS = 0x20
AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST = 2
AMDGPU_HW_IP_COMPUTE = 1
AMDGPU_HW_IP_GFX = 0
AMDGPU_IB_FLAG_EMIT_MEM_SYNC = 0x40


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

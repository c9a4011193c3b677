"""Buffer objects of amdgpu: rows of `amdgpu_drm.h` that the runtime does not use."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.gem import *
from zinc_rt.amdgpu.abi.types import u32, u64

AMDGPU_GEM_CREATE_COHERENT = 0x2000
AMDGPU_GEM_CREATE_CP_MQD_GFX9 = 0x100
AMDGPU_GEM_CREATE_DISCARDABLE = 0x1000
AMDGPU_GEM_CREATE_ENCRYPTED = 0x400
AMDGPU_GEM_CREATE_EXPLICIT_SYNC = 0x80
AMDGPU_GEM_CREATE_EXT_COHERENT = 0x8000
AMDGPU_GEM_CREATE_GFX12_DCC = 0x10000
AMDGPU_GEM_CREATE_PREEMPTIBLE = 0x800
AMDGPU_GEM_CREATE_UNCACHED = 0x4000
AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS = 0x20
AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE = 0x200
AMDGPU_GEM_DOMAIN_CPU = 1
AMDGPU_GEM_DOMAIN_GDS = 8
AMDGPU_GEM_DOMAIN_GWS = 0x10
AMDGPU_GEM_DOMAIN_MASK = 0x7F
AMDGPU_GEM_DOMAIN_OA = 0x20
AMDGPU_GEM_METADATA_OP_GET_METADATA = 2
AMDGPU_GEM_METADATA_OP_SET_METADATA = 1
AMDGPU_GEM_OP_GET_GEM_CREATE_INFO = 0
AMDGPU_GEM_OP_GET_MAPPING_INFO = 2
AMDGPU_GEM_OP_SET_PLACEMENT = 1
AMDGPU_GEM_USERPTR_ANONONLY = 2
AMDGPU_GEM_USERPTR_READONLY = 1
AMDGPU_GEM_USERPTR_REGISTER = 8
AMDGPU_GEM_USERPTR_VALIDATE = 4
AMDGPU_VA_OP_CLEAR = 3
AMDGPU_VA_OP_REPLACE = 4
AMDGPU_VM_DELAY_UPDATE = 1
AMDGPU_VM_MTYPE_MASK = 0x1E0
AMDGPU_VM_MTYPE_NC = 0x20
AMDGPU_VM_PAGE_NOALLOC = 0x200
AMDGPU_VM_PAGE_PRT = 0x10


class DrmAmdgpuGemUserptr(Structure):
    """GEM_USERPTR: pages of the caller as a buffer."""

    _fields_ = (
        ("addr", u64),
        ("size", u64),
        ("flags", u32),
        ("handle", u32),
    )


class DrmAmdgpuGemWaitIdleIn(Structure):
    """Which buffer, until when (absolute nanoseconds, CLOCK_MONOTONIC)."""

    _fields_ = (
        ("handle", u32),
        ("flags", u32),
        ("timeout", u64),
    )


class DrmAmdgpuGemWaitIdleOut(Structure):
    """`status` 0: idle; 1: still busy."""

    _fields_ = (
        ("status", u32),
        ("domain", u32),
    )


class DrmAmdgpuGemWaitIdle(Union):
    """GEM_WAIT_IDLE."""

    _fields_ = (
        ("in_", DrmAmdgpuGemWaitIdleIn),
        ("out", DrmAmdgpuGemWaitIdleOut),
    )


class DrmAmdgpuGemOp(Structure):
    """GEM_OP: how a buffer was made; where it shall be."""

    _fields_ = (
        ("handle", u32),
        ("op", u32),
        ("value", u64),
        ("num_entries", u32),
        ("padding", u32),
    )


class DrmAmdgpuGemMetadataData(Structure):
    """Member `data` of `DrmAmdgpuGemMetadata`."""

    _fields_ = (
        ("flags", u64),
        ("tiling_info", u64),
        ("data_size_bytes", u32),
        ("data", u32 * 64),
    )


class DrmAmdgpuGemMetadata(Structure):
    """GEM_METADATA: tiling and 256 bytes that belong to user space."""

    _fields_ = (
        ("handle", u32),
        ("op", u32),
        ("data", DrmAmdgpuGemMetadataData),
    )

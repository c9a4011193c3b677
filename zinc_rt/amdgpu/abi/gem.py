"""Buffer objects of amdgpu and their addresses on the GPU: layouts of `amdgpu_drm.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import u32, u64

AMDGPU_GEM_CREATE_COHERENT = 0x2000
AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED = 1
AMDGPU_GEM_CREATE_CPU_GTT_USWC = 4
AMDGPU_GEM_CREATE_CP_MQD_GFX9 = 0x100
AMDGPU_GEM_CREATE_DISCARDABLE = 0x1000
AMDGPU_GEM_CREATE_ENCRYPTED = 0x400
AMDGPU_GEM_CREATE_EXPLICIT_SYNC = 0x80
AMDGPU_GEM_CREATE_EXT_COHERENT = 0x8000
AMDGPU_GEM_CREATE_GFX12_DCC = 0x10000
AMDGPU_GEM_CREATE_NO_CPU_ACCESS = 2
AMDGPU_GEM_CREATE_PREEMPTIBLE = 0x800
AMDGPU_GEM_CREATE_UNCACHED = 0x4000
AMDGPU_GEM_CREATE_VM_ALWAYS_VALID = 0x40
AMDGPU_GEM_CREATE_VRAM_CLEARED = 8
AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS = 0x20
AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE = 0x200
AMDGPU_GEM_DOMAIN_CPU = 1
AMDGPU_GEM_DOMAIN_DOORBELL = 0x40
AMDGPU_GEM_DOMAIN_GDS = 8
AMDGPU_GEM_DOMAIN_GTT = 2
AMDGPU_GEM_DOMAIN_GWS = 0x10
AMDGPU_GEM_DOMAIN_MASK = 0x7F
AMDGPU_GEM_DOMAIN_MMIO_REMAP = 0x80
AMDGPU_GEM_DOMAIN_OA = 0x20
AMDGPU_GEM_DOMAIN_VRAM = 4
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
AMDGPU_VA_OP_MAP = 1
AMDGPU_VA_OP_REPLACE = 4
AMDGPU_VA_OP_UNMAP = 2
AMDGPU_VM_DELAY_UPDATE = 1
AMDGPU_VM_MTYPE_CC = 0x60
AMDGPU_VM_MTYPE_DEFAULT = 0
AMDGPU_VM_MTYPE_MASK = 0x1E0
AMDGPU_VM_MTYPE_NC = 0x20
AMDGPU_VM_MTYPE_RW = 0xA0
AMDGPU_VM_MTYPE_UC = 0x80
AMDGPU_VM_MTYPE_WC = 0x40
AMDGPU_VM_PAGE_EXECUTABLE = 8
AMDGPU_VM_PAGE_NOALLOC = 0x200
AMDGPU_VM_PAGE_PRT = 0x10
AMDGPU_VM_PAGE_READABLE = 2
AMDGPU_VM_PAGE_WRITEABLE = 4


class DrmAmdgpuGemCreateIn(Structure):
    """What to allocate: bytes, alignment in bytes, `AMDGPU_GEM_DOMAIN_*`, `AMDGPU_GEM_CREATE_*`."""

    _fields_ = (
        ("bo_size", u64),
        ("alignment", u64),
        ("domains", u64),
        ("domain_flags", u64),
    )


class DrmAmdgpuGemCreateOut(Structure):
    """The new handle."""

    _fields_ = (
        ("handle", u32),
        ("_pad", u32),
    )


class DrmAmdgpuGemCreate(Union):
    """GEM_CREATE: both directions in one buffer."""

    _fields_ = (
        ("in_", DrmAmdgpuGemCreateIn),
        ("out", DrmAmdgpuGemCreateOut),
    )


class DrmAmdgpuGemMmapIn(Structure):
    """Which buffer."""

    _fields_ = (
        ("handle", u32),
        ("_pad", u32),
    )


class DrmAmdgpuGemMmapOut(Structure):
    """`addr_ptr` is the offset to give to mmap of the render node."""

    _fields_ = (("addr_ptr", u64),)


class DrmAmdgpuGemMmap(Union):
    """GEM_MMAP."""

    _fields_ = (
        ("in_", DrmAmdgpuGemMmapIn),
        ("out", DrmAmdgpuGemMmapOut),
    )


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


class DrmAmdgpuGemVa(Structure):
    """GEM_VA: map, unmap, clear or replace. Kernels before 6.16 know the first 40 bytes only."""

    _fields_ = (
        ("handle", u32),
        ("_pad", u32),
        ("operation", u32),
        ("flags", u32),
        ("va_address", u64),
        ("offset_in_bo", u64),
        ("map_size", u64),
        ("vm_timeline_point", u64),
        ("vm_timeline_syncobj_out", u32),
        ("num_syncobj_handles", u32),
        ("input_fence_syncobj_handles", u64),
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

"""Buffer objects of amdgpu and their addresses on the GPU: layouts of `amdgpu_drm.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import u32, u64

AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED = 1
AMDGPU_GEM_CREATE_CPU_GTT_USWC = 4
AMDGPU_GEM_CREATE_NO_CPU_ACCESS = 2
AMDGPU_GEM_CREATE_VM_ALWAYS_VALID = 0x40
AMDGPU_GEM_CREATE_VRAM_CLEARED = 8
AMDGPU_GEM_DOMAIN_DOORBELL = 0x40
AMDGPU_GEM_DOMAIN_GTT = 2
AMDGPU_GEM_DOMAIN_VRAM = 4
AMDGPU_VA_OP_MAP = 1
AMDGPU_VA_OP_UNMAP = 2
AMDGPU_VM_MTYPE_DEFAULT = 0
AMDGPU_VM_MTYPE_UC = 0x80
AMDGPU_VM_PAGE_EXECUTABLE = 8
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

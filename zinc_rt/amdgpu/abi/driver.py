"""Numbers of the drivers that their public headers leave out: from `kfd_priv.h`, `amdgpu_vm.h` and `amdgpu_gmc.h`."""

from __future__ import annotations

KFD_MMAP_TYPE_MMIO = 0 << 62
KFD_MMAP_TYPE_RESERVED_MEM = 1 << 62
KFD_MMAP_TYPE_EVENTS = 2 << 62
KFD_MMAP_TYPE_DOORBELL = 3 << 62
"""What an mmap of /dev/kfd shows: the two highest bits of the offset."""
KFD_MMAP_GPU_ID_SHIFT = 46
KFD_MMAP_GPU_ID_MASK = 0xFFFF << KFD_MMAP_GPU_ID_SHIFT
KFD_DOORBELL_SLICE = 0x2000
"""Bytes of a process's doorbells on one GPU: the only length that an mmap of them may have."""
KFD_MAX_NUM_OF_QUEUES_PER_PROCESS = 1024

AMDGPU_GPU_PAGE_SIZE = 4096
AMDGPU_VA_RESERVED_BOTTOM = 0x10000
AMDGPU_VA_RESERVED_TOP = 0x410000
"""Bytes at both ends of an address space that the driver keeps for itself."""
AMDGPU_GMC_HOLE_START = 0x0000800000000000
AMDGPU_GMC_HOLE_END = 0xFFFF800000000000
AMDGPU_GMC_HOLE_MASK = 0x0000FFFFFFFFFFFF
"""Addresses between the two are not canonical when addresses have 48 bits."""
DRM_FIRST_MMAP_OFFSET = 1 << 32

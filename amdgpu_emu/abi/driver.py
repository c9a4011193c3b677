"""Numbers of `kfd_priv.h` that the runtime does not use."""

from __future__ import annotations

from zinc_rt.amdgpu.abi.driver import *

KFD_MMAP_TYPE_MMIO = 0 << 62
KFD_MMAP_TYPE_RESERVED_MEM = 1 << 62
KFD_MMAP_TYPE_EVENTS = 2 << 62
KFD_MMAP_TYPE_DOORBELL = 3 << 62
"""What an mmap of /dev/kfd shows: the two highest bits of the offset."""
KFD_MMAP_GPU_ID_SHIFT = 46
KFD_MMAP_GPU_ID_MASK = 0xFFFF << KFD_MMAP_GPU_ID_SHIFT
KFD_MAX_NUM_OF_QUEUES_PER_PROCESS = 1024

"""Request numbers of the ioctls that are used, made from the layouts.

A request is direction << 30 | size of the argument << 16 | type << 8 | number; amdgpu's numbers begin at 0x40.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from zinc_rt.amdgpu.abi.cs import (
    DrmAmdgpuBoList,
    DrmAmdgpuCs,
    DrmAmdgpuCtx,
    DrmAmdgpuWaitCs,
)
from zinc_rt.amdgpu.abi.drm import (
    DrmGemClose,
    DrmSyncobjCreate,
    DrmSyncobjDestroy,
    DrmSyncobjTimelineWait,
    DrmVersion,
)
from zinc_rt.amdgpu.abi.gem import (
    DrmAmdgpuGemCreate,
    DrmAmdgpuGemMmap,
    DrmAmdgpuGemVa,
)
from zinc_rt.amdgpu.abi.info import (
    DrmAmdgpuInfo,
)
from zinc_rt.amdgpu.abi.kfd import (
    AcquireVmArgs,
    AllocMemoryOfGpuArgs,
    CreateEventArgs,
    CreateQueueArgs,
    DestroyEventArgs,
    DestroyQueueArgs,
    FreeMemoryOfGpuArgs,
    GetAvailableMemoryArgs,
    GetProcessAperturesNewArgs,
    GetVersionArgs,
    MapMemoryToGpuArgs,
    RuntimeEnableArgs,
    UnmapMemoryFromGpuArgs,
    WaitEventsArgs,
)
from zinc_rt.amdgpu.abi.userq import (
    DrmAmdgpuUserq,
)

WRITE, READ = 1, 2
READ_WRITE = READ | WRITE
DRM_TYPE, KFD_TYPE = ord("d"), ord("K")
Aggregate = type[ctypes.Structure] | type[ctypes.Union]


@dataclass(frozen=True)
class Ioctl:
    """One ioctl. number: its low byte; argument: the struct or union that it takes; value: the request itself."""

    name: str
    direction: int
    type: int
    number: int
    argument: Aggregate

    @property
    def size(self) -> int:
        """Bytes of the argument."""
        return ctypes.sizeof(self.argument)

    @property
    def value(self) -> int:
        """The number that ioctl(2) takes."""
        return request_value(self.direction, self.type, self.number, self.size)


def request_value(direction: int, kind: int, number: int, size: int) -> int:
    """direction: `READ` (the kernel writes the argument), `WRITE`, both or 0; size in bytes."""
    return direction << 30 | size << 16 | kind << 8 | number


def size_of(request: int) -> int:
    """Bytes of the argument that the request announces."""
    return request >> 16 & 0x3FFF


def kind_of(request: int) -> int:
    """The type byte: that of "d" or "K"."""
    return request >> 8 & 0xFF


DRM_VERSION = Ioctl("DRM_VERSION", READ_WRITE, DRM_TYPE, 0x0, DrmVersion)
DRM_GEM_CLOSE = Ioctl("DRM_GEM_CLOSE", WRITE, DRM_TYPE, 0x9, DrmGemClose)
AMDGPU_GEM_CREATE = Ioctl("AMDGPU_GEM_CREATE", READ_WRITE, DRM_TYPE, 0x40, DrmAmdgpuGemCreate)
AMDGPU_GEM_MMAP = Ioctl("AMDGPU_GEM_MMAP", READ_WRITE, DRM_TYPE, 0x41, DrmAmdgpuGemMmap)
AMDGPU_CTX = Ioctl("AMDGPU_CTX", READ_WRITE, DRM_TYPE, 0x42, DrmAmdgpuCtx)
AMDGPU_BO_LIST = Ioctl("AMDGPU_BO_LIST", READ_WRITE, DRM_TYPE, 0x43, DrmAmdgpuBoList)
AMDGPU_CS = Ioctl("AMDGPU_CS", READ_WRITE, DRM_TYPE, 0x44, DrmAmdgpuCs)
AMDGPU_INFO = Ioctl("AMDGPU_INFO", WRITE, DRM_TYPE, 0x45, DrmAmdgpuInfo)
AMDGPU_GEM_VA = Ioctl("AMDGPU_GEM_VA", WRITE, DRM_TYPE, 0x48, DrmAmdgpuGemVa)
AMDGPU_WAIT_CS = Ioctl("AMDGPU_WAIT_CS", READ_WRITE, DRM_TYPE, 0x49, DrmAmdgpuWaitCs)
AMDGPU_USERQ = Ioctl("AMDGPU_USERQ", READ_WRITE, DRM_TYPE, 0x56, DrmAmdgpuUserq)
DRM_SYNCOBJ_CREATE = Ioctl("DRM_SYNCOBJ_CREATE", READ_WRITE, DRM_TYPE, 0xBF, DrmSyncobjCreate)
DRM_SYNCOBJ_DESTROY = Ioctl("DRM_SYNCOBJ_DESTROY", READ_WRITE, DRM_TYPE, 0xC0, DrmSyncobjDestroy)
DRM_SYNCOBJ_TIMELINE_WAIT = Ioctl("DRM_SYNCOBJ_TIMELINE_WAIT", READ_WRITE, DRM_TYPE, 0xCA, DrmSyncobjTimelineWait)
KFD_GET_VERSION = Ioctl("KFD_GET_VERSION", READ, KFD_TYPE, 0x1, GetVersionArgs)
KFD_CREATE_QUEUE = Ioctl("KFD_CREATE_QUEUE", READ_WRITE, KFD_TYPE, 0x2, CreateQueueArgs)
KFD_DESTROY_QUEUE = Ioctl("KFD_DESTROY_QUEUE", READ_WRITE, KFD_TYPE, 0x3, DestroyQueueArgs)
KFD_CREATE_EVENT = Ioctl("KFD_CREATE_EVENT", READ_WRITE, KFD_TYPE, 0x8, CreateEventArgs)
KFD_DESTROY_EVENT = Ioctl("KFD_DESTROY_EVENT", WRITE, KFD_TYPE, 0x9, DestroyEventArgs)
KFD_WAIT_EVENTS = Ioctl("KFD_WAIT_EVENTS", READ_WRITE, KFD_TYPE, 0xC, WaitEventsArgs)
KFD_GET_PROCESS_APERTURES_NEW = Ioctl(
    "KFD_GET_PROCESS_APERTURES_NEW", READ_WRITE, KFD_TYPE, 0x14, GetProcessAperturesNewArgs
)
KFD_ACQUIRE_VM = Ioctl("KFD_ACQUIRE_VM", WRITE, KFD_TYPE, 0x15, AcquireVmArgs)
KFD_ALLOC_MEMORY_OF_GPU = Ioctl("KFD_ALLOC_MEMORY_OF_GPU", READ_WRITE, KFD_TYPE, 0x16, AllocMemoryOfGpuArgs)
KFD_FREE_MEMORY_OF_GPU = Ioctl("KFD_FREE_MEMORY_OF_GPU", WRITE, KFD_TYPE, 0x17, FreeMemoryOfGpuArgs)
KFD_MAP_MEMORY_TO_GPU = Ioctl("KFD_MAP_MEMORY_TO_GPU", READ_WRITE, KFD_TYPE, 0x18, MapMemoryToGpuArgs)
KFD_UNMAP_MEMORY_FROM_GPU = Ioctl("KFD_UNMAP_MEMORY_FROM_GPU", READ_WRITE, KFD_TYPE, 0x19, UnmapMemoryFromGpuArgs)
KFD_AVAILABLE_MEMORY = Ioctl("KFD_AVAILABLE_MEMORY", READ_WRITE, KFD_TYPE, 0x23, GetAvailableMemoryArgs)
KFD_RUNTIME_ENABLE = Ioctl("KFD_RUNTIME_ENABLE", READ_WRITE, KFD_TYPE, 0x25, RuntimeEnableArgs)

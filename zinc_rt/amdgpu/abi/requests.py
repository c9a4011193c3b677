"""Request numbers of every ioctl that is used or emulated, made from the layouts.

A request is direction << 30 | size of the argument << 16 | type << 8 | number; amdgpu's numbers begin at 0x40.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from zinc_rt.amdgpu.abi.cs import (
    DrmAmdgpuBoList,
    DrmAmdgpuCs,
    DrmAmdgpuCtx,
    DrmAmdgpuFenceToHandle,
    DrmAmdgpuSched,
    DrmAmdgpuVm,
    DrmAmdgpuWaitCs,
    DrmAmdgpuWaitFences,
)
from zinc_rt.amdgpu.abi.drm import (
    DrmGemClose,
    DrmGetCap,
    DrmPrimeHandle,
    DrmSyncobjArray,
    DrmSyncobjCreate,
    DrmSyncobjDestroy,
    DrmSyncobjHandle,
    DrmSyncobjTimelineArray,
    DrmSyncobjTimelineWait,
    DrmSyncobjTransfer,
    DrmSyncobjWait,
    DrmVersion,
)
from zinc_rt.amdgpu.abi.gem import (
    DrmAmdgpuGemCreate,
    DrmAmdgpuGemMetadata,
    DrmAmdgpuGemMmap,
    DrmAmdgpuGemOp,
    DrmAmdgpuGemUserptr,
    DrmAmdgpuGemVa,
    DrmAmdgpuGemWaitIdle,
)
from zinc_rt.amdgpu.abi.info import (
    DrmAmdgpuInfo,
)
from zinc_rt.amdgpu.abi.kfd import (
    AcquireVmArgs,
    AllocMemoryOfGpuArgs,
    AllocQueueGwsArgs,
    CreateEventArgs,
    CreateQueueArgs,
    DestroyEventArgs,
    DestroyQueueArgs,
    ExportDmabufArgs,
    FreeMemoryOfGpuArgs,
    GetAvailableMemoryArgs,
    GetClockCountersArgs,
    GetDmabufInfoArgs,
    GetProcessAperturesArgs,
    GetProcessAperturesNewArgs,
    GetQueueWaveStateArgs,
    GetTileConfigArgs,
    GetVersionArgs,
    ImportDmabufArgs,
    MapMemoryToGpuArgs,
    ResetEventArgs,
    RuntimeEnableArgs,
    SetCuMaskArgs,
    SetEventArgs,
    SetMemoryPolicyArgs,
    SetScratchBackingVaArgs,
    SetTrapHandlerArgs,
    SetXnackModeArgs,
    SmiEventsArgs,
    UnmapMemoryFromGpuArgs,
    UpdateQueueArgs,
    WaitEventsArgs,
)
from zinc_rt.amdgpu.abi.userq import (
    DrmAmdgpuUserq,
    DrmAmdgpuUserqSignal,
    DrmAmdgpuUserqWait,
)

WRITE, READ = 1, 2
READ_WRITE = READ | WRITE
_DRM, _KFD = ord("d"), ord("K")

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


def number_of(request: int) -> int:
    """The low byte, by which the kernel chooses the handler."""
    return request & 0xFF


def size_of(request: int) -> int:
    """Bytes of the argument that the request announces."""
    return request >> 16 & 0x3FFF


def direction_of(request: int) -> int:
    """`READ` and `WRITE` bits."""
    return request >> 30 & 3


def kind_of(request: int) -> int:
    """The type byte: that of "d" or "K"."""
    return request >> 8 & 0xFF


DRM_VERSION = Ioctl("DRM_VERSION", READ_WRITE, _DRM, 0x0, DrmVersion)
DRM_GEM_CLOSE = Ioctl("DRM_GEM_CLOSE", WRITE, _DRM, 0x9, DrmGemClose)
DRM_GET_CAP = Ioctl("DRM_GET_CAP", READ_WRITE, _DRM, 0xC, DrmGetCap)
DRM_PRIME_HANDLE_TO_FD = Ioctl("DRM_PRIME_HANDLE_TO_FD", READ_WRITE, _DRM, 0x2D, DrmPrimeHandle)
DRM_PRIME_FD_TO_HANDLE = Ioctl("DRM_PRIME_FD_TO_HANDLE", READ_WRITE, _DRM, 0x2E, DrmPrimeHandle)
AMDGPU_GEM_CREATE = Ioctl("AMDGPU_GEM_CREATE", READ_WRITE, _DRM, 0x40, DrmAmdgpuGemCreate)
AMDGPU_GEM_MMAP = Ioctl("AMDGPU_GEM_MMAP", READ_WRITE, _DRM, 0x41, DrmAmdgpuGemMmap)
AMDGPU_CTX = Ioctl("AMDGPU_CTX", READ_WRITE, _DRM, 0x42, DrmAmdgpuCtx)
AMDGPU_BO_LIST = Ioctl("AMDGPU_BO_LIST", READ_WRITE, _DRM, 0x43, DrmAmdgpuBoList)
AMDGPU_CS = Ioctl("AMDGPU_CS", READ_WRITE, _DRM, 0x44, DrmAmdgpuCs)
AMDGPU_INFO = Ioctl("AMDGPU_INFO", WRITE, _DRM, 0x45, DrmAmdgpuInfo)
AMDGPU_GEM_METADATA = Ioctl("AMDGPU_GEM_METADATA", READ_WRITE, _DRM, 0x46, DrmAmdgpuGemMetadata)
AMDGPU_GEM_WAIT_IDLE = Ioctl("AMDGPU_GEM_WAIT_IDLE", READ_WRITE, _DRM, 0x47, DrmAmdgpuGemWaitIdle)
AMDGPU_GEM_VA = Ioctl("AMDGPU_GEM_VA", WRITE, _DRM, 0x48, DrmAmdgpuGemVa)
AMDGPU_WAIT_CS = Ioctl("AMDGPU_WAIT_CS", READ_WRITE, _DRM, 0x49, DrmAmdgpuWaitCs)
AMDGPU_GEM_OP = Ioctl("AMDGPU_GEM_OP", READ_WRITE, _DRM, 0x50, DrmAmdgpuGemOp)
AMDGPU_GEM_USERPTR = Ioctl("AMDGPU_GEM_USERPTR", READ_WRITE, _DRM, 0x51, DrmAmdgpuGemUserptr)
AMDGPU_WAIT_FENCES = Ioctl("AMDGPU_WAIT_FENCES", READ_WRITE, _DRM, 0x52, DrmAmdgpuWaitFences)
AMDGPU_VM = Ioctl("AMDGPU_VM", READ_WRITE, _DRM, 0x53, DrmAmdgpuVm)
AMDGPU_FENCE_TO_HANDLE = Ioctl("AMDGPU_FENCE_TO_HANDLE", READ_WRITE, _DRM, 0x54, DrmAmdgpuFenceToHandle)
AMDGPU_SCHED = Ioctl("AMDGPU_SCHED", WRITE, _DRM, 0x55, DrmAmdgpuSched)
AMDGPU_USERQ = Ioctl("AMDGPU_USERQ", READ_WRITE, _DRM, 0x56, DrmAmdgpuUserq)
AMDGPU_USERQ_SIGNAL = Ioctl("AMDGPU_USERQ_SIGNAL", READ_WRITE, _DRM, 0x57, DrmAmdgpuUserqSignal)
AMDGPU_USERQ_WAIT = Ioctl("AMDGPU_USERQ_WAIT", READ_WRITE, _DRM, 0x58, DrmAmdgpuUserqWait)
DRM_SYNCOBJ_CREATE = Ioctl("DRM_SYNCOBJ_CREATE", READ_WRITE, _DRM, 0xBF, DrmSyncobjCreate)
DRM_SYNCOBJ_DESTROY = Ioctl("DRM_SYNCOBJ_DESTROY", READ_WRITE, _DRM, 0xC0, DrmSyncobjDestroy)
DRM_SYNCOBJ_HANDLE_TO_FD = Ioctl("DRM_SYNCOBJ_HANDLE_TO_FD", READ_WRITE, _DRM, 0xC1, DrmSyncobjHandle)
DRM_SYNCOBJ_FD_TO_HANDLE = Ioctl("DRM_SYNCOBJ_FD_TO_HANDLE", READ_WRITE, _DRM, 0xC2, DrmSyncobjHandle)
DRM_SYNCOBJ_WAIT = Ioctl("DRM_SYNCOBJ_WAIT", READ_WRITE, _DRM, 0xC3, DrmSyncobjWait)
DRM_SYNCOBJ_RESET = Ioctl("DRM_SYNCOBJ_RESET", READ_WRITE, _DRM, 0xC4, DrmSyncobjArray)
DRM_SYNCOBJ_SIGNAL = Ioctl("DRM_SYNCOBJ_SIGNAL", READ_WRITE, _DRM, 0xC5, DrmSyncobjArray)
DRM_SYNCOBJ_TIMELINE_WAIT = Ioctl("DRM_SYNCOBJ_TIMELINE_WAIT", READ_WRITE, _DRM, 0xCA, DrmSyncobjTimelineWait)
DRM_SYNCOBJ_QUERY = Ioctl("DRM_SYNCOBJ_QUERY", READ_WRITE, _DRM, 0xCB, DrmSyncobjTimelineArray)
DRM_SYNCOBJ_TRANSFER = Ioctl("DRM_SYNCOBJ_TRANSFER", READ_WRITE, _DRM, 0xCC, DrmSyncobjTransfer)
DRM_SYNCOBJ_TIMELINE_SIGNAL = Ioctl("DRM_SYNCOBJ_TIMELINE_SIGNAL", READ_WRITE, _DRM, 0xCD, DrmSyncobjTimelineArray)
KFD_GET_VERSION = Ioctl("KFD_GET_VERSION", READ, _KFD, 0x1, GetVersionArgs)
KFD_CREATE_QUEUE = Ioctl("KFD_CREATE_QUEUE", READ_WRITE, _KFD, 0x2, CreateQueueArgs)
KFD_DESTROY_QUEUE = Ioctl("KFD_DESTROY_QUEUE", READ_WRITE, _KFD, 0x3, DestroyQueueArgs)
KFD_SET_MEMORY_POLICY = Ioctl("KFD_SET_MEMORY_POLICY", WRITE, _KFD, 0x4, SetMemoryPolicyArgs)
KFD_GET_CLOCK_COUNTERS = Ioctl("KFD_GET_CLOCK_COUNTERS", READ_WRITE, _KFD, 0x5, GetClockCountersArgs)
KFD_GET_PROCESS_APERTURES = Ioctl("KFD_GET_PROCESS_APERTURES", READ, _KFD, 0x6, GetProcessAperturesArgs)
KFD_UPDATE_QUEUE = Ioctl("KFD_UPDATE_QUEUE", WRITE, _KFD, 0x7, UpdateQueueArgs)
KFD_CREATE_EVENT = Ioctl("KFD_CREATE_EVENT", READ_WRITE, _KFD, 0x8, CreateEventArgs)
KFD_DESTROY_EVENT = Ioctl("KFD_DESTROY_EVENT", WRITE, _KFD, 0x9, DestroyEventArgs)
KFD_SET_EVENT = Ioctl("KFD_SET_EVENT", WRITE, _KFD, 0xA, SetEventArgs)
KFD_RESET_EVENT = Ioctl("KFD_RESET_EVENT", WRITE, _KFD, 0xB, ResetEventArgs)
KFD_WAIT_EVENTS = Ioctl("KFD_WAIT_EVENTS", READ_WRITE, _KFD, 0xC, WaitEventsArgs)
KFD_SET_SCRATCH_BACKING_VA = Ioctl("KFD_SET_SCRATCH_BACKING_VA", READ_WRITE, _KFD, 0x11, SetScratchBackingVaArgs)
KFD_GET_TILE_CONFIG = Ioctl("KFD_GET_TILE_CONFIG", READ_WRITE, _KFD, 0x12, GetTileConfigArgs)
KFD_SET_TRAP_HANDLER = Ioctl("KFD_SET_TRAP_HANDLER", WRITE, _KFD, 0x13, SetTrapHandlerArgs)
KFD_GET_PROCESS_APERTURES_NEW = Ioctl(
    "KFD_GET_PROCESS_APERTURES_NEW", READ_WRITE, _KFD, 0x14, GetProcessAperturesNewArgs
)
KFD_ACQUIRE_VM = Ioctl("KFD_ACQUIRE_VM", WRITE, _KFD, 0x15, AcquireVmArgs)
KFD_ALLOC_MEMORY_OF_GPU = Ioctl("KFD_ALLOC_MEMORY_OF_GPU", READ_WRITE, _KFD, 0x16, AllocMemoryOfGpuArgs)
KFD_FREE_MEMORY_OF_GPU = Ioctl("KFD_FREE_MEMORY_OF_GPU", WRITE, _KFD, 0x17, FreeMemoryOfGpuArgs)
KFD_MAP_MEMORY_TO_GPU = Ioctl("KFD_MAP_MEMORY_TO_GPU", READ_WRITE, _KFD, 0x18, MapMemoryToGpuArgs)
KFD_UNMAP_MEMORY_FROM_GPU = Ioctl("KFD_UNMAP_MEMORY_FROM_GPU", READ_WRITE, _KFD, 0x19, UnmapMemoryFromGpuArgs)
KFD_SET_CU_MASK = Ioctl("KFD_SET_CU_MASK", WRITE, _KFD, 0x1A, SetCuMaskArgs)
KFD_GET_QUEUE_WAVE_STATE = Ioctl("KFD_GET_QUEUE_WAVE_STATE", READ_WRITE, _KFD, 0x1B, GetQueueWaveStateArgs)
KFD_GET_DMABUF_INFO = Ioctl("KFD_GET_DMABUF_INFO", READ_WRITE, _KFD, 0x1C, GetDmabufInfoArgs)
KFD_IMPORT_DMABUF = Ioctl("KFD_IMPORT_DMABUF", READ_WRITE, _KFD, 0x1D, ImportDmabufArgs)
KFD_ALLOC_QUEUE_GWS = Ioctl("KFD_ALLOC_QUEUE_GWS", READ_WRITE, _KFD, 0x1E, AllocQueueGwsArgs)
KFD_SMI_EVENTS = Ioctl("KFD_SMI_EVENTS", READ_WRITE, _KFD, 0x1F, SmiEventsArgs)
KFD_SET_XNACK_MODE = Ioctl("KFD_SET_XNACK_MODE", READ_WRITE, _KFD, 0x21, SetXnackModeArgs)
KFD_AVAILABLE_MEMORY = Ioctl("KFD_AVAILABLE_MEMORY", READ_WRITE, _KFD, 0x23, GetAvailableMemoryArgs)
KFD_EXPORT_DMABUF = Ioctl("KFD_EXPORT_DMABUF", READ_WRITE, _KFD, 0x24, ExportDmabufArgs)
KFD_RUNTIME_ENABLE = Ioctl("KFD_RUNTIME_ENABLE", READ_WRITE, _KFD, 0x25, RuntimeEnableArgs)

REQUESTS: tuple[Ioctl, ...] = tuple(value for value in tuple(globals().values()) if isinstance(value, Ioctl))

"""Request numbers of the ioctls that are emulated and that the runtime never makes."""

from __future__ import annotations

from amdgpu_emu.abi.cs import (
    DrmAmdgpuFenceToHandle,
    DrmAmdgpuSched,
    DrmAmdgpuVm,
    DrmAmdgpuWaitFences,
)
from amdgpu_emu.abi.drm import (
    DrmGetCap,
    DrmPrimeHandle,
    DrmSyncobjArray,
    DrmSyncobjHandle,
    DrmSyncobjTimelineArray,
    DrmSyncobjTransfer,
    DrmSyncobjWait,
)
from amdgpu_emu.abi.gem import (
    DrmAmdgpuGemMetadata,
    DrmAmdgpuGemOp,
    DrmAmdgpuGemUserptr,
    DrmAmdgpuGemWaitIdle,
)
from amdgpu_emu.abi.kfd import (
    AllocQueueGwsArgs,
    ExportDmabufArgs,
    GetClockCountersArgs,
    GetDmabufInfoArgs,
    GetProcessAperturesArgs,
    GetQueueWaveStateArgs,
    GetTileConfigArgs,
    ImportDmabufArgs,
    ResetEventArgs,
    SetCuMaskArgs,
    SetEventArgs,
    SetMemoryPolicyArgs,
    SetScratchBackingVaArgs,
    SetTrapHandlerArgs,
    SetXnackModeArgs,
    SmiEventsArgs,
    UpdateQueueArgs,
)
from amdgpu_emu.abi.userq import (
    DrmAmdgpuUserqSignal,
    DrmAmdgpuUserqWait,
)
from zinc_rt.amdgpu.abi.requests import *
from zinc_rt.amdgpu.abi.requests import DRM_TYPE, KFD_TYPE, READ, READ_WRITE, WRITE, Ioctl


def number_of(request: int) -> int:
    """The low byte, by which the kernel chooses the handler."""
    return request & 0xFF


def direction_of(request: int) -> int:
    """`READ` and `WRITE` bits."""
    return request >> 30 & 3


DRM_GET_CAP = Ioctl("DRM_GET_CAP", READ_WRITE, DRM_TYPE, 0xC, DrmGetCap)
DRM_PRIME_HANDLE_TO_FD = Ioctl("DRM_PRIME_HANDLE_TO_FD", READ_WRITE, DRM_TYPE, 0x2D, DrmPrimeHandle)
DRM_PRIME_FD_TO_HANDLE = Ioctl("DRM_PRIME_FD_TO_HANDLE", READ_WRITE, DRM_TYPE, 0x2E, DrmPrimeHandle)
AMDGPU_GEM_METADATA = Ioctl("AMDGPU_GEM_METADATA", READ_WRITE, DRM_TYPE, 0x46, DrmAmdgpuGemMetadata)
AMDGPU_GEM_WAIT_IDLE = Ioctl("AMDGPU_GEM_WAIT_IDLE", READ_WRITE, DRM_TYPE, 0x47, DrmAmdgpuGemWaitIdle)
AMDGPU_GEM_OP = Ioctl("AMDGPU_GEM_OP", READ_WRITE, DRM_TYPE, 0x50, DrmAmdgpuGemOp)
AMDGPU_GEM_USERPTR = Ioctl("AMDGPU_GEM_USERPTR", READ_WRITE, DRM_TYPE, 0x51, DrmAmdgpuGemUserptr)
AMDGPU_WAIT_FENCES = Ioctl("AMDGPU_WAIT_FENCES", READ_WRITE, DRM_TYPE, 0x52, DrmAmdgpuWaitFences)
AMDGPU_VM = Ioctl("AMDGPU_VM", READ_WRITE, DRM_TYPE, 0x53, DrmAmdgpuVm)
AMDGPU_FENCE_TO_HANDLE = Ioctl("AMDGPU_FENCE_TO_HANDLE", READ_WRITE, DRM_TYPE, 0x54, DrmAmdgpuFenceToHandle)
AMDGPU_SCHED = Ioctl("AMDGPU_SCHED", WRITE, DRM_TYPE, 0x55, DrmAmdgpuSched)
AMDGPU_USERQ_SIGNAL = Ioctl("AMDGPU_USERQ_SIGNAL", READ_WRITE, DRM_TYPE, 0x57, DrmAmdgpuUserqSignal)
AMDGPU_USERQ_WAIT = Ioctl("AMDGPU_USERQ_WAIT", READ_WRITE, DRM_TYPE, 0x58, DrmAmdgpuUserqWait)
DRM_SYNCOBJ_HANDLE_TO_FD = Ioctl("DRM_SYNCOBJ_HANDLE_TO_FD", READ_WRITE, DRM_TYPE, 0xC1, DrmSyncobjHandle)
DRM_SYNCOBJ_FD_TO_HANDLE = Ioctl("DRM_SYNCOBJ_FD_TO_HANDLE", READ_WRITE, DRM_TYPE, 0xC2, DrmSyncobjHandle)
DRM_SYNCOBJ_WAIT = Ioctl("DRM_SYNCOBJ_WAIT", READ_WRITE, DRM_TYPE, 0xC3, DrmSyncobjWait)
DRM_SYNCOBJ_RESET = Ioctl("DRM_SYNCOBJ_RESET", READ_WRITE, DRM_TYPE, 0xC4, DrmSyncobjArray)
DRM_SYNCOBJ_SIGNAL = Ioctl("DRM_SYNCOBJ_SIGNAL", READ_WRITE, DRM_TYPE, 0xC5, DrmSyncobjArray)
DRM_SYNCOBJ_QUERY = Ioctl("DRM_SYNCOBJ_QUERY", READ_WRITE, DRM_TYPE, 0xCB, DrmSyncobjTimelineArray)
DRM_SYNCOBJ_TRANSFER = Ioctl("DRM_SYNCOBJ_TRANSFER", READ_WRITE, DRM_TYPE, 0xCC, DrmSyncobjTransfer)
DRM_SYNCOBJ_TIMELINE_SIGNAL = Ioctl("DRM_SYNCOBJ_TIMELINE_SIGNAL", READ_WRITE, DRM_TYPE, 0xCD, DrmSyncobjTimelineArray)
KFD_SET_MEMORY_POLICY = Ioctl("KFD_SET_MEMORY_POLICY", WRITE, KFD_TYPE, 0x4, SetMemoryPolicyArgs)
KFD_GET_CLOCK_COUNTERS = Ioctl("KFD_GET_CLOCK_COUNTERS", READ_WRITE, KFD_TYPE, 0x5, GetClockCountersArgs)
KFD_GET_PROCESS_APERTURES = Ioctl("KFD_GET_PROCESS_APERTURES", READ, KFD_TYPE, 0x6, GetProcessAperturesArgs)
KFD_UPDATE_QUEUE = Ioctl("KFD_UPDATE_QUEUE", WRITE, KFD_TYPE, 0x7, UpdateQueueArgs)
KFD_SET_EVENT = Ioctl("KFD_SET_EVENT", WRITE, KFD_TYPE, 0xA, SetEventArgs)
KFD_RESET_EVENT = Ioctl("KFD_RESET_EVENT", WRITE, KFD_TYPE, 0xB, ResetEventArgs)
KFD_SET_SCRATCH_BACKING_VA = Ioctl("KFD_SET_SCRATCH_BACKING_VA", READ_WRITE, KFD_TYPE, 0x11, SetScratchBackingVaArgs)
KFD_GET_TILE_CONFIG = Ioctl("KFD_GET_TILE_CONFIG", READ_WRITE, KFD_TYPE, 0x12, GetTileConfigArgs)
KFD_SET_TRAP_HANDLER = Ioctl("KFD_SET_TRAP_HANDLER", WRITE, KFD_TYPE, 0x13, SetTrapHandlerArgs)
KFD_SET_CU_MASK = Ioctl("KFD_SET_CU_MASK", WRITE, KFD_TYPE, 0x1A, SetCuMaskArgs)
KFD_GET_QUEUE_WAVE_STATE = Ioctl("KFD_GET_QUEUE_WAVE_STATE", READ_WRITE, KFD_TYPE, 0x1B, GetQueueWaveStateArgs)
KFD_GET_DMABUF_INFO = Ioctl("KFD_GET_DMABUF_INFO", READ_WRITE, KFD_TYPE, 0x1C, GetDmabufInfoArgs)
KFD_IMPORT_DMABUF = Ioctl("KFD_IMPORT_DMABUF", READ_WRITE, KFD_TYPE, 0x1D, ImportDmabufArgs)
KFD_ALLOC_QUEUE_GWS = Ioctl("KFD_ALLOC_QUEUE_GWS", READ_WRITE, KFD_TYPE, 0x1E, AllocQueueGwsArgs)
KFD_SMI_EVENTS = Ioctl("KFD_SMI_EVENTS", READ_WRITE, KFD_TYPE, 0x1F, SmiEventsArgs)
KFD_SET_XNACK_MODE = Ioctl("KFD_SET_XNACK_MODE", READ_WRITE, KFD_TYPE, 0x21, SetXnackModeArgs)
KFD_EXPORT_DMABUF = Ioctl("KFD_EXPORT_DMABUF", READ_WRITE, KFD_TYPE, 0x24, ExportDmabufArgs)
REQUESTS: tuple[Ioctl, ...] = tuple(value for value in tuple(globals().values()) if isinstance(value, Ioctl))

"""/dev/kfd: rows of `kfd_ioctl.h` that the runtime does not use."""

from __future__ import annotations

from ctypes import Structure

from zinc_rt.amdgpu.abi.kfd import *
from zinc_rt.amdgpu.abi.kfd import CreateQueueArgs, ProcessDeviceApertures
from zinc_rt.amdgpu.abi.types import i32, u32, u64

KFD_HW_EXCEPTION_GPU_HANG = 0
KFD_HW_EXCEPTION_WHOLE_GPU_RESET = 0
KFD_IOCTL_MAJOR_VERSION = 1
KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM = 0x8000000
KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP = 0x10
KFD_IOC_CACHE_POLICY_COHERENT = 0
KFD_IOC_CACHE_POLICY_NONCOHERENT = 1
KFD_IOC_EVENT_DEBUG_EVENT = 5
KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID = 4
KFD_IOC_QUEUE_TYPE_SDMA_XGMI = 3
KFD_IOC_WAIT_RESULT_COMPLETE = 0
KFD_IOC_WAIT_RESULT_FAIL = 2
KFD_IOC_WAIT_RESULT_TIMEOUT = 1


class AllocQueueGwsArgs(Structure):
    """ALLOC_QUEUE_GWS."""

    _fields_ = (
        ("queue_id", u32),
        ("num_gws", u32),
        ("first_gws", u32),
        ("pad", u32),
    )


class CreateQueueArgs96(Structure):
    """CREATE_QUEUE with 96 bytes: an SDMA engine (1.17) and the size of an AQL metadata ring (1.22) at the end."""

    _anonymous_ = ("base",)
    _fields_ = (
        ("base", CreateQueueArgs),
        ("sdma_engine_id", u32),
        ("metadata_ring_size", u32),
    )


class ExportDmabufArgs(Structure):
    """EXPORT_DMABUF."""

    _fields_ = (
        ("handle", u64),
        ("flags", u32),
        ("dmabuf_fd", u32),
    )


class GetClockCountersArgs(Structure):
    """GET_CLOCK_COUNTERS."""

    _fields_ = (
        ("gpu_clock_counter", u64),
        ("cpu_clock_counter", u64),
        ("system_clock_counter", u64),
        ("system_clock_freq", u64),
        ("gpu_id", u32),
        ("pad", u32),
    )


class GetDmabufInfoArgs(Structure):
    """GET_DMABUF_INFO."""

    _fields_ = (
        ("size", u64),
        ("metadata_ptr", u64),
        ("metadata_size", u32),
        ("gpu_id", u32),
        ("flags", u32),
        ("dmabuf_fd", u32),
    )


class GetProcessAperturesArgs(Structure):
    """GET_PROCESS_APERTURES."""

    _fields_ = (
        ("process_apertures", ProcessDeviceApertures * 7),
        ("num_of_nodes", u32),
        ("pad", u32),
    )


class GetQueueWaveStateArgs(Structure):
    """GET_QUEUE_WAVE_STATE."""

    _fields_ = (
        ("ctl_stack_address", u64),
        ("ctl_stack_used_size", u32),
        ("save_area_used_size", u32),
        ("queue_id", u32),
        ("pad", u32),
    )


class GetTileConfigArgs(Structure):
    """GET_TILE_CONFIG."""

    _fields_ = (
        ("tile_config_ptr", u64),
        ("macro_tile_config_ptr", u64),
        ("num_tile_configs", u32),
        ("num_macro_tile_configs", u32),
        ("gpu_id", u32),
        ("gb_addr_config", u32),
        ("num_banks", u32),
        ("num_ranks", u32),
    )


class ImportDmabufArgs(Structure):
    """IMPORT_DMABUF."""

    _fields_ = (
        ("va_addr", u64),
        ("handle", u64),
        ("gpu_id", u32),
        ("dmabuf_fd", u32),
    )


class ResetEventArgs(Structure):
    """RESET_EVENT."""

    _fields_ = (
        ("event_id", u32),
        ("pad", u32),
    )


class SetCuMaskArgs(Structure):
    """SET_CU_MASK."""

    _fields_ = (
        ("queue_id", u32),
        ("num_cu_mask", u32),
        ("cu_mask_ptr", u64),
    )


class SetEventArgs(Structure):
    """SET_EVENT."""

    _fields_ = (
        ("event_id", u32),
        ("pad", u32),
    )


class SetMemoryPolicyArgs(Structure):
    """SET_MEMORY_POLICY."""

    _fields_ = (
        ("alternate_aperture_base", u64),
        ("alternate_aperture_size", u64),
        ("gpu_id", u32),
        ("default_policy", u32),
        ("alternate_policy", u32),
        ("misc_process_flag", u32),
    )


class SetScratchBackingVaArgs(Structure):
    """SET_SCRATCH_BACKING_VA."""

    _fields_ = (
        ("va_addr", u64),
        ("gpu_id", u32),
        ("pad", u32),
    )


class SetTrapHandlerArgs(Structure):
    """SET_TRAP_HANDLER."""

    _fields_ = (
        ("tba_addr", u64),
        ("tma_addr", u64),
        ("gpu_id", u32),
        ("pad", u32),
    )


class SetXnackModeArgs(Structure):
    """SET_XNACK_MODE."""

    _fields_ = (("xnack_enabled", i32),)


class SmiEventsArgs(Structure):
    """SMI_EVENTS."""

    _fields_ = (
        ("gpuid", u32),
        ("anon_fd", u32),
    )


class UpdateQueueArgs(Structure):
    """UPDATE_QUEUE."""

    _fields_ = (
        ("ring_base_address", u64),
        ("queue_id", u32),
        ("ring_size", u32),
        ("queue_percentage", u32),
        ("queue_priority", u32),
    )

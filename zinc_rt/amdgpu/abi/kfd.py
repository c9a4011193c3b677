"""/dev/kfd: layouts of `kfd_ioctl.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import i32, u32, u64

KFD_HW_EXCEPTION_ECC = 1
KFD_HW_EXCEPTION_GPU_HANG = 0
KFD_HW_EXCEPTION_PER_ENGINE_RESET = 1
KFD_HW_EXCEPTION_WHOLE_GPU_RESET = 0
KFD_INVALID_FD = 0xFFFFFFFF
KFD_IOCTL_MAJOR_VERSION = 1
KFD_IOCTL_MINOR_VERSION = 0x17
KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM = 0x8000000
KFD_IOC_ALLOC_MEM_FLAGS_COHERENT = 0x4000000
KFD_IOC_ALLOC_MEM_FLAGS_CONTIGUOUS = 0x800000
KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL = 8
KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE = 0x40000000
KFD_IOC_ALLOC_MEM_FLAGS_EXT_COHERENT = 0x1000000
KFD_IOC_ALLOC_MEM_FLAGS_GTT = 2
KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP = 0x10
KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE = 0x10000000
KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC = 0x20000000
KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED = 0x2000000
KFD_IOC_ALLOC_MEM_FLAGS_USERPTR = 4
KFD_IOC_ALLOC_MEM_FLAGS_VRAM = 1
KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE = 0x80000000
KFD_IOC_CACHE_POLICY_COHERENT = 0
KFD_IOC_CACHE_POLICY_NONCOHERENT = 1
KFD_IOC_EVENT_DEBUG_EVENT = 5
KFD_IOC_EVENT_DEVICESTATECHANGE = 2
KFD_IOC_EVENT_HW_EXCEPTION = 3
KFD_IOC_EVENT_MEMORY = 8
KFD_IOC_EVENT_NODECHANGE = 1
KFD_IOC_EVENT_PROFILE_EVENT = 6
KFD_IOC_EVENT_QUEUE_EVENT = 7
KFD_IOC_EVENT_SIGNAL = 0
KFD_IOC_EVENT_SYSTEM_EVENT = 4
KFD_IOC_PROFILER_VERSION_NUM = 1
KFD_IOC_QUEUE_TYPE_COMPUTE = 0
KFD_IOC_QUEUE_TYPE_COMPUTE_AQL = 2
KFD_IOC_QUEUE_TYPE_SDMA = 1
KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID = 4
KFD_IOC_QUEUE_TYPE_SDMA_XGMI = 3
KFD_IOC_WAIT_RESULT_COMPLETE = 0
KFD_IOC_WAIT_RESULT_FAIL = 2
KFD_IOC_WAIT_RESULT_TIMEOUT = 1


class ProcessDeviceApertures(Structure):
    """Address ranges of one GPU in this process."""

    _fields_ = (
        ("lds_base", u64),
        ("lds_limit", u64),
        ("scratch_base", u64),
        ("scratch_limit", u64),
        ("gpuvm_base", u64),
        ("gpuvm_limit", u64),
        ("gpu_id", u32),
        ("pad", u32),
    )


class MemoryExceptionFailure(Structure):
    """Why a page fault happened."""

    _fields_ = (
        ("NotPresent", u32),
        ("ReadOnly", u32),
        ("NoExecute", u32),
        ("imprecise", u32),
    )


class HsaMemoryExceptionData(Structure):
    """A page fault: address, GPU, reason."""

    _fields_ = (
        ("failure", MemoryExceptionFailure),
        ("va", u64),
        ("gpu_id", u32),
        ("ErrorType", u32),
    )


class HsaHwExceptionData(Structure):
    """A hang or reset."""

    _fields_ = (
        ("reset_type", u32),
        ("reset_cause", u32),
        ("memory_lost", u32),
        ("gpu_id", u32),
    )


class HsaSignalEventData(Structure):
    """The age of a signal event."""

    _fields_ = (("last_event_age", u64),)


class _EventDataUnion(Union):
    _fields_ = (
        ("memory_exception_data", HsaMemoryExceptionData),
        ("hw_exception_data", HsaHwExceptionData),
        ("signal_event_data", HsaSignalEventData),
    )


class EventData(Structure):
    """One event to wait for, and what happened."""

    _anonymous_ = ("_u1",)
    _fields_ = (
        ("_u1", _EventDataUnion),
        ("kfd_event_data_ext", u64),
        ("event_id", u32),
        ("pad", u32),
    )


class AcquireVmArgs(Structure):
    """ACQUIRE_VM."""

    _fields_ = (
        ("drm_fd", u32),
        ("gpu_id", u32),
    )


class AllocMemoryOfGpuArgs(Structure):
    """ALLOC_MEMORY_OF_GPU."""

    _fields_ = (
        ("va_addr", u64),
        ("size", u64),
        ("handle", u64),
        ("mmap_offset", u64),
        ("gpu_id", u32),
        ("flags", u32),
    )


class AllocQueueGwsArgs(Structure):
    """ALLOC_QUEUE_GWS."""

    _fields_ = (
        ("queue_id", u32),
        ("num_gws", u32),
        ("first_gws", u32),
        ("pad", u32),
    )


class CreateEventArgs(Structure):
    """CREATE_EVENT."""

    _fields_ = (
        ("event_page_offset", u64),
        ("event_trigger_data", u32),
        ("event_type", u32),
        ("auto_reset", u32),
        ("node_id", u32),
        ("event_id", u32),
        ("event_slot_index", u32),
    )


class CreateQueueArgs(Structure):
    """CREATE_QUEUE with the 88 bytes that every kernel knows."""

    _fields_ = (
        ("ring_base_address", u64),
        ("write_pointer_address", u64),
        ("read_pointer_address", u64),
        ("doorbell_offset", u64),
        ("ring_size", u32),
        ("gpu_id", u32),
        ("queue_type", u32),
        ("queue_percentage", u32),
        ("queue_priority", u32),
        ("queue_id", u32),
        ("eop_buffer_address", u64),
        ("eop_buffer_size", u64),
        ("ctx_save_restore_address", u64),
        ("ctx_save_restore_size", u32),
        ("ctl_stack_size", u32),
    )


class CreateQueueArgs96(Structure):
    """CREATE_QUEUE with 96 bytes: an SDMA engine (1.17) and the size of an AQL metadata ring (1.22) at the end."""

    _anonymous_ = ("base",)
    _fields_ = (
        ("base", CreateQueueArgs),
        ("sdma_engine_id", u32),
        ("metadata_ring_size", u32),
    )


class DestroyEventArgs(Structure):
    """DESTROY_EVENT."""

    _fields_ = (
        ("event_id", u32),
        ("pad", u32),
    )


class DestroyQueueArgs(Structure):
    """DESTROY_QUEUE."""

    _fields_ = (
        ("queue_id", u32),
        ("pad", u32),
    )


class ExportDmabufArgs(Structure):
    """EXPORT_DMABUF."""

    _fields_ = (
        ("handle", u64),
        ("flags", u32),
        ("dmabuf_fd", u32),
    )


class FreeMemoryOfGpuArgs(Structure):
    """FREE_MEMORY_OF_GPU."""

    _fields_ = (("handle", u64),)


class GetAvailableMemoryArgs(Structure):
    """GET_AVAILABLE_MEMORY."""

    _fields_ = (
        ("available", u64),
        ("gpu_id", u32),
        ("pad", u32),
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


class GetProcessAperturesNewArgs(Structure):
    """GET_PROCESS_APERTURES_NEW."""

    _fields_ = (
        ("kfd_process_device_apertures_ptr", u64),
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


class GetVersionArgs(Structure):
    """GET_VERSION."""

    _fields_ = (
        ("major_version", u32),
        ("minor_version", u32),
    )


class ImportDmabufArgs(Structure):
    """IMPORT_DMABUF."""

    _fields_ = (
        ("va_addr", u64),
        ("handle", u64),
        ("gpu_id", u32),
        ("dmabuf_fd", u32),
    )


class MapMemoryToGpuArgs(Structure):
    """MAP_MEMORY_TO_GPU."""

    _fields_ = (
        ("handle", u64),
        ("device_ids_array_ptr", u64),
        ("n_devices", u32),
        ("n_success", u32),
    )


class ResetEventArgs(Structure):
    """RESET_EVENT."""

    _fields_ = (
        ("event_id", u32),
        ("pad", u32),
    )


class RuntimeEnableArgs(Structure):
    """RUNTIME_ENABLE."""

    _fields_ = (
        ("r_debug", u64),
        ("mode_mask", u32),
        ("capabilities_mask", u32),
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


class UnmapMemoryFromGpuArgs(Structure):
    """UNMAP_MEMORY_FROM_GPU."""

    _fields_ = (
        ("handle", u64),
        ("device_ids_array_ptr", u64),
        ("n_devices", u32),
        ("n_success", u32),
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


class WaitEventsArgs(Structure):
    """WAIT_EVENTS."""

    _fields_ = (
        ("events_ptr", u64),
        ("num_events", u32),
        ("wait_for_all", u32),
        ("timeout", u32),
        ("wait_result", u32),
    )

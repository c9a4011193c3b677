"""/dev/kfd: layouts of `kfd_ioctl.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import u32, u64

KFD_HW_EXCEPTION_ECC = 1
KFD_HW_EXCEPTION_PER_ENGINE_RESET = 1
KFD_IOC_ALLOC_MEM_FLAGS_COHERENT = 0x4000000
KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL = 8
KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE = 0x40000000
KFD_IOC_ALLOC_MEM_FLAGS_GTT = 2
KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE = 0x10000000
KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC = 0x20000000
KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED = 0x2000000
KFD_IOC_ALLOC_MEM_FLAGS_USERPTR = 4
KFD_IOC_ALLOC_MEM_FLAGS_VRAM = 1
KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE = 0x80000000
KFD_IOC_EVENT_HW_EXCEPTION = 3
KFD_IOC_EVENT_MEMORY = 8
KFD_IOC_EVENT_SIGNAL = 0
KFD_IOC_QUEUE_TYPE_COMPUTE = 0
KFD_IOC_QUEUE_TYPE_COMPUTE_AQL = 2
KFD_IOC_QUEUE_TYPE_SDMA = 1


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


class GetProcessAperturesNewArgs(Structure):
    """GET_PROCESS_APERTURES_NEW."""

    _fields_ = (
        ("kfd_process_device_apertures_ptr", u64),
        ("num_of_nodes", u32),
        ("pad", u32),
    )


class GetVersionArgs(Structure):
    """GET_VERSION."""

    _fields_ = (
        ("major_version", u32),
        ("minor_version", u32),
    )


class MapMemoryToGpuArgs(Structure):
    """MAP_MEMORY_TO_GPU."""

    _fields_ = (
        ("handle", u64),
        ("device_ids_array_ptr", u64),
        ("n_devices", u32),
        ("n_success", u32),
    )


class RuntimeEnableArgs(Structure):
    """RUNTIME_ENABLE."""

    _fields_ = (
        ("r_debug", u64),
        ("mode_mask", u32),
        ("capabilities_mask", u32),
    )


class UnmapMemoryFromGpuArgs(Structure):
    """UNMAP_MEMORY_FROM_GPU."""

    _fields_ = (
        ("handle", u64),
        ("device_ids_array_ptr", u64),
        ("n_devices", u32),
        ("n_success", u32),
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

"""Every refusal of the kernel's /dev/kfd that is emulated: call, what is wrong, errno, and in which kernels.

Written from the kernel's source, section by section of its description: 0 dispatch, 1 memory and address spaces,
2 queues and events. `wrong` changes a valid argument; `before` prepares the state in which it is refused.
"""

from __future__ import annotations

import ctypes
import errno as e
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amdgpu_emu import profiles as p
from amdgpu_emu.abi import kfd as u
from amdgpu_emu.abi import requests as r
from amdgpu_emu.abi.requests import Ioctl
from amdgpu_emu.models import SMALL_BAR
from tests.amdgpu_emu.kfd import stage as s
from tests.amdgpu_emu.kfd.stage import Stage, address

ALL = (p.LINUX_6_12, p.LINUX_6_17, p.LINUX_7_3)
STRICT, RELAXED = (p.LINUX_6_17,), (p.LINUX_6_12, p.LINUX_7_3)
"""Kernels that compare sizes of queue buffers as they are, and those that round them to pages."""
ENOTSUPP = 524
NOWHERE = 0x8000_0000_0000
"""Beyond what a program's address can be."""
BAD_POINTER = 0x10
"""In the first page, which is never mapped."""

Change = Callable[[Stage, Any], None]


def _nothing(stage: Stage, args: Any) -> None:
    """Leave it as it is."""


@dataclass(frozen=True)
class Refusal:
    """section: of the kernel's description; wrong: fields to set, or what changes the argument; before: what is done
    first; bound: after ACQUIRE_VM; machine: arguments of `Machine`.
    """

    section: str
    rule: str
    call: Ioctl
    errno: int
    wrong: dict[str, int] | Change = field(default_factory=dict)
    before: Callable[[Stage], None] = lambda stage: None
    kernels: tuple[p.KernelProfile, ...] = ALL
    bound: bool = True
    machine: dict[str, Any] = field(default_factory=dict)

    def apply(self, stage: Stage, args: Any) -> None:
        if callable(self.wrong):
            self.wrong(stage, args)
            return
        for name, value in self.wrong.items():
            setattr(args, name, value)


# Valid arguments, by call. They keep what they point to alive in `stage.kept`.

KEPT: list[Any] = []


def _ids(*gpu_ids: int) -> int:
    KEPT.append((ctypes.c_uint32 * max(1, len(gpu_ids)))(*gpu_ids))
    return address(KEPT[-1])


def _map_args(stage: Stage) -> Any:
    handle = stage.alloc(s.DATA, s.PAGE).handle
    return u.MapMemoryToGpuArgs(handle=handle, device_ids_array_ptr=_ids(stage.gpu_id), n_devices=1)


def _unmap_args(stage: Stage) -> Any:
    handle = stage.buffer(s.DATA, s.PAGE)
    return u.UnmapMemoryFromGpuArgs(handle=handle, device_ids_array_ptr=_ids(stage.gpu_id), n_devices=1)


def _queue_args(stage: Stage) -> Any:
    if stage.bound:
        stage.queue_buffers()
    return stage.queue_args()


def _with_queue(stage: Stage) -> int:
    stage.queue_buffers()
    return stage.create_queue().queue_id


def _update_args(stage: Stage) -> Any:
    number = _with_queue(stage)
    return u.UpdateQueueArgs(
        queue_id=number, ring_base_address=s.RING, ring_size=s.RING_BYTES, queue_percentage=100, queue_priority=7
    )


def _cu_mask_args(stage: Stage) -> Any:
    KEPT.append((ctypes.c_uint32 * 32)(*[0xFFFFFFFF] * 32))
    return u.SetCuMaskArgs(queue_id=_with_queue(stage), num_cu_mask=64, cu_mask_ptr=address(KEPT[-1]))


def _wait_args(stage: Stage) -> Any:
    KEPT.append((u.EventData * 1)())
    KEPT[-1][0].event_id = stage.event(s.HW_EXCEPTION).event_id
    return u.WaitEventsArgs(events_ptr=address(KEPT[-1]), num_events=1)


def _apertures_args(stage: Stage) -> Any:
    KEPT.append((u.ProcessDeviceApertures * 16)())
    return u.GetProcessAperturesNewArgs(kfd_process_device_apertures_ptr=address(KEPT[-1]), num_of_nodes=1)


def _tile_args(stage: Stage) -> Any:
    KEPT.append((ctypes.c_uint32 * 64)())
    return u.GetTileConfigArgs(tile_config_ptr=address(KEPT[-1]), num_tile_configs=32, gpu_id=stage.gpu_id)


def _exported(stage: Stage) -> int:
    handle = stage.alloc(s.DATA, s.PAGE).handle
    args = stage.call(r.KFD_EXPORT_DMABUF, handle=handle, flags=0)
    stage.fds.append(args.dmabuf_fd)
    return int(args.dmabuf_fd)


VALID: dict[Ioctl, Callable[[Stage], Any]] = {
    r.KFD_CREATE_QUEUE: _queue_args,
    r.KFD_DESTROY_QUEUE: lambda stage: u.DestroyQueueArgs(),
    r.KFD_SET_MEMORY_POLICY: lambda stage: u.SetMemoryPolicyArgs(gpu_id=stage.gpu_id),
    r.KFD_UPDATE_QUEUE: _update_args,
    r.KFD_CREATE_EVENT: lambda stage: u.CreateEventArgs(event_type=s.SIGNAL),
    r.KFD_DESTROY_EVENT: lambda stage: u.DestroyEventArgs(),
    r.KFD_SET_EVENT: lambda stage: u.SetEventArgs(),
    r.KFD_RESET_EVENT: lambda stage: u.ResetEventArgs(),
    r.KFD_WAIT_EVENTS: _wait_args,
    r.KFD_SET_SCRATCH_BACKING_VA: lambda stage: u.SetScratchBackingVaArgs(gpu_id=stage.gpu_id),
    r.KFD_GET_TILE_CONFIG: _tile_args,
    r.KFD_SET_TRAP_HANDLER: lambda stage: u.SetTrapHandlerArgs(gpu_id=stage.gpu_id),
    r.KFD_GET_PROCESS_APERTURES_NEW: _apertures_args,
    r.KFD_ACQUIRE_VM: lambda stage: u.AcquireVmArgs(drm_fd=stage.drm, gpu_id=stage.gpu_id),
    r.KFD_ALLOC_MEMORY_OF_GPU: lambda stage: u.AllocMemoryOfGpuArgs(
        va_addr=s.DATA, size=s.PAGE, gpu_id=stage.gpu_id, flags=s.GTT | s.RWX
    ),
    r.KFD_FREE_MEMORY_OF_GPU: lambda stage: u.FreeMemoryOfGpuArgs(handle=stage.alloc(s.DATA, s.PAGE).handle),
    r.KFD_MAP_MEMORY_TO_GPU: _map_args,
    r.KFD_UNMAP_MEMORY_FROM_GPU: _unmap_args,
    r.KFD_SET_CU_MASK: _cu_mask_args,
    r.KFD_GET_QUEUE_WAVE_STATE: lambda stage: u.GetQueueWaveStateArgs(queue_id=_with_queue(stage)),
    r.KFD_IMPORT_DMABUF: lambda stage: u.ImportDmabufArgs(gpu_id=stage.gpu_id, va_addr=s.DATA + 0x100000),
    r.KFD_EXPORT_DMABUF: lambda stage: u.ExportDmabufArgs(),
    r.KFD_GET_DMABUF_INFO: lambda stage: u.GetDmabufInfoArgs(),
    r.KFD_ALLOC_QUEUE_GWS: lambda stage: u.AllocQueueGwsArgs(queue_id=_with_queue(stage), num_gws=64),
    r.KFD_SMI_EVENTS: lambda stage: u.SmiEventsArgs(gpuid=stage.gpu_id),
    r.KFD_SET_XNACK_MODE: lambda stage: u.SetXnackModeArgs(),
    r.KFD_AVAILABLE_MEMORY: lambda stage: u.GetAvailableMemoryArgs(gpu_id=stage.gpu_id),
    r.KFD_RUNTIME_ENABLE: lambda stage: u.RuntimeEnableArgs(mode_mask=1),
}


# What is changed or prepared, where a field is not enough.


def _second_drm(stage: Stage, args: Any) -> None:
    args.drm_fd = stage.open(stage.machine.gpus[0].render_node)


def _drm_of_first(stage: Stage, args: Any) -> None:
    args.gpu_id, args.drm_fd = stage.machine.gpus[1].gpu_id, stage.drm


def _kfd_as_drm(stage: Stage, args: Any) -> None:
    args.drm_fd = stage.kfd


def _mapped(stage: Stage, args: Any) -> None:
    stage.map(args.handle)


def _unknown_number(stage: Stage, args: Any) -> None:
    args.handle += 77


def _unknown_gpu(stage: Stage, args: Any) -> None:
    args.handle = 0xDEAD << 32


def _unknown_target(stage: Stage, args: Any) -> None:
    args.device_ids_array_ptr = _ids(0xDEAD)


def _buffer_at(va: int, size: int = s.PAGE) -> Change:
    def change(stage: Stage, args: Any) -> None:
        args.handle = stage.alloc(va, size).handle

    return change


def _overlapping(stage: Stage, args: Any) -> None:
    stage.buffer(s.DATA + 2 * s.PAGE, s.PAGE)
    args.handle = stage.alloc(s.DATA, 4 * s.PAGE).handle


def _used_by_queue(stage: Stage, args: Any) -> None:
    stage.queue_buffers()
    stage.create_queue()
    args.handle = stage.handles[1]  # after the argument's own: the ring


def _event_page_set(stage: Stage, args: Any) -> None:
    stage.event_page()
    args.event_page_offset = stage.alloc(s.DATA, s.EVENT_PAGE_BYTES).handle


def _small_event_page(stage: Stage, args: Any) -> None:
    args.event_page_offset = stage.alloc(s.DATA, s.EVENT_PAGE_BYTES - s.PAGE).handle


def _event_page_of_unknown(stage: Stage, args: Any) -> None:
    args.event_page_offset = stage.gpu_id << 32 | 77


def _page_is_freed(stage: Stage, args: Any) -> None:
    args.handle = stage.event_page()


def _memory_event(stage: Stage, args: Any) -> None:
    args.event_id = stage.event(s.MEMORY).event_id


def _no_such_event(stage: Stage, args: Any) -> None:
    KEPT.append((u.EventData * 1)())
    KEPT[-1][0].event_id = 0x77
    args.events_ptr = address(KEPT[-1])


def _existing_queue(stage: Stage) -> None:
    stage.queue_buffers()
    stage.create_queue()


def _mask(first: int) -> Change:
    def change(stage: Stage, args: Any) -> None:
        KEPT.append((ctypes.c_uint32 * 2)(first, 0xFFFFFFFF))
        args.cu_mask_ptr = address(KEPT[-1])

    return change


def _export_doorbells(stage: Stage, args: Any) -> None:
    handle = stage.alloc(s.DATA, 8192, u.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL).handle
    exported = stage.call(r.KFD_EXPORT_DMABUF, handle=handle)
    stage.fds.append(exported.dmabuf_fd)
    args.dmabuf_fd = exported.dmabuf_fd


def _take_memory(stage: Stage) -> None:
    gpu = stage.machine.gpus[0]
    gpu.limits = dict.fromkeys(gpu.limits, s.PAGE)


def _lose(stage: Stage) -> None:
    stage.machine.gpus[0].lost = True


def _in_reset(stage: Stage) -> None:
    stage.machine.gpus[0].in_reset = True


def _runtime_enabled(stage: Stage) -> None:
    stage.call(r.KFD_RUNTIME_ENABLE, mode_mask=1)


ALLOC, MAP, UNMAP, FREE = (
    r.KFD_ALLOC_MEMORY_OF_GPU,
    r.KFD_MAP_MEMORY_TO_GPU,
    r.KFD_UNMAP_MEMORY_FROM_GPU,
    r.KFD_FREE_MEMORY_OF_GPU,
)
QUEUE = r.KFD_CREATE_QUEUE
TWO = {"models": (SMALL_BAR, SMALL_BAR)}

REFUSALS: tuple[Refusal, ...] = (
    # 1: every call that takes a GPU's id looks it up.
    *(
        Refusal("1 gpu_id", f"{call.name}: unknown GPU", call, e.EINVAL, {name: 0xDEAD})
        for call, name in (
            (QUEUE, "gpu_id"), (r.KFD_SET_MEMORY_POLICY, "gpu_id"), (r.KFD_SET_SCRATCH_BACKING_VA, "gpu_id"),
            (r.KFD_SET_TRAP_HANDLER, "gpu_id"), (r.KFD_ACQUIRE_VM, "gpu_id"), (ALLOC, "gpu_id"),
            (r.KFD_AVAILABLE_MEMORY, "gpu_id"), (r.KFD_IMPORT_DMABUF, "gpu_id"), (r.KFD_SMI_EVENTS, "gpuid"),
            (r.KFD_GET_TILE_CONFIG, "gpu_id"),
        )
    ),
    # 1: before ACQUIRE_VM.
    Refusal("1 bind", "CREATE_QUEUE", QUEUE, e.ESRCH, bound=False),
    Refusal("1 bind", "SET_MEMORY_POLICY", r.KFD_SET_MEMORY_POLICY, e.ESRCH, bound=False),
    Refusal("1 bind", "SET_TRAP_HANDLER", r.KFD_SET_TRAP_HANDLER, e.ESRCH, bound=False),
    Refusal("1 bind", "SET_SCRATCH", r.KFD_SET_SCRATCH_BACKING_VA, e.ENODEV, bound=False),
    Refusal("1 bind", "ALLOC", ALLOC, e.ENODEV, bound=False),
    Refusal("1 bind", "IMPORT", r.KFD_IMPORT_DMABUF, e.ENODEV, bound=False),
    # 1: ACQUIRE_VM.
    Refusal("1 ACQUIRE_VM", "bad descriptor", r.KFD_ACQUIRE_VM, e.EINVAL, {"drm_fd": 3}, bound=False),
    Refusal("1 ACQUIRE_VM", "another drm file", r.KFD_ACQUIRE_VM, e.EBUSY, _second_drm),
    Refusal("1 ACQUIRE_VM", "no amdgpu file", r.KFD_ACQUIRE_VM, e.EINVAL, _kfd_as_drm, bound=False),
    Refusal("1 ACQUIRE_VM", "a VM that is KFD's already", r.KFD_ACQUIRE_VM, e.EINVAL, _drm_of_first, machine=TWO),
    # 1: apertures.
    Refusal(
        "1 APERTURES", "more than nodes", r.KFD_GET_PROCESS_APERTURES_NEW, e.EINVAL, {"num_of_nodes": 3},
        kernels=RELAXED,
    ),
    Refusal(
        "1 APERTURES", "bad pointer", r.KFD_GET_PROCESS_APERTURES_NEW, e.EFAULT,
        {"kfd_process_device_apertures_ptr": BAD_POINTER},
    ),
    # 1: ALLOC.
    Refusal("1 ALLOC", "size 0", ALLOC, e.EINVAL, {"size": 0}),
    Refusal("1 ALLOC", "size 0 before the GPU", ALLOC, e.EINVAL, {"size": 0, "gpu_id": 0xDEAD}),
    Refusal("1 ALLOC", "public VRAM on small BAR", ALLOC, e.EINVAL,
            {"flags": s.VRAM | u.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC}, machine={"models": (SMALL_BAR,)}),
    Refusal("1 ALLOC", "no placement", ALLOC, e.EINVAL, {"flags": s.RWX}),
    Refusal("1 ALLOC", "user memory at 0", ALLOC, e.EINVAL,
            {"flags": u.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, "mmap_offset": 0}),
    Refusal("1 ALLOC", "user memory unmapped", ALLOC, e.EFAULT,
            {"flags": u.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, "mmap_offset": BAD_POINTER}),
    Refusal("1 ALLOC", "doorbell size", ALLOC, e.EINVAL, {"flags": u.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL}),
    Refusal("1 ALLOC", "remapped registers size", ALLOC, e.EINVAL,
            {"flags": u.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP, "size": 8192}),
    Refusal("1 ALLOC", "queue memory of one byte halves to nothing", ALLOC, e.EINVAL,
            {"size": 1, "flags": s.GTT | u.KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM}),
    Refusal("1 ALLOC", "limit of GTT", ALLOC, e.ENOMEM, {"size": 2 * s.PAGE}, before=_take_memory),
    Refusal("1 ALLOC", "limit of VRAM", ALLOC, e.ENOMEM, {"size": 2 * s.PAGE, "flags": s.VRAM}, before=_take_memory),
    # 1: FREE.
    Refusal("1 FREE", "event page", FREE, e.EPERM, _page_is_freed),
    Refusal("1 FREE", "unknown GPU", FREE, e.EINVAL, _unknown_gpu),
    Refusal("1 FREE", "unknown number", FREE, e.EINVAL, _unknown_number),
    Refusal("1 FREE", "still mapped", FREE, e.EBUSY, _mapped),
    # 1: MAP and UNMAP.
    *(
        Refusal(f"1 {name}", rule, call, code, wrong)
        for name, call in (("MAP", MAP), ("UNMAP", UNMAP))
        for rule, code, wrong in (
            ("no devices", e.EINVAL, {"n_devices": 0}),
            ("n_success beyond", e.EINVAL, {"n_success": 2}),
            ("bad array", e.EFAULT, {"device_ids_array_ptr": BAD_POINTER}),
            ("unknown GPU in handle", e.EINVAL, _unknown_gpu),
            ("unknown number", e.ENOMEM, _unknown_number),
            ("unknown device", e.EINVAL, _unknown_target),
        )
    ),
    Refusal("1 MAP", "address 0", MAP, e.EINVAL, _buffer_at(0)),
    Refusal("1 MAP", "address not aligned", MAP, e.EINVAL, _buffer_at(s.DATA + 8)),
    Refusal("1 MAP", "beyond the address space", MAP, e.EINVAL, _buffer_at((1 << 48) - s.PAGE, 2 * s.PAGE)),
    Refusal("1 MAP", "overlap", MAP, e.EINVAL, _overlapping),
    Refusal("1 UNMAP", "not mapped", UNMAP, e.EINVAL, _buffer_at(s.DATA + 0x100000)),
    Refusal("1 UNMAP", "held by a queue", UNMAP, e.EBUSY, _used_by_queue),
    # 1: sharing.
    Refusal("1 IMPORT", "not open", r.KFD_IMPORT_DMABUF, e.EBADF, {"dmabuf_fd": 3}),
    Refusal("1 IMPORT", "no dma-buf", r.KFD_IMPORT_DMABUF, e.EINVAL,
            lambda stage, args: setattr(args, "dmabuf_fd", stage.kfd)),
    Refusal("1 IMPORT", "neither VRAM nor GTT", r.KFD_IMPORT_DMABUF, e.EINVAL, _export_doorbells),
    Refusal("1 EXPORT", "bad handle", r.KFD_EXPORT_DMABUF, e.EINVAL,
            lambda stage, args: setattr(args, "handle", stage.gpu_id << 32 | 5)),
    Refusal("1 EXPORT", "bad GPU in handle", r.KFD_EXPORT_DMABUF, e.EINVAL, {"handle": 0xDEAD << 32}),
    Refusal("1 DMABUF_INFO", "not open", r.KFD_GET_DMABUF_INFO, e.EBADF, {"dmabuf_fd": 3}),
    # 1: policies, XNACK, runtime.
    Refusal("1 MEMORY_POLICY", "default", r.KFD_SET_MEMORY_POLICY, e.EINVAL, {"default_policy": 2}),
    Refusal("1 MEMORY_POLICY", "alternate", r.KFD_SET_MEMORY_POLICY, e.EINVAL, {"alternate_policy": 2}),
    Refusal("1 MEMORY_POLICY", "before the GPU", r.KFD_SET_MEMORY_POLICY, e.EINVAL,
            {"default_policy": 2}, bound=False),
    Refusal("1 XNACK", "queues exist", r.KFD_SET_XNACK_MODE, e.EBUSY, {"xnack_enabled": 1}, before=_existing_queue),
    Refusal("1 XNACK", "not supported", r.KFD_SET_XNACK_MODE, e.EPERM, {"xnack_enabled": 1}),
    Refusal("1 RUNTIME", "twice", r.KFD_RUNTIME_ENABLE, e.EBUSY, before=_runtime_enabled),
    Refusal("1 RUNTIME", "queues exist", r.KFD_RUNTIME_ENABLE, e.EEXIST, before=_existing_queue),
    Refusal("1 TILE_CONFIG", "bad pointer", r.KFD_GET_TILE_CONFIG, e.EFAULT, {"tile_config_ptr": BAD_POINTER}),
    # 2: CREATE_QUEUE, step by step.
    Refusal("2.1", "percentage", QUEUE, e.EINVAL, {"queue_percentage": 101}),
    Refusal("2.1", "priority", QUEUE, e.EINVAL, {"queue_priority": 16}),
    Refusal("2.2", "ring address", QUEUE, e.EFAULT, {"ring_base_address": NOWHERE}),
    Refusal("2.2", "ring size", QUEUE, e.EINVAL, {"ring_size": 3 * 4096}),
    Refusal("2.3", "read pointer", QUEUE, e.EFAULT, {"read_pointer_address": NOWHERE}),
    Refusal("2.3", "write pointer", QUEUE, e.EFAULT, {"write_pointer_address": NOWHERE}),
    Refusal("2.3", "write pointer 0 fails later", QUEUE, e.EINVAL, {"write_pointer_address": 0}),
    Refusal("2.3", "EOP", QUEUE, e.EFAULT, {"eop_buffer_address": NOWHERE}),
    Refusal("2.3", "save area", QUEUE, e.EFAULT, {"ctx_save_restore_address": NOWHERE}),
    Refusal("2.4", "type", QUEUE, ENOTSUPP, {"queue_type": 5}),
    Refusal("2.4", "type before the GPU", QUEUE, ENOTSUPP, {"queue_type": 5, "gpu_id": 0xDEAD}),
    Refusal("2.4", "ring size before the type", QUEUE, e.EINVAL, {"queue_type": 5, "ring_size": 3}),
    Refusal("2.5", "GPU before the buffers", QUEUE, e.EINVAL, {"gpu_id": 0xDEAD, "ctl_stack_size": 0}),
    Refusal("2 buffers", "write pointer not mapped", QUEUE, e.EINVAL, {"write_pointer_address": s.DATA}),
    Refusal("2 buffers", "read pointer not mapped", QUEUE, e.EINVAL, {"read_pointer_address": s.DATA}),
    Refusal("2 buffers", "ring inside its mapping", QUEUE, e.EINVAL,
            {"ring_base_address": s.RING + 4096, "ring_size": 4096}),
    Refusal("2 buffers", "ring smaller than its mapping", QUEUE, e.EINVAL, {"ring_size": s.RING_BYTES // 2}),
    Refusal("2 buffers", "ring larger than its mapping", QUEUE, e.EINVAL, {"ring_size": s.RING_BYTES * 2}),
    Refusal("2 buffers", "ring of 1024 in more than a page", QUEUE, e.EINVAL, {"ring_size": 1024}, kernels=RELAXED),
    Refusal("2 buffers", "EOP size 0", QUEUE, e.EINVAL, {"eop_buffer_size": 0}),
    Refusal("2 buffers", "EOP size of two pages", QUEUE, e.EINVAL, {"eop_buffer_size": 8192}),
    Refusal("2 buffers", "EOP not mapped", QUEUE, e.EINVAL, {"eop_buffer_address": s.DATA}),
    Refusal("2 buffers", "control stack too small", QUEUE, e.EINVAL, {"ctl_stack_size": s.CTL_STACK - 4096}),
    Refusal("2 buffers", "control stack too large", QUEUE, e.EINVAL, {"ctl_stack_size": s.CTL_STACK + 4096}),
    Refusal("2 buffers", "save area too small", QUEUE, e.EINVAL, {"ctx_save_restore_size": s.CWSR_SIZE - 4096}),
    Refusal("2 buffers", "save area larger than its mapping", QUEUE, e.EINVAL,
            {"ctx_save_restore_size": s.CWSR_SIZE + 4096}),
    Refusal("2 buffers", "save size of the whole buffer", QUEUE, e.EINVAL, {"ctx_save_restore_size": s.CWSR_BO}),
    Refusal("2 buffers", "save area not mapped", QUEUE, e.EINVAL, {"ctx_save_restore_address": s.DATA}),
    Refusal("2.7", "GPU is being reset", QUEUE, e.EIO, before=_in_reset, kernels=(p.LINUX_7_3,)),
    # 2: the other calls about queues.
    Refusal("2 UPDATE", "percentage", r.KFD_UPDATE_QUEUE, e.EINVAL, {"queue_percentage": 101}),
    Refusal("2 UPDATE", "priority", r.KFD_UPDATE_QUEUE, e.EINVAL, {"queue_priority": 16}),
    Refusal("2 UPDATE", "ring address", r.KFD_UPDATE_QUEUE, e.EFAULT, {"ring_base_address": NOWHERE}),
    Refusal("2 UPDATE", "ring size", r.KFD_UPDATE_QUEUE, e.EINVAL, {"ring_size": 3 * 4096}),
    Refusal("2 UPDATE", "unknown", r.KFD_UPDATE_QUEUE, e.EFAULT, {"queue_id": 77}),
    Refusal("2 UPDATE", "ring not mapped", r.KFD_UPDATE_QUEUE, e.EFAULT, {"ring_base_address": s.DATA}),
    Refusal("2 DESTROY", "unknown", r.KFD_DESTROY_QUEUE, e.EINVAL),
    Refusal("2 CU_MASK", "count 0", r.KFD_SET_CU_MASK, e.EINVAL, {"num_cu_mask": 0}),
    Refusal("2 CU_MASK", "count 33", r.KFD_SET_CU_MASK, e.EINVAL, {"num_cu_mask": 33}),
    Refusal("2 CU_MASK", "unknown", r.KFD_SET_CU_MASK, e.EFAULT, {"queue_id": 77}),
    Refusal("2 CU_MASK", "bad pointer", r.KFD_SET_CU_MASK, e.EFAULT, {"cu_mask_ptr": BAD_POINTER}),
    Refusal("2 CU_MASK", "half of a pair", r.KFD_SET_CU_MASK, e.EINVAL, _mask(0xFFFFFFFD)),
    Refusal("2 GWS", "unknown queue", r.KFD_ALLOC_QUEUE_GWS, e.EINVAL, {"queue_id": 77}),
    Refusal("2 GWS", "nothing to free", r.KFD_ALLOC_QUEUE_GWS, e.EINVAL, {"num_gws": 0}),
    Refusal("2 WAVE_STATE", "unknown", r.KFD_GET_QUEUE_WAVE_STATE, e.EFAULT, {"queue_id": 77}),
    Refusal("2 WAVE_STATE", "active", r.KFD_GET_QUEUE_WAVE_STATE, e.EINVAL),
    # 2: events.
    Refusal("2 CREATE_EVENT", "page is set", r.KFD_CREATE_EVENT, e.EINVAL, _event_page_set),
    Refusal("2 CREATE_EVENT", "bad handle", r.KFD_CREATE_EVENT, e.EINVAL, _event_page_of_unknown),
    Refusal("2 CREATE_EVENT", "bad GPU", r.KFD_CREATE_EVENT, e.EINVAL, {"event_page_offset": 0xDEAD << 32}),
    Refusal("2 CREATE_EVENT", "small page", r.KFD_CREATE_EVENT, e.EINVAL, _small_event_page),
    Refusal("2 CREATE_EVENT", "no page", r.KFD_CREATE_EVENT, e.ENOMEM, kernels=(p.LINUX_7_3,)),
    Refusal("2 SET_EVENT", "unknown", r.KFD_SET_EVENT, e.EINVAL, {"event_id": 77}),
    Refusal("2 SET_EVENT", "no signal event", r.KFD_SET_EVENT, e.EINVAL, _memory_event),
    Refusal("2 RESET_EVENT", "unknown", r.KFD_RESET_EVENT, e.EINVAL, {"event_id": 77}),
    Refusal("2 RESET_EVENT", "no signal event", r.KFD_RESET_EVENT, e.EINVAL, _memory_event),
    Refusal("2 DESTROY_EVENT", "unknown", r.KFD_DESTROY_EVENT, e.EINVAL, {"event_id": 77}),
    Refusal("2 WAIT", "too many", r.KFD_WAIT_EVENTS, e.ENOMEM, {"num_events": 4097}),
    Refusal("2 WAIT", "bad pointer", r.KFD_WAIT_EVENTS, e.EFAULT, {"events_ptr": BAD_POINTER}),
    Refusal("2 WAIT", "unknown", r.KFD_WAIT_EVENTS, e.EINVAL, _no_such_event),
    # A GPU off the bus.
    Refusal("0 lost", "ALLOC", ALLOC, e.ENODEV, before=_lose),
    Refusal("0 lost", "ACQUIRE_VM", r.KFD_ACQUIRE_VM, e.ENODEV, before=_lose, bound=False),
    Refusal("0 lost", "CREATE_QUEUE", QUEUE, e.EIO, lambda stage, args: _lose(stage)),
    Refusal("0 lost", "MAP", MAP, e.ENODEV, lambda stage, args: _lose(stage)),
)  # fmt: skip

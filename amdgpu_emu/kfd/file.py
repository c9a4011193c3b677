"""An open /dev/kfd: its table of calls and its mmap (`kfd_chardev.c`)."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from amdgpu_emu.abi import requests as r
from amdgpu_emu.abi.driver import (
    KFD_DOORBELL_SLICE,
    KFD_MMAP_GPU_ID_MASK,
    KFD_MMAP_GPU_ID_SHIFT,
    KFD_MMAP_TYPE_DOORBELL,
    KFD_MMAP_TYPE_EVENTS,
    KFD_MMAP_TYPE_RESERVED_MEM,
)
from amdgpu_emu.abi.kfd import CreateQueueArgs96
from amdgpu_emu.dispatch import Handler, Table, serve, table
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.file import OpenFile
from amdgpu_emu.kfd import events, memory, misc, queue_calls, sharing, smi, svm, waits
from amdgpu_emu.kfd.address_space import is_page_aligned
from amdgpu_emu.kfd.process import TRAP_BYTES, KfdProcess, acquire_vm
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.profiles import KernelProfile
from zinc_rt.utils.linux import PAGE, Argument

if TYPE_CHECKING:
    from amdgpu_emu.process import Process

__all__ = ("KfdFile", "KfdProcess", "table_end")

_DEBUG_CALLS = range(0x0D, 0x11)
"""Numbers of the old debugger interface, four calls."""
_CRIU_OP = 0x22
_DIRECTION_BITS = 30


@cache
def _table() -> Table:
    return table(
        Handler(r.KFD_GET_VERSION, misc.get_version),
        Handler(replace(r.KFD_CREATE_QUEUE, argument=CreateQueueArgs96), queue_calls.create),
        Handler(r.KFD_DESTROY_QUEUE, queue_calls.destroy),
        Handler(r.KFD_SET_MEMORY_POLICY, misc.set_memory_policy),
        Handler(r.KFD_GET_CLOCK_COUNTERS, misc.get_clock_counters),
        Handler(r.KFD_GET_PROCESS_APERTURES, misc.get_process_apertures),
        Handler(r.KFD_UPDATE_QUEUE, queue_calls.update),
        Handler(r.KFD_CREATE_EVENT, events.create),
        Handler(r.KFD_DESTROY_EVENT, events.destroy),
        Handler(r.KFD_SET_EVENT, events.set_event),
        Handler(r.KFD_RESET_EVENT, events.reset_event),
        Handler(r.KFD_WAIT_EVENTS, waits.wait),
        Handler(r.KFD_SET_SCRATCH_BACKING_VA, misc.set_scratch_backing_va),
        Handler(r.KFD_GET_TILE_CONFIG, misc.get_tile_config),
        Handler(r.KFD_SET_TRAP_HANDLER, misc.set_trap_handler),
        Handler(r.KFD_GET_PROCESS_APERTURES_NEW, misc.get_process_apertures_new),
        Handler(r.KFD_ACQUIRE_VM, acquire_vm),
        Handler(r.KFD_ALLOC_MEMORY_OF_GPU, memory.alloc),
        Handler(r.KFD_FREE_MEMORY_OF_GPU, memory.free),
        Handler(r.KFD_MAP_MEMORY_TO_GPU, memory.map_memory),
        Handler(r.KFD_UNMAP_MEMORY_FROM_GPU, memory.unmap_memory),
        Handler(r.KFD_SET_CU_MASK, queue_calls.set_cu_mask),
        Handler(r.KFD_GET_QUEUE_WAVE_STATE, queue_calls.get_queue_wave_state),
        Handler(r.KFD_GET_DMABUF_INFO, sharing.get_dmabuf_info),
        Handler(r.KFD_IMPORT_DMABUF, sharing.import_dmabuf),
        Handler(r.KFD_EXPORT_DMABUF, sharing.export_dmabuf),
        Handler(r.KFD_ALLOC_QUEUE_GWS, queue_calls.alloc_queue_gws),
        Handler(r.KFD_SMI_EVENTS, smi.smi_events),
        Handler(r.KFD_SET_XNACK_MODE, misc.set_xnack_mode),
        Handler(r.KFD_AVAILABLE_MEMORY, memory.available),
        Handler(r.KFD_RUNTIME_ENABLE, misc.runtime_enable),
    )


def table_end(profile: KernelProfile) -> int:
    """The first number beyond the kernel's table: CREATE_PROCESS came with 1.19, PROFILER with 1.23."""
    if profile.kfd_minor >= 23:
        return 0x29
    return 0x28 if profile.kfd_minor >= 19 else 0x27


class KfdFile(OpenFile):
    """An open /dev/kfd; all of a process share its `KfdProcess`."""

    path = "/dev/kfd"

    def __init__(self, process: Process, kfd: KfdProcess) -> None:
        super().__init__(process)
        self.kfd = kfd

    @classmethod
    def open(cls, process: Process) -> KfdFile:
        """Open /dev/kfd. Raises `CallRefused` if there is no usable GPU, or one is being reset."""
        machine = process.machine
        since_7 = machine.profile.since(7, 0)
        if any(gpu.in_reset for gpu in machine.gpus):
            raise CallRefused(errno.EINVAL if since_7 else errno.EAGAIN, "a GPU is being reset")
        if not machine.gpus and since_7:
            raise CallRefused(errno.EINVAL, "no GPU that KFD could use")
        if process.kfd is None:
            process.kfd = KfdProcess(process)
        return cls(process, process.kfd)

    def ioctl(self, request: int, argument: Argument) -> int:
        """Serve an ioctl, found by number alone: type byte and direction bits of the request do not matter."""
        number = r.number_of(request)
        if not 0 < number < table_end(self.machine.profile):
            raise CallRefused(errno.ENOTTY, f"there is no call {number:#x}")
        if number == _CRIU_OP:
            raise CallRefused(errno.EACCES, "CRIU needs CAP_CHECKPOINT_RESTORE")
        if number in _DEBUG_CALLS:
            raise CallRefused(errno.EPERM, f"call {number:#x} of the old debugger interface")
        if number == svm.NUMBER:
            return self._svm(request, argument)
        handler = _table().get(number)
        if handler is None:
            raise CallRefused(errno.EINVAL, f"call {number:#x} is not emulated")
        own = request & (1 << _DIRECTION_BITS) - 1 | handler.request.direction << _DIRECTION_BITS
        return serve(handler, self.kfd, own, argument)

    def _svm(self, request: int, argument: Argument) -> int:
        """Serve SVM, whose argument has no fixed length."""
        given = min(r.size_of(request), ctypes.sizeof(argument))
        at = ctypes.addressof(argument)
        ctypes.memmove(at, svm.svm(self.kfd, ctypes.string_at(at, given)), given)
        return 0

    def find_map(self, length: int, protection: int, offset: int) -> BufferObject:
        """The buffer of an mmap, chosen by the two highest bits of the offset; the next sixteen name the GPU."""
        kind, gpu_id = offset & 3 << 62, (offset & KFD_MMAP_GPU_ID_MASK) >> KFD_MMAP_GPU_ID_SHIFT
        if not is_page_aligned(offset):
            raise CallRefused(errno.EINVAL, f"offset {offset:#x} is not a multiple of {PAGE}")
        if kind == KFD_MMAP_TYPE_EVENTS:
            return self.kfd.events.map_page(length)
        if kind == KFD_MMAP_TYPE_RESERVED_MEM:
            return self._reserved(length, gpu_id)
        device = self.kfd.device(gpu_id, errno.ENODEV)
        expected = KFD_DOORBELL_SLICE if kind == KFD_MMAP_TYPE_DOORBELL else PAGE
        if length != expected:
            what = "doorbells" if kind == KFD_MMAP_TYPE_DOORBELL else "remapped registers"
            raise CallRefused(errno.EINVAL, f"{what} are mapped as {expected} bytes, not {length}")
        return device.doorbells.page() if kind == KFD_MMAP_TYPE_DOORBELL else device.registers()

    def _reserved(self, length: int, gpu_id: int) -> BufferObject:
        """The trap handler's memory, which old kernels let a process of an integrated GPU map."""
        if self.machine.profile.since(7, 2):
            raise CallRefused(errno.EINVAL, "this kernel maps no reserved memory")
        device = self.kfd.device(gpu_id, errno.EINVAL)
        if length != TRAP_BYTES:
            raise CallRefused(errno.EINVAL, f"reserved memory is mapped as {TRAP_BYTES} bytes, not {length}")
        return device.trap_page() or BufferObject(TRAP_BYTES, Placement.GTT, "trap handler")

"""A process with an open /dev/kfd and render node, and short names for its calls."""

from __future__ import annotations

import ctypes
import errno as codes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from amdgpu_emu.abi import kfd as uapi
from amdgpu_emu.abi import requests as r
from amdgpu_emu.abi.requests import Ioctl, request_value
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.machine import Machine
from amdgpu_emu.process import Process
from zinc_rt.utils.linux import MAP_SHARED, PROT_READ, PROT_WRITE

PAGE = 4096
GTT, VRAM = uapi.KFD_IOC_ALLOC_MEM_FLAGS_GTT, uapi.KFD_IOC_ALLOC_MEM_FLAGS_VRAM
RWX = uapi.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | uapi.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE
UNCACHED = uapi.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
SIGNAL, MEMORY, HW_EXCEPTION = (
    uapi.KFD_IOC_EVENT_SIGNAL,
    uapi.KFD_IOC_EVENT_MEMORY,
    uapi.KFD_IOC_EVENT_HW_EXCEPTION,
)
EVENT_PAGE_BYTES = 32768

# Addresses of a queue's buffers, and what a 64-CU gfx1201 needs: figures of the kernel's source, worked out by hand.
BASE = 0x1_0000_0000
RING, RPTR, WPTR, EOP, CWSR = BASE, BASE + 0x10_0000, BASE + 0x10_0008, BASE + 0x20_0000, BASE + 0x1000_0000
RING_BYTES, EOP_BYTES = 0x10000, 4096
CTL_STACK, CWSR_SIZE, CWSR_BO = 0x7000, 0x1D47000, 0x1D57000
DATA = BASE + 0x30_0000


def name_of(code: int | None) -> str:
    return {524: "ENOTSUPP"}.get(code or 0) or codes.errorcode.get(code or 0, str(code))


@dataclass
class Stage:
    """bound: ACQUIRE_VM was called. Everything made through it is undone by `close`."""

    machine: Machine
    bound: bool = True
    gpu: int = 0
    process: Process = field(init=False)
    handles: list[int] = field(default_factory=list)
    queues: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    maps: list[tuple[int, int]] = field(default_factory=list)
    fds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.process = self.machine.process()
        self.kfd = self.open("/dev/kfd")
        self.drm = self.open(self.machine.gpus[self.gpu].render_node)
        self.gpu_id = self.machine.gpus[self.gpu].gpu_id
        if self.bound:
            self.call(r.KFD_ACQUIRE_VM, drm_fd=self.drm, gpu_id=self.gpu_id)

    def open(self, path: str) -> int:
        self.fds.append(self.process.open(path))
        return self.fds[-1]

    # Calls.

    def call(self, request: Ioctl, argument: Any = None, **fields: Any) -> Any:
        """The argument, after the call."""
        if argument is None:
            argument = request.argument(**fields)
        self.process.ioctl(self.kfd, request.value, argument)
        return argument

    def alloc(self, va: int, size: int, flags: int = GTT | RWX, **fields: Any) -> Any:
        fields = {"gpu_id": self.gpu_id, **fields}
        args = self.call(r.KFD_ALLOC_MEMORY_OF_GPU, va_addr=va, size=size, flags=flags, **fields)
        self.handles.append(args.handle)
        return args

    def map(self, handle: int, *gpu_ids: int) -> Any:
        ids = (ctypes.c_uint32 * max(1, len(gpu_ids)))(*(gpu_ids or (self.gpu_id,)))
        return self.call(
            r.KFD_MAP_MEMORY_TO_GPU,
            handle=handle,
            device_ids_array_ptr=ctypes.addressof(ids),
            n_devices=len(ids),
        )

    def unmap(self, handle: int, *gpu_ids: int) -> Any:
        ids = (ctypes.c_uint32 * max(1, len(gpu_ids)))(*(gpu_ids or (self.gpu_id,)))
        return self.call(
            r.KFD_UNMAP_MEMORY_FROM_GPU,
            handle=handle,
            device_ids_array_ptr=ctypes.addressof(ids),
            n_devices=len(ids),
        )

    def free(self, handle: int) -> None:
        self.call(r.KFD_FREE_MEMORY_OF_GPU, handle=handle)
        self.handles.remove(handle)

    def buffer(self, va: int, size: int, flags: int = GTT | RWX) -> int:
        """Allocated and mapped; its handle."""
        handle = int(self.alloc(va, size, flags).handle)
        self.map(handle)
        return handle

    def cpu(self, va: int, size: int, flags: int = GTT | RWX) -> int:
        """A buffer on the GPU that the processor maps too; the processor's address."""
        args = self.alloc(va, size, flags)
        self.map(args.handle)
        return self.mmap(self.drm, size, args.mmap_offset)

    def mmap(self, fd: int, length: int, offset: int) -> int:
        at = self.process.mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset)
        self.maps.append((at, length))
        return at

    def event(self, kind: int = SIGNAL, auto_reset: int = 1, page: int = 0) -> Any:
        args = self.call(r.KFD_CREATE_EVENT, event_page_offset=page, event_type=kind, auto_reset=auto_reset)
        self.events.append(args.event_id)
        return args

    def event_page(self, va: int = BASE + 0x70_0000) -> int:
        """A page for events, handed over with a first signal event; its handle."""
        handle = int(self.alloc(va, EVENT_PAGE_BYTES, GTT | RWX | UNCACHED).handle)
        self.map(handle)
        self.event(page=handle)
        return handle

    # Queues.

    def queue_buffers(self, **sizes: int) -> None:
        """The four buffers of a compute queue, mapped."""
        sizes = {"ring": RING_BYTES, "pointers": PAGE, "eop": EOP_BYTES, "cwsr": CWSR_BO, **sizes}
        for va, name in ((RING, "ring"), (RPTR, "pointers"), (EOP, "eop"), (CWSR, "cwsr")):
            if sizes[name]:
                self.buffer(va, sizes[name])

    def queue_args(self, **changes: int) -> uapi.CreateQueueArgs:
        args = uapi.CreateQueueArgs(
            ring_base_address=RING, write_pointer_address=WPTR, read_pointer_address=RPTR, ring_size=RING_BYTES,
            gpu_id=self.gpu_id, queue_type=uapi.KFD_IOC_QUEUE_TYPE_COMPUTE, queue_percentage=100, queue_priority=7,
            eop_buffer_address=EOP, eop_buffer_size=EOP_BYTES, ctx_save_restore_address=CWSR,
            ctx_save_restore_size=CWSR_SIZE, ctl_stack_size=CTL_STACK,
        )  # fmt: skip
        for name, value in changes.items():
            setattr(args, name, value)
        return args

    def create_queue(self, **changes: int) -> uapi.CreateQueueArgs:
        args = self.queue_args(**changes)
        self.process.ioctl(self.kfd, r.KFD_CREATE_QUEUE.value, args)
        self.queues.append(args.queue_id)
        return args

    def destroy_queue(self, number: int) -> None:
        self.queues.remove(number)
        self.call(r.KFD_DESTROY_QUEUE, queue_id=number)

    # The end.

    def close(self) -> None:
        for number in tuple(self.queues):
            self.destroy_queue(number)
        for number in self.events:
            self.call(r.KFD_DESTROY_EVENT, event_id=number)
        for at, length in self.maps:
            self.process.munmap(at, length)
        assert self.process.kfd is not None
        for handle in tuple(self.handles):
            memory = self.process.kfd.memory(handle, codes.EINVAL)
            for device in tuple(memory.mapped):
                self.unmap(handle, device.id)
            if handle != self.process.kfd.events.page_handle:
                self.free(handle)
        for fd in self.fds:
            self.process.close(fd)


@contextmanager
def refused(code: int) -> Iterator[None]:
    """The call inside fails with this errno, and the emulator says why."""
    with pytest.raises(CallRefused) as caught:
        yield
    assert name_of(caught.value.errno) == name_of(code), caught.value.why
    assert caught.value.why


def sized(request: Ioctl, size: int) -> int:
    """A request's number with another size of its argument."""
    return request_value(request.direction, request.type, request.number, size)


def address(thing: Any) -> int:
    return ctypes.addressof(thing)

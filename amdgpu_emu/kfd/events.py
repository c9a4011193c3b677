"""The events of a process, set by calls and interrupts (`kfd_events.c`).

A signal event has a mailbox, a u64 in the event page. The GPU writes it and then raises an interrupt with the event's
number; only an event whose mailbox was written is signalled, and its mailbox is made empty again.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amdgpu_emu.abi.driver import KFD_MMAP_TYPE_EVENTS
from amdgpu_emu.abi.kfd import (
    KFD_HW_EXCEPTION_GPU_HANG,
    KFD_HW_EXCEPTION_WHOLE_GPU_RESET,
    KFD_IOC_EVENT_DEBUG_EVENT,
    KFD_IOC_EVENT_HW_EXCEPTION,
    KFD_IOC_EVENT_MEMORY,
    KFD_IOC_EVENT_SIGNAL,
    CreateEventArgs,
    DestroyEventArgs,
    HsaHwExceptionData,
    HsaMemoryExceptionData,
    ResetEventArgs,
    SetEventArgs,
)
from amdgpu_emu.drm.handles import Handles
from amdgpu_emu.errors import CallRefused, GpuFault
from amdgpu_emu.memory import BufferObject, Placement

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu
    from amdgpu_emu.kfd.process import KfdProcess
    from amdgpu_emu.kfd.waits import Waiter

SLOT = 8
LIMIT = 4096
"""Most signal events of a process, and most events of one wait."""
PAGE_BYTES = LIMIT * SLOT
KERNEL_SLOTS = 256
"""Slots of a page that the kernel makes, until the process maps more of it."""
EMPTY = (1 << 64) - 1
"""The value of a mailbox that was not written."""
FIRST_OTHER_ID = 0x40000000
_SIGNALS = (KFD_IOC_EVENT_SIGNAL, KFD_IOC_EVENT_DEBUG_EVENT)


@dataclass(eq=False)
class KfdEvent:
    """An event. number: its id; age: counts how often it was set, from 1 on."""

    number: int
    type: int
    auto_reset: bool
    signalled: bool = False
    age: int = 1
    data: HsaMemoryExceptionData | HsaHwExceptionData | None = None
    waiters: list[Waiter] = field(default_factory=list)

    def set(self) -> None:
        """Signal the event and wake the calls that wait for it."""
        self.signalled = not self.auto_reset or not self.waiters
        self.age += 1
        for waiter in self.waiters:
            waiter.activated = True


class Events:
    """The events of one process."""

    def __init__(self, kfd: KfdProcess) -> None:
        self._kfd = kfd
        self._signals: Handles[KfdEvent] = Handles(first=1)  # number 0 is the kernel's own
        self._others: Handles[KfdEvent] = Handles(first=FIRST_OTHER_ID)
        self.page: BufferObject | None = None
        self.page_handle = 0  # of the process's own buffer; 0: the kernel made the page
        self._mapped_bytes = 0

    def numbers(self) -> tuple[int, ...]:
        """Ids of all events."""
        return (*self._signals, *self._others)

    # The page.

    def set_page(self, bo: BufferObject, handle: int) -> None:
        """Take a buffer of the process as event page. Raises `CallRefused`."""
        if bo.size < PAGE_BYTES:
            raise CallRefused(errno.EINVAL, f"an event page has {PAGE_BYTES} bytes, handle {handle:#x} {bo.size}")
        bo.bytes[:PAGE_BYTES] = 0xFF
        self.page, self.page_handle, self._mapped_bytes = bo, handle, bo.size

    def _need_page(self) -> None:
        if self.page is not None:
            return
        machine = self._kfd.machine
        if machine.profile.since(7, 3):
            raise CallRefused(errno.ENOMEM, "a signal event needs an event page, which this kernel does not make")
        self.page = BufferObject(PAGE_BYTES, Placement.GTT, "event page of the kernel")
        self.page.bytes[:] = 0xFF
        self._mapped_bytes = KERNEL_SLOTS * SLOT

    def map_page(self, length: int) -> BufferObject:
        """The buffer that an mmap of type EVENTS shows. Raises `CallRefused`."""
        if self._kfd.machine.profile.since(7, 3):
            raise CallRefused(errno.EINVAL, "this kernel has no event page of its own to map")
        if length > PAGE_BYTES:
            raise CallRefused(errno.EINVAL, f"the event page has {PAGE_BYTES} bytes, not {length}")
        if self.page is None:
            raise CallRefused(errno.EINVAL, "there is no event page before the first signal event")
        self._mapped_bytes = length
        return self.page

    def _slot(self, number: int) -> int:
        assert self.page is not None
        return int.from_bytes(self.page.bytes[number * SLOT : number * SLOT + SLOT].tobytes(), "little")

    def _empty_slot(self, number: int) -> None:
        assert self.page is not None
        self.page.bytes[number * SLOT : number * SLOT + SLOT] = 0xFF

    # Life of an event.

    def create(self, args: CreateEventArgs) -> None:
        """Serve CREATE_EVENT, after the page was taken over."""
        args.event_page_offset = 0
        event = KfdEvent(0, args.event_type, bool(args.auto_reset))
        if args.event_type in _SIGNALS:
            self._check_slots()
            event.number = self._signals.add(event) or 0
            self._empty_slot(event.number)
            args.event_page_offset = KFD_MMAP_TYPE_EVENTS
            args.event_slot_index = event.number
        else:
            event.number = self._others.add(event) or 0
        args.event_id = args.event_trigger_data = event.number

    def _check_slots(self) -> None:
        slots = self._mapped_bytes // SLOT
        if self._mapped_bytes and 1 + len(self._signals) >= slots:
            raise CallRefused(errno.ENOSPC, f"all {slots} slots of the event page are taken")
        self._need_page()

    def find(self, number: int) -> KfdEvent:
        """Find an event by id. Raises `CallRefused` (EINVAL)."""
        event = self._signals.get(number) or self._others.get(number)
        if event is None:
            raise CallRefused(errno.EINVAL, f"there is no event {number:#x}")
        return event

    def destroy(self, number: int) -> None:
        """Serve DESTROY_EVENT: calls that wait for the event fail."""
        event = self.find(number)
        for waiter in event.waiters:
            waiter.event = None
        (self._signals if event.type in _SIGNALS else self._others).remove(number)
        self._kfd.machine.changed.notify_all()

    def set(self, number: int, on: bool) -> None:
        """Serve SET_EVENT, RESET_EVENT."""
        event = self.find(number)
        if event.type != KFD_IOC_EVENT_SIGNAL:
            raise CallRefused(errno.EINVAL, f"event {number:#x} has type {event.type}: only the GPU sets it")
        if on:
            event.set()
            self._kfd.machine.changed.notify_all()
        else:
            event.signalled = False

    # Events from hardware.

    def interrupt(self, number: int) -> None:
        """Handle an interrupt of a packet, with its context id."""
        if self.page is None:
            return
        event = self._signals.get(number)
        if event is not None and self._slot(number) != EMPTY:
            self._set_from_interrupt(event)
        else:  # the number identifies no event: check all mailboxes
            for other in self._signals.values():
                if self._slot(other.number) != EMPTY:
                    self._set_from_interrupt(other)

    def _set_from_interrupt(self, event: KfdEvent) -> None:
        self._empty_slot(event.number)
        event.set()
        self._kfd.machine.changed.notify_all()

    def memory_fault(self, gpu: Gpu, fault: GpuFault) -> None:
        """Set the memory events after a page fault of a GPU."""
        data = HsaMemoryExceptionData(va=fault.va & ~0xFFF, gpu_id=gpu.gpu_id)
        data.failure.NotPresent = fault.reason == "not mapped"
        data.failure.ReadOnly = not data.failure.NotPresent and fault.access == "write"
        data.failure.NoExecute = not data.failure.NotPresent and fault.access == "execute"
        self._exception(KFD_IOC_EVENT_MEMORY, data)

    def gpu_reset(self, gpu: Gpu) -> None:
        """Set the hardware events after a GPU was reset or lost."""
        data = HsaHwExceptionData(
            KFD_HW_EXCEPTION_WHOLE_GPU_RESET, KFD_HW_EXCEPTION_GPU_HANG, memory_lost=1, gpu_id=gpu.gpu_id
        )
        self._exception(KFD_IOC_EVENT_HW_EXCEPTION, data)

    def _exception(self, kind: int, data: HsaMemoryExceptionData | HsaHwExceptionData) -> None:
        for event in self._others.values():
            if event.type == kind:
                event.data = data
                event.set()
        self._kfd.machine.changed.notify_all()


def create(kfd: KfdProcess, args: CreateEventArgs) -> None:
    """Serve CREATE_EVENT. `event_page_offset` may hold the handle of a buffer once: it becomes the event page."""
    handle = args.event_page_offset
    if handle:
        if kfd.events.page is not None:
            raise CallRefused(errno.EINVAL, "the process has an event page already")
        device = kfd.device(handle >> 32)
        device.bind()
        kfd.events.set_page(kfd.memory(handle, errno.EINVAL).bo, handle)
    kfd.events.create(args)


def destroy(kfd: KfdProcess, args: DestroyEventArgs) -> None:
    """Serve DESTROY_EVENT."""
    kfd.events.destroy(args.event_id)


def set_event(kfd: KfdProcess, args: SetEventArgs) -> None:
    """Serve SET_EVENT."""
    kfd.events.set(args.event_id, True)


def reset_event(kfd: KfdProcess, args: ResetEventArgs) -> None:
    """Serve RESET_EVENT."""
    kfd.events.set(args.event_id, False)

"""Sleeping until the GPU raises an interrupt, and hearing of its page faults and resets: events of amdkfd.

A signal event has a mailbox of 8 bytes in the event page. A RELEASE_MEM packet writes the event's number there and
raises an interrupt; amdkfd looks whether the mailbox was written and wakes the waiting thread. The page is ours:
kernels from 7.3 on make none, and the command processor could not write to one of the kernel's.
"""

from __future__ import annotations

import ctypes
import errno
from dataclasses import dataclass

from zinc_rt.amdgpu.abi.kfd import (
    KFD_IOC_EVENT_HW_EXCEPTION,
    KFD_IOC_EVENT_MEMORY,
    KFD_IOC_EVENT_SIGNAL,
    CreateEventArgs,
    DestroyEventArgs,
    EventData,
    HsaHwExceptionData,
    HsaMemoryExceptionData,
    MapMemoryToGpuArgs,
    WaitEventsArgs,
)
from zinc_rt.amdgpu.abi.requests import KFD_CREATE_EVENT, KFD_DESTROY_EVENT, KFD_MAP_MEMORY_TO_GPU, KFD_WAIT_EVENTS
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.amdgpu.kfd.calls import call, step
from zinc_rt.amdgpu.kfd.constants import (
    ALLOC_MEM_FLAGS_COHERENT,
    ALLOC_MEM_FLAGS_GTT,
    ALLOC_MEM_FLAGS_NO_SUBSTITUTE,
    ALLOC_MEM_FLAGS_UNCACHED,
    ALLOC_MEM_FLAGS_WRITABLE,
)
from zinc_rt.amdgpu.kfd.memory import Memory
from zinc_rt.amdgpu.kfd.process import EventPage, kept_state
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.utils.linux import PAGE

_PAGE_BYTES = 8 * PAGE  # 4096 mailboxes; amdkfd takes no smaller page
_SLOT = 8
_FLAGS = (
    ALLOC_MEM_FLAGS_GTT
    | ALLOC_MEM_FLAGS_WRITABLE
    | ALLOC_MEM_FLAGS_NO_SUBSTITUTE
    | ALLOC_MEM_FLAGS_COHERENT
    | ALLOC_MEM_FLAGS_UNCACHED
)


@dataclass(frozen=True)
class Heard:
    """The result of a wait: a page fault, a reset of the GPU, or neither."""

    fault: HsaMemoryExceptionData | None = None
    reset: HsaHwExceptionData | None = None


class KfdEvents:
    """Three events of one interface: a submission is done, a page fault, a reset. mailbox: the GPU's address of the
    first
    one's; number: what is written there.
    """

    def __init__(self, session: KfdSession) -> None:
        self._session = session
        self._numbers: list[int] = []
        self.mailbox = self.number = 0

    def open(self) -> None:
        """Create them. Raises `StepFailed`; `close` undoes what was reached."""
        state = kept_state(self._session.linux)
        with state.lock:
            if state.event_page is None:
                done = self._create_with_page()
            else:
                self._map_page(state.event_page)
                done = self._create(KFD_IOC_EVENT_SIGNAL)
            page = state.event_page
        if page is None:
            raise StepFailed("event_page_failed")
        self.number = done.event_id
        self.mailbox = page.va + done.event_slot_index * _SLOT
        self._create(KFD_IOC_EVENT_MEMORY)
        self._create(KFD_IOC_EVENT_HW_EXCEPTION)

    def wait(self, milliseconds: int) -> Heard:
        """Sleep until one of them happens, at most so long. Raises `OSError`."""
        array = (EventData * len(self._numbers))()
        for entry, number in zip(array, self._numbers, strict=True):
            entry.event_id = number
        args = WaitEventsArgs(ctypes.addressof(array), len(array), 0, milliseconds, 0)
        call(self._session.linux, self._session.kfd_fd, KFD_WAIT_EVENTS, args)
        # A fault or reset of another GPU of this process wakes us too: its data name that GPU.
        mine = self._session.node.gpu_id
        fault, reset = array[1].memory_exception_data, array[2].hw_exception_data
        return Heard(fault if fault.gpu_id == mine else None, reset if reset.gpu_id == mine else None)

    def close(self) -> None:
        """Destroy them; one that amdkfd does not let go is gone with the process."""
        for number in reversed(self._numbers):
            for _ in range(2):
                try:
                    call(self._session.linux, self._session.kfd_fd, KFD_DESTROY_EVENT, DestroyEventArgs(number))
                    break
                except OSError:
                    continue
        self._numbers.clear()

    def _create(self, kind: int, page_handle: int = 0) -> CreateEventArgs:
        # auto_reset: a wait consumes the event, or another GPU's fault would end every wait from then on.
        args = CreateEventArgs(event_page_offset=page_handle, event_type=kind, auto_reset=1)
        with step("event_failed"):
            call(self._session.linux, self._session.kfd_fd, KFD_CREATE_EVENT, args)
        self._numbers.append(args.event_id)
        return args

    def _create_with_page(self) -> CreateEventArgs:
        page = Memory(self._session, _PAGE_BYTES, "event page")
        taken = False
        try:
            page.create(_FLAGS, visible=True)
            done = self._create(KFD_IOC_EVENT_SIGNAL, page.handle or 0)
            taken = True
            return done
        finally:
            if taken or self._is_taken(page):
                self._keep(page)
            else:
                page.discard()

    def _keep(self, page: Memory) -> None:
        session = self._session
        session.linux.keep(address=page.va)
        kept_state(session.linux).event_page = EventPage(page.va, page.handle or 0, {session.node.gpu_id})

    @staticmethod
    def _is_taken(page: Memory) -> bool:
        """Whether amdkfd took the page before the event failed: then it does not let it go."""
        if not page.on_gpu:
            return False
        try:
            page.free()
        except StepFailed as failed:
            return failed.errno == errno.EPERM
        return False

    def _map_page(self, page: EventPage) -> None:
        """Let this GPU write to it too."""
        gpu_id = self._session.node.gpu_id
        if gpu_id in page.gpu_ids:
            return
        gpu = (ctypes.c_uint32 * 1)(gpu_id)
        with step("event_page_failed"):
            call(
                self._session.linux,
                self._session.kfd_fd,
                KFD_MAP_MEMORY_TO_GPU,
                MapMemoryToGpuArgs(page.handle, ctypes.addressof(gpu), 1, 0),
            )
        page.gpu_ids.add(gpu_id)

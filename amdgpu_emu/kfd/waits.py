"""WAIT_EVENTS (`kfd_wait_on_events`)."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amdgpu_emu.abi.kfd import (
    KFD_IOC_EVENT_SIGNAL,
    KFD_IOC_WAIT_RESULT_COMPLETE,
    KFD_IOC_WAIT_RESULT_FAIL,
    KFD_IOC_WAIT_RESULT_TIMEOUT,
    EventData,
    HsaSignalEventData,
    WaitEventsArgs,
)
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.kfd.events import LIMIT, KfdEvent
from amdgpu_emu.user_memory import copy_to_user, read_struct

if TYPE_CHECKING:
    from amdgpu_emu.kfd.process import KfdProcess

_INFINITE = 0xFFFFFFFF
_SIZE = ctypes.sizeof(EventData)


@dataclass(eq=False)
class Waiter:
    """One event of one wait. event: None once it was destroyed; aged: whether the caller asked for the age."""

    event: KfdEvent | None
    activated: bool
    aged: bool = False


def wait(kfd: KfdProcess, args: WaitEventsArgs) -> None:
    """Serve WAIT_EVENTS: timeout in milliseconds from now; its end is a result, not an error."""
    args.wait_result, result = KFD_IOC_WAIT_RESULT_FAIL, KFD_IOC_WAIT_RESULT_FAIL
    if args.num_events > LIMIT:
        raise CallRefused(errno.ENOMEM, f"{args.num_events} events at once: at most {LIMIT}")
    waiters: list[Waiter] = []
    try:
        for i in range(args.num_events):
            waiters.append(_waiter(kfd, read_struct(EventData, args.events_ptr + i * _SIZE)))
        result = _wait(kfd, waiters, bool(args.wait_for_all), args.timeout)
        if result == KFD_IOC_WAIT_RESULT_COMPLETE:
            _copy_data(waiters, args.events_ptr)
    finally:
        for waiter in waiters:
            if waiter.event is not None and waiter in waiter.event.waiters:
                waiter.event.waiters.remove(waiter)
    if result == KFD_IOC_WAIT_RESULT_FAIL:
        raise CallRefused(errno.EIO, "an event was destroyed during the wait")
    args.wait_result = result


def _waiter(kfd: KfdProcess, wanted: EventData) -> Waiter:
    event = kfd.events.find(wanted.event_id)
    waiter = Waiter(event, event.signalled)
    event.signalled = event.signalled and not event.auto_reset
    last = wanted.signal_event_data.last_event_age
    if event.type == KFD_IOC_EVENT_SIGNAL and last:  # since interface 1.14
        waiter.aged = True
        waiter.activated = waiter.activated or last != event.age
    if not waiter.activated:
        event.waiters.append(waiter)
    return waiter


def _wait(kfd: KfdProcess, waiters: list[Waiter], every: bool, milliseconds: int) -> int:
    endless = milliseconds == _INFINITE
    clock = kfd.machine.clock
    deadline = clock.now() + milliseconds / 1000
    while True:
        if any(waiter.event is None for waiter in waiters):
            return KFD_IOC_WAIT_RESULT_FAIL
        done = [waiter.activated for waiter in waiters]
        if all(done) or (any(done) and not every):
            return KFD_IOC_WAIT_RESULT_COMPLETE
        left = 1.0 if endless else deadline - clock.now()
        if left <= 0:
            return KFD_IOC_WAIT_RESULT_TIMEOUT
        clock.wait(kfd.machine.changed, min(left, 1.0))


def _copy_data(waiters: list[Waiter], events_ptr: int) -> None:
    for i, waiter in enumerate(waiters):
        event, at = waiter.event, events_ptr + i * _SIZE
        if event is None:
            raise CallRefused(errno.EINVAL, "an event was destroyed after it was signalled")
        if not waiter.activated:
            continue
        if event.data is not None:
            copy_to_user(at, bytes(event.data))
        elif waiter.aged:
            copy_to_user(at, bytes(HsaSignalEventData(event.age)))

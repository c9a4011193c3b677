"""Events and waiting (section 2)."""

from __future__ import annotations

import ctypes
import errno
import threading

import pytest

from amdgpu_emu.abi import kfd as u
from amdgpu_emu.abi import requests as r
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.kfd.stage import DATA, EVENT_PAGE_BYTES, HW_EXCEPTION, MEMORY, SIGNAL, Stage, refused

COMPLETE, TIMEOUT, FAIL = 0, 1, 2
EVERYWHERE = pytest.mark.parametrize(
    "machine", [LINUX_6_12, LINUX_6_17, LINUX_7_3], ids=lambda k: k.name, indirect=True
)
WITH_KERNEL_PAGE = pytest.mark.parametrize("machine", [LINUX_6_12, LINUX_6_17], ids=lambda k: k.name, indirect=True)


def wait(
    stage: Stage, *numbers: int, every: bool = False, timeout: int = 0, ages: tuple[int, ...] = ()
) -> tuple[int, list[int]]:
    """Result, and the ages that came back."""
    events = (u.EventData * len(numbers))()
    for i, number in enumerate(numbers):
        events[i].event_id = number
        if ages:
            events[i].signal_event_data.last_event_age = ages[i]
    args = stage.call(
        r.KFD_WAIT_EVENTS,
        events_ptr=ctypes.addressof(events),
        num_events=len(numbers),
        wait_for_all=every,
        timeout=timeout,
        wait_result=7,
    )
    return args.wait_result, [event.signal_event_data.last_event_age for event in events]


def signal(stage: Stage, number: int) -> None:
    stage.call(r.KFD_SET_EVENT, event_id=number)


@EVERYWHERE
def test_what_create_gives_back(machine: Machine) -> None:
    stage = Stage(machine)
    stage.event_page()
    made = stage.event()
    assert made.event_trigger_data == made.event_id == made.event_slot_index
    assert made.event_page_offset == 2 << 62
    other = stage.event(MEMORY)
    assert other.event_id == 0x40000000
    assert other.event_page_offset == 0
    assert stage.event(HW_EXCEPTION).event_id == 0x40000001
    stage.close()


def test_signal_events_have_the_lowest_free_numbers(stage: Stage) -> None:
    """Number 0 is the kernel's own, for interrupts that carry none."""
    stage.event_page()
    numbers = [stage.events[0], stage.event().event_id, stage.event().event_id]
    assert numbers == [1, 2, 3]
    stage.call(r.KFD_DESTROY_EVENT, event_id=2)
    stage.events.remove(2)
    assert stage.event().event_id == 2


def test_the_page_is_filled_with_ones(stage: Stage) -> None:
    args = stage.alloc(DATA, EVENT_PAGE_BYTES)
    stage.map(args.handle)
    at = stage.mmap(stage.drm, EVENT_PAGE_BYTES, args.mmap_offset)
    stage.process.store64(at + 32760, 5)
    stage.event(page=args.handle)
    assert stage.process.load64(at) == stage.process.load64(at + 32760) == (1 << 64) - 1


@WITH_KERNEL_PAGE
def test_a_page_of_the_kernel_has_256_slots_until_more_is_mapped(machine: Machine) -> None:
    stage = Stage(machine)
    for _ in range(255):
        stage.event()
    with refused(errno.ENOSPC):
        stage.event()
    stage.mmap(stage.kfd, EVENT_PAGE_BYTES, 2 << 62)
    assert stage.event().event_id == 256
    stage.close()


def test_a_page_of_the_process_has_a_slot_per_8_bytes(stage: Stage) -> None:
    stage.event_page()
    for _ in range(4094):
        stage.event()
    with refused(errno.ENOSPC):
        stage.event()
    stage.event(MEMORY)


def test_set_reset_wait(stage: Stage) -> None:
    number = stage.event(auto_reset=0).event_id
    assert wait(stage, number)[0] == TIMEOUT
    signal(stage, number)
    assert wait(stage, number)[0] == COMPLETE
    assert wait(stage, number)[0] == COMPLETE, "it stays set"
    stage.call(r.KFD_RESET_EVENT, event_id=number)
    assert wait(stage, number)[0] == TIMEOUT


def test_auto_reset_is_consumed_once(stage: Stage) -> None:
    number = stage.event(auto_reset=1).event_id
    signal(stage, number)
    assert [wait(stage, number)[0] for _ in range(2)] == [COMPLETE, TIMEOUT]


def test_one_of_two_or_both(stage: Stage) -> None:
    one, two = stage.event(auto_reset=0).event_id, stage.event(auto_reset=0).event_id
    signal(stage, one)
    assert wait(stage, one, two)[0] == COMPLETE
    assert wait(stage, one, two, every=True)[0] == TIMEOUT
    signal(stage, two)
    assert wait(stage, one, two, every=True)[0] == COMPLETE


def test_no_event_at_all_is_complete(stage: Stage) -> None:
    assert wait(stage)[0] == COMPLETE


def test_the_timeout_is_in_milliseconds_from_now(stage: Stage) -> None:
    number = stage.event().event_id
    clock = stage.machine.clock
    started = clock.now()
    assert wait(stage, number, timeout=30)[0] == TIMEOUT
    assert 0.03 <= clock.now() - started < 1


@pytest.mark.parametrize("timeout", [5000, 0xFFFFFFFF])
def test_setting_wakes_who_waits(stage: Stage, timeout: int) -> None:
    number = stage.event().event_id
    timer = threading.Timer(0.02, signal, (stage, number))
    timer.start()
    assert wait(stage, number, timeout=timeout)[0] == COMPLETE
    timer.join()
    assert wait(stage, number)[0] == TIMEOUT, "the waiting thread took it"


def test_a_destroyed_event_fails_the_wait(stage: Stage) -> None:
    number = stage.event().event_id
    stage.events.remove(number)
    timer = threading.Timer(0.02, lambda: stage.call(r.KFD_DESTROY_EVENT, event_id=number))
    timer.start()
    events = (u.EventData * 1)()
    events[0].event_id = number
    args = u.WaitEventsArgs(events_ptr=ctypes.addressof(events), num_events=1, timeout=5000)
    with refused(errno.EIO):
        stage.call(r.KFD_WAIT_EVENTS, args)
    assert args.wait_result == FAIL
    timer.join()


def test_a_refused_wait_says_so_in_its_result(stage: Stage) -> None:
    events = (u.EventData * 1)()
    events[0].event_id = 99
    args = u.WaitEventsArgs(events_ptr=ctypes.addressof(events), num_events=1)
    with refused(errno.EINVAL):
        stage.call(r.KFD_WAIT_EVENTS, args)
    assert args.wait_result == FAIL


def test_a_refused_wait_leaves_other_events_alone(stage: Stage) -> None:
    number = stage.event(auto_reset=0).event_id
    with refused(errno.EINVAL):
        wait(stage, number, 99)
    signal(stage, number)
    assert wait(stage, number)[0] == COMPLETE


def test_the_age_tells_what_was_missed(stage: Stage) -> None:
    """An age that is not the current one returns at once, and the current one comes back."""
    number = stage.event(auto_reset=1).event_id
    result, (age,) = wait(stage, number, ages=(99,))
    assert (result, age) == (COMPLETE, 1)
    assert wait(stage, number, ages=(1,))[0] == TIMEOUT
    signal(stage, number)
    assert wait(stage, number)[0] == COMPLETE
    assert wait(stage, number, ages=(1,)) == (COMPLETE, [2])
    assert wait(stage, number, ages=(2,)) == (TIMEOUT, [2])


def test_age_0_does_not_count(stage: Stage) -> None:
    number = stage.event().event_id
    assert wait(stage, number, ages=(0,)) == (TIMEOUT, [0])


def test_debug_events_have_slots_but_only_the_gpu_sets_them(stage: Stage) -> None:
    stage.event_page()
    made = stage.event(u.KFD_IOC_EVENT_DEBUG_EVENT)
    assert made.event_id == made.event_slot_index == 2
    assert SIGNAL == 0
    with refused(errno.EINVAL):
        signal(stage, made.event_id)

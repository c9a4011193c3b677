"""Every call of the door's whole life fails once, with every errno that it can have: the error has a type and a text,
nothing stays behind, and the next door works.
"""

from __future__ import annotations

import errno
from collections import Counter
from functools import cache

import pytest

from tests.ring.kfd.gear import Writer
from zinc_rt.emu.machine import Machine
from zinc_rt.emu.profiles import LINUX_6_12, LINUX_7_3, KernelProfile
from zinc_rt.ring.errors import RingError
from zinc_rt.ring.kfd import bring_up_default, create_compute_queue_smoke_default
from zinc_rt.ring.kfd.door import KfdDoor

CODES = (errno.EINVAL, errno.ENOMEM, errno.EBUSY, errno.EFAULT, errno.ENODEV, errno.EIO, errno.ETIME, errno.EPERM)
QUIET = {"KFD_DESTROY_EVENT", "KFD_DESTROY_QUEUE", "KFD_UNMAP_MEMORY_FROM_GPU", "KFD_FREE_MEMORY_OF_GPU"}
"""Giving back: tried twice, so one failure may stay without an error."""


def life(machine: Machine) -> None:
    """A door from open to close, with memory, two submissions, a wait with an interrupt."""
    door = KfdDoor(linux=next(iter(machine.processes)))
    try:
        writer = Writer(door, 4)
        weights = door.allocate(8192, "vram", "weights", visible=False)
        machine.gpus[0].fence_delay = 0.004  # longer than the door spins
        door.wait(writer.write(0, 1), 5)
        door.wait(writer.write(1, 2), 5)
        assert list(writer.numbers()[:2]) == [1, 2]
        door.release(weights)
    finally:
        machine.gpus[0].fence_delay = 0.0
        door.close()


@cache
def calls_of_a_life(profile: KernelProfile) -> Counter[str]:
    """How often each kind of call is made."""
    with Machine(profile) as machine:
        machine.process()
        machine.trace = []
        counter = machine.inject("mmap", 0, skip=1 << 30)
        life(machine)
        made = Counter(line.split(" ")[0] for line in machine.trace)
        made["mmap"] = counter.seen
        return made


def targets(profile: KernelProfile) -> list[tuple[str, int]]:
    """Each call by kind and number. Opening after the first device is two calls of one kind."""
    return [(call, n) for call, times in calls_of_a_life(profile).items() for n in range(min(times, 12))]


CASES = [(profile, *target) for profile in (LINUX_6_12, LINUX_7_3) for target in targets(profile)]


def test_the_life_makes_all_calls() -> None:
    assert set(calls_of_a_life(LINUX_7_3)) == {
        "open", "mmap", "KFD_GET_VERSION", "KFD_ACQUIRE_VM", "KFD_GET_PROCESS_APERTURES_NEW", "KFD_RUNTIME_ENABLE",
        "KFD_ALLOC_MEMORY_OF_GPU", "KFD_MAP_MEMORY_TO_GPU", "KFD_CREATE_EVENT", "KFD_CREATE_QUEUE", "KFD_WAIT_EVENTS",
        "KFD_UNMAP_MEMORY_FROM_GPU", "KFD_FREE_MEMORY_OF_GPU", "KFD_DESTROY_QUEUE", "KFD_DESTROY_EVENT",
    }  # fmt: skip


@pytest.mark.parametrize(("profile", "call", "skip"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_one_call_fails(profile: KernelProfile, call: str, skip: int) -> None:
    for code in CODES:
        with Machine(profile) as machine:
            machine.process()
            fault = machine.inject(call, code, skip=skip)
            try:
                life(machine)
                assert call in QUIET
            except RingError as error:
                assert len(str(error)) > 30
                assert "\n" not in str(error)
            assert fault.seen > skip, "the call was not made"
            machine.faults.clear()
            life(machine)
            process = next(iter(machine.processes))
            assert bring_up_default(linux=process).ok()
            assert create_compute_queue_smoke_default(linux=process).ok()

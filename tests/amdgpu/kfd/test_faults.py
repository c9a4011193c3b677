"""Every call of the interface's whole life fails once, with every errno that it can have: the error has a type and a
text,
nothing stays behind, and the next interface works.
"""

from __future__ import annotations

import errno
from collections import Counter
from functools import cache

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_12, LINUX_7_3, KernelProfile
from tests.amdgpu.kfd.gear import Writer
from zinc_rt.amdgpu.kfd import submissions
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.errors import BackendError
from zinc_rt.seed.kfd import bring_up_default, create_compute_queue_smoke_default

CODES = (errno.EINVAL, errno.ENOMEM, errno.EBUSY, errno.EFAULT, errno.ENODEV, errno.EIO, errno.ETIME, errno.EPERM)
PROFILES = (LINUX_6_12, LINUX_7_3)
CALLS = (
    "open", "mmap", "KFD_GET_VERSION", "KFD_ACQUIRE_VM", "KFD_GET_PROCESS_APERTURES_NEW", "KFD_RUNTIME_ENABLE",
    "KFD_ALLOC_MEMORY_OF_GPU", "KFD_MAP_MEMORY_TO_GPU", "KFD_CREATE_EVENT", "KFD_CREATE_QUEUE", "KFD_WAIT_EVENTS",
    "KFD_UNMAP_MEMORY_FROM_GPU", "KFD_FREE_MEMORY_OF_GPU", "KFD_DESTROY_QUEUE", "KFD_DESTROY_EVENT", "AMDGPU_INFO",
)  # fmt: skip
GIVING_BACK = {"KFD_DESTROY_EVENT", "KFD_DESTROY_QUEUE", "KFD_UNMAP_MEMORY_FROM_GPU", "KFD_FREE_MEMORY_OF_GPU"}
"""Tried twice, so one failure may stay without an error."""
OPTIONAL = {"AMDGPU_INFO"}
"""A version for messages."""


@pytest.fixture(autouse=True)
def no_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wait sleeps in WAIT_EVENTS."""
    monkeypatch.setattr(submissions, "SPIN_SECONDS", 0.0)


def life(machine: Machine) -> None:
    """An interface from open to close, with memory, two submissions, a wait with an interrupt."""
    interface = KfdInterface(linux=next(iter(machine.processes)))
    try:
        writer = Writer(interface, 4)
        weights = interface.allocate(8192, "vram", "weights", visible=False)
        machine.gpus[0].fence_delay = 0.0005
        interface.wait(writer.write(0, 1), 5)
        interface.wait(writer.write(1, 2), 5)
        assert list(writer.numbers()[:2]) == [1, 2]
        interface.release(weights)
    finally:
        machine.gpus[0].fence_delay = 0.0
        interface.close()


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


def test_the_life_makes_all_calls() -> None:
    for profile in PROFILES:
        assert set(calls_of_a_life(profile)) == set(CALLS)


def fail_one(profile: KernelProfile, call: str, skip: int, code: int) -> None:
    with Machine(profile) as machine:
        process = machine.process()
        fault = machine.inject(call, code, skip=skip)
        error = None
        try:
            life(machine)
        except BackendError as caught:
            error = str(caught)
        assert fault.seen > skip or call == "KFD_WAIT_EVENTS", "the call was not made"  # how often depends on time
        if fault.seen <= skip:
            return
        assert error is not None or call in GIVING_BACK | OPTIONAL
        if error is not None:
            assert len(error) > 30
            assert "\n" not in error
        machine.faults.clear()
        life(machine)
        assert bring_up_default(linux=process).ok()
        assert create_compute_queue_smoke_default(linux=process).ok()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_the_first_call_of_a_kind_fails(call: str, code: int) -> None:
    fail_one(LINUX_7_3, call, 0, code)


@pytest.mark.parametrize(
    "profile",
    [pytest.param(p, id=p.name, marks=() if p is LINUX_7_3 else pytest.mark.slow) for p in PROFILES],
)
@pytest.mark.parametrize("call", CALLS)
def test_each_later_call_fails(profile: KernelProfile, call: str) -> None:
    for skip in range(1, calls_of_a_life(profile)[call]):
        fail_one(profile, call, skip, CODES[skip % len(CODES)])


@pytest.mark.parametrize("call", [call for call in CALLS if call not in GIVING_BACK | OPTIONAL])
def test_a_call_never_works(call: str) -> None:
    """Nothing hangs, and what was reached before is given back."""
    for code in (errno.EINVAL, errno.ENODEV):
        with Machine(LINUX_7_3) as machine:
            machine.process()
            machine.inject(call, code, times=None)
            with pytest.raises(BackendError):
                life(machine)


@pytest.mark.parametrize("call", sorted(GIVING_BACK))
def test_what_is_never_taken_back_is_told(call: str) -> None:
    """Only that is left behind which the kernel did not take."""
    with Machine(LINUX_7_3, strict=False) as machine:
        machine.process()
        machine.inject(call, errno.EPERM, times=None)
        if call == "KFD_DESTROY_EVENT":
            life(machine)  # an event that stays does no harm
        else:
            with pytest.raises(BackendError):
                life(machine)
    assert {finding.kind for finding in machine.findings} == {"leak"}

"""How long a job may take, by the module's parameter and the kernel's version; how much work a submission may have."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ, KernelProfile
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.job_limit import default_limit, job_limit, parsed_limit
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.submission_budget import RATE_PER_UNIT, SubmissionBudget
from zinc_rt.amdgpu.umq.interface import UserQueueInterface
from zinc_rt.utils.linux import Linux

NODE = "/dev/dri/renderD128"
OLD, NEW = "6.17.0-24-generic", "7.3.4-amd64"


@pytest.mark.parametrize(("text", "old", "new"), [
    ("", 10, 2), ("\n", 10, 2), ("0\n", 10, 2), ("0,0,0,0", 10, 2), ("nonsense", 10, 2),
    ("-1", 10, 2), ("5000", 5, 2), ("500", 0.5, 0.5), ("60000", 10, 2), ("0x1f4", 0.5, 0.5),
    ("10000,60000,10000,10000\n", 60, 60), ("1000,-1,1000,1000", math.inf, math.inf), ("1000,0,1000,1000", 10, 2),
    ("1000,3000", 3, 3), ("-1,250,-1,-1", 0.25, 0.25), ("1000,,2", 10, 2), ("1000, 700 ,3,4", 0.7, 0.7),
])  # fmt: skip
def test_the_parameter(text: str, old: float, new: float) -> None:
    """One number alone may not concern compute queues, so it only ever makes the limit shorter."""
    assert (parsed_limit(text, OLD), parsed_limit(text, NEW)) == (old, new)


@pytest.mark.parametrize(("release", "seconds"), [
    ("6.12.107-amd64", 10), ("6.17.0", 10), ("6.18.0-rc1", 2), ("7.0", 2), ("10.1", 2), ("", 2), ("elsewhere", 2),
])  # fmt: skip
def test_defaults(release: str, seconds: float) -> None:
    assert default_limit(release) == seconds


@pytest.mark.parametrize("profile", [LINUX_6_12, LINUX_6_17, LINUX_7_3], ids=lambda p: p.name)
def test_it_is_never_longer_than_the_kernel_s(profile: KernelProfile) -> None:
    with Machine(profile) as machine:
        assert job_limit(machine.process()) <= profile.job_timeout


def test_a_parameter_that_cannot_be_read() -> None:
    class Closed(Linux):
        def read_text(self, path: str) -> str:
            raise PermissionError(13, "no")

        def kernel_release(self) -> str:
            return NEW

    assert job_limit(Closed()) == 2


def test_each_interface_has_its_own() -> None:
    """A quarter of what the kernel allows, half a second at most; much less where waves cannot be saved."""
    for text, limit, cs, umq in (("", 2.0, 0.5, 0.02), ("1000,40,1000,1000", 0.04, 0.01, 0.01)):
        profile = replace(LINUX_7_3_USERQ, lockup_timeout=text, job_timeout=limit)
        with Machine(profile) as machine:
            linux = machine.process()
            opened = (
                CsInterface(NODE, linux=linux),
                KfdInterface(NODE, linux=linux),
                UserQueueInterface(NODE, linux=linux),
            )
            assert [interface.longest_job for interface in opened] == [cs, 0.5, umq]
            for interface in opened:
                interface.close()


def test_the_pace_starts_low() -> None:
    assert SubmissionBudget(0.5, 64).most_work == RATE_PER_UNIT * 64 // 2
    assert SubmissionBudget(0.5, 0).most_work == RATE_PER_UNIT // 2
    assert SubmissionBudget(0.5, 64).most_work * 4 < 1 << 40


def test_a_slow_submission_counts_at_once() -> None:
    pace = SubmissionBudget(0.5, 64)
    before = pace.most_work
    pace.took(before, 2.0)
    assert pace.most_work == before // 4
    pace.took(before // 4, 0.5)  # as long as it shall be
    assert pace.most_work == before // 4


def test_fast_ones_raise_it_by_degrees() -> None:
    pace = SubmissionBudget(0.5, 64)
    before = pace.most_work
    pace.took(before, 0.01)
    assert pace.most_work == 2 * before
    pace.took(2 * before, 0.8 * 0.5)
    assert pace.most_work == pytest.approx(2.5 * before)
    pace.took(2 * before, 0.5)  # a longer one of the same, not too long: it is believed, too
    assert pace.most_work == pytest.approx(2 * before)


def test_short_ones_say_little() -> None:
    pace = SubmissionBudget(0.5, 64)
    before = pace.most_work
    for work, seconds in ((1000, 0.001), (before // 100, 0.0001), (0, 1.0), (before, 0.0), (before, -1.0)):
        pace.took(work, seconds)
        assert pace.most_work == before
    pace.took(1, 3600.0)
    assert pace.most_work == 1 << 20

"""Each refusal of the table, on each kernel that has it; and nothing is left over from a refused call."""

from __future__ import annotations

import pytest

from amdgpu_emu.abi import requests as r
from amdgpu_emu.abi.requests import Ioctl
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import KernelProfile
from tests.amdgpu_emu.conftest import TIME_SCALE
from tests.amdgpu_emu.kfd.refusals import REFUSALS, VALID, Refusal
from tests.amdgpu_emu.kfd.stage import Stage, refused

CALLS = list(dict.fromkeys(refusal.call for refusal in REFUSALS))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_refusals(call: Ioctl) -> None:
    """All refusals of one call; each that is wrong is named."""
    wrong = []
    for refusal in (refusal for refusal in REFUSALS if refusal.call is call):
        for kernel in refusal.kernels:
            try:
                check(kernel, refusal)
            except (AssertionError, OSError, pytest.fail.Exception) as error:
                wrong.append(f"{kernel.name}, {refusal.section}, {refusal.rule}: {error}")
    assert not wrong, "\n".join(wrong)


def check(kernel: KernelProfile, refusal: Refusal) -> None:
    """Refused with its error, and nothing is left over."""
    with Machine(kernel, time_scale=TIME_SCALE, **refusal.machine) as machine:
        stage = Stage(machine, bound=refusal.bound)
        refusal.before(stage)
        args = VALID[refusal.call](stage)
        refusal.apply(stage, args)
        with refused(refusal.errno):
            stage.call(refusal.call, args)
        stage.close()


ACCEPTED_AT_ONCE = [
    call
    for call in VALID
    if call
    not in (
        r.KFD_DESTROY_QUEUE,
        r.KFD_DESTROY_EVENT,
        r.KFD_SET_EVENT,
        r.KFD_RESET_EVENT,  # need a number first
        r.KFD_IMPORT_DMABUF,
        r.KFD_EXPORT_DMABUF,
        r.KFD_GET_DMABUF_INFO,
        r.KFD_GET_QUEUE_WAVE_STATE,
    )
]


@pytest.mark.parametrize("call", ACCEPTED_AT_ONCE, ids=lambda call: call.name)
def test_what_the_table_changes_was_valid_before(call: Ioctl) -> None:
    """So a case is refused for what it names and nothing else."""
    with Machine(time_scale=TIME_SCALE, strict=False) as machine:
        stage = Stage(machine)
        stage.call(call, VALID[call](stage))

"""Each row of the table of refusals, on each kernel that it names."""

from __future__ import annotations

import errno

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RX9070
from amdgpu_emu.profiles import KernelProfile
from tests.amdgpu_emu.conftest import TIME_SCALE
from tests.amdgpu_emu.drm.card import Card
from tests.amdgpu_emu.drm.refusal import Refusal
from tests.amdgpu_emu.drm.refusals import REFUSALS

CASES = [
    pytest.param(kernel, row, id=f"{kernel.name}-{row.check}-{row.what}") for row in REFUSALS for kernel in row.kernels
]


@pytest.mark.parametrize(("kernel", "row"), CASES)
def test_refusal(kernel: KernelProfile, row: Refusal) -> None:
    models = (R9700, RX9070) if row.machine.get("two") else (R9700,)
    with Machine(kernel, models, time_scale=TIME_SCALE) as machine:
        card = Card(machine)
        try:
            row.call(card)
            answer = 0
        except OSError as error:
            answer = error.errno or 0
        machine.settle()
        kinds = tuple(finding.kind for finding in machine.findings)
        machine.findings.clear()
        card.close()
    names = {**errno.errorcode, 0: "accepted", 524: "ENOTSUPP"}
    assert names[answer] == names[row.errno]
    assert kinds == row.findings

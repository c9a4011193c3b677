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

CHECKS = list(dict.fromkeys(row.check for row in REFUSALS))
NAMES = {**errno.errorcode, 0: "accepted", 524: "ENOTSUPP"}


@pytest.mark.parametrize("check", CHECKS)
def test_refusals(check: str) -> None:
    """All rows of one check; each that is wrong is named."""
    wrong = []
    for row in (row for row in REFUSALS if row.check == check):
        for kernel in row.kernels:
            found = said(kernel, row)
            if found != (NAMES[row.errno], row.findings):
                wrong.append(f"{kernel.name}, {row.what}: {found}, not {NAMES[row.errno], row.findings}")
    assert not wrong, "\n".join(wrong)


def said(kernel: KernelProfile, row: Refusal) -> tuple[str, tuple[object, ...]]:
    """The name of the error, and the kinds of what the machine found wrong."""
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
    return NAMES[answer], kinds

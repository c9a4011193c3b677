"""The table of checks points at refusals and tests that exist, and at all refusals."""

from __future__ import annotations

import importlib

import pytest

from tests.amdgpu_emu.kfd.checks import CHECKS
from tests.amdgpu_emu.kfd.refusals import REFUSALS

ROWS = {f"{row.section}/{row.rule}" for row in REFUSALS}


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_is_covered(check: str) -> None:
    assert CHECKS[check]
    for by in CHECKS[check]:
        module, _, test = by.partition(":")
        if by in ROWS:
            continue
        package = "tests.amdgpu_emu" if module == "test_sysfs" else "tests.amdgpu_emu.kfd"
        assert hasattr(importlib.import_module(f"{package}.{module}"), test), by


def test_every_refusal_is_counted() -> None:
    named = {by for bys in CHECKS.values() for by in bys}
    assert ROWS - named == set()

"""The list of checks and the tests of them agree."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.amdgpu_emu.drm.checks import CHECKS, COVERED, NOT_EMULATED


def test_every_check_is_covered() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"{__package__}.{path.stem}")
    importlib.import_module(f"{__package__}.refusals")
    assert set(CHECKS) - COVERED == set()


def test_what_is_left_out_says_why() -> None:
    assert all(NOT_EMULATED.values())

"""A process on the emulated machine of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amdgpu_emu.machine import Machine
from tests.amdgpu_emu.kfd.stage import Stage


@pytest.fixture
def stage(machine: Machine) -> Iterator[Stage]:
    """With an address space; undone at the end, so that only what a test leaks is found."""
    made = Stage(machine)
    yield made
    made.close()

"""A process on the emulated machine of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emu.kfd.stage import Stage
from zinc_rt.emu.machine import Machine


@pytest.fixture
def stage(machine: Machine) -> Iterator[Stage]:
    """With an address space; undone at the end, so that only what a test leaks is found."""
    made = Stage(machine)
    yield made
    made.close()

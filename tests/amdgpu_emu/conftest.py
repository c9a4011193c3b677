"""What the emulator's tests share: a machine that is closed, and so searched for findings, at the end of each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import KernelProfile

TIME_SCALE = 0.01
"""Ten seconds until a hang become a tenth."""


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """One R9700 under 6.17. Parametrised indirectly: a kernel's profile, or arguments of `Machine` as a dict."""
    options = getattr(request, "param", {})
    if isinstance(options, KernelProfile):
        options = {"profile": options}
    made = Machine(**{"time_scale": TIME_SCALE, **options})
    yield made
    made.close()

"""Faults of the real driver where `auto` opens it: the next device is taken, and one line has the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_17
from tests import opencl_driver
from tests.opencl.conftest import kernels
from zinc_rt.backends.devices import Device
from zinc_rt.backends.select import BackendOptions, open_backend
from zinc_rt.lang.cache import CompileCache
from zinc_rt.opencl import devices
from zinc_rt.opencl.devices import OpenClCard

pytest.importorskip("pyopencl", reason="pyopencl is not installed: pip install -e '.[gpu-test]'")
from zinc_rt.opencl import calls, device

Patch = pytest.MonkeyPatch


def does_not_build(patch: Patch) -> None:
    patch.setattr(device, "BUILD_OPTIONS", "-cl-what-is-this")


def has_no_memory(patch: Patch) -> None:
    for kind in (calls.SharedMemory, calls.UnifiedMemory):
        patch.setattr(kind, "allocate", lambda self, n_bytes, *, host: 0)


def has_small_sub_groups(patch: Patch) -> None:
    patch.setattr(calls, "sub_group_sizes", lambda device: [8, 16])


def goes_away(patch: Patch) -> None:
    patch.setattr(calls, "_wait", lambda *_: -36)


def computes_wrong(patch: Patch) -> None:
    patch.setattr(device, "BUILD_OPTIONS", f"{opencl_driver.QUICKLY} -cl-denorms-are-zero")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (does_not_build, r"the driver Intel.* cannot build .*; update it"),
        (has_no_memory, r".* gives no \d+ bytes; .*--device cpu"),
        (has_small_sub_groups, r".* lacks sub-groups of 32 \(it has 8, 16\)"),
        (goes_away, "arithmetic: INVALID_COMMAND_QUEUE"),
        (computes_wrong, r".* is not exact on this device: .*"),
    ],
)
def test_the_next_device_is_taken(
    fault: Callable[[Patch], None], words: str, card: OpenClCard, tmp_path: Path, monkeypatch: Patch
) -> None:
    fault(monkeypatch)
    found = [replace(one, processor=False) for one in devices.find_cards()[0]]
    monkeypatch.setattr(devices, "find_cards", lambda: (found, ""))
    monkeypatch.setattr("zinc_rt.cuda.devices.find_cards", lambda: ([], "left out of this test"))
    told: list[str] = []
    with Machine(LINUX_6_17, []) as machine:
        taken, backend = open_backend(
            "auto", BackendOptions(), Kept(tmp_path), notify=told.append, linux=machine.process()
        )
    backend.close()
    assert taken is Device.cpu
    (line,) = [line for line in told if "skipped" in line]
    assert "\n" not in line
    pattern = rf"device cpu; skipped (gpu: no AMD GPU is in sight; )?opencl: {words}.*"
    assert re.fullmatch(pattern, line), line


class Kept(CompileCache):
    """Compiled kernels of all tests, and a folder of its own for what is remembered of devices."""

    def get(self, key: str) -> Any:
        return kernels().get(key)

    def put(self, key: str, image: Any) -> None:
        kernels().put(key, image)

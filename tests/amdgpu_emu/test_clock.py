"""The clock of an emulated machine: what a busy host does to a process is no time on it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from amdgpu_emu import clock as module
from amdgpu_emu.clock import Clock
from amdgpu_emu.machine import Machine


class Host:
    """Time and processor time of a host, moved by hand."""

    def __init__(self) -> None:
        self.wall = self.used = self.asked = 0.0
        self.late = 0.0  # by which a sleep takes longer than was asked for

    def monotonic(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.used

    def sleep(self, seconds: float) -> None:
        self.asked += seconds
        self.wall += seconds + self.late


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    monkeypatch.setattr(module, "time", made)
    return made


def test_time_without_a_processor_does_not_count(host: Host) -> None:
    clock = Clock(lambda: False)
    host.wall += 100
    assert clock.now() == 0
    host.wall, host.used = host.wall + 10, host.used + 2
    assert clock.now() == 2
    host.wall, host.used = host.wall + 1, host.used + 16  # of sixteen threads
    assert clock.now() == 3
    assert clock.now_ns() == 3_000_000_000


def test_a_sleep_takes_what_was_asked_for(host: Host) -> None:
    clock, host.late = Clock(lambda: False), 7.0
    for _ in range(5):
        clock.sleep(0.5)
    assert clock.now() == host.asked == 2.5


def test_waiting_for_what_computes_takes_its_processor_time(host: Host) -> None:
    clock = Clock(lambda: True)
    clock.sleep(5)
    assert clock.now() == 0
    host.wall, host.used = host.wall + 4, host.used + 1
    assert clock.now() == 1


def test_a_wait_that_is_over_early_takes_no_time(host: Host) -> None:
    clock = Clock(lambda: False)
    heard = SimpleNamespace(wait=lambda seconds: True)
    clock.wait(heard, 60)  # type: ignore[arg-type]
    assert clock.now() == 0
    clock.wait(SimpleNamespace(wait=lambda seconds: False), 60)  # type: ignore[arg-type]
    assert clock.now() == 60


def test_drivers_see_the_machines_clock() -> None:
    """A thread that holds the machine up on a busy host: its own time is hardly any."""
    with Machine() as machine:
        process = machine.process()
        before = process.monotonic_ns()
        held = threading.Event()
        threading.Thread(target=lambda: (time.sleep(0.05), held.set())).start()
        assert held.wait(60)
        assert process.monotonic_ns() - before < 50_000_000
        process.sleep(0.01)
        assert process.monotonic_ns() - before >= 10_000_000

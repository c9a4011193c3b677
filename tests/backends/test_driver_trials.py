"""Devices behind drivers: which is taken, which is remembered as bad, and what is said of the others. No driver is real
here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_17
from zinc_rt.backends.devices import BY_DRIVER, Device, DeviceUnavailable, UnknownDevice, parse_device
from zinc_rt.backends.diagnostics import driver_trials
from zinc_rt.backends.gpu import selftest
from zinc_rt.backends.select import BackendOptions, open_backend, probe_devices
from zinc_rt.errors import DeviceLost, FenceTimeout
from zinc_rt.lang.cache import CompileCache


@dataclass
class Card:
    number: int
    name: str = "card"
    driver: str = "driver 1.0"
    processor: bool = False
    refusal: str = ""
    target: str = "ptx"


@dataclass
class Opened:
    """A backend that was opened."""

    card: Card
    gpu: Any = None
    closed: bool = False
    on_failure: Any = None
    description: str = "a fake"

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Kind:
    """Stands for a driver. bad: errors of the self-test by number of a card."""

    cards: list[Card] = field(default_factory=list)
    absent: str = "no driver"
    bad: dict[int, Exception] = field(default_factory=dict)
    opened: list[Opened] = field(default_factory=list)

    def find(self) -> tuple[list[Card], str]:
        return self.cards, "" if self.cards else self.absent

    def open(self, card: Card, cache: CompileCache, notify: Any) -> Any:
        self.opened.append(Opened(card))
        return self.opened[-1]


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[Device, Kind]:
    made = {device: Kind(absent=f"no {device}") for device in BY_DRIVER}
    monkeypatch.setattr(driver_trials, "DRIVERS", made)
    monkeypatch.setattr(selftest, "prepare", lambda *_: None)
    monkeypatch.setattr(selftest, "check_arithmetic", lambda *_: None)

    def check(backend: Opened) -> None:
        for kind in made.values():
            if backend in kind.opened and backend.card.number in kind.bad:
                raise kind.bad[backend.card.number]

    monkeypatch.setattr(selftest, "check_results", check)
    return made


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "cache")


def taken(device: str, cache: CompileCache) -> tuple[str, Any, list[str]]:
    """What is opened on a machine without AMD GPUs, and the lines about it."""
    lines: list[str] = []
    with Machine(LINUX_6_17, []) as machine:
        linux = machine.process()
        linux.read_text = lambda path: "the same machine each time"
        found, backend = open_backend(device, BackendOptions(), cache, notify=lines.append, linux=linux)
    return found.value, backend, lines


def test_auto_takes_cuda_then_opencl_then_the_cpu(kinds: dict[Device, Kind], cache: CompileCache) -> None:
    name, backend, lines = taken("auto", cache)
    assert name == "cpu"
    backend.close()
    assert [line for line in lines if "skipped" in line] == ["device cpu; skipped gpu: no AMD GPU is in sight"]
    kinds[Device.opencl].cards = [Card(0)]
    assert taken("auto", cache)[0] == "opencl"
    kinds[Device.cuda].cards = [Card(0)]
    name, backend, lines = taken("auto", cache)
    assert (name, lines) == ("cuda", [])
    assert not backend.closed


def test_a_processor_is_taken_only_where_it_is_named(kinds: dict[Device, Kind], cache: CompileCache) -> None:
    kinds[Device.opencl].cards = [Card(0, processor=True)]
    name, backend, lines = taken("auto", cache)
    assert name == "cpu"
    backend.close()
    assert not any("opencl" in line for line in lines)
    assert taken("opencl", cache)[0] == "opencl"


def test_wrong_bits_lead_to_the_next_device_with_all_reasons_in_one_line(
    kinds: dict[Device, Kind], cache: CompileCache
) -> None:
    kinds[Device.cuda].cards = [Card(0, "small", refusal="small lacks sm_75"), Card(1, "liar")]
    kinds[Device.cuda].bad = {1: selftest.WrongResults("7 of 40 results of a test are wrong")}
    kinds[Device.opencl].cards = [Card(0, "good")]
    name, _, lines = taken("auto", cache)
    assert name == "opencl"
    assert lines == ["device opencl; skipped cuda:0: small lacks sm_75; cuda:1: 7 of 40 results of a test are wrong"]
    assert kinds[Device.cuda].opened[0].closed
    tried = len(kinds[Device.cuda].opened)
    name, _, lines = taken("auto", cache)
    assert (name, len(kinds[Device.cuda].opened)) == ("opencl", tried), "it is not tried again"
    assert "liar computed wrong on " in lines[0]
    assert "`zinc check --gpu` tries it again, --device cuda:1 insists" in lines[0]
    kinds[Device.cuda].bad.clear()
    assert taken("cuda:1", cache)[0] == "cuda", "who names it gets it tried"
    assert taken("auto", cache)[0] == "cuda", "and proven"


def test_another_driver_version_is_another_device(kinds: dict[Device, Kind], cache: CompileCache) -> None:
    kinds[Device.cuda].cards = [Card(0)]
    kinds[Device.cuda].bad = {0: DeviceLost("gone")}
    _, backend, lines = taken("auto", cache)
    backend.close()
    assert "gone" in lines[0]
    kinds[Device.cuda].bad.clear()
    _, backend, lines = taken("auto", cache)
    backend.close()
    assert "card hung on" in lines[0]
    kinds[Device.cuda].cards = [Card(0, driver="driver 1.1")]
    assert taken("auto", cache)[0] == "cuda"


def test_a_hang_in_a_models_step_is_remembered(kinds: dict[Device, Kind], cache: CompileCache) -> None:
    kinds[Device.cuda].cards = [Card(0)]
    taken("auto", cache)[1].on_failure(FenceTimeout("it did not end; the rest"))
    _, backend, lines = taken("auto", cache)
    backend.close()
    assert "in a model's step: it did not end" in lines[0]


def test_names(kinds: dict[Device, Kind], cache: CompileCache) -> None:
    kinds[Device.opencl].cards = [Card(0, "one"), Card(1, "two")]
    assert str(parse_device("opencl:01")) == "opencl:1"
    assert taken("opencl:1", cache)[1].card.name == "two"
    with pytest.raises(
        DeviceUnavailable, match=r"opencl:7 cannot run: there is no opencl:7; there are 0 \(one\), 1 \(two\)"
    ):
        taken("opencl:7", cache)
    with pytest.raises(DeviceUnavailable, match="device cuda cannot run: no cuda; use cpu"):
        taken("cuda", cache)
    for text in ("cuda:", "cuda:x", "opencl:-1", "cuda@0"):
        with pytest.raises(UnknownDevice, match=r"number, as|names a card"):
            parse_device(text)


def test_check_tells_of_all(kinds: dict[Device, Kind], cache: CompileCache) -> None:
    kinds[Device.opencl].cards = [Card(0, "one"), Card(1, "two", processor=True)]
    with Machine(LINUX_6_17, []) as machine:
        plain = {r.name: r for r in probe_devices(linux=machine.process(), cache=cache)}
        again = {r.name: r for r in probe_devices(linux=machine.process(), cache=cache, again=True)}
    assert plain["cuda"].reason == "no cuda"
    assert plain["opencl:0"].proven
    assert "is a processor" in plain["opencl:1"].reason
    assert again["opencl:1"].proven
    assert all(opened.closed for opened in kinds[Device.opencl].opened)

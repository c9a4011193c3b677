"""What is remembered of GPUs: trials that did not come back, proofs, soaks; cards by name, cards with a display."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL, RX9070, Firmware
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3_USERQ
from zinc_rt.amdgpu.cs.loss import GUILTY
from zinc_rt.backends.amdgpu import resident_proof
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.devices import BY_DRIVER, Device, DeviceUnavailable, UnknownDevice, parse_device
from zinc_rt.backends.diagnostics.crash_log import HUNG, PROVEN, WRONG, Contact, Contacts, Situation, situation
from zinc_rt.backends.diagnostics.device_trials import Trials
from zinc_rt.backends.gpu import selftest
from zinc_rt.backends.gpu.selftest import WrongResults
from zinc_rt.backends.probe import find_gpus
from zinc_rt.backends.processes import is_alive, this_process
from zinc_rt.backends.select import BackendOptions, open_backend, probe_devices
from zinc_rt.errors import DeviceLost, FenceTimeout
from zinc_rt.lang.cache import CompileCache
from zinc_rt.utils.linux import host

SCREEN = {0: ("DP-1",)}
Check = Callable[[AmdBackend], None]


@pytest.fixture(autouse=True)
def a_fence_proves(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is compiled or run."""
    monkeypatch.setattr(selftest, "prepare", lambda *_: None)
    monkeypatch.setattr(selftest, "check_results", lambda backend: None)
    monkeypatch.setattr(resident_proof, "prove", lambda *_: "")


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "cache")


def taken(
    machine: Machine, cache: CompileCache, device: str = "auto", process: Process | None = None
) -> tuple[str, str]:
    """The device and render node that a process gets, and what it is told."""
    lines: list[str] = []
    got, backend = open_backend(
        parse_device(device), BackendOptions(), cache, notify=lines.append, linux=process or machine.process()
    )
    with backend:
        where = "" if got is Device.cpu else backend.description.split(" on /dev/dri/")[1].split()[0]
        return f"{got.value} {where}".strip(), "\n".join(lines)


def about(machine: Machine, interface: str = "cs", gpu: int = 0) -> Situation:
    linux = machine.process()
    return situation(linux, find_gpus(linux)[gpu], interface)


def names(cache: CompileCache) -> list[str]:
    assert cache.path is not None
    return sorted(name.partition(".")[2] for name in os.listdir(cache.path)) if cache.path.exists() else []


def submitted(machine: Machine) -> list[str]:
    assert machine.trace is not None
    return [line for line in machine.trace if line.startswith(("AMDGPU_C", "AMDGPU_USERQ ", "KFD_CREATE_QUEUE "))]


# Markers.


def test_a_marker_lies_there_during_the_trial_and_a_proof_follows(
    cache: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(selftest, "check_results", lambda backend: seen.append(names(cache)))
    with Machine(LINUX_6_17) as machine:
        assert taken(machine, cache) == ("gpu:cs renderD128", "")
        assert seen == [["trying-1000"]]
        assert names(cache) == ["note"]
        assert taken(machine, cache) == ("gpu:cs renderD128", "")
        assert seen[1] == ["note"]  # what is proven needs no marker
        found = Contacts(cache.path, machine.process()).recall(about(machine))
    assert found is not None
    assert (found.outcome, found.reason, found.soak) == (PROVEN, "", 0.0)


class Killed(BaseException):
    """The process ends here."""


def test_a_process_that_died_in_a_trial_is_remembered(cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(backend: AmdBackend) -> None:
        raise Killed

    with Machine(LINUX_6_17) as machine:
        first = machine.process()
        with monkeypatch.context() as patch:
            patch.setattr(selftest, "check_results", dies)
            with pytest.raises(Killed):
                taken(machine, cache, process=first)
        assert names(cache) == [f"trying-{first.number}"]
        # It lives, and may be at it still.
        assert taken(machine, cache, "gpu:cs") == ("gpu:cs renderD128", "")
        first.kill()
        os.remove(next(cache.path.glob("gpu-*.note")))  # type: ignore[union-attr]
        machine.trace = []
        got, line = taken(machine, cache)
        assert got == "gpu:kfd renderD128"
        assert "gpu:cs: hung on /dev/dri/renderD128 on 20" in line
        assert "the process that tried it died, or hung (`zinc check --gpu` tries it again" in line
        assert not any(call.startswith("AMDGPU_CS ") for call in submitted(machine))
        # Named outright it is tried, and what was left is gone.
        assert taken(machine, cache, "gpu:cs") == ("gpu:cs renderD128", "")
        assert taken(machine, cache) == ("gpu:cs renderD128", "")
        assert names(cache) == ["note", "note"]


def test_a_trial_that_takes_too_long_counts_as_hung(cache: CompileCache) -> None:
    with Machine(LINUX_6_17) as machine:
        contacts, key = Contacts(cache.path, machine.process()), about(machine)
        with contacts.trial(key) as well:
            (marker,) = cache.path.iterdir()  # type: ignore[union-attr]
            assert contacts.recall(key) is None
            os.utime(marker, (0, time.time() - 3600))
            assert contacts.recall(key) == Contact(
                HUNG, marker.stat().st_mtime, "the process that tried it died, or hung"
            )
            well()
            assert contacts.recall(key) is None
        assert names(cache) == []


def test_a_marker_of_another_boot_is_left_over(cache: CompileCache) -> None:
    with Machine(LINUX_6_17) as machine:
        contacts, key = Contacts(cache.path, machine.process()), about(machine)
        with contacts.trial(key):
            machine.boot_id = "another"
            found = contacts.recall(key)
    assert found is not None
    assert found.outcome == HUNG


_TRIAL = """
import sys
from zinc_rt.backends.processes import this_process
from zinc_rt.utils.linux import host
print(this_process(host()), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_processes_of_this_machine() -> None:
    child = subprocess.Popen([sys.executable, "-c", _TRIAL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    process = eval(child.stdout.readline())
    assert process["pid"] == child.pid
    assert is_alive(host(), process)
    assert not is_alive(host(), {**process, "started": "1"})  # the number was used again
    assert not is_alive(host(), {**process, "boot": "another"})
    assert is_alive(host(), {**process, "namespace": 1, "pid": 1 << 30})  # cannot be seen from here
    child.send_signal(signal.SIGKILL)
    for _ in range(1000):
        if not is_alive(host(), process):
            break
        time.sleep(0.01)
    assert not is_alive(host(), process)  # a zombie, too
    child.communicate()
    assert is_alive(host(), this_process(host()))


# What is remembered of a trial that came back.


def failing(error: Exception) -> Check:
    def check(backend: AmdBackend) -> None:
        if backend.gpu.interface.name == "cs":
            raise error

    return check


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (FenceTimeout("it did not end; the ring is at 7"), HUNG, "hung on /dev/dri/renderD128"),
        (WrongResults("3 of 40 results are wrong"), WRONG, "computed wrong on /dev/dri/renderD128"),
    ],
)
def test_failures_are_remembered(
    error: Exception, outcome: str, said: str, cache: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Machine(LINUX_6_17) as machine:
        with monkeypatch.context() as patch:
            patch.setattr(selftest, "check_results", failing(error))
            assert taken(machine, cache)[0] == "gpu:kfd renderD128"
        found = Contacts(cache.path, machine.process()).recall(about(machine))
        assert found is not None
        assert (found.outcome, found.reason) == (outcome, str(error).partition(";")[0])
        for device in ("auto", "gpu"):
            got, line = taken(machine, cache, device)
            assert got == "gpu:kfd renderD128"
            assert said in line
        # Another kernel, firmware, card or machine is another situation.
        others = (
            Machine(LINUX_7_3_USERQ, machine_id=machine.machine_id),
            Machine(LINUX_6_17, [replace(R9700, firmware=Firmware(mes=151))], machine_id=machine.machine_id),
            Machine(LINUX_6_17, [RX9070], machine_id=machine.machine_id),
            Machine(LINUX_6_17),
        )
        for other in others:
            with other:
                assert taken(other, cache)[0] == "gpu:cs renderD128"
        # On request it is tried again, and believed.
        reports = probe_devices(linux=machine.process(), cache=cache, again=True)
        assert [r.device.value for r in reports if r.proven] == ["gpu:cs", "gpu:kfd"]
        assert taken(machine, cache) == ("gpu:cs renderD128", "")


def test_a_model_that_hangs_later_is_remembered(cache: CompileCache) -> None:
    with Machine(LINUX_6_17) as machine:
        _, backend = open_backend(Device.auto, BackendOptions(), cache, linux=machine.process())
        assert isinstance(backend, AmdBackend)
        assert backend.on_failure is not None
        contacts = Contacts(cache.path, machine.process())
        for error, outcome, reason in (
            (DeviceLost("the GPU was reset, as after a sleep"), PROVEN, ""),
            (FenceTimeout("step 7 did not end; more"), HUNG, "in a model's step: step 7 did not end"),
            (DeviceLost(f"lost ({GUILTY}); more"), HUNG, f"in a model's step: lost ({GUILTY})"),
        ):
            backend.on_failure(error)
            found = contacts.recall(about(machine))
            assert found is not None
            assert (found.outcome, found.reason) == (outcome, reason)
        backend.close()


def test_what_is_remembered_is_on_the_disk_and_outlives_the_kernels(
    cache: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with Machine(LINUX_6_17) as machine:
        contacts, key = Contacts(cache.path, machine.process()), about(machine)
        with contacts.trial(key):
            assert len(synced) == 2  # the marker, and the folder that names it
            contacts.failed(key, WRONG, "3 of 40")
        cache.put_note("0" * 64, {"speed": 1})
        assert cache.clear() == 1
        found = contacts.recall(key)
        assert found is not None
        assert found.reason == "3 of 40"


def test_a_folder_that_cannot_be_written_is_told_once(cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.path is not None
    cache.path.mkdir(mode=0o777)
    cache.path.chmod(0o777)  # of others, too: it is refused
    with Machine(LINUX_6_17) as machine:
        lines: list[str] = []
        trials = Trials(machine.process(), find_gpus(machine.process()), cache, lines.append)
        for candidate in trials.candidates(Device.gpu)[:2]:
            trials.open(candidate).close()
        assert len(lines) == 1
        assert "not remembered" in lines[0]
        assert names(cache) == []
        assert taken(machine, CompileCache(None)) == ("gpu:cs renderD128", "")


def test_damaged_notes_are_nothing_and_damaged_markers_are_hangs(cache: CompileCache) -> None:
    with Machine(LINUX_6_17) as machine:
        contacts, key = Contacts(cache.path, machine.process()), about(machine)
        contacts.proven(key)
        (note,) = cache.path.iterdir()  # type: ignore[union-attr]
        note.write_bytes(b"nonsense")
        assert contacts.recall(key) is None
        note.rename(note.with_suffix(".trying-7"))
        found = contacts.recall(key)
        assert found is not None
        assert found.outcome == HUNG


def test_notes_do_not_pile_up(cache: CompileCache) -> None:
    with Machine(LINUX_6_17) as machine:
        contacts, key = Contacts(cache.path, machine.process()), about(machine)
        for i in range(80):
            contacts.proven(replace(key, version=str(i)))
        assert len(names(cache)) == 64
        assert contacts.recall(replace(key, version="79")) is not None


# Displays.


def test_auto_leaves_a_card_with_a_display_alone_until_it_was_proven(cache: CompileCache) -> None:
    with Machine(LINUX_6_17, displays=SCREEN) as machine:
        machine.trace = []
        got, line = taken(machine, cache)
        assert got == "cpu"
        assert line.startswith(
            "device cpu; skipped gpu: /dev/dri/renderD128 (gfx1201) drives DP-1, and was not proven with these versions"
            " yet (`zinc check --gpu` proves it, --device gpu insists)"
        )
        plain = probe_devices(linux=machine.process(), cache=cache)
        assert [r.proven or r.unsafe for r in plain] == [True, True, True, *(False for _ in BY_DRIVER), False, False]
        assert not any(r.proven for r in plain)
        assert submitted(machine) == []
        proven = probe_devices(linux=machine.process(), cache=cache, again=True)
        assert [r.device.value for r in proven if r.proven] == ["gpu:cs", "gpu:kfd"]
        assert taken(machine, cache) == ("gpu:cs renderD128", "")


@pytest.mark.parametrize("device", ["gpu", "gpu:kfd", "gpu@renderD128"])
def test_a_device_that_is_named_is_obeyed(device: str, cache: CompileCache) -> None:
    with Machine(LINUX_6_17, displays=SCREEN) as machine:
        assert taken(machine, cache, device)[0].startswith("gpu:")


def test_auto_takes_the_card_without_a_display(cache: CompileCache) -> None:
    with Machine(LINUX_6_17, [R9700, R9700], displays=SCREEN) as machine:
        got, line = taken(machine, cache)
        assert got == "gpu:cs renderD129"
        assert "gpu:cs@renderD128, gpu:kfd@renderD128, gpu:umq@renderD128: /dev/dri/renderD128 (gfx1201) drives" in line
        assert "--device gpu@renderD128 insists" in line


# Cards by name.


@pytest.mark.parametrize(
    ("text", "device", "card"),
    [
        ("gpu@renderD129", Device.gpu, "renderD129"),
        ("gpu:cs@/dev/dri/renderD129", Device.gpu_cs, "renderD129"),
        ("gpu:kfd@03:00.0", Device.gpu_kfd, "0000:03:00.0"),
        ("auto@0000:0A:00.1", Device.auto, "0000:0a:00.1"),
        ("t1@renderD128", Device.gpu_kernel, "renderD128"),
        ("/dev/dri/renderD130", Device.gpu, "renderD130"),
        ("0000:03:00.0", Device.gpu, "0000:03:00.0"),
        ("03:00.0", Device.gpu, "0000:03:00.0"),
    ],
)
def test_names_of_cards(text: str, device: Device, card: str) -> None:
    choice = parse_device(text)
    assert (choice.device, choice.card) == (device, card)
    assert parse_device(str(choice)) == choice


@pytest.mark.parametrize(
    "text", ["cpu@renderD128", "emu@03:00.0", "gpu@", "gpu@card0", "gpu@3:0.0", "renderD", "gpu@@"]
)
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(UnknownDevice, match=repr(text)):
        parse_device(text)


def test_a_card_is_chosen(cache: CompileCache) -> None:
    with Machine(LINUX_6_17, [RAPHAEL, R9700, R9700]) as machine:
        assert taken(machine, cache) == ("gpu:cs renderD129", "")
        for name in ("gpu@renderD130", "auto@renderD130", "gpu:cs@0b:00.0", "0000:0b:00.0"):
            assert taken(machine, cache, name) == ("gpu:cs renderD130", "")
        assert taken(machine, cache, "gpu:kfd@08:00.0") == ("gpu:kfd renderD129", "")
        with pytest.raises(DeviceUnavailable, match=r"device gpu@renderD128 cannot run: .* part of the processor"):
            taken(machine, cache, "gpu@renderD128")
        there = r"renderD128 \(0000:05:00.0, gfx1036\), renderD129 \(0000:08:00.0, gfx1201\), renderD130 "
        for name in ("gpu@03:00.0", "auto@03:00.0"):
            with pytest.raises(DeviceUnavailable, match=rf"no AMD GPU 0000:03:00.0 here; there are: {there}"):
                taken(machine, cache, name)


def test_the_next_card_when_all_of_one_fails(cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_fails(backend: AmdBackend) -> None:
        if backend.gpu.device.render_node.endswith("128"):
            raise WrongResults("wrong here")

    monkeypatch.setattr(selftest, "check_results", first_fails)
    with Machine(LINUX_6_17, [R9700, R9700]) as machine:
        got, line = taken(machine, cache)
    assert got == "gpu:cs renderD129"
    assert line.startswith(
        "device gpu:cs; skipped gpu:cs@renderD128, gpu:kfd@renderD128: wrong here; gpu:umq@renderD128"
    )


# The order.


def test_a_long_soak_decides_the_order(cache: CompileCache) -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        linux = machine.process()
        contacts, trials = Contacts(cache.path, linux), Trials(linux, find_gpus(linux), cache)

        def order() -> list[str]:
            return [candidate.about.interface for candidate in trials.candidates(Device.auto)]

        assert order() == ["cs", "kfd", "umq"]
        contacts.proven(about(machine, "umq"), 59.0, 1e-4)
        assert order() == ["cs", "kfd", "umq"]
        contacts.proven(about(machine, "umq"), 61.0, 3e-4)
        assert order() == ["umq", "cs", "kfd"]
        contacts.proven(about(machine, "umq"))  # as at each start
        contacts.proven(about(machine, "kfd"), 61.0, 2e-4)
        contacts.proven(about(machine, "kfd"), 10.0, 9e-4)  # a shorter one says less
        assert order() == ["kfd", "umq", "cs"]
        contacts.failed(about(machine, "kfd"), HUNG, "later")
        assert order() == ["umq", "cs", "kfd"]
        assert [c.device for c in trials.candidates(Device.gpu_kernel)] == [Device.gpu_cs, Device.gpu_kfd]


class Steps:
    """A self-test that takes what it is told, and fails at a step."""

    def __init__(self, backend: AmdBackend, fails_at: int = 1 << 30, error: BaseException | None = None) -> None:
        self._left, self._error = fails_at, error

    def run(self) -> None:
        self._left -= 1
        if self._left == 0 and self._error is not None:
            raise self._error


def test_a_soak_is_remembered(cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine(LINUX_6_17) as machine:
        linux = machine.process()
        clock = iter(range(0, 1 << 62, 1_000_000_000))  # each look at it is a second later
        trials = Trials(linux, find_gpus(linux), cache)
        cs, kfd, _ = trials.candidates(Device.gpu)
        backends = [trials.open(c) for c in (cs, kfd, kfd)]
        monkeypatch.setattr(trials, "open", lambda candidate: backends.pop(0))
        monkeypatch.setattr(linux, "monotonic_ns", lambda: next(clock))
        monkeypatch.setattr(selftest, "SelfTest", Steps)
        found = trials.soak(cs, 100.0)
        assert found.outcome == PROVEN
        assert 100 <= found.soak <= 102
        assert found.step == 1.0
        monkeypatch.setattr(selftest, "SelfTest", lambda backend: Steps(backend, 5, FenceTimeout("step 5; more")))
        with pytest.raises(FenceTimeout):
            trials.soak(kfd, 100.0)
        known = trials.contacts.recall(kfd.about)
        assert known is not None
        assert (known.outcome, known.reason) == (HUNG, "step 5")
        # Ctrl-C while the GPU answers ends it well.
        monkeypatch.setattr(selftest, "SelfTest", lambda backend: Steps(backend, 5, KeyboardInterrupt()))
        assert trials.soak(kfd, 100.0).outcome == PROVEN
        assert names(cache) == ["note", "note"]

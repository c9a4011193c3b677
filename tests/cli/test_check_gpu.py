"""`zinc check` on cards that drive a display or failed before, `--gpu` and `--soak`; completion of cards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL
from amdgpu_emu.profiles import LINUX_7_3_USERQ
from tests.cli.conftest import Outcome
from zinc_rt.backends.amdgpu import resident_proof
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.gpu import selftest
from zinc_rt.cli.native import NativeReport
from zinc_rt.cli.options import _devices
from zinc_rt.errors import FenceTimeout

Zinc = Callable[..., Outcome]
WORK = ("AMDGPU_C", "AMDGPU_USERQ", "AMDGPU_GEM", "KFD_")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose card drives a display; a fence is proof enough there."""
    monkeypatch.setattr(selftest, "prepare", lambda *_: None)
    monkeypatch.setattr(selftest, "check_results", lambda backend: None)
    monkeypatch.setattr(resident_proof, "prove", lambda *_: ", as a resident program too")
    monkeypatch.setattr("zinc_rt.cli.native.native_report", lambda folder: NativeReport((), None, 1, None, ()))
    with Machine(LINUX_7_3_USERQ, displays={0: ["DP-1", "HDMI-A-1"]}) as machine:
        for module in ("backends.select", "cli.gpu", "cli.check"):
            monkeypatch.setattr(f"zinc_rt.{module}.host", machine.process)
        machine.trace = []
        yield machine


def check(zinc: Zinc, folder: Path, *options: str) -> Outcome:
    return zinc("check", "--cache-dir", folder, *options)


def test_nothing_is_submitted_to_a_card_with_a_display(zinc: Zinc, screen: Machine, tmp_path: Path) -> None:
    outcome = check(zinc, tmp_path)
    assert outcome.code == 0
    assert not any(call.startswith(WORK) for call in screen.trace or ())
    assert re.search(
        r"^gpu:cs +no +/dev/dri/renderD128 \(gfx1201\) drives DP-1 and HDMI-A-1, and was not", outcome.out, re.M
    )
    assert outcome.out.count("`zinc check --gpu` proves it") == 6
    assert re.search(r"^auto: cpu$", outcome.out, re.M)
    assert re.search(r"^renderD128 display +ok +drives DP-1 and HDMI-A-1$", outcome.out, re.M)
    assert re.search(r"^renderD128 firmware +ok +ME 3110", outcome.out, re.M)
    assert re.search(r"^renderD128 kfd +!! +left alone, see above", outcome.out, re.M)


def test_on_request_it_is_tried_and_remembered(zinc: Zinc, screen: Machine, tmp_path: Path) -> None:
    outcome = check(zinc, tmp_path, "--gpu")
    assert "--gpu runs a small model on /dev/dri/renderD128 (gfx1201), which drives DP-1 and HDMI-A-1," in outcome.err
    assert "the driver may reset the card" in outcome.err
    again = check(zinc, tmp_path)
    assert outcome.out.count("(gfx1201), as a resident program too") == 3
    assert "resident" not in again.out
    for shown in (outcome, again):
        assert re.search(r"^gpu:kfd +yes +computes right through kfd on /dev/dri/renderD128", shown.out, re.M)
        assert re.search(r"^auto: gpu:cs$", shown.out, re.M)
        assert re.search(r"^renderD128 umq +ok +a fence retired", shown.out, re.M)


def test_what_hangs_is_left_alone_afterwards(
    zinc: Zinc, screen: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(backend: AmdBackend) -> None:
        if backend.gpu.interface.name == "kfd":
            raise FenceTimeout("submission 1 did not retire; the ring is at 7")

    monkeypatch.setattr(selftest, "check_results", hangs)
    first = json.loads(check(zinc, tmp_path, "--gpu", "--json").out)
    assert [(d["device"], d["available"], d["unsafe"]) for d in first["devices"]][:3] == [
        ("gpu:cs", True, False),
        ("gpu:kfd", False, True),
        ("gpu:umq", True, False),
    ]
    assert "renderD128 kfd queue" not in {f["name"] for f in first["gpus"]}
    screen.trace = []
    outcome = check(zinc, tmp_path)
    assert re.search(
        r"^gpu:kfd +no +hung on /dev/dri/renderD128 on 20.*: submission 1 did not retire ->", outcome.out, re.M
    )
    assert not any(call.startswith("KFD_") for call in screen.trace)
    monkeypatch.setattr(selftest, "check_results", lambda backend: None)
    assert re.search(r"^gpu:kfd +yes ", check(zinc, tmp_path, "--gpu").out, re.M)


class Step:
    """A self-test that is over at once."""

    def __init__(self, backend: AmdBackend) -> None: ...

    def run(self) -> None: ...


def test_a_soak(zinc: Zinc, screen: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "SelfTest", Step)
    outcome = check(zinc, tmp_path, "--gpu", "--soak", "0.05")
    for interface in ("umq", "kfd", "cs"):
        assert re.search(
            rf"^renderD128 {interface} soak +ok +0 s without a fault, \d\.\d\d\d ms a step", outcome.out, re.M
        )
    assert re.search(r"^tried first +ok +gpu:cs; a soak of less than 60 s changes no order$", outcome.out, re.M)


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--soak", "5"), "give both"), (("--gpu", "--soak", "0"), "--soak is 0"), (("--gpu", "--soak", "nan"), "nan")],
)
def test_soaks_that_are_refused(zinc: Zinc, options: tuple[str, ...], words: str) -> None:
    outcome = zinc("check", *options)
    assert outcome.code == 2
    assert words in outcome.error


def test_no_card_to_try(zinc: Zinc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.cli.native.native_report", lambda folder: NativeReport((), None, 1, None, ()))
    outcome = check(zinc, tmp_path, "--gpu", "--soak", "1")
    assert re.search(r"^soak +!! +no interface of an AMD GPU works", outcome.out, re.M)


def test_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine(models=[RAPHAEL, R9700]) as machine:
        monkeypatch.setattr("zinc_rt.utils.linux.host", machine.process)
        assert _devices("gpu:c") == ["gpu:cs"]
        assert _devices("gpu:cs@r") == ["gpu:cs@renderD128", "gpu:cs@renderD129"]
        assert _devices("gpu@0000:08") == ["gpu@0000:08:00.0"]

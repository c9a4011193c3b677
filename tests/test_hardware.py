"""`pytest --gpu`: one line where there is no card, and with one the tests of the interfaces run on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL
from amdgpu_emu.profiles import LINUX_6_12, LINUX_7_3_USERQ
from tests import hardware
from zinc_rt.utils import linux

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--gpu", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([], "amdgpu drives none"),
        ([RAPHAEL], "renderD128 is gfx1036, part of the processor: of those, gfx11[.]5 alone is used"),
    ],
    ids=["none", "integrated"],
)
def test_no_card(models: list, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine(LINUX_7_3_USERQ, models) as machine:
        process = machine.process()
        monkeypatch.setattr(linux, "host", lambda: process)
        with pytest.raises(
            pytest.UsageError,
            match=f"^--gpu: no GPU to test: .*{words}; left out of this test; left out of this test; see `zinc check`$",
        ):
            hardware.begin()


def test_a_wrong_name() -> None:
    with pytest.raises(pytest.UsageError, match=r"^--gpu-card: rx9 is none of cuda, opencl, .* nor of the emulated "):
        hardware.begin("rx9")


@pytest.mark.slow  # pytest shows the error of the test above
def test_a_wrong_name_is_one_line() -> None:
    done = run("--gpu-card", "rx9", "tests/amdgpu/cs")
    assert done.returncode == 4
    assert [line for line in done.stderr.splitlines() if line] == [
        "ERROR: --gpu-card: rx9 is none of cuda, opencl, with :NUMBER for another than the first, nor of the emulated "
        + ", ".join(hardware.cards())
    ]
    assert done.stdout.strip() == ""


@pytest.mark.slow  # as is each test of a card on an emulated one
def test_a_card_that_is_another_one() -> None:
    """An emulated RX 9060 XT in the machine's place: what names an R9700, its kernel or faults is skipped by that."""
    done = run("--gpu-card", "rx9060xt", "-rs", "tests/amdgpu", "-k", "not test_pool and not test_recorded")
    assert done.returncode == 0, done.stdout[-3000:]
    found = dict(re.findall(r"(\d+) (passed|skipped|failed)", done.stdout.splitlines()[-1]))
    counts = {name: int(number) for number, name in found.items()}
    assert counts["passed"] > 60, counts
    assert "failed" not in counts
    reasons = re.findall(r"^SKIPPED \[\d+\] \S+: (.*)$", done.stdout, re.M)
    assert all(reason.startswith("needs the emulator: ") for reason in reasons), reasons
    for word in ("the kernel 6.17", "the cards AMD Radeon AI PRO", "a machine's inject", hardware.EMULATED_FIGURES):
        assert any(word in reason for reason in reasons), word


def test_a_kernel_without_user_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be opened is left out, with the reason; the other interfaces are tested."""
    from tests.amdgpu.queue import stage

    monkeypatch.setattr(stage, "INTERFACES", dict(stage.INTERFACES))
    monkeypatch.setattr(hardware, "state", {**hardware.state, "refused": {}})
    with Machine(LINUX_6_12, [R9700]) as machine:
        process = machine.process()
        monkeypatch.setattr(linux, "host", lambda: process)
        hardware.begin()
    assert list(stage.INTERFACES) == ["cs", "kfd"]
    assert "older than Linux 6.16" in hardware.state["refused"]["umq"]


def test_tests_that_must_not_run_exist() -> None:
    """Each entry of the table begins the id of a test, or is a file."""
    for beginning in hardware.EMULATED:
        file, _, name = beginning.partition("::")
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert not name or f"def {name}" in text, beginning

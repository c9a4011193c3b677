"""`zinc emu`: machines to choose, faults to inject, scripts to run, findings that count."""

from __future__ import annotations

import json

import pytest


def test_list(zinc):
    shown = zinc("emu", "list")
    assert shown.code == 0
    assert "r9700" in shown.out
    assert "6.17.0-24-generic" in shown.out
    tree = json.loads(zinc("emu", "list", "--json").out)
    assert tree["gpus"]["r9700"]["gfx_target_version"] == 120001
    assert "AMDGPU_CS" in tree["calls"]


@pytest.mark.parametrize(("kernel", "doors"), [("6.12", 2), ("6.17", 2), ("7.3", 2), ("7.3-userq", 3)])
def test_check_tries_every_door(zinc, kernel, doors):
    shown = zinc("emu", "check", "--kernel", kernel)
    assert shown.code == 0
    assert shown.out.count("a fence retired") == doors
    assert "finding" not in shown.out


def test_check_names_the_step_that_fails(zinc):
    shown = zinc("emu", "check", "--fault", "KFD_CREATE_QUEUE=EINVAL")
    assert shown.code == 0  # the other door works
    assert "create_queue_failed" in shown.out
    assert shown.out.count("a fence retired") == 1
    tree = json.loads(zinc("emu", "check", "--json", "--fault", "AMDGPU_CTX=ENOMEM").out)
    assert any(not line["ok"] for line in tree)


def test_trace(zinc):
    shown = zinc("emu", "check", "--trace")
    assert "\nKFD_ACQUIRE_VM -> 0\n" in shown.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "--kernel", "5.4"), ["'5.4'", "6.17"]),
        (("check", "--gpu", "rtx"), ["'rtx'", "r9700"]),
        (("check", "--fault", "AMDGPU_CS"), ["AMDGPU_CS=EBUSY"]),
        (("check", "--fault", "AMDGPU_CS=EWHAT"), ["EWHAT"]),
        (("check", "--fault", "AMDGPU_CS=EBUSY:x"), ["EBUSY:x"]),
        (("check", "script.py"), ["zinc emu run script.py"]),
        (("run",), ["zinc emu run FILE.py"]),
        (("run", "missing.py"), ["missing.py", "not a file"]),
    ],
)
def test_wrong_use(zinc, arguments, words):
    outcome = zinc("emu", *arguments)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert all(word in outcome.err for word in words)


def test_an_unknown_call_cannot_fail(zinc):
    outcome = zinc("emu", "check", "--fault", "AMDGPU_DANCE=EIO")
    assert outcome.code == 2
    assert "AMDGPU_DANCE" in outcome.err


def test_run_gives_a_machine(zinc, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "def main(machine, linux):\n"
        "    fd = linux.open('/dev/dri/renderD128')\n"
        "    print(len(machine.gpus), sys.argv[1:])\n"
        "    linux.close(fd)\n"
    )
    shown = zinc("emu", "run", script, "a", "b", "--gpu", "r9700", "--gpu", "raphael")
    assert (shown.code, shown.out) == (0, "2 ['a', 'b']\n")


def test_findings_are_the_exit_code(zinc, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def main(machine, linux):\n    linux.open('/dev/dri/renderD128')\n")
    shown = zinc("emu", "run", script)
    assert shown.code == 1
    assert "finding: leak" in shown.out


def test_a_script_that_fails(zinc, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def main(machine, linux):\n    linux.open('/dev/dri/renderD200')\n")
    shown = zinc("emu", "run", script)
    assert shown.code == 1
    assert "No such file" in shown.err


def test_a_script_without_main(zinc, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("main = 1\n")
    outcome = zinc("emu", "run", script)
    assert outcome.code == 2
    assert "main(machine, linux)" in outcome.err

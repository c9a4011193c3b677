"""`zinc emu`: machines to choose, faults to inject, scripts to run, findings that count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.tiny import write_tiny_model
from zinc_rt.gguf import GGMLType


def test_list(zinc):
    shown = zinc("emu", "list")
    assert shown.code == 0
    assert "r9700" in shown.out
    assert "6.17.0-24-generic" in shown.out
    tree = json.loads(zinc("emu", "list", "--json").out)
    assert tree["gpus"]["r9700"]["gfx_target_version"] == 120001
    assert "AMDGPU_CS" in tree["calls"]


@pytest.mark.parametrize(
    ("kernel", "interfaces"),
    [
        pytest.param(kernel, n, marks=() if kernel == "7.3-userq" else pytest.mark.slow)
        for kernel, n in (("6.12", 2), ("6.17", 2), ("7.3", 2), ("7.3-userq", 3))
    ],
)
def test_check_tries_every_interface(zinc, kernel, interfaces):
    shown = zinc("emu", "check", "--kernel", kernel)
    assert shown.code == 0
    assert shown.out.count("a fence retired") == interfaces
    assert "finding" not in shown.out


def test_check_names_the_step_that_fails(zinc):
    shown = zinc("emu", "check", "--trace", "--fault", "KFD_CREATE_QUEUE=EINVAL")
    assert shown.code == 0  # the other interface works
    assert "\nKFD_ACQUIRE_VM -> 0\n" in shown.out
    assert "create_queue_failed" in shown.out
    assert shown.out.count("a fence retired") == 1
    tree = json.loads(zinc("emu", "check", "--json", "--fault", "AMDGPU_CTX=ENOMEM").out)
    assert any(not line["ok"] for line in tree)


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
        (("profile",), ["zinc emu profile FILE.py"]),
        (("profile", "missing.py"), ["missing.py", "not a file"]),
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
    script.write_text("import math\ndef main(machine, linux):\n    assert math.pi == 3\n")
    shown = zinc("emu", "run", script)
    assert shown.code == 1
    assert f"{script}, line 3: AssertionError; --debug" in shown.err
    script.write_text("def main(:\n")
    assert "SyntaxError" in zinc("emu", "run", script).err


def test_a_script_without_main(zinc, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("main = 1\n")
    outcome = zinc("emu", "run", script)
    assert outcome.code == 2
    assert "main(machine, linux)" in outcome.err


EXAMPLE = Path(__file__).parents[2] / "examples" / "gpu_kernel.py"


def test_profile_measures_kernels(zinc):
    shown = zinc("emu", "profile", EXAMPLE)
    assert shown.code == 0
    assert "matvec_q8_0  16x1x1" in shown.out
    assert "waves/SIMD" in shown.out
    result = zinc("emu", "profile", EXAMPLE, "--json")
    rows = {row["kernel"]: row for row in json.loads(result.out)}
    assert result.err.startswith("[")  # what the script prints
    row = rows["matvec_q8_0"]
    # 64 rows of 32 blocks; 32 bytes and a scale of activations for each.
    assert row["unique_read"] == 64 * 32 * 34 + 32 * 36
    assert row["bytes_read"] == 64 * 32 * (34 + 36)
    assert (row["calls"], row["waves"], row["bytes_written"], row["unique_written"]) == (1, 64, 256, 256)
    assert row["instructions"]["dot"] == 64 * 8
    assert row["bound"] == "latency"
    assert 0.4 < row["microseconds"] < 2
    assert row["bandwidth"] == pytest.approx((row["unique_read"] + 256) / (row["microseconds"] * 1e-6) / 576e9)


def test_profile_without_dispatches_and_with_findings(zinc, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def main(machine, linux):\n    linux.open('/dev/dri/renderD128')\n")
    shown = zinc("emu", "profile", script)
    assert shown.code == 1
    assert shown.out.startswith("no dispatch ran\n")
    assert "finding: leak" in shown.out
    result = zinc("emu", "profile", script, "--json")
    assert (result.code, json.loads(result.out)) == (1, [])
    assert "finding: leak" in result.err


def test_profile_shows_why_a_kernel_failed(zinc, tmp_path):
    script = tmp_path / "script.py"
    text = EXAMPLE.read_text().replace("x, q, d, s, COLUMNS)", "0x1000, q, d, s, COLUMNS)")
    script.write_text(text.replace("    rng =", "    machine.time_scale = 0.01\n    rng ="))
    outcome = zinc("emu", "profile", script)
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "product" in outcome.err
    (line,) = [line for line in outcome.out.splitlines() if "0x1000" in line]
    assert line.startswith("kernel log: ")
    assert all(word in line for word in ("global_load_b", "quantize", "wave 0 of workgroup 0, lane 0"))


def test_a_model_on_the_emulated_card(zinc, tmp_path):
    trace, model = tmp_path / "trace.json", write_tiny_model(tmp_path / "tiny.gguf", weights=GGMLType.Q8_0)
    asked = ("run", "-m", model, "O", "-n", 1, "--temp", 0, "-c", 32)
    words = (*asked, "--device", "emu", "--profile", "--trace-file", trace)
    outcome = zinc(*words)
    assert outcome.code == 0
    assert "predicted for AMD Radeon AI PRO R9700: 1 step" in outcome.err
    assert "matvec Q8_0 M=1" in outcome.err
    assert "sample_draw" in outcome.err
    assert json.loads(trace.read_text())["traceEvents"]
    assert outcome.out == zinc(*asked, "--device", "cpu", "--kernels", "reference").out

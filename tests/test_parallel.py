"""Tests in forked processes: all of them run once, and one whose process dies is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
import os, signal, time
import pytest

@pytest.fixture(scope="module")
def made():
    with open("made", "a") as out:
        out.write("x")

@pytest.mark.parametrize("i", range(12))
def test_passes(made, i):
    print("printed", i)

def test_fails():
    print("said", "before")
    assert 1 == 2

def test_leaves():
    os._exit(3)

def test_is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.timeout(0.2)
def test_takes_too_long():
    time.sleep(30)

@pytest.mark.skip(reason="left out")
def test_skipped(): ...

@pytest.mark.parametrize("i", range(12))
def test_passes_behind(made, i): ...
"""


def ran(folder: Path, *options: str) -> tuple[int, str]:
    """The exit code and the output of a run of SOURCE in two processes."""
    (folder / "test_it.py").write_text(SOURCE)
    root = Path(__file__).parent.parent
    plugins = ("-p", "tests.parallel", "-p", "pytest_timeout")
    command = [sys.executable, "-m", "pytest", *plugins, "-c", "/dev/null", "--jobs", "2", "-q", *options]
    done = subprocess.run(
        [*command, "--rootdir", ".", "test_it.py"],
        check=False, cwd=folder, env={"PYTHONPATH": str(root), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_all_tests_run_and_dead_processes_are_failures(tmp_path: Path) -> None:
    code, output = ran(tmp_path)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "4 failed, 24 passed, 1 skipped" in output
    assert "the process of this test ended with exit code 3" in output
    assert "the process of this test ended with SIGKILL" in output
    assert "Timeout (>0.2s)" in output
    assert output.count("said before") == 1  # what a passing test prints is not shown
    assert "printed" not in output
    assert 2 <= len((tmp_path / "made").read_text()) <= 4  # by each process, not for each test


def test_the_first_failure_ends_the_run(tmp_path: Path) -> None:
    code, output = ran(tmp_path, "-x")
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "stopping after 1 failures" in output

"""Compile processes end with the process that started them, in the midst of a compile too, and within a CPU limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lang.modules import increment, slow
from zinc_rt.lang import children
from zinc_rt.lang.compiler import Compiler, Module, _request
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.image import Image
from zinc_rt.lang.worker import FRAME

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")

PARENT = """
from dataclasses import replace
from tests.lang.modules import slow
from zinc_rt.lang.compiler import Compiler, Module, _request
much = ";" + 50_000 * "x"  # a second process is started only where there is text enough for it
Compiler(jobs=2).compile([replace(slow(name), ir=slow(name).ir + much) for name in "ab"])
"""
# Starts a compile process whose input is another's to close.
BETWEEN = """
import subprocess, sys
from zinc_rt.lang.children import worker_command
subprocess.Popen(worker_command(), stdin=int(sys.argv[1]), stdout=subprocess.DEVNULL, close_fds=True).wait()
"""


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty where there is no such process, or only its status."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    fields = text.rpartition(")")[2].split()
    return [] if fields[0] in "ZX" else fields


def busy_children(parent: int) -> list[int]:
    """The children of a process that have used a third of a second of processor time: they are compiling."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))) and int(fields[1]) == parent:
            used = (int(fields[11]) + int(fields[12])) / TICKS
            if used > 0.3:
                found.append(int(entry.name))
    return found


def wait_for_children(parent: int, n: int) -> list[int]:
    """Their process ids. Kills the parent before it fails: to leave the context of its Popen is to wait for it."""
    deadline = time.monotonic() + 30
    while len(found := busy_children(parent)) < n:
        if time.monotonic() > deadline:
            if parent != os.getpid():
                os.kill(parent, signal.SIGKILL)
            pytest.fail(f"process {parent} has {found} busy children, {n} are needed")
        time.sleep(0.05)
    return found


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 5
    while any(stat(pid) for pid in pids):
        assert time.monotonic() < deadline, f"of {pids} some still run"
        time.sleep(0.02)


def request(module: Module) -> bytes:
    """What a compile process is sent first: the path, and one module."""
    job = {**_request(module, disassemble=False), "cpu_seconds": 60}
    out = b""
    for header, payload in (({"path": sys.path}, b""), (job, module.ir.encode())):
        text = json.dumps(header).encode()
        out += FRAME.pack(len(text), len(payload)) + text + payload
    return out


@pytest.fixture
def killed_at_end() -> Iterator[list[int]]:
    """Processes that a failing test must not leave behind."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if stat(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_killed_parent_leaves_no_compiler(number: signal.Signals, killed_at_end: list[int]) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT) as parent:
        killed_at_end += [parent.pid]
        killed_at_end += wait_for_children(parent.pid, 2)
        parent.send_signal(number)
        assert parent.wait(timeout=10) == -number
        assert_gone(killed_at_end)


def test_the_end_of_the_parent_is_enough(killed_at_end: list[int]) -> None:
    """Another process may hold the other end of its input: one that the parent forked."""
    end, held = os.pipe()
    with subprocess.Popen([sys.executable, "-c", BETWEEN, str(end)], cwd=ROOT, pass_fds=[end]) as between:
        os.close(end)
        os.write(held, request(slow("a")))
        killed_at_end += [between.pid]
        killed_at_end += wait_for_children(between.pid, 1)
        between.kill()
        assert_gone(killed_at_end[1:])
    os.close(held)


def test_the_end_of_the_input_is_enough(killed_at_end: list[int]) -> None:
    """Where the system does not tell of a parent's end, the pipe does."""
    with subprocess.Popen(children.worker_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        killed_at_end += [worker.pid]
        worker.stdin.write(request(slow("a")))
        worker.stdin.flush()
        while worker.pid not in wait_for_children(os.getpid(), 1):  # other tests may have left theirs
            time.sleep(0.05)
        worker.stdin.close()
        assert worker.wait(timeout=5) == 0


def test_a_parent_that_ended_before_is_noticed() -> None:
    command = children.worker_command()
    assert command[-1] == str(os.getpid())
    command[-1] = str(2**22 + 1)  # no process has it
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        assert worker.wait(timeout=20) == 0


def test_what_takes_too_long_is_refused_by_name_and_number() -> None:
    """A process that has worked before has its limit from the module on, not from its start."""
    quick, limited, last = Compiler(jobs=1, cpu_seconds=1).compile_each([increment("a"), slow("long"), increment("b")])
    assert isinstance(quick, Image)
    assert isinstance(last, Image)
    assert isinstance(limited, CompileError)
    assert str(limited) == (
        "cannot compile long: not done after 1 s of processor time, the limit of one kernel; make it smaller"
    )
    assert limited.lasting


@pytest.mark.slow  # the test above has it for a module behind another
def test_the_limit_is_not_that_of_all_modules_together() -> None:
    """Each takes some tenths of a second, so that one process exceeds a limit that counts from its start."""
    images = Compiler(jobs=1, cpu_seconds=1).compile_each([slow(str(i), bits=2560) for i in range(8)])
    assert [type(image) for image in images] == [Image] * 8

"""The process that renders chat templates: what it may do, how it starts and ends, and what is said when it fails."""

from __future__ import annotations

import gc
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from zinc_rt.text import ChatTemplateError, template_process
from zinc_rt.text.template_limits import TemplateLimits
from zinc_rt.text.template_process import TemplateProcess
from zinc_rt.utils.isolated import child, system_calls

MIB = 1 << 20
READY = b"\2" + b"\0" * 15 + b"{}"
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


SHORT = TemplateLimits(address_space=256 * MIB, cpu_seconds=1, seconds=30)


@pytest.fixture(scope="module")
def process() -> Iterator[TemplateProcess]:
    """The one of all tests that do not ask how it starts: where a test ends its child, the next one starts another."""
    with_short_limits = TemplateProcess(SHORT)
    yield with_short_limits
    with_short_limits.close()


@pytest.fixture
def fresh() -> Iterator[TemplateProcess]:
    """One that has not started."""
    made = TemplateProcess(SHORT)
    yield made
    made.close()


def child_of(process: TemplateProcess) -> int:
    """The id of the process that renders, started if need be."""
    process.render("", {})
    assert process._child is not None
    return process._child._process.pid


def runs(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pid: int) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + 20
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runs(pid)


def refused(process: TemplateProcess, source: str, variables: Any = None) -> str:
    with pytest.raises(ChatTemplateError) as caught:
        process.render(source, variables or {})
    return str(caught.value)


def started(work: Callable[[], None], seconds: float = 0.5) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer


# What it is.


def test_it_is_kept_for_the_next_rendering(process: TemplateProcess) -> None:
    first = child_of(process)
    assert process.render("{{ a }}", {"a": 5}) == "5"
    assert "line 2: it refuses" in refused(process, "\n{{ raise_exception('no') }}")
    assert "syntax error" in refused(process, "{% if %}")
    assert child_of(process) == first


def test_nothing_starts_before_the_first_rendering() -> None:
    assert TemplateProcess(TemplateLimits())._child is None


def test_one_may_be_prepared_for_the_next_file(monkeypatch: pytest.MonkeyPatch) -> None:
    template_process.prepare()
    template_process.prepare()
    process = template_process.take(TemplateLimits())
    assert process._child is not None
    pid = process._child._process.pid
    assert process.render("x", {}) == "x"
    assert child_of(process) == pid
    process.prepare()
    assert child_of(process) == pid
    assert template_process.take(TemplateLimits())._child is None
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    template_process.prepare()
    assert "No such file or directory" in refused(template_process.take(TemplateLimits()), "x")


def test_its_limits(fresh: TemplateProcess) -> None:
    text = Path(f"/proc/{child_of(fresh)}/limits").read_text()
    rows = {line[:25].strip(): line[25:].split()[:2] for line in text.splitlines()}
    assert rows["Max address space"] == [str(256 * MIB)] * 2
    assert rows["Max open files"] == rows["Max file size"] == rows["Max core file size"] == ["0", "0"]
    assert 1 <= int(rows["Max cpu time"][0]) <= 3


def processor_seconds(child: int) -> float:
    """What a process has taken so far, from the 14th and 15th field of its `stat`; two stand before its name's end."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_processor_time_is_counted_anew_for_each_rendering(process: TemplateProcess) -> None:
    first = child_of(process)
    half = "{% for i in range(99999) %}{% for j in range(n) %}{% endfor %}{% endfor %}"
    n = 1
    while processor_seconds(first) < 1.3:  # more than the limit
        started_at = time.monotonic()
        process.render(half, {"n": n})
        n += time.monotonic() - started_at < 0.3
    assert child_of(process) == first


def test_nothing_of_the_parent_is_passed_on(fresh: TemplateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINC_TEST_SECRET", "x")
    monkeypatch.setenv("TZ", "XYZ-9")
    with open(__file__) as _kept_open:
        pid = child_of(fresh)
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert {entry.partition(b"=")[0] for entry in environment} <= {b"", b"TZ", b"LD_LIBRARY_PATH", b"LC_CTYPE"}
        assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]
    zone, form = timezone(timedelta(hours=9)), "%Y-%m-%d %H:%M"
    before, text = datetime.now(zone), fresh.render(f"{{{{ strftime_now('{form}') }}}}", {})
    assert text in {before.strftime(form), datetime.now(zone).strftime(form)}


def test_it_is_in_no_folder_and_linux_filters_its_calls(process: TemplateProcess) -> None:
    pid = child_of(process)
    assert os.readlink(f"/proc/{pid}/cwd").endswith(" (deleted)")
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert {"processes", "open files", "file size", "core file size"} <= {
        line[4:26].strip() for line in limits.splitlines() if line[26:47].strip() == "0"
    }


ESCAPES = """
import os, resource, socket, time
from zinc_rt.utils.isolated import worker
parent = os.getppid()
worker._give_up(1 << 30)
tries = {
    "fork": os.fork, "socket": socket.socket, "listdir": lambda: os.listdir("/"), "kill": lambda: os.kill(parent, 0),
    "open": lambda: os.open("/", os.O_RDONLY), "mkdir": lambda: os.mkdir("/tmp/zinc-escape"), "pipe": os.pipe,
    "prlimit": lambda: resource.prlimit(parent, resource.RLIMIT_CPU), "chdir": lambda: os.chdir("/"),
    "execv": lambda: os.execv("/bin/true", ["true"]), "nice": lambda: os.nice(0),
}
for name, what in tries.items():
    try:
        what()
        os.write(1, (name + " ").encode())
    except PermissionError:
        pass
    except OSError as error:
        os.write(1, f"{name}:{error.errno} ".encode())
assert sum(bytearray(1 << 24)) == 0 and time.strftime("%Y") and os.urandom(8)
os.write(1, b"ends")
os._exit(0)
"""


def test_what_gets_out_of_the_sandbox_gets_no_further() -> None:
    variables = {"PYTHONPATH": os.pathsep.join(child.import_path())}
    command = [sys.executable, "-c", ESCAPES]
    done = subprocess.run(command, env=variables, capture_output=True, timeout=60, check=False)
    assert done.stdout == b"ends", done.stderr.decode()


@pytest.mark.parametrize("machine", system_calls.CALLS)
def test_filters_are_whole(machine: str) -> None:
    """Every jump stays inside, and the last step returns; an interpreter of the program agrees with the table."""
    code = list(struct.iter_unpack("=HBBI", system_calls.program(machine)))
    arch, calls = system_calls.CALLS[machine]

    def verdict(nr: int, args: tuple[int, ...] = (0, 0, 0), arch: int = arch) -> int:
        data = struct.pack("=iIQ6Q", nr, arch, 0, *args, *(0,) * (6 - len(args)))
        at, held = 0, 0
        while True:
            kind, yes, no, value = code[at]
            if kind == 0x06:
                return int(value)
            held = int.from_bytes(data[value : value + 4], "little") if kind == 0x20 else held
            at += 1 + ((yes if held == value else no) if kind == 0x15 else 0)

    allowed = {nr for nr in range(-1, 1000) if verdict(nr, (0, 4)) == 0x7FFF0000}
    assert allowed == set(calls.values())
    assert verdict(calls["prlimit64"], (1, 0)) == verdict(calls["fcntl"], (0, 8)) == 0x00050001
    assert verdict(calls["read"], arch=0x40000003) == verdict(0, arch=0) == 0x80000000
    assert system_calls.program("riscv64") == b""


def test_ctrl_c_at_the_terminal_is_not_for_it(process: TemplateProcess) -> None:
    pid = child_of(process)
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGINT)
    assert child_of(process) == pid


# What reaches a template.


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ((1, (2,)), "[1, [2]]"),
        (OrderedDict(a=[None, True]), "{'a': [None, True]}"),
        (MappingProxyType({"é": MappingProxyType({})}), "{'é': {}}"),
        (float("inf"), "inf"),
        (0.1, "0.1"),
        (-(2**70), str(-(2**70))),
        ("\U0001f600\ud800\x00", "\U0001f600\ud800\x00"),
    ],
)
def test_values(process: TemplateProcess, value: Any, shown: str) -> None:
    assert process.render("{{ value }}", {"value": value}) == shown


def test_a_long_conversation(process: TemplateProcess) -> None:
    text = "é水 " * 10**6
    assert process.render("{{ value }}{{ value | length }}", {"value": text}) == f"{text}3000000"


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


_CIRCLE: list[Any] = []
_CIRCLE.append(_CIRCLE)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"x", "must be made of str, int, float, bool, None, lists and mappings, not b'x'"),
        ({1}, "must be made of str, int, float, bool, None, lists and mappings, not {1}"),
        ([Odd()], "must be made of str, int, float, bool, None, lists and mappings, not Odd()"),
        ({"a": {5: 1}}, "a key of messages or variables must be a str, not 5"),
        (_CIRCLE, "hold themselves, or are nested too deep"),
        (10**5000, "cannot be written as JSON: Exceeds the limit"),
        ("x" * (32 * MIB), f"messages and variables take {32 * MIB + 12} bytes as JSON, the limit is {32 * MIB}"),
    ],
    ids=["bytes", "set", "object", "key", "circle", "digits", "size"],
)
def test_values_that_cannot_be_sent(fresh: TemplateProcess, value: Any, says: str) -> None:
    assert says in refused(fresh, "{{ value }}", {"value": value})
    assert fresh._child is None


# What it says.


def test_errors_are_short_and_on_one_line_and_printable(process: TemplateProcess) -> None:
    begin = "chat template, line 1: it refuses this conversation: "
    said = refused(process, "{{ raise_exception('\\x1b[2J\\x07\\r\\n a\\u202eb\\x9b') }}")
    assert said == begin + "\\x1b[2J\\x07 a\\u202eb\\x9b"
    said = refused(process, "{% set n = 16000000 %}{{ raise_exception('\\x1b' * n) }}")
    assert said.startswith(begin + "\\x1b\\x1b")
    assert said.endswith("...")
    assert len(said) == len("chat template, line 1: ") + 300
    assert "syntax error: unexpected char '\\u202e' at 3" in refused(process, "{{ \u202e }}")


# How it fails.


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ 'x' * 10**9 }}", "it takes more than 256 MiB of memory"),
        # The next test goes over this limit.
        pytest.param(ENDLESS, "it takes more than 1 s of processor time to render", marks=pytest.mark.slow),
    ],
)
def test_a_new_one_follows_one_that_went_over_a_limit(process: TemplateProcess, source: str, says: str) -> None:
    first = child_of(process)
    assert says in refused(process, source)
    assert not runs(first)
    assert process.render("{{ a }}", {"a": 1}) == "1"


def test_signals_that_the_parent_ignores_or_blocks() -> None:
    script = f"""
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGXCPU, signal.SIGTERM}})
process.close()
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone"); sys.path.insert(0, "")
try:
    process.render({ENDLESS!r}, {{}})
except Exception as error:
    print(error)
"""
    with tempfile.TemporaryDirectory() as folder:
        done = run(_SCRIPT.replace("cpu_seconds=2", "cpu_seconds=1") + f"os.chdir({folder!r})" + script)
    said = "chat template: it takes more than 1 s of processor time to render"
    assert (done.stdout.splitlines()[1:], done.stderr) == ([said], "")


def test_one_that_does_not_answer() -> None:
    process = TemplateProcess(TemplateLimits(seconds=0.5))
    os.kill(first := child_of(process), signal.SIGSTOP)
    assert refused(process, "x") == "chat template: it is not rendered after 0.5 s"
    assert not runs(first)
    process.limits = TemplateLimits()
    assert process.render("x", {}) == "x"
    process.close()


def test_one_that_was_killed_between_renderings(process: TemplateProcess) -> None:
    first = child_of(process)
    os.kill(first, signal.SIGKILL)
    assert ends(first)
    assert process.render("x", {}) == "x"
    assert child_of(process) != first


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (signal.SIGKILL, "was ended by SIGKILL, perhaps for lack of memory"),
        pytest.param(signal.SIGSEGV, "was ended by SIGSEGV", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "was ended by SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_one_that_is_killed_while_it_renders(process: TemplateProcess, sent: signal.Signals, says: str) -> None:
    pid = child_of(process)
    timer = started(lambda: os.kill(pid, sent))
    assert refused(process, ENDLESS) == f"chat template: the process that renders it {says}"
    timer.join()
    assert process.render("x", {}) == "x"


def test_ctrl_c_while_it_renders(process: TemplateProcess) -> None:
    """The answer that is not waited for must not be taken for the next one."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    first = child_of(process)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            process.render(ENDLESS, {})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not runs(first)
    assert process.render("x", {}) == "x"


@pytest.mark.parametrize(
    ("executable", "says"),
    [
        ("/nonexistent/python", "No such file or directory"),
        ("/", "Permission denied"),
        ("/bin/false", "ended with code 1"),
        ("", "this program does not know its Python interpreter"),
    ],
)
def test_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch, executable: str, says: str) -> None:
    process = TemplateProcess(TemplateLimits())
    monkeypatch.setattr(sys, "executable", executable)
    assert refused(process, "x") == f"chat template: the process that renders it cannot be started: {says}"
    monkeypatch.undo()
    assert process.render("x", {}) == "x"
    process.close()


def test_where_the_system_permits_no_further_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(child.subprocess, "Popen", denied)
    said = refused(TemplateProcess(TemplateLimits()), "x")
    assert said == ("chat template: the process that renders it cannot be started: Resource temporarily unavailable")


def test_without_jinja2(monkeypatch: pytest.MonkeyPatch) -> None:
    path = [entry for entry in sys.path if entry and not (Path(entry) / "jinja2").exists()]
    monkeypatch.setattr(child, "import_path", lambda: path)
    said = refused(TemplateProcess(TemplateLimits()), "x")
    assert said == "chat template: the process that renders it cannot be started: No module named 'jinja2'"


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (b"\xff" * 16, f"sent an answer of {2 * (2**64 - 1)} bytes"),
        pytest.param(b"\2" + b"\0" * 15 + b"[]", "sent an answer that cannot be read", marks=pytest.mark.slow),
        (b"\2" + b"\0" * 15 + b"{]", "sent an answer that cannot be read"),
        (b"\2" + b"\0" * 15 + b"{}more", "sent more than an answer"),
        (b"\2", "ended with code 0"),
    ],
)
def test_answers_are_not_trusted(fresh: TemplateProcess, answers: bytes, says: str, tmp_path: Path) -> None:
    """As of a process that a template has taken over."""
    root = Path(template_process.__file__).parents[2]
    (tmp_path / "fake.py").write_text(
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "from zinc_rt.utils.isolated.worker import read_frame\n"
        f"for answer in ({READY!r}, {answers!r}):\n"
        "    read_frame(sys.stdin.buffer)\n"
        "    sys.stdout.buffer.write(answer)\n"
        "    sys.stdout.flush()\n"
    )
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/fake.py\n")
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(script))
        assert refused(fresh, "x") == f"chat template: the process that renders it {says}"
    assert fresh.render("x", {}) == "x"


# How it ends.


def test_threads_take_turns(process: TemplateProcess) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for i in range(20):
            text = process.render("{{ a }}" * (i + 1), {"a": f"{number}.{i} "})
            if text != f"{number}.{i} " * (i + 1):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_it_ends_with_its_owner() -> None:
    process = TemplateProcess(TemplateLimits())
    pid = child_of(process)
    assert runs(pid)
    del process
    gc.collect()
    assert not runs(pid)


def test_a_closed_one_starts_again(process: TemplateProcess) -> None:
    pid = child_of(process)
    process.close()
    process.close()
    assert not runs(pid)
    assert child_of(process) != pid


_SCRIPT = """
import os, signal, sys, threading, time
from zinc_rt.text.template_limits import TemplateLimits
from zinc_rt.text.template_process import TemplateProcess
process = TemplateProcess(TemplateLimits(cpu_seconds=2, seconds=60))
process.render("", {})
pid = process._child._process.pid
print(pid, flush=True)
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", script]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "end",
    [
        "",
        "os._exit(0)",
        *(pytest.param(end, marks=pytest.mark.slow) for end in ("sys.exit(1)", "1 / 0", "os.abort()")),
        "os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_it_ends_with_the_program(end: str) -> None:
    done = run(_SCRIPT + end)
    assert ends(int(done.stdout))


def test_it_ends_with_a_program_that_is_killed_while_it_renders() -> None:
    script = _SCRIPT + "threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()\n"
    script += f"process.render({ENDLESS!r}, {{}})\n"
    done = run(script)
    assert done.returncode == -signal.SIGKILL
    assert ends(int(done.stdout))


def test_a_forked_process_has_its_own() -> None:
    """Also where another thread was rendering when it was made."""
    script = (
        _SCRIPT
        + f"""
thread = threading.Thread(target=lambda: print(process.render("{ENDLESS.replace("99999", "1500")}" + "done", {{}})))
thread.start()
time.sleep(0.05)
assert process._lock.locked()
if (forked := os.fork()) == 0:
    print(process.render("{{{{ a }}}}", {{"a": "mine"}}), process._child._process.pid != pid, flush=True)
    os._exit(0)  # as a worker of multiprocessing does
assert os.waitpid(forked, 0)[1] == 0
thread.join()
if os.fork() == 0:
    sys.exit()  # must not end what is not its own
os.wait()
assert process.render("x", {{}}) == "x"
assert process._child._process.pid == pid
print("kept")
"""
    )
    done = run(script)
    assert (sorted(done.stdout.split()[1:]), done.stderr) == (["True", "done", "kept", "mine"], "")


def test_the_runtimes_own_process_does_not_import_jinja2() -> None:
    script = _SCRIPT + "print([name for name in sys.modules if name.partition('.')[0] in ('jinja2', 'markupsafe')])"
    done = run(script)
    assert done.stdout.splitlines()[1] == "[]"

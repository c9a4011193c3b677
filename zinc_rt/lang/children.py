"""Compile processes side by side, each given its next job when it has answered the last one."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.worker import FRAME

Job = tuple[dict[str, Any], bytes]
_CHUNK: Final = 1 << 16
_TELLING: Final = ("LLVM ERROR:", "error:")  # how LLVM's last words begin


@dataclass(frozen=True)
class JobResult:
    """The answer of a process to a job."""

    header: dict[str, Any]
    payload: bytes


@dataclass(frozen=True)
class Crash:
    """A job that ended its process or was not done in time, and what LLVM printed meanwhile."""

    reason: str
    notes: str
    status: int | None  # how the process ended, as in `Popen.returncode`; None: it ran on and was given up

    @property
    def over_cpu_limit(self) -> bool:
        """Whether the job took more processor time than it was given."""
        return self.status == -signal.SIGXCPU

    @property
    def by_llvm(self) -> bool:
        """Whether LLVM ended the process because of what the job holds: it would do so again."""
        words = _last_words(self.notes)
        return bool(self.status) and words.startswith(_TELLING) and "memory" not in words.lower()


def worker_command() -> list[str]:
    """How this process starts a compile process: isolated, without `site`, which takes longer than Python itself."""
    if not sys.executable:
        raise CompileError("this program does not know its Python interpreter, which runs the compiler")
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("worker.py")), str(os.getpid())]


def run_jobs(
    jobs: Sequence[Job], children: int, timeout: float, done: Callable[[int], None] | None = None
) -> list[JobResult | Crash]:
    """The answers in the order of the jobs. `timeout` is in seconds for each job. done: gets how many are ready.

    No process outlives the call, however it ends. Raises `CompileError` when none can be started.
    """
    results: list[JobResult | Crash | None] = [None] * len(jobs)
    # The longest text first, so that no process is left alone with it at the end; pop() takes from the back.
    waiting = sorted(range(len(jobs)), key=lambda i: len(jobs[i][1]))
    suspects: list[int] = []  # they killed a process that had done other jobs before; each gets a fresh one
    running: set[_Child] = set()
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or suspects or any(c.job is not None for c in running):
                while suspects and len(running) < children:
                    running.add(child := _Child(selector))
                    child.give(suspects.pop(), jobs, timeout)
                idle = sum(c.job is None for c in running)
                for _ in range(min(children - len(running), len(waiting) - idle)):
                    running.add(_Child(selector))
                for child in running:
                    if child.job is None and waiting:
                        child.give(waiting.pop(), jobs, timeout)
                _wait(selector, running)
                for child in list(running):
                    if child.job is None:
                        continue
                    if (answer := child.answer()) is not None:
                        results[child.job], child.job = answer, None
                    elif (crash := child.crash(timeout)) is not None:
                        if child.done > 0 and crash.status is not None and not crash.over_cpu_limit:
                            suspects.append(child.job)
                        else:
                            results[child.job] = crash
                        running.remove(child)
                        child.end()
                if done is not None:
                    done(sum(result is not None for result in results))
        finally:
            for child in running:
                child.end()
    return [r for r in results if r is not None]


def _wait(selector: selectors.BaseSelector, running: set[_Child]) -> None:
    """Move bytes until something can move or the first deadline passes."""
    deadline = min(c.deadline for c in running if c.job is not None)
    for key, events in selector.select(max(deadline - time.monotonic(), 0)):
        child: _Child = key.data
        if events & selectors.EVENT_READ:
            child.receive()
        else:
            child.send()


class _Child:
    """One process and the bytes on their way to and from it."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.job: int | None = None
        self.done = 0
        self.deadline = 0.0
        self._closed = False
        self._incoming = bytearray()
        self._selector = selector
        command = worker_command()
        self._errors = os.memfd_create("zinc_rt errors")  # a file: it can be read when the process has crashed
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
            )
        except OSError as error:
            os.close(self._errors)
            raise CompileError(f"the compile process {sys.executable} cannot be started: {error.strerror}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        selector.register(self._out, selectors.EVENT_READ, self)
        self._outgoing = memoryview(_frame({"path": [p for p in sys.path if isinstance(p, str)]}, b""))

    def give(self, number: int, jobs: Sequence[Job], timeout: float) -> None:
        """Begin to send a job; the time for it starts now."""
        self.job = number
        self.deadline = time.monotonic() + timeout
        self._mark = os.lseek(self._errors, 0, os.SEEK_END)
        self._outgoing = memoryview(bytes(self._outgoing) + _frame(*jobs[number]))
        self._selector.register(self._in, selectors.EVENT_WRITE, self)

    def send(self) -> None:
        """Pass on what the pipe takes."""
        try:
            self._outgoing = self._outgoing[os.write(self._in, self._outgoing[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it is gone; the closed output tells
            self._outgoing = self._outgoing[:0]
        if not self._outgoing:
            self._selector.unregister(self._in)

    def receive(self) -> None:
        """Take what has come."""
        data = os.read(self._out, _CHUNK)
        self._incoming += data
        if not data:
            self._closed = True
            self._selector.unregister(self._out)

    def answer(self) -> JobResult | None:
        """The answer to the job, once it is complete."""
        if len(self._incoming) < FRAME.size:
            return None
        n_json, n_payload = FRAME.unpack_from(self._incoming)
        end = FRAME.size + n_json + n_payload
        if len(self._incoming) < end:
            return None
        header = json.loads(self._incoming[FRAME.size : FRAME.size + n_json])
        payload = bytes(self._incoming[FRAME.size + n_json : end])
        del self._incoming[:end]
        self.done += 1
        return JobResult(header, payload)

    def crash(self, timeout: float) -> Crash | None:
        """Why no answer will come; None while one may."""
        if not self._closed and time.monotonic() < self.deadline:
            return None
        notes = os.pread(self._errors, _CHUNK, self._mark).decode(errors="replace")
        if not self._closed:
            return Crash(f"not done after {timeout:g} s; give it more time or make it smaller", notes, status=None)
        status = self._process.wait()
        return Crash(_why(status, _last_words(notes)), notes, status)

    def end(self) -> None:
        """Kill the process if it still runs, and close everything."""
        for end in (self._in, self._out):
            if end in self._selector.get_map():
                self._selector.unregister(end)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        os.close(self._errors)


def _frame(header: dict[str, Any], payload: bytes) -> bytes:
    text = json.dumps(header).encode()
    return FRAME.pack(len(text), len(payload)) + text + payload


def _last_words(notes: str) -> str:
    """The line that says most."""
    lines = [line.strip() for line in notes.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(_TELLING)]
    return (telling or lines or [""])[-1]


def _why(status: int, words: str) -> str:
    """The end of a process in words."""
    said = f": {words}" if words else ""
    if status == -signal.SIGKILL:
        return f"the compile process was killed, perhaps for lack of memory{said}"
    if status < 0:
        return f"the compile process died of signal {-status} ({signal.Signals(-status).name}){said}"
    return f"the compile process ended with code {status}{said}"

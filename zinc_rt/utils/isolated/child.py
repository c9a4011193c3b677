"""One process that works for this one, and the bytes on their way to and from it. See `process`."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zinc_rt.utils.isolated.worker import FRAME, UTF8, pack_frame

_START_SECONDS: Final = 60.0  # for Python and what it imports from a slow disk on a busy machine
_CHUNK: Final = 1 << 16
_MAX_HEADER: Final = 1 << 16  # bytes of an answer's JSON
_PASSED_ON: Final = ("TZ", "LD_LIBRARY_PATH")  # of the environment: local time, and a Python that needs its libraries


class Ended(Exception):
    """No answer will come: the process ended, with `status` as of `subprocess`, or the time is over (None)."""

    def __init__(self, status: int | None = None, message: str = "") -> None:
        super().__init__(message)
        self.status, self.message = status, message


class NotStarted(Exception):
    """No process can be started, or it cannot import what it needs: why."""


class IsolatedChild:
    """One process and the bytes on their way to and from it.

    hello: its first frame, see `worker`, without the import path. max_answer: bytes behind an answer's JSON.

    Raises `NotStarted`.
    """

    def __init__(self, hello: Mapping[str, Any], max_answer: int) -> None:
        self._max_answer = max_answer
        self._owner = os.getpid()
        self._is_ready = False
        if not sys.executable:
            raise NotStarted("this program does not know its Python interpreter")
        worker = str(Path(__file__).absolute().with_name("worker.py"))
        try:
            # A session of its own: Ctrl-C at the terminal is for the parent. Not PR_SET_PDEATHSIG, which would kill
            # it with the thread that started it.
            self._process = _in_no_folder(
                [os.path.abspath(sys.executable), "-I", "-S", worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise NotStarted(error.strerror or str(error)) from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        self._hello = memoryview(b"".join(pack_frame({**hello, "path": import_path()})))
        self._hello = self._hello[_write(self._stdin.fileno(), self._hello) :]

    def wait_until_ready(self) -> str | None:
        """Wait until it has imported what it needs. What prevents that, or None. Raises Ended."""
        if not self._is_ready:
            answer, _ = self.exchange(self._hello, _START_SECONDS)
            if "problem" in answer:
                return str(answer["problem"])
            self._is_ready = True
        return None

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def exchange(self, request: bytes | memoryview, seconds: float) -> tuple[dict[str, Any], memoryview]:
        """Send a frame, receive its answer, whose bytes are not copied. Raises Ended."""
        deadline = time.monotonic() + seconds
        outgoing, incoming = memoryview(request), bytearray()
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        if outgoing:
            poll.register(self._stdin, select.POLLOUT)
        needed = FRAME.size
        while len(incoming) < needed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Ended()
            for fd, _ in poll.poll(left * 1000):
                if fd == self._stdout.fileno():
                    data = os.read(fd, _CHUNK)
                    if not data:
                        raise self._end()
                    incoming += data
                    needed = self._size(incoming)
                else:
                    outgoing = outgoing[_write(fd, outgoing[:_CHUNK]) :]
                    if not outgoing:
                        poll.unregister(fd)
        if len(incoming) > needed:
            raise Ended(0, "sent more than an answer")
        return _unpack(incoming)

    def kill(self) -> None:
        """Kill the process, if it is ours and still runs."""
        if os.getpid() == self._owner:
            self._process.kill()

    def close(self) -> None:
        """Kill the process, if it is ours and still runs, and close the pipes."""
        if os.getpid() == self._owner:
            self._process.kill()
            self._process.wait()
        else:
            self._process.returncode = 0  # not ours to wait for
        self._stdin.close()
        self._stdout.close()

    def _size(self, incoming: bytearray) -> int:
        """Bytes of the frame that has begun to come in."""
        if len(incoming) < FRAME.size:
            return FRAME.size
        n_json, n_bytes = FRAME.unpack_from(incoming)
        if n_json > _MAX_HEADER or n_bytes > self._max_answer:
            raise Ended(0, f"sent an answer of {n_json + n_bytes} bytes")
        return FRAME.size + int(n_json) + int(n_bytes)

    def _end(self) -> Ended:
        """Its output is closed: it ends by itself, or is ended."""
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return Ended(0, "closed its output")
        if status >= 0:
            return Ended(status, f"ended with code {status}")
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        perhaps = ", perhaps for lack of memory" if status == -signal.SIGKILL else ""
        return Ended(status, f"was ended by {name}{perhaps}")


def _in_no_folder(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process whose working folder is empty and gone. Raises OSError."""
    try:
        folder = tempfile.mkdtemp(prefix="zinc-")
    except OSError:  # no folder can be written to: then not the caller's, at least
        return subprocess.Popen(command, cwd="/", **options)
    try:
        return subprocess.Popen(command, cwd=folder, **options)
    finally:
        os.rmdir(folder)


def _write(fd: int, data: memoryview) -> int:
    """Bytes that the pipe took. To a process that is gone: all, as its closed output will tell."""
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        return len(data)


def _unpack(frame: bytearray) -> tuple[dict[str, Any], memoryview]:
    n_json, _ = FRAME.unpack_from(frame)
    view = memoryview(frame)[FRAME.size :]
    try:
        header = json.loads(str(view[:n_json], *UTF8))
    except (ValueError, RecursionError):
        raise Ended(0, "sent an answer that cannot be read") from None
    if not isinstance(header, dict):
        raise Ended(0, "sent an answer that cannot be read")
    return header, view[n_json:]


def import_path() -> list[str]:
    """Where the process finds this package and others, which may come from a finder that only this process has."""
    path: list[str] = []
    for entry in sys.path:
        with contextlib.suppress(OSError):  # relative to a working folder that is gone
            if isinstance(entry, str):
                path.append(os.path.abspath(entry))
    return [*path, str(Path(__file__).parents[3])]

"""One process that renders chat templates, and the bytes on their way to and from it. See `template_process`."""

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
from pathlib import Path
from typing import Any, Final

from zinc_rt.text.errors import ChatTemplateError
from zinc_rt.text.template_limits import TemplateLimits
from zinc_rt.text.template_worker import FRAME, UTF8, pack_frame

_START_SECONDS: Final = 60.0  # for Python and Jinja2 from a slow disk on a busy machine
_CHUNK: Final = 1 << 16
_MAX_HEADER: Final = 1 << 16  # bytes of an answer's JSON
_PASSED_ON: Final = ("TZ", "LD_LIBRARY_PATH")  # of the environment: local time, and a Python that needs its libraries


class Ended(Exception):
    """No answer will come: the process ended, with `status` as of `subprocess`, or the time is over (None)."""

    def __init__(self, status: int | None = None, message: str = "") -> None:
        super().__init__(message)
        self.status, self.message = status, message


class TemplateChild:
    """One process and the bytes on their way to and from it."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._max_text = 4 * limits.max_characters  # bytes
        self._owner = os.getpid()
        self._is_ready = False
        if not sys.executable:
            raise not_started("this program does not know its Python interpreter")
        worker = str(Path(__file__).absolute().with_name("template_worker.py"))
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
            raise not_started(error.strerror or str(error)) from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        hello = {
            "path": import_path(),
            "address_space": limits.address_space,
            "cpu_seconds": limits.cpu_seconds,
            "max_characters": limits.max_characters,
        }
        self._hello = memoryview(b"".join(pack_frame(hello)))
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

    def exchange(self, request: bytes | memoryview, seconds: float) -> tuple[dict[str, Any], str]:
        """Send a frame, receive its answer. Raises Ended."""
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
        n_json, n_text = FRAME.unpack_from(incoming)
        if n_json > _MAX_HEADER or n_text > self._max_text:
            raise Ended(0, f"sent an answer of {n_json + n_text} bytes")
        return FRAME.size + int(n_json) + int(n_text)

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


def _unpack(frame: bytearray) -> tuple[dict[str, Any], str]:
    n_json, _ = FRAME.unpack_from(frame)
    view = memoryview(frame)[FRAME.size :]
    try:
        header, text = json.loads(str(view[:n_json], *UTF8)), str(view[n_json:], *UTF8)
    except (ValueError, RecursionError):
        raise Ended(0, "sent an answer that cannot be read") from None
    if not isinstance(header, dict):
        raise Ended(0, "sent an answer that cannot be read")
    return header, text


def import_path() -> list[str]:
    """Where the process finds Jinja2 and this package, which may come from a finder that only this process has."""
    path: list[str] = []
    for entry in sys.path:
        with contextlib.suppress(OSError):  # relative to a working folder that is gone
            if isinstance(entry, str):
                path.append(os.path.abspath(entry))
    return [*path, str(Path(__file__).parents[2])]


def not_started(why: str) -> ChatTemplateError:
    return ChatTemplateError(f"the process that renders it cannot be started: {why}")

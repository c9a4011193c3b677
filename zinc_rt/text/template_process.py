"""The runtime's side of the process that renders chat templates.

The process is started at the first rendering and kept for the next ones. It is killed when it goes over a
limit, when the wait for it is interrupted, when its owner is collected, and at the end of the program; should
the program be killed, the end of its input ends it. `template_worker` is the other side.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zinc_rt.text.errors import ChatTemplateError, shown
from zinc_rt.text.template_limits import MIB, TemplateLimits
from zinc_rt.text.template_worker import FRAME, UTF8, pack_frame

_START_SECONDS: Final = 60.0  # for Python and Jinja2 from a slow disk on a busy machine
_CHUNK: Final = 1 << 16
_MAX_HEADER: Final = 1 << 16  # bytes of an answer's JSON
_PASSED_ON: Final = ("TZ", "LD_LIBRARY_PATH")  # of the environment: local time, and a Python that needs its libraries


class TemplateProcess:
    """Renders templates in a process of its own. Threads take turns."""

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._at_end: weakref.finalize[..., TemplateProcess] | None = None  # closes the child
        _live.add(self)

    def render(self, source: str, variables: Mapping[str, Any]) -> str:
        """The text that a template makes of its variables, which must be such as JSON has.

        Raises ChatTemplateError for a template that does not compile, fails, refuses the conversation or goes over
        a limit, for variables that cannot be sent, and where no process can be started.
        """
        if len(source) > self.limits.max_source:
            raise ChatTemplateError(f"the source has {len(source)} characters, the limit is {self.limits.max_source}")
        request = self._request(source, variables)
        with self._lock:
            try:
                header, text = self._ready().exchange(request, self.limits.seconds)
            except _Ended as ended:
                self._drop()
                raise ChatTemplateError(self._why(ended)) from None
            except BaseException:  # Ctrl-C: an answer may still come, to nobody
                self._drop()
                raise
            if "over" in header:
                self._drop()
        return self._judged(header, text)

    def close(self) -> None:
        """End the process. A further rendering starts a new one."""
        with self._lock:
            self._drop()

    def _request(self, source: str, variables: Mapping[str, Any]) -> bytes:
        try:
            request = pack_frame(_plain(variables), source)
        except RecursionError:
            raise ChatTemplateError("messages or variables hold themselves, or are nested too deep") from None
        except ValueError as error:  # an integer of thousands of digits
            raise ChatTemplateError(f"messages or variables cannot be written as JSON: {error}") from None
        if len(request[1]) > self.limits.max_request:
            raise ChatTemplateError(
                f"messages and variables take {len(request[1])} bytes as JSON, the limit is {self.limits.max_request}"
            )
        return b"".join(request)

    def _ready(self) -> _Child:
        """The process, started if there is none or if it ended since the last rendering."""
        if self._child is not None and self._child.has_ended():
            self._drop()
        if self._child is None:
            child = self._child = _Child(4 * self.limits.max_characters)
            self._at_end = weakref.finalize(self, child.close)
            hello = {
                "path": _import_path(),
                "address_space": self.limits.address_space,
                "cpu_seconds": self.limits.cpu_seconds,
                "max_characters": self.limits.max_characters,
            }
            try:
                answer, _ = child.exchange(b"".join(pack_frame(hello)), _START_SECONDS)
            except _Ended as ended:
                self._drop()
                raise _not_started(ended.said or "it was not ready in time") from None
            if "problem" in answer:
                self._drop()
                raise _not_started(str(answer["problem"]))
        return self._child

    def _drop(self) -> None:
        self._child = None
        if self._at_end is not None:
            self._at_end()

    def _after_fork(self) -> None:
        """In a forked process: the lock may be held by a thread that is not here, the child is the other's."""
        self._lock = threading.Lock()
        self._drop()

    def _why(self, ended: _Ended) -> str:
        if ended.status == -signal.SIGXCPU:
            return f"it takes more than {self.limits.cpu_seconds} s of processor time to render"
        if ended.said:
            return f"the process that renders it {ended.said}"
        return f"it is not rendered after {self.limits.seconds:g} s"

    def _judged(self, header: dict[str, Any], text: str) -> str:
        """The text, or the error that an answer tells of. Nothing is taken for granted: a template is behind it."""
        line = header.get("line")
        line = line if isinstance(line, int) else None
        if "over" in header:
            raise ChatTemplateError(
                f"it takes more than {self.limits.address_space // MIB} MiB of memory to render", line=line
            )
        if "problem" in header:
            raise ChatTemplateError(str(header["problem"]), line=line)
        if len(text) > self.limits.max_characters:
            raise ChatTemplateError(f"it makes a text of more than {self.limits.max_characters} characters")
        return text


class _Ended(Exception):
    """No answer will come: the process ended, with `status` as of `subprocess`, or the time is over (None)."""

    def __init__(self, status: int | None = None, said: str = "") -> None:
        super().__init__(said)
        self.status, self.said = status, said


class _Child:
    """One process and the bytes on their way to and from it."""

    def __init__(self, max_text: int) -> None:
        self._max_text = max_text  # bytes
        self._owner = os.getpid()
        if not sys.executable:
            raise _not_started("this program does not know its Python interpreter")
        worker = str(Path(__file__).with_name("template_worker.py"))
        try:
            # A session of its own: Ctrl-C at the terminal is for the parent. Not PR_SET_PDEATHSIG, which would kill
            # it with the thread that started it.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(error.strerror or str(error)) from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def exchange(self, request: bytes, seconds: float) -> tuple[dict[str, Any], str]:
        """Send a frame, receive its answer. Raises _Ended."""
        deadline = time.monotonic() + seconds
        outgoing, incoming = memoryview(request), bytearray()
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        poll.register(self._stdin, select.POLLOUT)
        needed = FRAME.size
        while len(incoming) < needed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _Ended()
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
            raise _Ended(0, "sent more than an answer")
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
            raise _Ended(0, f"sent an answer of {n_json + n_text} bytes")
        return FRAME.size + int(n_json) + int(n_text)

    def _end(self) -> _Ended:
        """Its output is closed: it ends by itself, or is ended."""
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return _Ended(0, "closed its output")
        if status >= 0:
            return _Ended(status, f"ended with code {status}")
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        perhaps = ", perhaps for lack of memory" if status == -signal.SIGKILL else ""
        return _Ended(status, f"was ended by {name}{perhaps}")


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
        raise _Ended(0, "sent an answer that cannot be read") from None
    if not isinstance(header, dict):
        raise _Ended(0, "sent an answer that cannot be read")
    return header, text


def _plain(value: Any) -> Any:
    """A value with mappings as dicts and tuples as lists, as JSON has them. Raises ChatTemplateError for others."""
    if value is None or isinstance(value, (str, int, float)):  # bool is an int
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ChatTemplateError(f"a key of messages or variables must be a str, not {shown(key)}")
        return {key: _plain(item) for key, item in value.items()}
    raise ChatTemplateError(
        f"messages and variables must be made of str, int, float, bool, None, lists and mappings, not {shown(value)}"
    )


def _import_path() -> list[str]:
    """Where the process finds Jinja2 and this package, which may come from a finder that only this process has."""
    path = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    return [*path, str(Path(__file__).parents[2])]


def _not_started(why: str) -> ChatTemplateError:
    return ChatTemplateError(f"the process that renders it cannot be started: {why}")


def _forget_children() -> None:
    for process in list(_live):
        process._after_fork()


_live: weakref.WeakSet[TemplateProcess] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_children)

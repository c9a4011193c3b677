"""The runtime's side of the process that renders chat templates.

The process is started at the first rendering and kept for the next ones. It is killed when it goes over a
limit, when the wait for it is interrupted, when its owner is collected, and at the end of the program; should
the program be killed, the end of its input ends it. `template_worker` is the other side.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from zinc_rt.text.errors import ChatTemplateError, shown
from zinc_rt.text.template_child import Ended, TemplateChild, not_started
from zinc_rt.text.template_limits import MIB, TemplateLimits
from zinc_rt.text.template_worker import pack_frame


class TemplateProcess:
    """Renders templates in a process of its own. Threads take turns."""

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._child: TemplateChild | None = None
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
            except Ended as ended:
                self._drop()
                raise ChatTemplateError(self._why(ended)) from None
            except BaseException:  # with Ctrl-C an answer may still come, to nobody
                self._drop()
                raise
            if "over" in header:
                self._drop()
        return self._judged(header, text)

    def prepare(self) -> None:
        """Start the process and do not wait for it. What goes wrong here, the first rendering tells."""
        with self._lock, contextlib.suppress(ChatTemplateError):
            if self._child is None:
                self._start()

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

    def _ready(self) -> TemplateChild:
        """The process, started if there is none or if it ended since the last rendering."""
        if self._child is not None and self._child.has_ended():
            self._drop()
        child = self._child or self._start()
        try:
            problem = child.wait_until_ready()
        except Ended as ended:
            raise not_started(ended.message or "it was not ready in time") from None
        if problem is not None:
            raise not_started(problem)
        return child

    def _start(self) -> TemplateChild:
        child = self._child = TemplateChild(self.limits)
        self._at_end = weakref.finalize(self, child.close)
        return child

    def _drop(self) -> None:
        self._child = None
        if self._at_end is not None:
            self._at_end()

    def _after_fork(self) -> None:
        """In a forked process: the lock may be held by a thread that is not here, the child is the other's."""
        self._lock = threading.Lock()
        self._drop()

    def _why(self, ended: Ended) -> str:
        if ended.status == -signal.SIGXCPU:
            return f"it takes more than {self.limits.cpu_seconds} s of processor time to render"
        if ended.message:
            return f"the process that renders it {ended.message}"
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


def prepare() -> None:
    """Start a process for the next file's templates, while the file is read. It ends with the program at the latest."""
    if not _prepared:
        process = TemplateProcess(TemplateLimits())
        process.prepare()
        _prepared.append(process)


def take(limits: TemplateLimits) -> TemplateProcess:
    """A process for the templates of one file: one that was prepared, or one that starts when it is needed."""
    with contextlib.suppress(IndexError):
        process = _prepared.pop()
        if process.limits == limits:
            return process
    return TemplateProcess(limits)


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


def _forget_children() -> None:
    for process in list(_live):
        process._after_fork()


_prepared: list[TemplateProcess] = []
_live: weakref.WeakSet[TemplateProcess] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_children)

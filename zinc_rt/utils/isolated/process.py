"""A process that does one kind of work on request, as its owner sees it.

The process is started at the first request and kept for the next ones. It is killed when it goes over a limit, when the
wait for it is interrupted, when its owner is collected, and at the end of the program; should the program be killed,
the end of its input ends it. `worker` is the other side.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from zinc_rt.utils.isolated.child import Ended, IsolatedChild, NotStarted

MIB = 1 << 20
_END_SECONDS = 0.02


class IsolationLimits(Protocol):
    """Of one request: bytes of the whole process, its processor time up to the next whole second, and the seconds by
    the clock that a caller waits.
    """

    @property
    def address_space(self) -> int: ...

    @property
    def cpu_seconds(self) -> int: ...

    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True)
class IsolatedWork:
    """What a process does. module: by full name, see `worker`; verb: for messages, as in "render"; max_answer: bytes;
    settings: for the module, as JSON has them.
    """

    module: str
    verb: str
    max_answer: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> str:
        """The verb's participle."""
        return self.verb + ("d" if self.verb.endswith("e") else "ed")


class IsolatedError(Exception):
    """The work was not done: what went wrong, for a message. answer: what the process said, if it said something."""

    def __init__(self, message: str, answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.answer = answer or {}


class IsolatedProcess:
    """Does work in a process of its own. Threads take turns."""

    def __init__(self, work: IsolatedWork, limits: IsolationLimits) -> None:
        self._work, self.limits = work, limits
        self._lock = threading.Lock()
        self._child: IsolatedChild | None = None
        self._at_end: weakref.finalize[..., IsolatedProcess] | None = None  # closes the child
        _live.add(self)

    def ask(self, request: bytes) -> tuple[dict[str, Any], memoryview]:
        """The answer to a frame: its JSON and its bytes, of which nothing may be taken for granted.

        Raises `IsolatedError`: over a limit, ended, or no process can be started.
        """
        with self._lock:
            try:
                answer, content = self._ready().exchange(request, self.limits.seconds)
            except Ended as ended:
                self._drop()
                raise IsolatedError(self._why(ended)) from None
            except NotStarted as error:
                raise IsolatedError(f"the process that {self._work.verb}s it cannot be started: {error}") from None
            except BaseException:  # with Ctrl-C an answer may still come, to nobody
                self._drop()
                raise
            if "over" in answer:
                self._drop()
                raise IsolatedError(
                    f"it takes more than {self.limits.address_space // MIB} MiB of memory to {self._work.verb}", answer
                )
        return answer, content

    def prepare(self) -> None:
        """Start the process and do not wait for it. What goes wrong here, the first request tells."""
        with self._lock, contextlib.suppress(NotStarted):
            if self._child is None:
                self._start()

    def end(self) -> None:
        """End the process at once, also while it works: all who wait for that get an `IsolatedError`."""
        while not self._lock.acquire(timeout=_END_SECONDS):
            if (child := self._child) is not None:
                child.kill()
        try:
            self._drop()
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process once it does nothing. A further request starts a new one."""
        with self._lock:
            self._drop()

    def _ready(self) -> IsolatedChild:
        """The process, started if there is none or if it ended since the last request."""
        if self._child is not None and self._child.has_ended():
            self._drop()
        child = self._child or self._start()
        try:
            problem = child.wait_until_ready()
        except Ended as ended:
            self._drop()
            raise NotStarted(ended.message or "it was not ready in time") from None
        if problem is not None:
            raise NotStarted(problem)
        return child

    def _start(self) -> IsolatedChild:
        hello = {
            "module": self._work.module,
            "address_space": self.limits.address_space,
            "cpu_seconds": self.limits.cpu_seconds,
            "settings": dict(self._work.settings),
        }
        child = self._child = IsolatedChild(hello, self._work.max_answer)
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
            return f"it takes more than {self.limits.cpu_seconds} s of processor time to {self._work.verb}"
        if ended.message:
            return f"the process that {self._work.verb}s it {ended.message}"
        return f"it is not {self._work.done} after {self.limits.seconds:g} s"


def _forget_children() -> None:
    for process in list(_live):
        process._after_fork()


_live: weakref.WeakSet[IsolatedProcess] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_children)

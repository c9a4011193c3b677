"""The process of an engine: reads messages from a socket, turns the engine's loop, writes what each turn gave.

`ProcessClient` starts `python -P -m zinc_rt.serving.engine_process SOCKET LIFELINE`, with two open file
descriptors. The process ends when the socket ends, or at once when the lifeline ends, even in the middle of a step:
what it held is its parent's to submit again.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec

from zinc_rt.errors import BackendError, IntegrityError, UsageError, ZincError
from zinc_rt.mem.plan import HEADROOM, MemoryPlan
from zinc_rt.scheduler.messages import (
    AdapterReply,
    Cancel,
    CancelReason,
    EngineEvent,
    EngineInfo,
    LoadAdapter,
    Message,
    Ping,
    StepReport,
    Submit,
    TenantShare,
    UnloadAdapter,
)
from zinc_rt.serving.wire import (
    AtWork,
    Frames,
    FromEngine,
    Notice,
    NotLoaded,
    Planned,
    Proceed,
    Progress,
    Start,
    ToEngine,
    pack,
    unpack_to,
)

_CHUNK: Final = 1 << 16


class Core(Protocol):
    """The core that turns here: `EngineCore`, or one of a test.

    at_work: called with the ids of requests without a token, before work in which one of them may end the process.
    """

    at_work: Callable[[tuple[str, ...]], None]

    @property
    def info(self) -> EngineInfo:
        """The engine behind it."""
        ...

    @property
    def idle(self) -> bool:
        """Whether a turn would have nothing to do."""
        ...

    def submit(self, request: Submit) -> None: ...
    def cancel(self, request_id: str, reason: CancelReason) -> None: ...
    def share(self, tenant: TenantShare) -> None: ...
    def load_adapter(self, path: str, name: str | None) -> None: ...
    def unload_adapter(self, name: str) -> None: ...
    def rest(self) -> bool: ...
    def turn(self) -> StepReport: ...
    def close(self) -> None: ...


class _Gone(Exception):
    """The other end of the socket is closed."""


class _Link:
    """The socket to the process that serves."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._frames = sock, Frames()
        self._poll = select.poll()  # unlike `select`, of any number of descriptors
        self._poll.register(sock, select.POLLIN)
        self._waiting: list[ToEngine] = []

    def send(self, message: FromEngine) -> None:
        """Write a message. Raises `_Gone`."""
        try:
            self._socket.sendall(pack(message))
        except OSError:
            raise _Gone from None

    def receive(self, *, block: bool) -> list[ToEngine]:
        """The messages that are there; with `block` at least one. Raises `_Gone`."""
        found, self._waiting = self._waiting, []
        while (block and not found) or self._poll.poll(0):
            try:
                data = self._socket.recv(_CHUNK)
            except OSError:
                raise _Gone from None
            if not data:
                raise _Gone
            found += map(unpack_to, self._frames.add(data))
        return found

    def keep(self, messages: Iterable[ToEngine]) -> None:
        """Have `receive` return messages that came too early."""
        self._waiting += [message for message in messages if not isinstance(message, Proceed)]


def serve(link: _Link) -> None:
    """Load an engine as the first message says, then serve until the socket ends. Raises `_Gone`."""
    first, *rest = link.receive(block=True)
    if not isinstance(first, Start):
        raise ZincError(f"the first message is a {type(first).__name__}, it must be Start")
    core = _load(first, link)
    if core is None:
        return
    try:
        core.at_work = lambda ids: link.send(AtWork(ids))
        link.send(core.info)
        pong = _take(core, rest, link)
        while True:
            rests = core.idle and pong is None
            pong = _take(core, link.receive(block=rests and not core.rest()), link) or pong
            report = core.turn()
            if report.events or report.seconds or pong is not None:
                link.send(_with_pong(report, pong))
                pong = None
    finally:
        core.close()


def _load(start: Start, link: _Link) -> Core | None:
    """The engine; None where it cannot start, which the other end is told."""
    module, _, function = start.factory.partition(":")
    asks = {"planned": partial(_ask, link)} if start.asks else {}
    try:
        made: Core = getattr(importlib.import_module(module), function)(
            **start.arguments,
            notify=lambda line: link.send(Notice(str(line))),  # of any subclass of str
            progress=lambda done, total: link.send(Progress(done, total)),
            **asks,
        )
        return made
    except ZincError as error:
        link.send(NotLoaded(str(error), isinstance(error, UsageError), error.advice))
    except MemoryError:
        link.send(NotLoaded("there is not enough memory to load the model", False))
    return None


def _ask(link: _Link, plan: MemoryPlan, on_gpu: bool) -> None:
    """Tell the plan and wait until the other end has made room. Raises `_Gone` where it makes none."""
    link.send(Planned(plan.total + HEADROOM, plan.available, on_gpu))
    early: list[ToEngine] = []
    while not any(isinstance(message, Proceed) for message in early):
        early += link.receive(block=True)
    link.keep(early)


def _take(core: Core, messages: list[ToEngine], link: _Link) -> int | None:
    """Hand messages to the engine; returns the number of the last ping among them."""
    pong = None
    for message in messages:
        if isinstance(message, Ping):
            pong = message.n
        elif (refused := hand(core, message)) is not None:
            link.send(Notice(refused) if isinstance(refused, str) else StepReport(-1, (refused,)))
    return pong


def hand(core: Core, message: Message | Start | Proceed) -> EngineEvent | str | None:
    """Hand a message to the engine; a ping is for the loop around it.

    Returns None, an answer, or what to tell of a message that the engine refuses: the end of its request, or a line.
    The engine goes on then. Raises `BackendError` and `IntegrityError`, which end it: its device is lost, or its books
    are wrong.
    """
    try:
        match message:
            case Submit():
                core.submit(message)
            case Cancel():
                core.cancel(message.id, message.reason)
            case TenantShare():
                core.share(message)
            case LoadAdapter(request_id, name, path):
                core.load_adapter(path, name)
                return AdapterReply(request_id)
            case UnloadAdapter(request_id, name):
                core.unload_adapter(name)
                return AdapterReply(request_id)
            case Start() | Proceed():
                raise ZincError("the engine was started before")
    except (BackendError, IntegrityError):
        raise
    except ZincError as error:
        if isinstance(message, Submit):
            from zinc_rt.scheduler.faults import failed

            return failed(message.id, error)
        if isinstance(message, LoadAdapter | UnloadAdapter):
            return AdapterReply(message.id, str(error))
        return f"a {type(message).__name__} is refused, and all is as before: {error}"
    return None


def _with_pong(report: StepReport, pong: int | None) -> StepReport:
    return report if pong is None else msgspec.structs.replace(report, pong=pong)


def _end_with(lifeline: int) -> None:
    """End this process when the other end of a pipe is closed, as happens however its owner ends."""
    os.read(lifeline, 1)
    os._exit(0)


def main(arguments: list[str]) -> int:
    """Serve over the given file descriptors; returns the process's exit code."""
    descriptor, lifeline = map(int, arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the process that serves
    threading.Thread(target=_end_with, args=(lifeline,), name="zinc-lifeline", daemon=True).start()
    link = _Link(socket.socket(fileno=descriptor))
    try:
        serve(link)
    except _Gone:
        return 0
    except ZincError as error:  # see `hand`; what a turn raises is of this kind, too: a new process is what helps
        try:
            link.send(StepReport(-1, fatal=f"{type(error).__name__}: {error}"))
        except _Gone:
            return 0
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

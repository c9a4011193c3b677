"""`ThreadClient`: an engine on a thread of this process, for callers on an event loop.

The same messages and the same core as with an engine in a process of its own: less protection, and nothing to start.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from zinc_rt.errors import ZincError
from zinc_rt.scheduler.messages import (
    Cancel,
    CancelReason,
    EngineInfo,
    EngineStatus,
    Fault,
    LoadAdapter,
    Message,
    StepReport,
    TenantShare,
    UnloadAdapter,
)
from zinc_rt.scheduler.output import RequestOutput, T
from zinc_rt.serving.background import Background
from zinc_rt.serving.engine_process import Core, hand
from zinc_rt.serving.request_log import AdapterRefused, LiveRequest, RequestLog

_STUCK: Final = 10.0


class ThreadClient:
    """An `EngineClient` whose engine turns on a thread. Belongs to one event loop.

    Args:
        open_core: called on that thread; returns the core that turns there and that is closed there at the end.
        report: called with each report, on the event loop.
        notify: told on the engine's thread of a message that the engine refuses.
        stuck: seconds without a turn, where there is something to do, after which `healthy` says so.
        background: of the server, None for one of its own.
    """

    def __init__(
        self,
        open_core: Callable[[], Core],
        *,
        report: Callable[[StepReport], None] | None = None,
        notify: Callable[[str], None] = lambda _: None,
        stuck: float = _STUCK,
        background: Background | None = None,
    ) -> None:
        self._background = background or Background()
        self._open_core, self._report, self._notify, self._stuck = open_core, report, notify, stuck
        self._live = RequestLog(lambda request_id, reason: self._send(Cancel(request_id, reason)))
        self._messages: deque[Message] = deque()  # appended by the loop's thread, taken by the engine's
        self._wake = threading.Event()
        self._ends = False
        self._thread: threading.Thread | None = None
        self._status = EngineStatus()
        self._wrong: str | None = "the engine loads its model"
        self._lost_why: str | None = None  # once no engine is there any more to take messages
        self._turned = time.monotonic()

    async def start(self) -> EngineInfo:
        """See `EngineClient`. Raises what `open_core` raises."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[EngineInfo] = loop.create_future()
        # Not a worker of a pool: it runs as long as the engine, and an interpreter that ends does not wait for it.
        self._thread = self._background.thread("engine", partial(self._run, loop, started))
        info = await started
        self._wrong = None
        return info

    def submit(self, output: RequestOutput[T]) -> LiveRequest[T]:
        """See `EngineClient`. Raises `UsageError` for an id that runs already."""
        request, live = output.request, self._live.add(output)
        if self._lost_why is not None:
            self._live.fail(Fault.engine_lost, self._lost_why, [request.id])
        elif not live.output.over:
            self._send(request)
        return live

    def cancel(self, request_id: str, reason: CancelReason = CancelReason.caller) -> None:
        """See `EngineClient`."""
        if self._live.cancel(request_id, reason):
            self._send(Cancel(request_id, reason))

    def share(self, tenant: TenantShare) -> None:
        """See `EngineClient`."""
        self._send(tenant)

    async def change_adapters(self, message: LoadAdapter | UnloadAdapter) -> None:
        """See `EngineClient`."""
        if self._lost_why is not None:
            raise AdapterRefused(self._lost_why)
        await self._live.ask(message, self._send)

    @property
    def status(self) -> EngineStatus:
        """See `EngineClient`."""
        return self._status

    @property
    def restarts(self) -> int:
        """See `EngineClient`. A thread is not started anew."""
        return 0

    @property
    def healthy(self) -> str | None:
        """See `EngineClient`."""
        if self._wrong is None and len(self._live) and time.monotonic() - self._turned > self._stuck:
            return f"the engine made no step for {self._stuck:g} s"
        return self._wrong

    async def close(self) -> None:
        """See `EngineClient`. Waits for the step that runs."""
        self._wrong, self._ends = "the server ends", True
        self._wake.set()
        if self._thread is not None:
            await asyncio.to_thread(self._background.join, self._thread)
        self._live.fail(Fault.shutting_down, "the server ends")

    def _send(self, message: Message) -> None:
        self._messages.append(message)
        self._wake.set()

    # -- the event loop's thread, called by the engine's

    def _take(self, report: StepReport) -> None:
        self._turned, self._status = time.monotonic(), report.status
        self._live.take(report.events)
        if self._report is not None:
            self._report(report)

    def _lost(self, why: str) -> None:
        if not self._ends:
            self._wrong = f"the engine ended: {why}"
        self._lost_why = why
        self._live.fail(Fault.engine_lost, why)

    # -- the engine's thread

    def _run(self, loop: asyncio.AbstractEventLoop, started: asyncio.Future[EngineInfo]) -> None:
        try:
            core = self._open_core()
        except BaseException as error:
            _call(loop, _set_exception, started, error)
            return
        try:
            _call(loop, _set_result, started, core.info)
            while not self._ends:
                if core.idle and not self._messages:
                    self._wake.wait()
                self._wake.clear()
                while self._messages:
                    self._hand(loop, core, self._messages.popleft())
                if not core.idle:
                    _call(loop, self._take, core.turn())
        except Exception as error:
            _call(loop, self._lost, f"{type(error).__name__}: {error}")
            if not isinstance(error, ZincError):
                raise  # a fault of ours: its trace is shown
        finally:
            core.close()

    def _hand(self, loop: asyncio.AbstractEventLoop, core: Core, message: Message) -> None:
        refused = hand(core, message)
        if isinstance(refused, str):
            self._notify(refused)
        elif refused is not None:
            _call(loop, self._live.take, [refused])


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Have the loop's thread call a function; a loop that is closed has nobody left to tell."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _set_result(future: asyncio.Future[EngineInfo], info: EngineInfo) -> None:
    if not future.done():
        future.set_result(info)


def _set_exception(future: asyncio.Future[EngineInfo], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)

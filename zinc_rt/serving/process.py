"""`ProcessClient`: an engine in a process of its own, which is started again when it ends or hangs.

A fault in native code, a lost GPU or a kill ends the engine's process only. The next engine gets its requests, with the
tokens that were sent already. A request's tokens depend on the request alone, so it continues with the tokens that
would have come.

One bad request must not keep the server down. If two engines in a row end while they compute a request, without a new
token of it, the request is suspected: it is tried apart from other suspects, and fails if a third engine ends. An
engine says which requests it is about to compute, so a request that only waited is never suspected.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Final, cast

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.scheduler.messages import (
    Cancel,
    CancelReason,
    EngineInfo,
    EngineStatus,
    Fault,
    LoadAdapter,
    Ping,
    StepReport,
    TenantShare,
    UnloadAdapter,
)
from zinc_rt.scheduler.output import RequestOutput, T
from zinc_rt.serving.background import Background
from zinc_rt.serving.request_log import AdapterRefused, LiveRequest, RequestLog
from zinc_rt.serving.wire import (
    AtWork,
    Frames,
    Notice,
    NotLoaded,
    Planned,
    Proceed,
    Progress,
    Start,
    ToEngine,
    WireError,
    pack,
    unpack_from,
)
from zinc_rt.utils.isolated.child import import_path

PACE: Final = 1 / 60
"""Seconds from one reading of reports to the next, while texts decode, as from one frame of a screen to the next: one
turn of the event loop and one write a stream do for all tokens of that time.
"""
_CHUNK: Final = 1 << 16
_TICK: Final = 1.0
_END_SECONDS: Final = 5.0
_ABANDONED_SECONDS: Final = 0.5
"""Seconds that an engine gets to end by itself when its requests are given up. It may hang, or run a step."""


class EngineNotStarted(ZincError):
    """The engine's process could not load its model."""


class NoProcess(EngineNotStarted):
    """The system has no process, or no files for one, at this moment."""


class EngineRefused(EngineNotStarted, UsageError):
    """The engine's process refused its options or its model."""


class ProcessClient:
    """An `EngineClient` whose engine is in another process. Belongs to one event loop.

    Args:
        start: what the process loads.
        notify, progress: as `zinc_rt.load` has them.
        restarts, within: how often an engine that ended is replaced in so many seconds; then all requests fail, and
            the next engine is tried after that time.
        stuck: seconds without a step, where there is something to do, after which an engine counts as hung; at least
            20 times what steps take.
        report: called with each report.
        background: of the server, None for one of its own.
        admit: given the plan of a process before it loads, waits until there is room; raises `ZincError` where there
            is none.
    """

    def __init__(
        self,
        start: Start,
        *,
        notify: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
        restarts: int = 3,
        within: float = 60.0,
        stuck: float = 30.0,
        report: Callable[[StepReport], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        background: Background | None = None,
        admit: Callable[[Planned], Awaitable[None]] | None = None,
    ) -> None:
        self._background = background or Background()
        self._admit = admit
        self._start, self._notify, self._progress, self._report = start, notify, progress, report
        self._restarts, self._within, self._stuck, self._clock = restarts, within, stuck, clock
        self._live = RequestLog(lambda request_id, reason: self._send(Cancel(request_id, reason)), clock)
        self._shares: dict[str, TenantShare] = {}
        self._changes: list[LoadAdapter | UnloadAdapter] = []  # of adapters since the start: the last of each name
        self._status = EngineStatus(n_slots=start.arguments.get("n_slots") or 0)
        self._wrong: str | None = "the engine loads its model"
        self._over = False  # no engine is started any more
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._lifeline = -1
        self._tasks: list[asyncio.Task[None]] = []
        self._starts: deque[float] = deque()
        self._moved = 0.0  # when the engine last made progress, or had nothing to do
        self._step_seconds = 0.0  # mean of the last steps, weighted towards the newest
        self._pings = 0
        self.n_starts = 0
        """Processes started so far."""

    @property
    def status(self) -> EngineStatus:
        """See `EngineClient`."""
        return self._status

    @property
    def restarts(self) -> int:
        """See `EngineClient`."""
        return max(0, self.n_starts - 1)

    @property
    def healthy(self) -> str | None:
        """See `EngineClient`."""
        return self._wrong

    @property
    def pid(self) -> int | None:
        """Of the engine's process that runs now."""
        return None if self._process is None else self._process.pid

    async def start(self) -> EngineInfo:
        """See `EngineClient`. Raises `EngineNotStarted`, `EngineRefused` where the arguments are wrong."""
        reader, frames = await self._spawn()
        info = await self._loaded(reader, frames)
        self._tasks = [
            self._background.task("engine", self._run(reader, frames)),
            self._background.task("engine-watch", self._watch()),
        ]
        return info

    def submit(self, output: RequestOutput[T]) -> LiveRequest[T]:
        """See `EngineClient`."""
        request, live = output.request, self._live.add(output)
        if self._over:
            self._live.fail(Fault.engine_lost, str(self._wrong), [request.id])
        elif self._wrong is None and not live.output.over:
            self._send(request)  # otherwise the next engine gets it
        return live

    def cancel(self, request_id: str, reason: CancelReason = CancelReason.caller) -> None:
        """See `EngineClient`."""
        if self._live.cancel(request_id, reason):
            self._send(Cancel(request_id, reason))  # where no engine runs, the next one is not given the request

    def share(self, tenant: TenantShare) -> None:
        """See `EngineClient`."""
        self._shares[tenant.tenant] = tenant
        self._send(tenant)

    async def change_adapters(self, message: LoadAdapter | UnloadAdapter) -> None:
        """See `EngineClient`."""
        if self._wrong is not None:
            raise AdapterRefused(f"adapters cannot be changed now: {self._wrong}")
        await self._live.ask(message, self._send)
        self._changes = [change for change in self._changes if change.name != message.name]
        self._changes.append(message)

    async def close(self) -> None:
        """See `EngineClient`."""
        self._wrong = "the server ends"
        await self._background.end(*self._tasks)
        seconds = _ABANDONED_SECONDS if len(self._live) else _END_SECONDS
        self._live.fail(Fault.shutting_down, "the server ends")
        await self._end(seconds)

    # -- one process

    async def _spawn(self) -> tuple[asyncio.StreamReader, Frames]:
        """Start a process and tell it what to load. Raises `NoProcess`."""
        try:
            ours = self._popen()
        except OSError as error:
            raise NoProcess(f"no process can be started for the engine: {error.strerror or error}") from None
        self._starts.append(self._clock())
        self.n_starts += 1
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(pack(self._start))
        return reader, Frames()

    def _popen(self) -> socket.socket:
        """Start a process; returns our end of its socket. Raises `OSError`."""
        with ExitStack() as theirs, ExitStack() as ours:
            mine, other = socket.socketpair()
            ours.callback(mine.close)
            theirs.callback(other.close)
            watched, lifeline = os.pipe()
            ours.callback(os.close, lifeline)
            theirs.callback(os.close, watched)
            self._process = subprocess.Popen(
                # -P: `-m` alone searches the current folder first, whose files are not this program's.
                [sys.executable, "-P", "-m", "zinc_rt.serving.engine_process", str(other.fileno()), str(watched)],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(import_path())},
                pass_fds=(other.fileno(), watched),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            ours.pop_all()
            self._lifeline = lifeline
        return mine

    async def _loaded(self, reader: asyncio.StreamReader, frames: Frames) -> EngineInfo:
        """Wait until the process has loaded its model, then give it the requests that there are."""
        while True:
            data = await self._read(reader)
            if not data:
                raise EngineNotStarted(f"the engine's process ended while it loaded the model: {await self._ended()}")
            for frame in frames.add(data):
                match unpack_from(frame):
                    case EngineInfo() as info:
                        self._moved, self._wrong = self._clock(), None
                        for share in self._shares.values():
                            self._send(share)
                        for change in self._changes:
                            self._send(change)
                        for request in self._live.resubmit():
                            self._send(request)
                        return info
                    case NotLoaded() as found:
                        await self._end(_END_SECONDS)
                        kind = EngineRefused if found.usage else EngineNotStarted
                        raise kind(found.message).with_advice(found.advice)
                    case Notice(line):
                        if self._notify is not None:
                            self._notify(line)
                    case Planned() as plan:
                        if self._admit is not None:
                            await self._admit(plan)
                        self._send(Proceed())
                    case Progress(done, total):
                        if self._progress is not None:
                            self._progress(done, total)
                    case StepReport() | AtWork():
                        raise WireError("the engine sent a report before it had loaded")

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read(_CHUNK)
        except OSError:  # as ECONNRESET, where the process was killed with something unread
            return b""

    async def _reports(self, reader: asyncio.StreamReader, frames: Frames) -> str:
        """Take reports until the process ends; returns why. Those of short steps are taken together."""
        assert self._writer is not None
        said, transport = "", cast("asyncio.Transport", self._writer.transport)
        while data := await self._read(reader):
            began, decodes = self._clock(), False
            for frame in frames.add(data):
                message = unpack_from(frame)
                if isinstance(message, StepReport):
                    said, decodes = message.fatal or said, message.decode_rows > 0
                    self._take(message)
                elif isinstance(message, AtWork):
                    self._live.at_work(message.ids)
                elif isinstance(message, Notice) and self._notify is not None:
                    self._notify(message.line)
            if decodes and (left := began + PACE - self._clock()) > 0:
                transport.pause_reading()
                await asyncio.sleep(left)
                transport.resume_reading()
        return said or await self._ended()

    def _take(self, report: StepReport) -> None:
        status = report.status
        encodes = status.encoded != self._status.encoded  # the only progress while a large picture becomes rows
        if report.seconds or encodes or not (status.queued or status.prefilling or status.decoding):
            self._moved = self._clock()
        if report.seconds:
            self._step_seconds += (report.seconds - self._step_seconds) / 8
        if report.seq >= 0:
            self._status = status
        if report.fatal is None:
            self._live.clear()
        self._live.take(report.events)
        for request in self._live.released():
            self._send(request)
        if self._report is not None:
            self._report(report)

    def _send(self, message: ToEngine) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(pack(message))

    async def _ended(self) -> str:
        """How the process ended, for a message."""
        process = self._process
        if process is None:
            return "it was ended"
        try:
            code = await asyncio.to_thread(process.wait, _END_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its socket"
        if code >= 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}"
        return f"ended by signal {-code}"

    async def _end(self, seconds: float) -> None:
        """End the process: it has so many seconds to do it itself."""
        process, self._process = self._process, None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, seconds)
        os.close(self._lifeline)
        process.kill()
        await asyncio.to_thread(process.wait)

    # -- one after another

    async def _run(self, reader: asyncio.StreamReader, frames: Frames) -> None:
        """Take reports, and replace engines that end."""
        try:
            while True:
                try:
                    why = await self._reports(reader, frames)
                except WireError as error:
                    why = str(error)
                self._wrong = "the engine starts again"
                self._say(f"the engine ended ({why}); {len(self._live)} requests go on with the next one")
                self._live.lost()
                await self._end(0)
                reader, frames = await self._next()
        except Exception as error:
            self._over, self._wrong = True, f"nothing reads from the engine: {type(error).__name__}: {error}"
            self._live.fail(Fault.engine_lost, self._wrong)
            raise

    async def _next(self) -> tuple[asyncio.StreamReader, Frames]:
        """Start engines until one has loaded."""
        while True:
            while self._starts and self._starts[0] < self._clock() - self._within:
                self._starts.popleft()
            if len(self._starts) > self._restarts:
                self._wrong = f"the engine ended {self._restarts} times in {self._within:g} s"
                self._live.fail(Fault.engine_lost, f"{self._wrong}; try again later")
                self._say(f"{self._wrong}; the next one is started later")
                await asyncio.sleep(max(0.0, self._starts[0] + self._within - self._clock()))
                continue
            try:
                reader, frames = await self._spawn()
                await self._loaded(reader, frames)
                return reader, frames
            except (ZincError, OSError) as error:
                self._say(f"the engine could not be started again: {error}")
                await self._end(0)
                if isinstance(error, NoProcess):  # it counts for nothing, and connections that close may mend it
                    await asyncio.sleep(_TICK)

    async def _watch(self) -> None:
        """Kill an engine that makes no progress: then it is replaced like one that ended."""
        while True:
            await asyncio.sleep(min(_TICK, self._stuck / 4))
            if self._wrong is not None or self._process is None:
                continue
            self._pings += 1
            self._send(Ping(self._pings))
            limit = max(self._stuck, 20 * self._step_seconds)
            if not len(self._live):  # one that only waits may be slow to say so, on a busy machine
                self._moved = self._clock()
            if self._clock() - self._moved > limit:
                self._say(f"the engine made no step for {limit:.0f} s and is ended")
                self._moved = self._clock()
                self._process.kill()

    def _say(self, line: str) -> None:
        if self._notify is not None:
            self._notify(line)

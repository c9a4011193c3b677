"""`EventStream`: server-sent events to one client, which may read slowly, not at all, or leave."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self

import msgspec

from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError, Headers
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.resume import TELLS, Numbering

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b"x-zinc-ping"
"""A header of a stream: seconds within which there is always something to read, if only a comment."""
_PING: Final = b": ping\n\n"
_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
LINES: Final = "application/x-ndjson"
"""The type of a stream that consists of lines of JSON."""
_LINE_HEADERS: Final[Headers] = [(b"content-type", LINES.encode()), *_HEADERS[1:]]

_MARK: Final = secrets.token_hex(16)
_encoder = msgspec.json.Encoder()


def data(value: object) -> bytes:
    """An event without a name."""
    return b"data: " + _encoder.encode(value) + b"\n\n"


def named(name: str, value: object) -> bytes:
    """An event with a name."""
    return b"event: " + name.encode() + b"\ndata: " + _encoder.encode(value) + b"\n\n"


class Prepared:
    """An event that is sent again and again with another string in it; the rest is encoded once.

    make: returns the event with a string.
    """

    def __init__(self, make: Callable[[str], bytes]) -> None:
        self._head, self._tail = make(_MARK).split(b'"' + _MARK.encode() + b'"')

    def event(self, text: str) -> bytes:
        """The event with this string."""
        return self._head + _encoder.encode(text) + self._tail


def _headers(limits: Limits) -> Headers:
    return [*_HEADERS, (PING, b"%g" % limits.ping_seconds)]


async def comment(call: Call, limits: Limits, text: str) -> None:
    """Begin a stream before its first event is known, or go on with it: a comment, which clients pass over."""
    if not call.waited:
        call.waited = True
        await call.begin(200, _headers(limits))
    await call.send(f": {text}\n\n".encode(), more=True)


class EventStream:
    """Sends events as they come, those that are due together in one write.

    While the client reads nothing, the engine's events wait in their queue. A stream without an event for 15 s gets a
    comment, so that no proxy takes the connection for dead. Headers go out with the first event or comment. A client
    that reads nothing for 30 s is treated as gone. One timer a stream does both.
    """

    def __init__(self, call: Call, limits: Limits, lines: bool = False) -> None:
        """lines: it consists of lines of JSON, which have no ids and no comments."""
        self._call, self._limits, self._lines = call, limits, lines
        self._loop = asyncio.get_running_loop()
        self._begun = call.waited
        self._last = self._loop.time()  # when something was sent
        self._since: float | None = None  # when the client was given what it has not taken yet
        self._comment: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._numbering: Numbering | None = None
        self._tells = bool(call.header(TELLS))
        self._told = 0  # tokens that comments have told of
        self._due: list[bytes] = []  # for the next write
        self._waits = False  # whether that is asked for

    async def __aenter__(self) -> Self:
        self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the answer; after an exception nothing more is sent."""
        try:
            if error is None:
                await self._write(more=False)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._comment is not None:
                self._comment.cancel()

    @property
    def begun(self) -> bool:
        """Whether the client has got the headers, so that an error can only be an event."""
        return self._begun

    def add(self, chunk: bytes) -> None:
        """Whole events that are due."""
        if chunk and (events := chunk if self._lines else self._numbered(chunk)):
            self._due.append(events)

    @property
    def free(self) -> bool:
        """Whether the client takes more events now."""
        connection = self._call.connection
        return self._waits or (
            self._begun
            and self._comment is None
            and connection is not None
            and connection.takes_chunks(self._call.scope)
        )

    def write(self, chunk: bytes) -> None:
        """Write whole events where the stream is `free`, with others that the same turn of the loop adds."""
        self.add(chunk)
        if self._due and not self._waits:
            self._waits = True
            self._loop.call_soon(self._write_due)

    def _write_due(self) -> None:
        """Write what is due; where the client takes no more now, it goes with the next events."""
        self._waits = False
        if self._due and self.free and self._call.connection is not None:
            self._call.connection.write_chunk(b"".join(self._due))
            self._due.clear()
            self._last = self._loop.time()

    async def send(self) -> None:
        """Send the events that are due; waits for a client that is slow."""
        if self._due:
            await self._write(more=True)

    def _numbered(self, chunk: bytes) -> bytes:
        """The events with their ids, without those that a client which resumes has got."""
        call = self._call
        if self._numbering is None:
            skip = 0 if call.resume is None else call.resume.events
            self._numbering = Numbering(f"{call.id}.{call.created}.{call.model}.{call.seed}", skip)
        comment = b""
        if self._tells and len(call.choices) == 1 and (new := call.choices[0].tokens[self._told :]):
            self._told += len(new)
            comment = b": tokens " + ",".join(map(str, new)).encode() + b"\n"
        return self._numbering.events(chunk, comment)

    async def fail(self, event: bytes) -> None:
        """End the answer with an event that tells of an error, outside of `async with`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.write_seconds):
                await self._call.send(b"".join([*self._due, event]), more=False)

    async def _write(self, more: bool) -> None:
        if self._comment is not None:
            await self._comment
            self._comment = None
        body = b"".join(self._due)
        self._due.clear()
        await self._send(body, more)

    async def _send(self, body: bytes, more: bool) -> None:
        self._since = self._loop.time()
        if not self._begun:
            self._begun = True
            await self._call.begin(200, _LINE_HEADERS if self._lines else _headers(self._limits))
        await self._call.send(body, more)
        self._since, self._last = None, self._loop.time()

    def _look(self) -> None:
        """Do what is due, and look again when the next thing may be."""
        now, limits = self._loop.time(), self._limits
        if self._since is not None:
            due = self._since + limits.write_seconds
            if now >= due:
                self._call.facts["reader"] = "stopped"
                self._call.leave()
                return
        else:
            due = self._last + limits.ping_seconds
            if now >= due and self._lines:
                due = now + limits.ping_seconds
            elif now >= due:
                self._comment = asyncio.create_task(self._send(_PING, more=True))
                due = now + limits.ping_seconds
            due = min(due, now + limits.write_seconds)
        self._timer = self._loop.call_at(due, self._look)


def error_event(error: ApiError) -> bytes:
    """An error inside of a stream of OpenAI's form."""
    return data(error.openai())


@asynccontextmanager
async def event_stream(
    call: Call, limits: Limits, tell: Callable[[ApiError], bytes] = error_event, *, lines: bool = False
) -> AsyncIterator[EventStream]:
    """A stream as the answer of a request. An error after its begin is an event of it, in the words of `tell`. lines:
    see `EventStream`.
    """
    stream = EventStream(call, limits, lines)
    try:
        async with stream:
            yield stream
        return
    except asyncio.CancelledError:
        error = call.take_abort() if stream.begun else None
        if error is None:
            raise
    except ApiError as found:
        if not stream.begun:
            raise
        error = found
    except Exception:
        if stream.begun and not call.gone:
            said = f"an internal error; the server's log tells of it under the id {call.id}"
            await stream.fail(tell(ApiError(500, said, code="internal_error")))
        raise
    call.outcome = error.code or error.kind
    await stream.fail(tell(error))

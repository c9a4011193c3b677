"""`EventStream`: server-sent events to one client, which may read slowly, not at all, or leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self

import msgspec

from zinc_rt.serving.api.call import Call, Headers
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.limits import Limits

DONE: Final = b"data: [DONE]\n\n"
_PING: Final = b": ping\n\n"
_QUEUE: Final = 256
_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

_encoder = msgspec.json.Encoder()


def data(value: object) -> bytes:
    """An event without a name."""
    return b"data: " + _encoder.encode(value) + b"\n\n"


def named(name: str, value: object) -> bytes:
    """An event with a name."""
    return b"event: " + name.encode() + b"\ndata: " + _encoder.encode(value) + b"\n\n"


class EventStream:
    """Chunks go into a queue of at most 256; a task of its own sends them, several at once where the client is slower
    than the engine. Nothing to send for 15 s: a comment, so that no proxy takes the connection for dead. Headers go out
    with the first chunk or the first comment. A client that takes nothing for 30 s is treated as gone.
    """

    def __init__(self, call: Call, limits: Limits) -> None:
        self._call, self._limits = call, limits
        self._waiting: list[bytes] = []
        self._ready, self._room = asyncio.Event(), asyncio.Event()
        self._ended = False
        self._begun = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what waits and end the answer; after an exception nothing more is sent."""
        assert self._task is not None
        self._ended = True
        self._ready.set()
        if error is None:
            await self._task
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    @property
    def begun(self) -> bool:
        """Whether the client has got the headers, so that an error can only be an event."""
        return self._begun

    async def put(self, chunk: bytes) -> None:
        """Send a chunk soon; waits where 256 of them wait."""
        while len(self._waiting) >= _QUEUE:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(chunk)
        self._ready.set()

    async def fail(self, event: bytes) -> None:
        """End the answer with an event that tells of an error, outside of `async with`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.write_seconds):
                await self._call.send(b"".join([*self._waiting, event]), more=False)

    async def _write(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._limits.ping_seconds):
                    await self._ready.wait()
            except TimeoutError:
                await self._send(_PING, more=True)
                continue
            self._ready.clear()
            chunks, last = self._waiting, self._ended  # together: nothing is put after the end
            self._waiting = []
            self._room.set()
            await self._send(b"".join(chunks), more=not last)
            if last:
                return

    async def _send(self, body: bytes, more: bool) -> None:
        try:
            async with asyncio.timeout(self._limits.write_seconds):
                if not self._begun:
                    self._begun = True
                    await self._call.begin(200, _HEADERS)
                await self._call.send(body, more)
        except TimeoutError:
            self._call.facts["reader"] = "stopped"
            self._call.leave()
            await asyncio.Event().wait()  # until this task is cancelled


def error_event(error: ApiError) -> bytes:
    """An error inside of a stream of OpenAI's form."""
    return data(error.openai())


@asynccontextmanager
async def event_stream(
    call: Call, limits: Limits, tell: Callable[[ApiError], bytes] = error_event
) -> AsyncIterator[EventStream]:
    """A stream as the answer of a request. What goes wrong once it has begun is told in it, as `tell` words it."""
    stream = EventStream(call, limits)
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

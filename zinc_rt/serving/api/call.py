"""`Call`: one HTTP request while it is served, on raw ASGI so that a client that leaves is noticed at once."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

import msgspec

from zinc_rt.serving.api.admission import Ticket
from zinc_rt.serving.api.choice import AnswerChoice
from zinc_rt.serving.api.errors import ApiError, Headers, invalid
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.limits import LargeBodies, Limits
from zinc_rt.serving.api.resume import LAST_EVENT, TOKENS, Resume, check_kind, parse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON: Final = b"application/json"
CONNECTION: Final = "zinc.connection"
"""Of the scope: its `Connection`, where a server of ours listens."""


class Connection(Protocol):
    """The connection of a request."""

    def hang_up(self) -> None:
        """Drop it at once."""
        ...

    def takes_chunks(self, scope: Scope) -> bool:
        """Whether the answer to the request has begun, and its next chunk can be written without waiting."""
        ...

    def write_chunk(self, body: bytes) -> None:
        """Write a chunk of a body; `takes_chunks` has said that it can be."""
        ...


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""


class Call:
    """One request. Belongs to the task that serves it.

    pictures: whether its body may hold some. large: where it takes room for a large body, which `release` gives back.
    model: the fingerprint of the model that answers. id: of the request and its answer. tenant: set once the key is
    known. adapters: names and scales of those that it has; adapter_hashes: see `ServedAdapters.hashes`. served: the
    name of the adapter that it chose as its model, empty for the model itself. status: of the answer, 0 before it
    began. outcome: a word for log and metrics.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        limits: Limits,
        pictures: bool = False,
        large: LargeBodies | None = None,
    ) -> None:
        self.model = ""
        self.scope = scope
        self.connection: Connection | None = scope.get(CONNECTION)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.endpoint = "unknown"
        self.id = ""
        self.tenant = ""
        self.status = 0
        self.outcome = ""
        self.started = time.monotonic()
        self.load_seconds = 0.0  # that it waited for its model
        self.record_id = ""  # of what is kept of it
        self.created = int(time.time())
        self.seed = 0
        self.choices: list[AnswerChoice] = []
        self.adapters: tuple[tuple[str, float], ...] = ()
        self.adapter_hashes: dict[str, str] = {}
        self.served = ""
        self.ticket: Ticket | None = None
        self.facts: dict[str, Any] = {}  # for the log
        self.resume: Resume | None = None  # where the stream broke off that this one goes on with
        self.extra: Headers = []  # headers of the answer
        self.abort_error: ApiError | None = None
        self.gone = False
        self.complete = False
        self._receive, self._send = receive, send
        self._limits, self._most = limits, limits.body(pictures)
        self._large, self._held = large or LargeBodies(), 0
        self._task: asyncio.Task[Any] | None = None
        self._body: bytes | None = None
        self.waited = False  # whether events have told that its model is loaded
        self._headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name, value)

    @property
    def phase(self) -> str:
        """Where the request is: received, queued, prefilling, decoding or finished."""
        if not self.choices:
            return "received"
        if all(a.finish is not None for a in self.choices):
            return "finished"
        if any(a.first is not None for a in self.choices):
            return "decoding"
        return "prefilling" if any(a.begun for a in self.choices) else "queued"

    def header(self, name: str) -> str:
        """A header of the request, empty where it is missing."""
        return self._headers.get(name.encode(), b"").decode("latin-1")

    def begin_answer(self, kind: str) -> None:
        """Give the answer its id: a new id that begins with a kind, or the id of the stream that the client resumes.

        Raises `ApiError`.
        """
        self.id = new_id(kind)
        if event_id := self.header(LAST_EVENT):
            self.resume = parse(event_id, self.header(TOKENS), self.model)
            check_kind(self.resume, kind)
            self.id, self.created = self.resume.id, self.resume.created
            self.record_id = f"{self.id}.{new_id('r')[:7]}"  # the first part may be recorded, here or elsewhere
            return
        self.record_id = self.id

    def draw_seed(self, given: int | None, default: int | None) -> int:
        """The seed of the answer: that of the stream which is resumed, else the given one, else the server's, else a
        new one. Raises `ApiError`.
        """
        if self.resume is not None:
            if given is not None and given != self.resume.seed:
                raise invalid("seed is not that of the stream that is resumed", "seed")
            given = self.resume.seed
        given = default if given is None else given
        self.seed = secrets.randbits(32) if given is None else given
        return self.seed

    def check_size(self) -> None:
        """Refuse a body by the length that the request names, before any of it is read. Raises `ApiError`."""
        length = self.header("content-length")
        if length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > self._most):
            raise self._too_large()

    def _too_large(self) -> ApiError:
        limit = self._most
        return ApiError(413, f"the request's body is larger than {limit} bytes", code="request_too_large")

    @property
    def query(self) -> dict[str, str]:
        """The parameters behind the path; of several with one name, the last."""
        found = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        return {name: values[-1] for name, values in found.items()}

    async def body(self) -> bytes:
        """The whole body. Raises `ApiError` for one that is too large or does not end in time, `ClientGone`."""
        if self._body is not None:
            return self._body
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        self.gone = True
                        raise ClientGone
                    part: bytes = message.get("body", b"")
                    size += len(part)
                    if size > self._most:
                        raise self._too_large()
                    if size > self._limits.body_bytes:
                        self._large.grow(size - self._held)
                        self._held = size
                    parts.append(part)
                    if not message.get("more_body", False):
                        self._body = b"".join(parts)
                        return self._body
        except TimeoutError:
            seconds = self._limits.body_seconds
            raise ApiError(408, f"the request's body did not end within {seconds:g} s", code="timeout") from None

    def release(self) -> None:
        """The request is over, and its body with it."""
        self._large.held -= self._held
        self._held = 0

    @asynccontextmanager
    async def attended(self) -> AsyncIterator[None]:
        """Run what is inside only as long as the client is there and nobody calls `abort`.

        The body must have been read. Raises `ClientGone`, or the error that `abort` was given.
        """
        self._task = asyncio.current_task()
        watch = asyncio.create_task(self._watch())
        try:
            yield
        except asyncio.CancelledError:
            error = self.take_abort()
            if error is not None:
                raise error from None
            if self._task is not None and self.gone:
                self._task.uncancel()
                raise ClientGone from None
            raise
        finally:
            self._task = None
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    def take_abort(self) -> ApiError | None:
        """The error that `abort` was given, where that is why the task was cancelled; the task goes on then."""
        if self._task is None or self.gone or self.abort_error is None:
            return None
        self._task.uncancel()
        return self.abort_error

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.leave()

    def leave(self) -> None:
        """The client is gone, or does not read: nothing more is sent."""
        if self._task is not None and not self.gone and not self.complete:  # "gone" also follows a complete answer
            self.gone = True
            if self.abort_error is None:
                self._task.cancel()

    async def hang_up(self) -> None:
        """Drop the connection with all that the client did not take."""
        if self.connection is not None:
            self.connection.hang_up()
            await asyncio.sleep(0)

    def abort(self, error: ApiError) -> None:
        """End the request from outside; the client gets the error."""
        if self._task is not None and self.abort_error is None and not self.gone:
            self.abort_error = error
            self._task.cancel()

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the status and the headers."""
        self.status = status
        named = [(b"x-request-id", self.id.encode())] if self.id else []
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *named, *self.extra]})

    async def send(self, body: bytes, more: bool) -> None:
        """Send a part of the body; more: another one follows."""
        self.complete = not more
        body = b"" if self.method == "HEAD" else body
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def reply(self, body: bytes, status: int = 200, kind: bytes = JSON, headers: Headers | None = None) -> None:
        """The whole answer."""
        length = (b"content-length", b"%d" % len(body))
        await self.begin(status, [(b"content-type", kind), length, *(headers or [])])
        await self.send(body, more=False)

    async def reply_json(self, value: object, status: int = 200) -> None:
        """The whole answer as JSON."""
        await self.reply(msgspec.json.encode(value), status)

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error, in the form of the endpoint."""
        self.outcome = self.outcome or error.code or error.kind
        if self.waited:
            named = b"event: error\n" if self.path.startswith("/v1/messages") else b""
            await self.send(named + b"data: " + msgspec.json.encode(error.form(self.path)) + b"\n\n", more=False)
            return
        headers = error.headers()
        if error.status in (408, 413):  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        await self.reply(msgspec.json.encode(error.form(self.path)), error.status, headers=headers)

"""`Router`: the ASGI application of `zinc route`. Passes requests on, and streams from one server to the next."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import httpx2
import msgspec
from prometheus_client import CollectorRegistry, Counter, generate_latest

from zinc_rt.serving.api.call import Receive, Scope, Send
from zinc_rt.serving.api.errors import ApiError, Headers
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.metrics import TYPE
from zinc_rt.serving.api.sse import LINES, PING
from zinc_rt.serving.api.tls import trusting
from zinc_rt.serving.api.web import WebRule, preflight
from zinc_rt.serving.background import Background
from zinc_rt.serving.route.backends import RouteBackend, RouteBackends
from zinc_rt.serving.route.events import Passage
from zinc_rt.serving.route.key import affinity, streams

_BODY: Final = Limits().body(pictures=True)
_CONNECT: Final = 5.0
_PATIENCE: Final = 30.0
_MISSED: Final = 3
"""Signs of life that a stream owes after which its server counts as gone."""
_MOST_PING: Final = 600.0
# Of one connection, not of what it carries (RFC 9110, section 7.6.1), what the client library writes itself, and what
# the router has judged for the servers: they have other addresses than the page knows.
_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
     "upgrade", "host", "content-length", "accept-encoding", "last-event-id", "x-zinc-resume", "x-zinc-tokens",
     "origin", "sec-fetch-site"}
)  # fmt: skip
_AGAIN_SECONDS: Final = 0.25
_AGAIN: Final = (500, 502, 503, 504)
"""Answers after which another server is tried, before the client has got anything."""


class _Gone(Exception):
    """The client has left."""


class _Broken(Exception):
    """A server does not answer, or stopped in the middle."""


class ExchangeTracer(Protocol):
    """What makes spans: `RouteTracer`, which is imported where it is asked for."""

    def begin(self, exchange: Exchange) -> Any: ...
    def end(self, span: Any, exchange: Exchange, outcome: str) -> None: ...
    def close(self) -> None: ...
    def tell_lost(self) -> None: ...


class Router:
    """Belongs to one event loop. http: without a limit of the time until an answer ends. patience: seconds that a
    stream which broke off waits for a server to go on with. web: which browsers' requests are answered. tracer:
    makes spans of requests that are passed on, None for none.
    """

    def __init__(
        self,
        backends: RouteBackends,
        http: httpx2.AsyncClient,
        log: logging.Logger,
        patience: float = _PATIENCE,
        web: WebRule | None = None,
        tracer: ExchangeTracer | None = None,
    ) -> None:
        self._web = web or WebRule()
        self.backends, self._http, self._log, self._patience = backends, http, log, patience
        self.background, self._tracer = Background(log), tracer
        self.registry = CollectorRegistry()
        self._requests = Counter("zinc_route_requests", "Requests.", ["backend", "outcome"], registry=self.registry)
        self._moved = Counter("zinc_route_migrations", "Streams that moved to another server.", registry=self.registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        span, outcome = None, "internal_error"
        try:
            exchange.extra = self._web.check(exchange.text, self.backends.keyless)
            if (asked := preflight(exchange.method, exchange.text, exchange.extra)) is not None:
                exchange.extra = asked
                await exchange.reply(204, b"")
            elif scope["path"] in ("/health", "/health/live", "/health/ready"):
                await self._health(exchange, scope["path"] == "/health/live")
            elif scope["path"] == "/metrics":
                await exchange.reply(200, generate_latest(self.registry), TYPE)
            else:
                if self._tracer is not None:
                    span = self._tracer.begin(exchange)
                async with exchange.attended():
                    await self._pass(exchange)
            outcome = "ok"
        except _Gone:
            outcome = "client_gone"
        except ApiError as error:
            outcome = error.code or error.kind
            await exchange.refuse(error)
        finally:
            if span is not None and self._tracer is not None:
                self._tracer.end(span, exchange, outcome)

    async def close(self) -> None:
        """End what runs beside requests, and send spans that wait."""
        if self._tracer is not None:
            self.background.thread("traces", self._tracer.close)
        await self.background.close()
        if self._tracer is not None:
            self._tracer.tell_lost()

    async def _health(self, exchange: Exchange, live: bool) -> None:
        wrong = self.background.wrong or (None if self.backends.healthy else "no server")
        facts = {"status": wrong or "ok", "backends": [b.facts() for b in self.backends.all]}
        await exchange.reply(200 if wrong is None or live else 503, msgspec.json.encode(facts))

    async def _pass(self, exchange: Exchange) -> None:
        """Try servers until one answers. Raises `ApiError` where none does."""
        key = affinity(exchange.body, exchange.header("authorization") + exchange.header("x-api-key"))
        passage = Passage() if streams(exchange.body) else None
        skip: tuple[int, ...] = ()  # what a server says that does not know another one's request
        if exchange.path.startswith(("/v1/zinc/", "/v1/responses/")):
            skip = (404,)
        elif b'"previous_response_id"' in exchange.body:
            skip = (400,)
        tried: list[str] = []
        seen, until = None, 0.0  # the last event that was passed on, and how long its stream waits for the next
        while True:
            backend = next((b for b in self.backends.ranked(key) if b.url not in tried), None)
            if backend is None and exchange.begun and await self._wait_for_one(until):
                tried = []
                continue
            if backend is None:
                raise ApiError(503, "no server answers; try again later", code="no_backend", retry_after=2)
            tried.append(backend.url)
            exchange.backend, exchange.attempts = backend.url, exchange.attempts + 1
            last = all(b.url in tried for b in self.backends.healthy)
            backend.in_flight += 1
            outcome = "passed"
            try:
                if await self._try(exchange, backend, passage, skip=() if last else skip):
                    return
                outcome = "refused"
            except _Broken as error:
                outcome = "broken"
                self.backends.failed(backend, str(error))
                if exchange.lines:  # they have no places to go on at
                    said = "the server ended before its answer did; send the request again"
                    raise ApiError(502, said, code="server_lost", retry_after=1) from None
                if exchange.begun:
                    self._moved.inc()
                    exchange.moves += 1
                    tried = [backend.url]
                    if passage is not None and (not until or passage.last_id != seen):
                        seen, until = passage.last_id, asyncio.get_running_loop().time() + self._patience
            finally:
                backend.in_flight -= 1
                self._requests.labels(backend.url, outcome).inc()

    async def _wait_for_one(self, until: float) -> bool:
        """Wait for a server, at most to a time of the loop: a stream that has begun is worth it."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await asyncio.sleep(_AGAIN_SECONDS)
                while not self.backends.healthy:
                    await asyncio.sleep(_AGAIN_SECONDS)
                return True
        return False

    async def _try(
        self, exchange: Exchange, backend: RouteBackend, passage: Passage | None, skip: tuple[int, ...]
    ) -> bool:
        """Pass the request to one server; False where another one is to be tried. Raises `_Broken`."""
        headers = exchange.headers()
        if passage is not None:
            given = exchange.given_resume() if passage.last_id is None else passage.headers()
            headers |= {"x-zinc-tokens": "1", **given}
        request = self._http.build_request(
            exchange.method, backend.url + exchange.target, headers=headers, content=exchange.body or None
        )
        try:
            async with backend.attempt() as limit:
                return await self._answered(exchange, request, passage, skip, limit)
        except TimeoutError:
            raise _Broken("it gives no sign of life") from None

    async def _answered(
        self,
        exchange: Exchange,
        request: httpx2.Request,
        passage: Passage | None,
        skip: tuple[int, ...],
        limit: asyncio.Timeout,
    ) -> bool:
        """Pass on what a server answers; see `_try`."""
        try:
            answer = await self._http.send(request, stream=True)
        except httpx2.HTTPError as error:
            raise _Broken(f"it does not answer: {type(error).__name__}") from None
        try:
            others = len(self.backends.healthy) > 1
            if answer.status_code in skip or (answer.status_code in _AGAIN and others and not exchange.ended(answer)):
                return False
            await self._relay(exchange, answer, passage, limit)
            return True
        except httpx2.HTTPError as error:
            raise _Broken(f"it broke off: {type(error).__name__}") from None
        finally:
            await answer.aclose()

    async def _relay(
        self, exchange: Exchange, answer: httpx2.Response, passage: Passage | None, limit: asyncio.Timeout
    ) -> None:
        kind = answer.headers.get("content-type", "")
        if passage is None or not kind.startswith("text/event-stream"):
            if exchange.begun:  # of a stream that moved: the next server refuses to go on
                raise _Broken(f"it answers {answer.status_code}")
            if kind.startswith(LINES):
                exchange.lines = True
                async for data in answer.aiter_raw():
                    await exchange.begin(answer.status_code, answer.headers)
                    await exchange.send(data, more=True)
                await exchange.send(b"", more=False)
                return
            body = await answer.aread()
            limit.reschedule(None)
            await exchange.begin(answer.status_code, answer.headers)
            await exchange.send(body, more=False)
            return
        passage.broke()
        loop, silence = asyncio.get_running_loop(), _MISSED * _seconds(answer.headers.get(PING.decode()))
        limit.reschedule(loop.time() + silence)
        async for data in answer.aiter_raw():
            events = passage.add(data)
            if events:
                limit.reschedule(None)  # now it is the client's time
                await exchange.begin(answer.status_code, answer.headers)
                await exchange.send(events, more=True)
            limit.reschedule(loop.time() + silence)
        if not passage.done:
            raise _Broken("it ended a stream before its end")
        await exchange.send(b"", more=False)


class Exchange:
    """One request of a client, and what it has got. status: of the answer, 0 before it began. backend: the server that
    it was passed to last; attempts: how often it was passed to one; moves: how often a stream went on with another.
    carried: headers of its trace for servers.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        query = scope["query_string"].decode("latin-1")
        raw = scope.get("raw_path") or self.path.encode()
        self.target = raw.decode("latin-1") + (f"?{query}" if query else "")
        self.body = b""
        self.server: tuple[str, int | None] = scope.get("server") or ("", None)
        self.status = self.attempts = self.moves = 0
        self.backend = ""
        self.carried: dict[str, str] = {}
        self.extra: Headers = []  # of every answer
        self.lines = False  # whether the answer is lines of JSON
        self._given: list[tuple[bytes, bytes]] = list(scope["headers"])
        self._receive, self._send = receive, send
        self._task: asyncio.Task[Any] | None = None
        self._left = False

    @property
    def begun(self) -> bool:
        """Whether the client has got the beginning of an answer."""
        return self.status > 0

    def header(self, name: str) -> bytes:
        """A header of the request, empty where there is none."""
        return next((value for key, value in self._given if key == name.encode()), b"")

    def text(self, name: str) -> str:
        """The same as text."""
        return self.header(name).decode("latin-1")

    def headers(self) -> dict[str, str]:
        """The request's headers as a server gets them; answers are passed on as they are, so not compressed."""
        kept = {key.decode("latin-1"): value.decode("latin-1") for key, value in self._given}
        kept = {key: value for key, value in kept.items() if key not in _HOP}
        return kept | {"accept-encoding": "identity"} | self.carried

    def given_resume(self) -> dict[str, str]:
        """The headers of a client that resumes a stream."""
        names = ("last-event-id", "x-zinc-resume")
        return {name: value.decode("latin-1") for name in names if (value := self.header(name))}

    def ended(self, answer: httpx2.Response) -> bool:
        """Whether another server cannot do better: the error is about the request."""
        return self.begun or answer.headers.get("x-should-retry") == "false"

    @asynccontextmanager
    async def attended(self) -> AsyncIterator[None]:
        """Read the body, then run what is inside only as long as the client is there. Raises `_Gone`, `ApiError`."""
        parts: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            parts.append(message.get("body", b""))
            if sum(map(len, parts)) > _BODY:
                raise ApiError(413, f"the request's body is larger than {_BODY} bytes", code="request_too_large")
            if not message.get("more_body", False):
                break
        self.body = b"".join(parts)
        self._task = asyncio.current_task()
        watch = asyncio.create_task(self._watch())
        try:
            yield
        except asyncio.CancelledError:
            if self._left and self._task is not None:
                self._task.uncancel()
                raise _Gone from None
            raise
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left = True
        if self._task is not None:
            self._task.cancel()

    async def begin(self, status: int, headers: httpx2.Headers) -> None:
        """Send the status and headers, once."""
        if self.begun:
            return
        self.status = status
        kept = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.multi_items() if k.lower() not in _HOP]
        if not headers.get("content-type", "").startswith("text/event-stream") and "content-length" in headers:
            kept.append((b"content-length", headers["content-length"].encode("latin-1")))
        await self._send({"type": "http.response.start", "status": status, "headers": [*kept, *self.extra]})

    async def send(self, body: bytes, more: bool) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def reply(self, status: int, body: bytes, kind: bytes = b"application/json") -> None:
        """Send a whole answer of the router's own."""
        self.status = status
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self.extra]})
        await self.send(body, more=False)

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error, or end a stream with one."""
        body = msgspec.json.encode(error.form(self.path))
        if self.begun:
            await self.send(body + b"\n" if self.lines else b"data: " + body + b"\n\n", more=False)
            return
        await self.reply(error.status, body)


def _seconds(ping: str | None) -> float:
    """How often a stream gives a sign of life, as its header says."""
    try:
        seconds = float(ping or "")
    except ValueError:
        return Limits().ping_seconds
    return seconds if 0 < seconds <= _MOST_PING else Limits().ping_seconds


def make_client(issuers: Path | None = None) -> httpx2.AsyncClient:
    """The client that a router passes requests on with: a stream may be silent for long, a connection may not.

    issuers: whom the certificates of servers may be of; None for those that the system trusts. Raises `UsageError`.
    """
    verify: ssl.SSLContext | bool = True if issuers is None else trusting(issuers)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    timeout = httpx2.Timeout(None, connect=_CONNECT)
    return httpx2.AsyncClient(verify=verify, timeout=timeout, limits=limits, trust_env=False)

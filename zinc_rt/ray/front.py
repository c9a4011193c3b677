"""`Front`: takes requests from Ray Serve's HTTP, passes each to a replica, and on to another one where that ends."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response

from zinc_rt.ray.passed import Passed, Taken, path_of
from zinc_rt.ray.settings import Settings
from zinc_rt.serving.api.call import Call, ClientGone, Receive, Scope, Send
from zinc_rt.serving.api.errors import ApiError, Headers
from zinc_rt.serving.api.server import read_files
from zinc_rt.serving.api.sse import error_event, named
from zinc_rt.serving.route.events import Passage
from zinc_rt.serving.route.key import affinity, streams

_TAKEN: Final = 30.0
"""Seconds within which a replica must take a request."""
_LOST: Final = 5
"""Replicas that may end while they have one request."""
_AGAIN: Final = (500, 502, 503, 504)
"""Answers after which another replica is tried."""
_OURS: Final = frozenset({b"last-event-id", b"x-zinc-resume", b"x-zinc-tokens"})


class Front:
    """A deployment of Ray Serve; as many processes as the settings say."""

    def __init__(self, replicas: DeploymentHandle[Any], settings: Settings) -> None:
        self._replicas = replicas.options(stream=True, method_name="answer")
        self._limits = read_files(settings.config).tenants.limits

    async def __call__(self, request: Request) -> Response:
        """What Ray Serve calls for a request; the answer is written by `_answer`."""
        return _Raw(self)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application does."""
        call = Call(scope, receive, send, self._limits, pictures=True)
        call.path = path_of(scope)
        try:
            if call.path == "/metrics":
                raise ApiError(
                    404, "each replica counts for itself; Ray's metrics count all requests", code="not_found"
                )
            call.check_size()
            body = await call.body()
            async with call.attended():
                await _Exchange(self._replicas, call, body).run()
        except ClientGone:
            return
        except ApiError as error:
            if call.status:
                await call.send(_told(call, error), more=False)
            else:
                await call.refuse(error)


class _Raw(Response):
    """Hands ASGI's own parts to the front, so that nothing stands between an event and the client."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await self._front.answer(scope, receive, send)


class _Lost(Exception):
    """A replica ended before its answer did."""


class _Exchange:
    """One request, on one replica after the other."""

    def __init__(self, replicas: DeploymentHandle[Any], call: Call, body: bytes) -> None:
        self._replicas, self._call, self._body = replicas, call, body
        self._passage = Passage() if streams(body) else None
        self._key = affinity(body, (call.header("authorization") + call.header("x-api-key")).encode("latin-1"))
        self._refused: list[str] = []  # replicas that refused it
        self._own = call.path.startswith("/v1/zinc/")  # of one replica's request: which one is not known here

    async def run(self) -> None:
        """Answer it. Raises `ApiError` where no replica does."""
        lost = 0
        while lost < _LOST:
            try:
                if await self._attempt():
                    return
            except _Lost:
                lost = _LOST if self._call.status and not self._resume() else lost + 1
        said = "the replica that computed the answer ended; send the request again"
        raise ApiError(502, said, code="replica_lost", retry_after=1)

    def _resume(self) -> Headers:
        """What tells a replica to go on behind the last event; nothing where the stream has no places to go on at."""
        given = self._passage.headers() if self._passage is not None else {}
        return [(name.encode(), value.encode()) for name, value in given.items()]

    def _passed(self) -> Passed:
        scope = self._call.scope
        headers: Headers = list(scope["headers"])
        if self._passage is not None:
            resume = self._resume()
            ours = _OURS if resume else {b"x-zinc-tokens"}
            headers = [(k, v) for k, v in headers if k not in ours] + [(b"x-zinc-tokens", b"1"), *resume]
        path, query = self._call.path, scope.get("query_string", b"")
        return Passed(self._call.method, path, query, headers, self._body, self._key, tuple(self._refused))

    async def _attempt(self) -> bool:
        """Have one replica answer; False where another one is to be tried. Raises `_Lost`, `ApiError`."""
        answer = self._replicas.remote(self._passed())
        relay = _Relay(self._call, self._passage)
        replica = ""
        try:
            async with asyncio.timeout(_TAKEN) as limit:
                async for item in answer:
                    if isinstance(item, Taken):
                        replica = item.replica
                        limit.reschedule(None)
                        continue
                    for message in item:
                        if message["type"] == "http.response.start":
                            if self._elsewhere(message, replica):
                                return False
                            relay.start(message, replica)
                        else:
                            await relay.body(message)
            if not relay.ended:
                raise _Lost
            return True
        except TimeoutError:
            said = "no replica takes requests; try again later"
            raise ApiError(503, said, code="no_replica", retry_after=5) from None
        except (RayError, RayServeException) as error:
            raise _Lost from error
        finally:
            answer.cancel()

    def _elsewhere(self, start: dict[str, Any], replica: str) -> bool:
        """Whether an answer is dropped for that of another replica; not twice for one replica."""
        may = start["status"] in _AGAIN and (b"x-should-retry", b"false") not in start["headers"]
        unknown = self._own and start["status"] == 404
        if not (may or unknown) or self._call.status or replica in self._refused:
            return False
        self._refused.append(replica)
        return True


class _Relay:
    """One replica's answer on its way to the client: events at once, all else when it is complete."""

    def __init__(self, call: Call, passage: Passage | None) -> None:
        self._call, self._passage = call, passage
        self._status, self._headers, self._parts = 0, [], []
        self.ended = False
        if passage is not None:
            passage.broke()

    _headers: Headers
    _parts: list[bytes]

    def start(self, message: dict[str, Any], replica: str) -> None:
        """Status and headers. Raises `_Lost` where a stream that moved is not gone on with."""
        self._status = message["status"]
        self._headers = [*message["headers"], (b"x-zinc-replica", replica.encode())]
        if not any(k == b"content-type" and v.startswith(b"text/event-stream") for k, v in self._headers):
            self._passage = None
        if self._call.status and self._passage is None:
            raise _Lost

    async def body(self, message: dict[str, Any]) -> None:
        """A part of the answer."""
        data: bytes = message.get("body", b"")
        self.ended = not message.get("more_body", False)
        if self._passage is None:
            self._parts.append(data)
            data = b"".join(self._parts) if self.ended else b""
        else:
            data = self._passage.add(data)
        if data or self.ended:
            if not self._call.status:
                await self._call.begin(self._status, self._headers)
            await self._call.send(data, more=not self.ended)


def _told(call: Call, error: ApiError) -> bytes:
    """An error inside of a stream."""
    return named("error", error.anthropic()) if call.path.startswith("/v1/messages") else error_event(error)

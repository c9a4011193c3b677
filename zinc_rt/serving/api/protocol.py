"""uvicorn's HTTP protocol with limits on what comes before a request's body: connections, header bytes, their time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from zinc_rt.serving.api.call import CONNECTION, Scope
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.limits import Limits

_PHRASES: Final = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


def make_protocol(limits: Callable[[], Limits]) -> type[HttpToolsProtocol]:
    """The protocol's class. limits: those of the moment."""

    class LimitedProtocol(HttpToolsProtocol):
        """One connection."""

        _timer: asyncio.TimerHandle | None = None
        _in_headers = True
        _header_bytes = 0
        _completed = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Refuse the connection where there are too many."""
            super().connection_made(transport)
            limit = limits().connections
            if len(self.connections) > limit:
                message = f"{limit} connections are open; try again later"
                self._refuse(ApiError(503, message, code="too_many_connections", retry_after=1))
                return
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            """The connection is over."""
            self._unwatch()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            """Count bytes while headers are read."""
            if self.transport.is_closing():
                return
            counted, self._completed = self._in_headers, False
            super().data_received(data)
            if counted and self._in_headers and not self._completed:  # else the data had a body, too
                self._header_bytes += len(data)
                if self._header_bytes > limits().header_bytes:
                    self._refuse_headers()

        def on_message_begin(self) -> None:
            """A request begins; its headers must end in time."""
            super().on_message_begin()
            self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
            self._in_headers = True
            self._header_bytes = 0
            self._watch()

        def on_headers_complete(self) -> None:
            """The headers are there."""
            self._unwatch()
            self._in_headers = False
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > limits().header_bytes:
                self._refuse_headers()
                return
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            """A part of the body; there is no request to give it to after a refusal."""
            if not self.transport.is_closing():
                super().on_body(body)

        def on_message_complete(self) -> None:
            """The request is there as a whole; the next one may begin."""
            self._in_headers = self._completed = True
            self._header_bytes = 0
            if not self.transport.is_closing():
                super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            """Answer what is no HTTP."""
            if not self.transport.is_closing():
                self._refuse(ApiError(400, msg, code="invalid_http"))

        def hang_up(self) -> None:
            """See `Connection`."""
            self.transport.abort()

        def takes_chunks(self, scope: Scope) -> bool:
            """See `Connection`."""
            cycle = self.cycle
            return (
                cycle is not None
                and cycle.scope is scope
                and cycle.chunked_encoding is True
                and not (cycle.response_complete or cycle.disconnected or self.flow.write_paused)
            )

        def write_chunk(self, body: bytes) -> None:
            """See `Connection`."""
            self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

        def _watch(self) -> None:
            self._unwatch()
            self._timer = self.loop.call_later(limits().header_seconds, self._late)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _late(self) -> None:
            seconds = limits().header_seconds
            self._refuse(ApiError(408, f"the headers did not end within {seconds:g} s", code="timeout"))

        def _refuse_headers(self) -> None:
            limit = limits().header_bytes
            self._refuse(ApiError(431, f"the headers have more than {limit} bytes", code="headers_too_large"))

        def _refuse(self, error: ApiError) -> None:
            body = msgspec.json.encode(error.openai())
            headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            headers += [*error.headers(), (b"connection", b"close")]
            lines = b"".join(b"%b: %b\r\n" % (name, value) for name, value in headers)
            self.transport.write(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (error.status, _PHRASES[error.status], lines, body))
            self.transport.close()

    return LimitedProtocol

"""A proxy that keeps what a server was asked and how it answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

_OWN = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding")
"""Headers of one connection."""


@dataclass
class Heard:
    """A request and its answer, as far as it came."""

    method: str
    path: str
    body: bytes
    status: int
    answer: bytes = b""

    @property
    def line(self) -> str:
        """What was asked and what became of it."""
        return f"{self.method} {self.path}: {self.status}"


@dataclass
class Listener:
    """Stands before a server, at `url`. heard: what went through, in the order of the answers."""

    url: str
    heard: list[Heard] = field(default_factory=list)


@contextmanager
def listening(server: str) -> Iterator[Listener]:
    """Run a proxy on a free port. server: the address behind it."""
    client = httpx.Client(base_url=server, timeout=None)

    class Handler(BaseHTTPRequestHandler):
        """One connection, of one request."""

        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: value.strip() for name, value in self.headers.items() if name.lower() not in _OWN}
            with client.stream(self.command, self.path, content=body, headers=headers) as answer:
                one = Heard(self.command, self.path, body, answer.status_code)
                listener.heard.append(one)
                self.send_response(answer.status_code)
                for name, value in answer.headers.items():
                    if name not in _OWN:
                        self.send_header(name, value)
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                for part in answer.iter_raw():
                    one.answer += part
                    self.wfile.write(part)
                    self.wfile.flush()

        do_GET = do_POST = do_HEAD = do_DELETE = _pass

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener = Listener(f"http://127.0.0.1:{proxy.server_address[1]}")
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
        client.close()

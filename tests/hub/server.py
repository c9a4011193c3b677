"""A server that speaks the hub's protocol for a few repositories, and can misbehave in its ways."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Repositories and faults. files: contents by repository and path. token: what a request has to carry; empty for
    none. gated: repositories that refuse all. cuts: after how many bytes the next transfers break off. damaged: whether
    transfers change a byte. no_ranges: whether parts of files are refused by sending all. slow_down: answer 429.
    listing: the body of answers about repositories. digests: those of the listing, by path, where they are not the
    bytes'. etag: of every file. endless, mute: "listing" or "file", which never ends, or says nothing until `over`.
    requests: method, path and headers of each, in order.
    """

    files: dict[str, dict[str, bytes]]
    token: str = ""
    gated: set[str] = field(default_factory=set)
    cuts: list[int] = field(default_factory=list)
    damaged: bool = False
    no_ranges: bool = False
    slow_down: bool = False
    listing: bytes | None = None
    digests: dict[str, str] = field(default_factory=dict)
    etag: str = ""
    endless: str = ""
    mute: str = ""
    over: threading.Event = field(default_factory=threading.Event)
    sent: int = 0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    cdn: str = ""

    def asked(self, word: str) -> list[tuple[str, str, dict[str, str]]]:
        """The requests whose path has this word."""
        return [request for request in self.requests if word in request[1]]


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve it on a free port; blobs come from another host name, as the hub's do."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    port = server.server_address[1]
    hub.url, hub.cdn = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Silence about a client that has gone; it breaks off what never ends."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path, {k.lower(): v for k, v in self.headers.items()}))
        if hub.slow_down:
            return self._end(429, {"Retry-After": "1"})
        if path.startswith("/cdn/"):
            return self._misbehave("file") or self._blob(path.rpartition("/")[2])
        repo = "/".join(path.removeprefix("/api/models/").strip("/").split("/")[:2])
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._end(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        if repo not in hub.files:
            return self._end(404, {"X-Error-Code": "RepoNotFound"})
        if repo in hub.gated:
            return self._end(403, {"X-Error-Code": "GatedRepo"})
        if path.startswith("/api/models/"):
            body = json.dumps(self._about(repo)).encode() if hub.listing is None else hub.listing
            return self._misbehave("listing") or self._end(200, {"Content-Type": "application/json"}, body)
        name = path.split("/resolve/")[1].partition("/")[2]
        data = hub.files[repo].get(name)
        if data is None:
            return self._end(404, {"X-Error-Code": "EntryNotFound"})
        digest = hashlib.sha256(data).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "X-Linked-Etag": f'"{hub.etag or digest}"'}
        headers["X-Linked-Size"] = str(len(data))
        return self._end(302, {**headers, "Location": f"{hub.cdn}/cdn/{digest}"})

    def _misbehave(self, kind: str) -> bool:
        """Whether the hub is to do so in these answers, and did."""
        hub = self.hub
        if kind == hub.mute:
            hub.over.wait(60)
            self.close_connection = True
        elif kind == hub.endless:
            self.close_connection = True
            self.send_response(206 if "Range" in self.headers else 200)
            asked = self.headers.get("Range", "").removeprefix("bytes=").partition("-")[0]
            self.send_header("Content-Range", f"bytes {asked}-*/*")
            self.end_headers()
            with suppress(OSError):
                while not hub.over.is_set():
                    hub.sent += self.wfile.write(b" " * 65536)
        return kind in (hub.mute, hub.endless)

    def _about(self, repo: str) -> dict[str, Any]:
        siblings = []
        for name, data in self.hub.files[repo].items():
            digest = self.hub.digests.get(name, hashlib.sha256(data).hexdigest())
            file: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": "0" * 40}
            if len(digest) == 40:
                file["blobId"] = digest
            else:
                file["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 130}
            siblings.append(file)
        return {"id": repo, "sha": COMMIT, "siblings": siblings, "gated": False, "cardData": {"license": "mit"}}

    def _blob(self, digest: str) -> None:
        hub = self.hub
        files = (data for files in hub.files.values() for data in files.values())
        data = next(data for data in files if hashlib.sha256(data).hexdigest() == digest)
        whole = len(data)
        if hub.damaged:
            data = bytes([data[0] ^ 1]) + data[1:]
        asked = self.headers.get("Range")
        status, first, last = 200, 0, whole - 1
        if asked and not hub.no_ranges:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            status, first, last = 206, int(start), min(int(end) if end else whole - 1, whole - 1)
        body = data[first : last + 1]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hub.etag or digest}"')
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
        self.end_headers()
        if self.command == "HEAD":
            return
        if hub.cuts:
            self.wfile.write(body[: hub.cuts.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(body)

    def _end(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

"""A server that says the same to the same request, but for one fault that it may have."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from zinc_rt.serving.records.canonical import digest, tensor_digest
from zinc_rt.serving.records.chain import GENESIS, chain_entry, entry_manifest
from zinc_rt.serving.records.receipt import make_receipt

WORDS = ("fox", "owl", "sea", "pig", "hill", "lake", "farm", "moon")


class FakeServer(ThreadingHTTPServer):
    """fault: a word of the tests, empty for none. salt: of its words, as another model or machine would have one.

    refuses: fields that it answers with 400. busy: how often it says 503 first.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, fault: str = "", salt: str = "", refuses: tuple[str, ...] = (), busy: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault, self.salt, self.refuses, self.busy = fault, salt, refuses, busy
        self.lock = threading.Lock()
        self.running = self.count = self.most = self.long = 0
        self.seen: set[str] = set()
        self.entries: list[dict[str, Any]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, body: dict[str, Any], running: int) -> dict[str, Any]:
        """The answer, with the fault."""
        prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        with self.lock:
            self.count += 1
            count, before = self.count, prompt in self.seen
            self.seen.add(prompt)
            self.long += len(prompt) > 400
            self.most = max(self.most, running)
        sampled = body["temperature"] > 0
        wrong = {
            "repeat": before and count % 9 == 0,
            "company": running > 1,
            "ulp in company": running > 1,
            "sampled": sampled and count % 3 == 0,
            "cache": self.long > 0,
        }.get(self.fault, False)
        key = hashlib.sha256(f"{self.salt}{prompt}{sampled and body.get('seed')}".encode()).digest()
        n_tokens = 0 if self.fault == "empty" else body["max_tokens"]
        tokens = [WORDS[key[i % 32] % 8] for i in range(n_tokens)]
        logprobs = [-float(key[i % 32]) / 97 for i in range(n_tokens)]
        if wrong and self.fault == "ulp in company":
            logprobs[-1] = float(np.nextafter(logprobs[-1], 0))
        elif wrong:
            tokens[-1] = "bad"
        text, name = " ".join(tokens), f"fake-{count}"
        self._receipt(name, text, logprobs)
        message = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        made = {"id": name, "choices": [{**message, "finish_reason": "length", "logprobs": None}]}
        made["usage"] = {"prompt_tokens_details": {"cached_tokens": 5 if before and not self.long else 0}}
        if body.get("logprobs") and self.fault != "no logprobs":
            shown = [{"token": t, "logprob": p, "top_logprobs": []} for t, p in zip(tokens, logprobs, strict=True)]
            made["choices"][0]["logprobs"] = {"content": shown}
        return made

    def _receipt(self, name: str, text: str, logprobs: list[float]) -> None:
        receipt = make_receipt("c", "1", {}, {}, np.zeros(1, np.int32), meta={"id": name, "created": 1, "model": "m"})
        shown = text + "." if self.fault == "other text" else text
        digests = {"text": digest(shown.encode())}
        digests["logprobs"] = tensor_digest(np.array(logprobs) + (1e-9 if self.fault == "other numbers" else 0.0))
        with self.lock:
            before = self.entries[-1]["chain"] if self.entries else GENESIS
            before = GENESIS if self.fault == "broken chain" else before
            manifest = entry_manifest({**receipt, "outputs": digests}, len(self.entries), before)
            self.entries.append(chain_entry(manifest))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    server: FakeServer

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send(200, {"data": [{"id": "fake"}]})
        elif "/worldline/tail" in self.path and self.server.fault != "no receipts":
            self._send(200, {"entries": self.server.entries[-int(self.path.partition("n=")[2]) :]})
        else:
            self._send(404, {"error": {"message": "not here"}})

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            server.running += 1
            busy, server.busy = server.busy > 0, server.busy - 1
        if len(body.get("messages", [{"content": ""}])[0]["content"]) < 300:
            time.sleep(0.003)
        running = server.running
        if busy:
            self._send(503, {"error": {"message": "busy"}}, ("Retry-After", "0"))
        elif body["model"] != "fake":
            self._send(404, {"error": {"message": f"no model {body['model']}"}})
        elif refused := [name for name in server.refuses if name in body or self.path.endswith(name)]:
            self._send(404 if self.path.endswith(refused[0]) else 400, {"error": {"message": f"no {refused[0]}"}})
        else:
            self._send(200, server.answer(body, running))
        with server.lock:
            server.running -= 1

    def _send(self, status: int, tree: Any, *headers: tuple[str, str]) -> None:
        body = json.dumps(tree).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake(fault: str = "", salt: str = "", refuses: tuple[str, ...] = (), busy: int = 0) -> Iterator[FakeServer]:
    """Run one."""
    server = FakeServer(fault, salt, refuses, busy)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

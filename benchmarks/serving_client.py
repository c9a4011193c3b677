"""The client of the servers' benchmark: HTTP/1.1 over asyncio, which does almost nothing while an answer comes.

What arrives is kept with its time; lines, chunks and JSON are taken apart when the answer is complete, and only where
the measurement asks for it. Both servers get the same bytes of the same client.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

_END_OF_CHUNKS = b"\r\n0\r\n\r\n"
_BLANK = b"\r\n\r\n"


class AnswerBroken(Exception):
    """The connection ended before the answer did."""


@dataclass(eq=False)
class Answer:
    """One answer as it came. sent: when the request was written; parts: with the time of each, in seconds."""

    sent: float
    parts: list[tuple[float, bytes]] = field(default_factory=list)

    @cached_property
    def raw(self) -> bytes:
        """All that came."""
        return b"".join(data for _, data in self.parts)

    @cached_property
    def status(self) -> int:
        """The HTTP status; 0 before it came."""
        return int(self.raw[9:12] or 0)

    @property
    def end(self) -> float:
        """When the last bytes came."""
        return self.parts[-1][0]

    @cached_property
    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """The JSON objects of an event stream, each with the time of its last byte; of any other answer, its object."""
        body, starts = self._body()
        if b"text/event-stream" not in self.raw[: self.raw.find(_BLANK)]:
            return [(self.end, json.loads(body))] if body else []
        found, at = [], 0
        while (stop := body.find(b"\n\n", at)) >= 0:
            for line in body[at:stop].split(b"\n"):
                if line.startswith(b"data: {"):
                    found.append((self._time_of(starts, stop + 1), json.loads(line[6:])))
            at = stop + 2
        return found

    @cached_property
    def tokens(self) -> list[tuple[float, str]]:
        """The pieces of text, each with its time."""
        found = []
        for moment, event in self.events:
            for choice in event.get("choices", ()):
                text = choice.get("text") or choice.get("delta", {}).get("content")
                if text:
                    found.append((moment, text))
        return found

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(text for _, text in self.tokens)

    @property
    def n_tokens(self) -> int:
        """Tokens generated, as the server counts them; as many as pieces of text came where it was cut off."""
        for _, event in reversed(self.events):
            if event.get("usage"):
                return int(event["usage"]["completion_tokens"])
        return len(self.tokens)

    @property
    def first(self) -> float:
        """Seconds from the request to the first text."""
        return self.tokens[0][0] - self.sent

    @property
    def between(self) -> float:
        """Seconds from one token to the next, on average."""
        return (self.tokens[-1][0] - self.tokens[0][0]) / (self.n_tokens - 1)

    def _body(self) -> tuple[bytes, list[tuple[int, int]]]:
        """The body, and for each of its chunks where it begins in the body and in what came."""
        head = self.raw.find(_BLANK) + 4
        if b"transfer-encoding: chunked" not in self.raw[:head].lower():
            return self.raw[head:], [(0, head)]
        parts, starts, at, length = [], [], head, 0
        while (line := self.raw.find(b"\r\n", at)) >= 0:
            size = int(self.raw[at:line], 16)
            if not size:
                break
            starts.append((length, line + 2))
            parts.append(self.raw[line + 2 : line + 2 + size])
            length += size
            at = line + 2 + size + 2
        return b"".join(parts), starts

    @cached_property
    def _ends(self) -> list[int]:
        ends, total = [], 0
        for _, data in self.parts:
            total += len(data)
            ends.append(total)
        return ends

    def _time_of(self, starts: list[tuple[int, int]], offset: int) -> float:
        """When the byte at an offset of the body came."""
        body, raw = starts[bisect_right(starts, (offset, len(self.raw))) - 1]
        return self.parts[min(bisect_right(self._ends, raw + offset - body), len(self.parts) - 1)][0]


class _Wire(asyncio.Protocol):
    """One connection; it notices the end of an answer and keeps everything else as it is."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.done: asyncio.Future[None] | None = None
        self._left = -1  # bytes of a body whose length is known; -1: the head is not there yet; -2: chunks
        self._tail = b""

    def begin(self) -> asyncio.Future[None]:
        self.answer = Answer(time.perf_counter())
        self.done = asyncio.get_running_loop().create_future()
        self._left, self._tail = -1, b""
        return self.done

    def data_received(self, data: bytes) -> None:
        answer = self.answer
        if answer is None:
            return
        answer.parts.append((time.perf_counter(), data))
        if self._left == -1:
            self._read_head(answer)
        elif self._left >= 0:
            self._left -= len(data)
        if self._left == -2:
            self._tail = (self._tail + data)[-len(_END_OF_CHUNKS) :]
        if (self._left == 0 or self._tail == _END_OF_CHUNKS) and self.done is not None and not self.done.done():
            self.done.set_result(None)

    def _read_head(self, answer: Answer) -> None:
        raw = b"".join(data for _, data in answer.parts)
        head, blank, body = raw.partition(_BLANK)
        if not blank:
            return
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self._left = int(line[15:]) - len(body)
                return
        self._left = -2

    def connection_lost(self, error: Exception | None) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(AnswerBroken(str(error or "the server closed the connection")))


class Connection:
    """A connection to a server, made with the first request and kept."""

    def __init__(self, port: int, key: str = "") -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        if key:
            self._head += f"Authorization: Bearer {key}\r\n"
        self._transport: asyncio.Transport | None = None
        self._wire = _Wire()

    async def open(self) -> None:
        """Connect, unless that is done."""
        if self._transport is None or self._transport.is_closing():
            loop = asyncio.get_running_loop()
            self._transport, self._wire = await loop.create_connection(_Wire, "127.0.0.1", self._port)

    async def post(self, path: str, body: Mapping[str, Any], seconds: float = 600.0) -> Answer:
        """The answer to a request. Raises `AnswerBroken`, `TimeoutError`."""
        return await self._exchange("POST", path, json.dumps(body).encode(), seconds)

    async def get(self, path: str, seconds: float = 60.0) -> Answer:
        """The answer to a request. Raises `AnswerBroken`, `TimeoutError`."""
        return await self._exchange("GET", path, b"", seconds)

    @property
    def answer(self) -> Answer | None:
        """The answer that comes or came last."""
        return self._wire.answer

    def close(self) -> None:
        """Drop the connection, in the middle of an answer too."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def _exchange(self, method: str, path: str, body: bytes, seconds: float) -> Answer:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        request = f"{method} {path} HTTP/1.1\r\n{self._head}{length}\r\n".encode() + body
        kept = self._transport is not None
        try:
            answer = await self._send(request, seconds)
        except AnswerBroken:
            if not kept or self.answer is None or self.answer.parts:
                raise
            answer = await self._send(request, seconds)  # servers close kept connections when they like
        if b"connection: close" in answer.raw[: answer.raw.find(_BLANK)].lower():
            self.close()
        return answer

    async def _send(self, request: bytes, seconds: float) -> Answer:
        await self.open()
        assert self._transport is not None
        done = self._wire.begin()
        self._transport.write(request)
        try:
            async with asyncio.timeout(seconds):
                await done
        except BaseException:
            self.close()
            raise
        answer = self._wire.answer
        assert answer is not None
        return answer

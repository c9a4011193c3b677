"""What needs real sockets: clients that leave, that do not read, that never finish; limits of connections; the end."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.serving.api.conftest import SAYS, Bench, MakeBench, events
from zinc_rt.serving.api.config import ServerConfig, TenantConfigs
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.server import Server, listen

CHAT = {"model": "story", "messages": [{"role": "user", "content": "Hi"}]}


class Running:
    """A server that listens."""

    def __init__(self, server: Server, bench: Bench, http: httpx.AsyncClient, port: int) -> None:
        self.server, self.bench, self.http, self.port = server, bench, http, port
        self.engine, self.service = bench.client, bench.service

    async def raw(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has sent these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def chat(self, **fields: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has sent a chat completion."""
        return await self.raw(post(json.dumps({**CHAT, **fields}).encode()))

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that is bound to come."""
        async with asyncio.timeout(20):
            while not true():
                await asyncio.sleep(0.005)


def post(body: bytes) -> bytes:
    """A request for a chat completion."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Running]:
    """Run a server on a free port of this machine."""
    service = bench.service
    service.model = dataclasses.replace(service.model, pool=ThreadPoolExecutor(2))
    ready = asyncio.Event()
    sock = listen(ServerConfig(port=0))
    server = Server(service, sock, lambda url: ready.set())
    port = sock.getsockname()[1]
    task = asyncio.create_task(server.run(signals=False))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            await asyncio.wait_for(ready.wait(), 20)
            yield Running(server, bench, http, port)
    finally:
        server.stop()
        server.stop()
        assert await asyncio.wait_for(task, 20) == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["queued", "prefilling", "decoding"])
def test_a_client_that_leaves_cancels_its_request(bench: MakeBench, stream: bool, phase: str) -> None:
    async def go() -> None:
        gate = asyncio.Semaphore(0)
        async with running(bench(gate=gate, slots=1)) as r:
            other = None
            if phase == "queued":
                other = await r.chat()
                await r.until(lambda: r.engine.decoding == 1)
            _reader, writer = await r.chat(stream=stream)
            await r.until(lambda: len(r.engine.submitted) == (2 if other else 1))
            request = r.engine.submitted[-1]
            call = r.service.running[request.id]
            if phase == "decoding":
                gate.release()
            await r.until(lambda: call.phase == phase)
            writer.close()
            await r.until(lambda: r.engine.closed == [request.id])
            await r.until(lambda: request.id not in r.service.running)
            assert r.bench.log[-1]["outcome"] == "client_gone"
            if other is not None:
                assert len(r.service.running) == 1
                for _ in range(100):
                    gate.release()
                answer = await asyncio.wait_for(other[0].read(4096), 20)
                assert answer.startswith(b"HTTP/1.1 200")
            assert r.service.admission.inside == (1 if other and r.service.running else 0)

    asyncio.run(go())


def test_a_reader_that_stops_is_dropped(bench: MakeBench) -> None:
    """Its connection is filled until nothing more goes into it."""

    async def go() -> None:
        limits = Limits(write_seconds=0.2)
        b = bench(tenants=TenantConfigs(limits=limits))
        b.client.script = lambda request: endless(5)
        async with running(b) as r:
            reader, writer = await r.chat(stream=True, logprobs=True, top_logprobs=20)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await r.until(lambda: bool(r.engine.closed))
            await r.until(lambda: not r.service.running)
            assert r.bench.log[-1]["reader"] == "stopped"
            writer.transport.abort()

    asyncio.run(go())


def endless(token_id: int) -> Any:
    """Tokens without an end."""
    while True:
        yield token_id


def test_a_request_can_be_cancelled_by_its_id(bench: MakeBench) -> None:
    async def go() -> None:
        gate = asyncio.Semaphore(3)
        async with running(bench(gate=gate)) as r:
            reader, writer = await r.chat(stream=True)
            await r.until(lambda: bool(r.engine.submitted))
            name = r.engine.submitted[0].id
            await r.until(lambda: r.service.running[name].phase == "decoding")
            shown = await r.http.get(f"/v1/zinc/requests/{name}")
            assert shown.json()["phase"] == "decoding"
            gone = await r.http.delete(f"/v1/zinc/requests/{name}")
            assert gone.json() == {"id": name, "object": "request", "cancelled": True}
            text = await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), 20)
            assert b'"code":"cancelled"' in text
            assert b"[DONE]" not in text
            assert (await r.http.delete(f"/v1/zinc/requests/{name}")).status_code == 404
            assert (await r.http.get(f"/v1/zinc/requests/{name}")).json()["outcome"] == "cancelled"
            writer.close()

    asyncio.run(go())


def test_drain_lets_running_requests_finish_and_takes_no_new_ones(bench: MakeBench) -> None:
    async def go() -> None:
        gate = asyncio.Semaphore(2)
        b = bench(gate=gate, config=ServerConfig(drain=20.0))
        async with running(b) as r:
            task = asyncio.create_task(r.http.post("/v1/chat/completions", json={**CHAT, "stream": True}))
            await r.until(lambda: r.engine.decoding == 1)
            r.server.stop()
            assert (await r.http.get("/health/ready")).status_code == 503
            refused = await r.http.post("/v1/chat/completions", json=CHAT)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
            assert refused.headers["retry-after"]
            for _ in range(100):
                gate.release()
            chunks = events((await task).text)
            assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == SAYS

    asyncio.run(go())


def test_streams_get_an_error_when_the_time_to_drain_is_over(bench: MakeBench) -> None:
    async def go() -> None:
        gate = asyncio.Semaphore(2)
        async with running(bench(gate=gate, config=ServerConfig(drain=0.05))) as r:
            reader, kept = await r.chat(stream=True)
            whole, also = await r.chat()
            await r.until(lambda: r.engine.decoding == 2)
            call = r.service.running[r.engine.submitted[0].id]
            await r.until(lambda: call.status == 200)
            r.server.stop()
            text = await asyncio.wait_for(reader.read(), 20)
            assert b'"code":"shutting_down"' in text
            assert b"[DONE]" not in text
            assert (await asyncio.wait_for(whole.read(), 20)).startswith(b"HTTP/1.1 503")
            kept.close()
            also.close()

    asyncio.run(go())


def test_a_comment_is_sent_where_nothing_else_is(bench: MakeBench) -> None:
    async def go() -> None:
        gate = asyncio.Semaphore(0)
        b = bench(gate=gate, slots=1, tenants=TenantConfigs(limits=Limits(ping_seconds=0.05)))
        async with running(b) as r:
            _, first = await r.chat(stream=True)
            await r.until(lambda: r.engine.decoding == 1)
            reader, writer = await r.chat(stream=True)
            text = await asyncio.wait_for(reader.readuntil(b": ping\n\n"), 20)
            assert text.startswith(b"HTTP/1.1 200")
            assert b"data:" not in text
            first.close()
            writer.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("limits", "sent", "status", "code"),
    [
        (Limits(header_seconds=0.05), b"POST /v1/chat/completions HTTP/1.1\r\nHost", 408, "timeout"),
        (Limits(), b"GET /health HTTP/1.1\r\nX: " + b"a" * 40_000, 431, "headers_too_large"),
        (Limits(), b"GET /health HTTP/1.1\r\nX: " + b"a" * 33_000 + b"\r\n\r\n", 431, "headers_too_large"),
        (Limits(), b"nonsense\r\n\r\n", 400, "invalid_http"),
        (Limits(), post(b"")[:-4].replace(b" 0", b" 5000000") + b"\r\n\r\n", 413, "request_too_large"),
        (
            Limits(body_bytes=1000),
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"400\r\n"
            + b" " * 1024
            + b"\r\n",
            413,
            "request_too_large",
        ),
        (
            Limits(body_seconds=0.05),
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            408,
            "timeout",
        ),
    ],
)
def test_requests_that_are_too_large_or_never_end(
    bench: MakeBench, limits: Limits, sent: bytes, status: int, code: str
) -> None:
    async def go() -> None:
        async with running(bench(tenants=TenantConfigs(limits=limits))) as r:
            reader, writer = await r.raw(sent)
            text = await asyncio.wait_for(reader.read(), 20)
            head, _, body = text.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d" % status)
            assert json.loads(body)["error"]["code"] == code
            assert r.service.admission.inside == 0
            writer.close()
            assert (await r.http.get("/health")).status_code == 200

    asyncio.run(go())


def test_more_connections_than_allowed_are_refused(bench: MakeBench) -> None:
    async def go() -> None:
        async with running(bench(tenants=TenantConfigs(limits=Limits(connections=3)))) as r:
            held = [await r.raw(b"") for _ in range(3)]
            reader, writer = await r.raw(b"")
            text = await asyncio.wait_for(reader.read(), 20)
            assert text.startswith(b"HTTP/1.1 503")
            assert b"too_many_connections" in text
            for _, one in (*held, (reader, writer)):
                one.close()
            await asyncio.sleep(0.05)
            assert (await r.http.get("/health")).status_code == 200

    asyncio.run(go())


def test_a_connection_is_used_again_after_an_answer(bench: MakeBench) -> None:
    async def go() -> None:
        async with running(bench()) as r:
            body = json.dumps(CHAT).encode()
            reader, writer = await r.raw(post(body) + post(body))
            for _ in range(2):
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
                assert head.startswith(b"HTTP/1.1 200")
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
                )
                answer = json.loads(await reader.readexactly(length))
                assert answer["choices"][0]["message"]["content"] == SAYS
            assert [line["outcome"] for line in r.bench.log if line["event"] == "request"] == ["ok", "ok"]
            writer.close()

    asyncio.run(go())

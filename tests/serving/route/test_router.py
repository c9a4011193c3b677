"""A router before servers that die in the middle of streams: clients get the bytes of a server that lives."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import zinc_rt
from zinc_rt.cli.main import main
from zinc_rt.errors import UsageError
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.route.backends import RouteBackend, RouteBackends
from zinc_rt.serving.route.events import Passage
from zinc_rt.serving.route.key import affinity
from zinc_rt.serving.route.router import Router, make_client

SLOW = ("serve", "--one-process", "-c", "256", "--kernels", "reference")
STORY = Path(zinc_rt.__file__).parent / "data" / "zinc-story.gguf"
ASKED = [{"role": "user", "content": "Tell me of a fox."}]


@contextmanager
def program(*arguments: str, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `zinc` process that prints its address once it serves, and the address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "zinc_rt", *arguments, "--port", port],
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("SHOW") else subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found is not None
        yield process, found[0]
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@contextmanager
def servers(n: int) -> Iterator[tuple[list[subprocess.Popen[str]], list[str], str]]:
    """Slow servers of the model in the package and a router before them: processes, addresses, the router's address."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        made = [stack.enter_context(program(*SLOW)) for _ in range(n)]
        urls = [url for _, url in made]
        _, router = stack.enter_context(program("route", *(word for url in urls for word in ("-b", url))))
        yield [process for process, _ in made], urls, router


@asynccontextmanager
async def streamed(http: httpx.AsyncClient, url: str, **fields: Any) -> AsyncIterator[httpx.Response]:
    body = {"messages": ASKED, "stream": True, "seed": 3, "max_tokens": 16, "ignore_eos": True, **fields}
    async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        yield answer


def plain(text: str) -> str:
    """A stream without ids and the second of its creation."""
    text = re.sub(r"(?m)^id: .*\n", "", text)
    return re.sub(r'"(id|created)":("[^"]*"|\d+)', "", text)


def test_equal_beginnings_have_equal_keys() -> None:
    def key(*messages: str, tenant: bytes = b"") -> bytes:
        body = {"messages": [{"role": "user", "content": text} for text in messages], "seed": len(messages)}
        return affinity(json.dumps(body).encode(), tenant)

    long = "x" * 600
    assert key(long) == key(long, "more") != key("y" + long)
    assert key(long) != key(long, tenant=b"other")
    assert affinity(b"no json", b"") == affinity(b"[]", b"")


def backends(*urls: str) -> RouteBackends:
    made = RouteBackends(urls, make_client(), make_logger())
    for backend in made.all:
        backend.wrong = None
    return made


def test_a_server_that_leaves_moves_its_own_keys_alone() -> None:
    made = backends("http://a:1", "http://b:1", "http://c:1")
    keys = [os.urandom(16) for _ in range(300)]
    before = {key: made.ranked(key)[0].url for key in keys}
    assert {before[key] for key in keys} == {"http://a:1", "http://b:1", "http://c:1"}
    made.all[0].wrong = "gone"
    for key in keys:
        after = made.ranked(key)[0].url
        assert after == before[key] or before[key] == "http://a:1"


def test_a_busy_server_is_passed_over() -> None:
    made = backends("http://a:1", "http://b:1")
    key = next(k for k in iter(lambda: os.urandom(16), b"") if made.ranked(k)[0] is made.all[0])
    made.all[0].reported = 64
    assert made.ranked(key)[0] is made.all[0]
    made.all[0].reported = 65
    assert made.ranked(key)[0] is made.all[1]
    made.all[1].reported = 64
    assert made.ranked(key)[0] is made.all[0]


@pytest.mark.parametrize("url", ["", "a:1", "ftp://a", "http://", "http://a/path", "http://a?x=1", "http://a:b"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError):
        backends(url)


def test_addresses_once() -> None:
    with pytest.raises(UsageError, match="twice"):
        backends("http://a:1", "http://a:1/")
    with pytest.raises(UsageError, match="no servers"):
        backends()


def test_events_are_cut_anywhere() -> None:
    stream = b": ping\n\n: tokens 1,2\nid: x.1\ndata: a\n\nid: x.2\ndata: b\n\n: tokens 3\nid: x.3\ndata: [DONE]\n\n"
    clean = b": ping\n\nid: x.1\ndata: a\n\nid: x.2\ndata: b\n\nid: x.3\ndata: [DONE]\n\n"
    for cut in range(len(stream)):
        passage = Passage()
        assert passage.add(stream[:cut]) + passage.add(stream[cut:]) == clean
        assert (passage.tokens, passage.last_id, passage.done) == (["1", "2", "3"], "x.3", True)
    passage = Passage()
    passage.add(stream[: stream.index(b"data: b")])
    passage.broke()
    assert passage.headers() == {"last-event-id": "x.1", "x-zinc-resume": "1,2"}


def test_wrong_command_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["-b", "nonsense"]):
        assert main(["route", *arguments]) == 2
        assert "Traceback" not in capsys.readouterr().err


class Client:
    """Asks a router in this process for a stream, and keeps what it gets as it comes."""

    def __init__(self, router: Router, path: str = "/v1/chat/completions") -> None:
        self.text = ""
        self.more = asyncio.Event()
        body = {"messages": ASKED, "stream": True, "seed": 3, "max_tokens": 16, "ignore_eos": True}
        self._body: list[bytes] = [json.dumps(body).encode()]
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        self.task = asyncio.create_task(router(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.text += message.get("body", b"").decode()
        self.more.set()

    async def read(self, n_events: int) -> None:
        """Wait for so many events."""
        while self.text.count("\n\n") < n_events:
            self.more.clear()
            await self.more.wait()


@asynccontextmanager
async def routed(*urls: str, patience: float = 30.0) -> AsyncIterator[Router]:
    """A router in this process, which takes a server for gone after three looks of half a second."""
    http, log = make_client(), make_logger()
    found = RouteBackends(urls, http, log, patience=0.5)
    await found.look()
    watching = asyncio.create_task(found.watch())
    try:
        yield Router(found, http, log, patience)
    finally:
        watching.cancel()
        await http.aclose()


async def left_while_stopped(one: subprocess.Popen[str], hangs: str, other: str) -> str:
    """SIGSTOP: connections stay open, and nobody answers. What the client was told."""
    async with routed(hangs) as router:
        client = Client(router)
        await client.read(5)
        router.backends.all.append(RouteBackend(other))
        one.send_signal(signal.SIGSTOP)
        whole = asyncio.create_task(
            httpx.AsyncClient(timeout=60, transport=httpx.ASGITransport(router)).post(
                "http://localhost/v1/chat/completions", json={"messages": ASKED, "max_tokens": 3}
            )
        )
        await asyncio.wait_for(client.task, 30)
        assert (await whole).status_code == 200
        facts = {backend.url: backend.facts() for backend in router.backends.all}
        assert "does not answer" in facts[hangs]["status"]
        assert facts[hangs]["load"] == 0
    one.send_signal(signal.SIGCONT)
    return client.text


async def left_when_killed(processes: list[subprocess.Popen[str]], urls: list[str], router: str) -> str:
    """What a client is told whose server is killed; the same as the other server tells."""
    async with httpx.AsyncClient(timeout=60) as http:
        async with streamed(http, urls[1]) as answer:
            expected = plain("".join([part async for part in answer.aiter_text()]))
        async with streamed(http, router) as answer:
            parts = []
            killed = None
            async for part in answer.aiter_text():
                parts.append(part)
                if killed is None:
                    facts = (await http.get(f"{router}/health")).json()["backends"]
                    killed = next(i for i, b in enumerate(facts) if b["load"])
                    processes[killed].kill()
        text = "".join(parts)
        assert killed is not None
        assert plain(text) == expected
        assert ": tokens" not in text
        numbers = [int(n) for n in re.findall(r"(?m)^id: \S+\.(\d+)$", text)]
        assert numbers == list(range(1, len(numbers) + 1))
        metrics = (await http.get(f"{router}/metrics")).text
        assert "zinc_route_migrations_total 1.0" in metrics
        whole = await http.post(f"{router}/v1/chat/completions", json={"messages": ASKED, "max_tokens": 5})
        assert whole.status_code == 200
        health = (await http.get(f"{router}/health")).json()
        assert sorted(b["status"] == "ok" for b in health["backends"]) == [False, True]
        processes[1 - killed].kill()
        refused = await http.post(f"{router}/v1/chat/completions", json={"messages": ASKED})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_backend")
    return text


@pytest.mark.timeout(180)
def test_streams_outlive_their_servers() -> None:
    """Servers that hang, and ones that are killed; the router limits headers."""
    with servers(2) as (processes, urls, router):
        stopped = asyncio.run(left_while_stopped(processes[0], *urls))
        assert httpx.get(router + "/health", headers={"x": "y" * (33 << 10)}).status_code == 431
        assert plain(asyncio.run(left_when_killed(processes, urls, router))) == plain(stopped)


@pytest.mark.timeout(60)
def test_a_stream_that_gives_no_sign_of_life_is_left() -> None:
    """The server itself answers: a firewall may forget one connection."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-zinc-ping: 0.1\r\nconnection: close\r\n\r\n"
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) == 1:
            writer.write(head + b"id: x.1\ndata: a\n\n")
            await asyncio.sleep(5)
        writer.write(head + b"id: x.2\ndata: [DONE]\n\n")
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        http, log = make_client(), make_logger()
        router = Router(RouteBackends([url], http, log), http, log)
        router.backends.all[0].wrong = None
        client = Client(router)
        await client.read(1)
        while router.backends.all[0].wrong is None:
            await asyncio.sleep(0.05)
        router.backends.all[0].wrong = None
        await asyncio.wait_for(client.task, 10)
        assert client.text == "id: x.1\ndata: a\n\nid: x.2\ndata: [DONE]\n\n"
        assert b"last-event-id: x.1" in asked[1].lower()
        server.close()

    asyncio.run(test())


@pytest.mark.timeout(60)
def test_a_stream_that_the_next_server_refuses_ends_with_an_error() -> None:
    """As one of another model does."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    body = b'{"error": {"message": "another model", "code": "not_resumable"}}'
    refused = b"HTTP/1.1 409 Conflict\r\ncontent-type: application/json\r\nconnection: close\r\n"
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) == 1:
            writer.write(head + b"id: x.1\ndata: a\n\n")
        else:
            writer.write(refused + b"content-length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    async def test() -> None:
        servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(2)]
        urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
        http, log = make_client(), make_logger()
        router = Router(RouteBackends(urls, http, log), http, log, 2.0)
        for backend in router.backends.all:
            backend.wrong = None
        client = Client(router)
        await asyncio.wait_for(client.task, 30)
        first, last = client.text.removesuffix("\n\n").split("\n\n")
        assert first == "id: x.1\ndata: a"
        assert "error" in json.loads(last[last.index("data: ") + 6 :])
        assert b"last-event-id: x.1" in asked[1].lower()
        for server in servers:
            server.close()

    asyncio.run(test())


@pytest.mark.slow  # takes two servers; the test above has the refusal
@pytest.mark.timeout(120)
def test_a_stream_does_not_go_on_with_another_model(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    story = bytearray(STORY.read_bytes())
    story[-40] ^= 1  # in the last weights
    other.write_bytes(story)

    async def test(one: subprocess.Popen[str], url: str) -> None:
        async with routed(url, patience=4.0) as router:
            client = Client(router)
            await client.read(5)
            one.kill()
            one.wait()
            told = client.text
            with program(*SLOW, "-m", str(other), port=url.rpartition(":")[2]):
                await asyncio.wait_for(client.task, 30)
                assert router.backends.all[0].wrong is None or "409" in router.backends.all[0].wrong
        added = client.text.removeprefix(told)
        events = [line for line in added.split("\n") if line.startswith("data: ")]
        assert "error" in json.loads(events[-1][6:])
        assert "[DONE]" not in added

    with program(*SLOW) as (one, url):
        asyncio.run(test(one, url))


@pytest.mark.parametrize(
    ("method", "path", "body", "unknown", "known"),
    [
        ("GET", "/v1/responses/resp_1", b"", 404, 200),
        ("DELETE", "/v1/responses/resp_1", b"", 404, 200),
        ("POST", "/v1/responses", b'{"input": "Hi", "previous_response_id": "resp_1"}', 400, 200),
        ("POST", "/v1/responses", b'{"input": "Hi"}', 400, 400),
    ],
)
def test_the_server_that_keeps_a_response_is_found(
    method: str, path: str, body: bytes, unknown: int, known: int
) -> None:
    async def test() -> None:
        asked: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert b"\r\ntraceparent: 00-" in await reader.readuntil(b"\r\n\r\n")
            asked.append(writer.get_extra_info("sockname")[1])
            status = known if len(asked) == 2 else unknown
            writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
            writer.close()

        listening = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(2)]
        http, log = make_client(), make_logger()
        urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in listening]
        router = Router(RouteBackends(urls, http, log), http, log)
        for backend in router.backends.all:
            backend.wrong = None
        client = httpx.AsyncClient(transport=httpx.ASGITransport(router))
        trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
        answer = await client.request(method, f"http://localhost{path}", content=body, headers=trace)
        assert answer.status_code == known
        assert len(set(asked)) == len(asked) == (1 if known == unknown else 2)
        for server in listening:
            server.close()

    asyncio.run(test())


@pytest.mark.timeout(60)
def test_lines_of_json_are_passed_on_as_they_come() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n"
    seen = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n" + b'8\r\n{"a":1}\n\r\n')
        await seen.wait()
        if b"/api/chat" in asked:
            writer.write(b'8\r\n{"a":2}\n\r\n0\r\n\r\n')
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        http, log = make_client(), make_logger()
        router = Router(RouteBackends([url], http, log), http, log)
        for path, end in (("/api/chat", '{"a":2}\n'), ("/api/generate", '{"error":"the server ended before')):
            router.backends.all[0].wrong = None
            seen.clear()
            client = Client(router, path)
            while not client.text:
                client.more.clear()
                await client.more.wait()
            assert client.text == '{"a":1}\n'
            seen.set()
            await asyncio.wait_for(client.task, 10)
            assert client.text.removeprefix('{"a":1}\n').startswith(end)
            assert client.text.endswith("\n")
        server.close()

    asyncio.run(test())

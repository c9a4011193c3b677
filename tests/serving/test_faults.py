"""Faults from outside: each gets its status, leaves nothing behind, and changes no byte of the request beside it.

What is tested elsewhere:

| fault | where |
|---|---|
| client gone in each phase, reader that stops, half a header, endless body, 5 MiB, connections | api/test_server.py |
| depth 10^5, 500,000 stops, n = 128, NaN, 1e308, invalid UTF-8, empty messages, roles, ids | api/test_limits.py |
| bodies of any shape | api/test_fuzz.py |
| engine that hangs, is killed again and again, loses its device; a request that kills engines | test_process.py |
| records: damaged, locked for long | records/test_store.py |
| records of other tenants and of another model's hash | api/test_records.py |
| files of keys and tenants that cannot be used; an address that is taken | api/test_tenants.py |
| drain, and its end | api/test_server.py |
| few pages, preemption, killed engines, cold and warm caches: the same bytes | test_sameness.py |
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.command import Command, gone
from tests.serving.real import SECONDS, Ask, Real, real, told
from zinc_rt.llm.load import built_in_model
from zinc_rt.serving.api.keys import add_key

N_CTX = 256
LONG = {"prompt": "Once upon a time", "max_tokens": 200, "seed": 7, "temperature": 1.0, "ignore_eos": True}
NEIGHBOUR = Ask("/v1/completions", LONG)
SHORT = Ask("/v1/completions", {**LONG, "max_tokens": 12})
LONGER = Ask("/v1/completions", {**LONG, "max_tokens": 320})
CHAT = Ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
Bench = tuple[asyncio.Runner, Real, bytes]
Fault = Callable[[Real], Awaitable[None]]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One server for many faults: two slots, the engine on a thread."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        server = runner.run(stack.enter_async_context(real(n_slots=2)))
        try:
            runner.run(server.say(CHAT))  # starts the process that renders templates
            yield runner, server, runner.run(server.say(NEIGHBOUR))
        finally:
            runner.run(stack.aclose())


def files() -> int:
    """Files that this process has open."""
    return len(os.listdir("/proc/self/fd"))


def beside(bench: Bench, fault: Fault) -> None:
    """Run a fault while another request is answered."""
    runner, server, expected = bench

    async def go() -> None:
        await server.settled()
        before = files()
        reading = asyncio.create_task(server.say(NEIGHBOUR))
        await server.until(lambda: server.service.client.status.decoding > 0)
        await fault(server)
        assert await reading == expected
        await server.settled()
        await server.until(lambda: files() <= before)
        assert await server.say(NEIGHBOUR) == expected

    runner.run(go())


@pytest.mark.parametrize("tokens", [None, pytest.param(0, marks=pytest.mark.slow), 3])
def test_clients_that_leave(bench: Bench, tokens: int | None) -> None:
    """At once, when the engine has the request, or behind so many tokens; behind another one, or not."""

    async def leave(server: Real, stream: bool, queued: bool) -> None:
        service = server.service
        other = asyncio.create_task(server.say(SHORT)) if queued else None
        ask = Ask("/v1/completions", {**LONG, "n": 2, "prompt": "A fox " * 20})
        data = ask.raw if stream else ask.raw.replace(b'"stream": true ', b'"stream": false')
        before = {*service.running}
        _, writer = await server.send(data)
        if tokens is not None:
            await server.until(
                lambda: any(call.choices for name, call in service.running.items() if name not in before)
            )
            call = next(call for name, call in service.running.items() if name not in before and call.choices)
            await server.until(lambda: len(call.choices[0].tokens) >= tokens or call.id not in service.running)
        writer.transport.abort()
        if other is not None:
            await other

    async def each(server: Real) -> None:
        for stream, queued in product((False, True), repeat=2):
            await leave(server, stream, queued)

    beside(bench, each)


END = b"\r\n\r\n"
RAW: dict[str, tuple[bytes, bytes]] = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n", b"400"),
    "other bytes in the path": (b"GET /\xff\xfe\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"40"),
    "other bytes in headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: \xff\r\nConnection: close" + END, b"200"),
    "a long line": (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
}


def test_connections_of_any_bytes(bench: Bench) -> None:
    async def send(server: Real) -> None:
        for name, (data, status) in RAW.items():
            reader, writer = await server.send(data)
            answer = await asyncio.wait_for(reader.read(), SECONDS)
            assert answer.startswith(b"HTTP/1.1 " + status), name
            writer.close()

    beside(bench, send)


def test_a_large_body_in_one_piece_is_no_header(bench: Bench) -> None:
    """It is larger than headers may be."""

    async def send(server: Real) -> None:
        answer = await server.http.post("/tokenize", json={"content": "a fox " * 10_000})
        assert answer.status_code in (200, 400)
        assert answer.status_code == 200 or answer.json()["error"]["code"] == "context_length_exceeded"

    beside(bench, send)


def deep(n: int) -> dict[str, Any]:
    """A schema without depth, of what is n lists deep."""
    parts: dict[str, Any] = {f"a{i}": {"type": "array", "items": {"$ref": f"#/$defs/a{i + 1}"}} for i in range(n)}
    return {"$defs": parts | {f"a{n}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


def wide(n: int) -> dict[str, Any]:
    """A schema that says the next one twice, n times over."""
    parts: dict[str, Any] = {
        f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"items": {"$ref": f"#/$defs/a{i + 1}"}}]} for i in range(n)
    }
    return {"$defs": parts | {f"a{n}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


def text(pattern: str) -> dict[str, Any]:
    """A schema of a text."""
    return {"type": "string", "pattern": pattern}


SCHEMAS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "deep by references": (deep(800), (200, 400)),
    "deeper": (deep(10_000), (400,)),
    "wide by references": (wide(60), (200, 400)),
    "references in a circle": ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, (400,)),
    "nested": ({"items": {"items": {"items": {"type": "integer"}}}, "type": "array"}, (200,)),
    "backtracking": (text("^(a+)+$"), (200,)),
    "states": (text("^(a|b)*a(a|b){40}$"), (200, 400)),
    "repeats of repeats": (text("^((a{1,1000}){1,1000}){1,1000}$"), (200, 400)),
    "groups": (text("(" * 2000 + ")" * 2000), (400,)),
    "looking ahead": (text("(?=a)b"), (400,)),
    "unbalanced": (text("((("), (400,)),
    "long": ({"type": "string", "minLength": 10**8, "maxLength": 10**9}, (200, 400)),
    "many": ({"type": "array", "minItems": 10**8, "items": {"type": "integer"}}, (200, 400)),
    "digits": ({"type": "number", "multipleOf": 1e-300}, (400,)),
}


def test_schemas_that_are_evil(bench: Bench) -> None:
    async def send(server: Real) -> None:
        for name, (schema, statuses) in SCHEMAS.items():
            form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "response_format": form}
            answer = await server.http.post("/v1/chat/completions", json=body)
            assert answer.status_code in statuses, (name, answer.text)
            if answer.status_code == 400:
                assert len(answer.content) < 2000

    beside(bench, send)


def test_prompts_as_long_as_the_context(bench: Bench) -> None:
    async def send(server: Real) -> None:
        for size in (N_CTX - 1, N_CTX, N_CTX + 1):
            answer = await server.http.post("/v1/completions", json={"prompt": [5] * size, "max_tokens": 9})
            if size < N_CTX:
                assert answer.status_code == 200
                assert answer.json()["choices"][0]["finish_reason"] == "length"
                assert answer.json()["usage"]["completion_tokens"] == N_CTX - size + 1
            else:
                found = answer.status_code, answer.json()["error"]["code"]
                assert found == (400, "context_length_exceeded"), size

    beside(bench, send)


def test_tokens_of_a_stream_that_is_resumed(bench: Bench) -> None:
    """Clients give them; they may be any. Too many are not used."""
    many = ",".join("5" * 300)

    async def send(server: Real) -> None:
        event = "cmpl-" + "a" * 24 + f".1.{server.service.model.fingerprint}.7.2"
        for tokens, status in {"5,6": 200, "2047": 200, "2048": 400, "999999999": 400, many: 200}.items():
            headers = {"last-event-id": event, "x-zinc-resume": tokens}
            answer = await server.http.post(SHORT.path, content=SHORT.json, headers=headers)
            assert answer.status_code == status, (tokens, answer.text)

    beside(bench, send)


def test_metrics_are_asked_for_all_the_time(bench: Bench) -> None:
    async def scrape(server: Real) -> None:
        before = await server.metric("zinc_steps_total")
        while await server.metric('zinc_requests{state="decoding"}'):
            await asyncio.sleep(0.01)
        assert await server.metric("zinc_steps_total") > before

    beside(bench, scrape)


def test_a_clock_that_goes_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an hour each time that it is read."""
    now = [time.time()]

    def back() -> float:
        now[0] -= 3600
        return now[0]

    async def ask(server: Real) -> None:
        monkeypatch.setattr(time, "time", back)
        headers = {"x-request-timeout": "100"}
        answer = await server.http.post(SHORT.path, content=SHORT.json, headers=headers)
        assert answer.status_code == 200
        assert (await server.http.get("/health")).status_code == 200

    beside(bench, ask)


def test_another_tenant_cannot_touch_a_stream_that_runs(bench: Bench) -> None:
    """A stream is resumed while it runs: refused, and the one that runs goes on and is still known."""

    async def again(server: Real) -> None:
        service = server.service
        (call,) = service.running.values()
        call.tenant = "other"
        headers = {"last-event-id": f"{call.id}.{call.created}.{call.model}.{call.seed}.2"}
        answer = await server.http.post(NEIGHBOUR.path, content=NEIGHBOUR.json, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "still_running")
        assert service.running[call.id] is call
        call.tenant = "default"

    beside(bench, again)


# -- records


def test_a_full_disk_and_a_lock_lose_no_record(tmp_path: Path) -> None:
    """SQLite is told of a full disk by a limit of pages; another connection locks the file."""
    path = tmp_path / "records"

    async def go() -> None:
        async with real(records=path, n_slots=2) as server:
            recorder = server.service.recorder
            assert recorder is not None
            store = recorder.records.store
            await server.until(lambda: recorder.identity is not None)
            expected = await server.say(SHORT)
            (pages,) = store._db.execute("pragma page_count").fetchone()
            store._db.execute(f"pragma max_page_count = {pages}")
            bodies = [Ask(SHORT.path, {**SHORT.body, "prompt": [5 + i] * 200, "max_tokens": 8}) for i in range(20)]
            await server.storm(bodies)
            await server.until(lambda: any(line["event"] == "records wait" for line in server.log))
            assert await server.say(SHORT) == expected
            store._db.execute("pragma max_page_count = 100000")
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("begin immediate")
            assert await server.say(SHORT) == expected
            other.execute("rollback")
            other.close()
            await asyncio.to_thread(recorder.records._writer.close, SECONDS)
            assert any(line["event"] == "records are written again" for line in server.log)
            assert sum(day.requests for day in store.days()) == 23
            for ask in (bodies[0], bodies[-1], SHORT):
                answer = await server.http.post("/v1/zinc/replay", json={"id": server.ids[id(ask)]})
                assert answer.json()["equal"] is True

    asyncio.run(go())


def test_a_model_file_that_changes(tmp_path: Path) -> None:
    """An engine is not started anew with other weights, and what the old ones said is not compared."""
    path, records = tmp_path / "model.gguf", tmp_path / "records"
    shutil.copy(built_in_model(), path)

    async def first() -> str:
        async with real(process=True, records=records, restarts=1, n_slots=2, model=path) as server:
            await server.say(SHORT)
            reading = asyncio.create_task(server.http.post(NEIGHBOUR.path, content=NEIGHBOUR.json))
            await server.until(lambda: server.service.client.status.decoding > 0)
            other = tmp_path / "other"
            data = bytearray(path.read_bytes())
            data[-5] ^= 64
            other.write_bytes(data)
            other.replace(path)
            os.kill(server.engine.pid or 0, signal.SIGKILL)
            answer = await reading
            assert b"[DONE]" not in answer.content
            assert b"engine_lost" in answer.content
            assert (await server.http.get("/health")).status_code == 503
            return server.ids[id(SHORT)]

    async def second(name: str) -> None:
        async with real(records=records, n_slots=2, model=path) as server:
            recorder = server.service.recorder
            assert recorder is not None
            await server.until(lambda: recorder.identity is not None)
            answer = await server.http.post("/v1/zinc/replay", json={"id": name})
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_replayable")

    asyncio.run(second(asyncio.run(first())))


# -- the engine's process


@asynccontextmanager
async def apart(**options: Any) -> AsyncIterator[tuple[Real, bytes]]:
    """A server whose engine is in a process of its own, and what the neighbour is told."""
    async with real(process=True, n_slots=2, **options) as server:
        yield server, await server.say(NEIGHBOUR)


@pytest.mark.slow  # takes long; others here have one of the two faults each
def test_an_engine_that_is_stopped_and_no_files_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP: it hangs, is ended and replaced; the first times the system has no files for a new one."""
    pair, failures = socket.socketpair, [2]

    def no_files(*args: Any) -> Any:
        if failures[0]:
            failures[0] -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pair(*args)

    async def go() -> None:
        async with apart() as (server, expected):
            server.engine._stuck = 2.0  # from now on: the first step may compile kernels
            before = files()
            reading = asyncio.create_task(server.say(NEIGHBOUR))
            await server.until(lambda: server.service.client.status.decoding > 0)
            old = server.engine.pid or 0
            monkeypatch.setattr(socket, "socketpair", no_files)
            os.kill(old, signal.SIGSTOP)
            assert await reading == expected
            assert server.engine.restarts == 1
            assert failures == [0]
            await server.settled()
            await server.until(lambda: files() <= before)
            assert not Path(f"/proc/{old}").exists()
            os.kill(server.engine.pid or 0, signal.SIGKILL)  # while nothing runs
            await server.until(lambda: server.engine.restarts == 2 and server.engine.healthy is None)
            assert await server.say(NEIGHBOUR) == expected

    asyncio.run(go())


# -- the whole command


def until(true: Callable[[], bool]) -> None:
    """Wait for something that is bound to come."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


Serve = Callable[..., Command]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers."""
    started: list[Command] = []

    def make(*options: str, **more: Any) -> Command:
        started.append(Command(tmp_path, *options, **more))
        return started[-1]

    yield make
    for command in started:
        command.end()


def reading(command: Command, ask: Ask, **headers: str) -> tuple[threading.Thread, list[httpx.Response]]:
    """A request that runs aside; returns once its first bytes are there."""
    found: list[httpx.Response] = []
    begun = threading.Event()

    def read() -> None:
        with httpx.stream("POST", command.url + ask.path, content=ask.json, headers=headers, timeout=SECONDS) as answer:
            begun.set()
            answer.read()
            found.append(answer)

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(SECONDS)
    return thread, found


def test_signals_and_files_of_a_server(serve: Serve, tmp_path: Path) -> None:
    """Garbage on SIGHUP, a killed engine, SIGTERM: one stream after the other is whole."""
    path = tmp_path / "keys"
    key = {"authorization": f"Bearer {add_key(path, 'a')}"}
    command = serve("--api-key-file", str(path), "--ctx-size", "1024")
    expected = told(command.ask(LONGER, **key).content)
    for garbage in (b"\x00\xff garbage", b"", b"[" * 100_000):
        path.write_bytes(garbage)
        n = command.log.count('"not reloaded"')
        command.process.send_signal(signal.SIGHUP)
        until(lambda n=n: command.log.count('"not reloaded"') > n)  # type: ignore[misc]
    assert httpx.get(command.url + "/v1/models").status_code == 401
    thread, found = reading(command, LONGER, **key)
    old = command.engine()
    os.kill(old, signal.SIGKILL)
    thread.join(SECONDS)
    assert told(found[0].content) == expected
    assert command.engine() != old
    thread, found = reading(command, LONGER, **key)
    children = command.children()
    command.process.send_signal(signal.SIGTERM)
    until(lambda: '"draining"' in command.log)
    thread.join(SECONDS)
    assert told(found[0].content) == expected
    assert command.wait() == 0
    assert all(map(gone, children))
    assert "Traceback" not in command.log


@pytest.mark.slow  # takes a server of its own; `api/test_server.py` ends a drain
def test_a_second_signal_does_not_wait(serve: Serve) -> None:
    command = serve("--ctx-size", "1024")
    engine = command.engine()
    os.kill(engine, signal.SIGSTOP)  # so that the stream is not over first
    with httpx.Client(base_url=command.url, timeout=SECONDS) as http, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.post, LONGER.path, content=LONGER.json)
        until(lambda: httpx.get(command.url + "/health/progress").json()["requests"] == 1)
        command.process.send_signal(signal.SIGTERM)
        until(lambda: '"draining"' in command.log)
        command.process.send_signal(signal.SIGTERM)
        assert (answer.result().status_code, answer.result().json()["error"]["code"]) == (503, "shutting_down")
    assert command.wait() == 0
    assert gone(engine)


def killed_with_all_its_processes(command: Command) -> None:
    """End a server in the middle of a request: its engine and its templates end, too."""

    def ask() -> None:
        with pytest.raises(httpx.HTTPError):
            command.ask(LONGER)

    thread = threading.Thread(target=ask)
    thread.start()
    children = command.children()
    assert len(children) == 2
    until(lambda: httpx.get(command.url + "/health/progress").json()["requests"] == 1)
    command.process.kill()
    until(lambda: all(map(gone, children)))
    thread.join(SECONDS)


def test_no_files_for_more_connections_and_a_killed_server(serve: Serve) -> None:
    """Connections beyond what the system has files for wait or are refused; the stream that runs is not touched."""
    command = serve("--ctx-size", "1024", n_files=64)
    expected = told(command.ask(NEIGHBOUR).content)
    thread, found = reading(command, NEIGHBOUR)
    port = int(command.url.rpartition(":")[2])
    many = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    thread.join(SECONDS)
    assert told(found[0].content) == expected
    for one in many:
        one.close()
    assert told(command.ask(NEIGHBOUR).content) == expected
    killed_with_all_its_processes(command)

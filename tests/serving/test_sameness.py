"""The bytes of an answer depend on the request alone: not on load, cache, preemption, crashes, or how the server runs.

Each set of requests is answered one at a time with nothing cached, and then in every other way; the streams must be
equal byte by byte, but for ids and times.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.command import Command
from tests.serving.real import Ask, Real, real, tokens_in, told
from zinc_rt.scheduler.messages import StepReport

TEXT = "Once upon a time there was a little fox who lived by the river with a small grey bird. "
FEW, MANY = 16, 200
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"maximum": 99, "minimum": 0, "type": "integer"},
        "fed": {"type": "boolean"},
    },
    "required": ["name", "age", "fed"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {**SCHEMA, "required": ["age"]}}}
    for name in ("feed", "call")
]


def asks(n: int) -> list[Ask]:
    """Requests of mixed lengths, seeds and parameters; many begin alike."""
    draw = random.Random(8)
    return [_chat(draw, i) if i % 2 else _completion(draw) for i in range(n)]


def _sampling(draw: random.Random) -> dict[str, Any]:
    return {
        "seed": draw.getrandbits(40),
        "temperature": draw.choice([0.0, 0.7, 1.0, 1.0]),
        "top_k": draw.choice([0, 40]),
        "top_p": draw.choice([0.9, 1.0]),
        "min_p": draw.choice([0.0, 0.05]),
        "repetition_penalty": draw.choice([1.0, 1.2]),
        "max_tokens": draw.choice([1, 8, 20, 40]),
        "ignore_eos": draw.random() < 0.5,
        "n": draw.choice([1, 1, 1, 2, 3]),
        "stop": draw.choice([None, None, "the ", [" a", "bird."]]),
    }


def _text(draw: random.Random) -> str:
    start = draw.choice([0, 0, 0, 5])
    return (TEXT * 3)[start : start + draw.randint(5, 240)]


def _completion(draw: random.Random) -> Ask:
    body = {**_sampling(draw), "prompt": _text(draw), "logprobs": draw.choice([None, None, 0, 3])}
    if draw.random() < 0.2:
        body |= {"prompt": [draw.randrange(5, 2000) for _ in range(draw.randint(1, 60))]}
    elif draw.random() < 0.2:
        body |= {"prompt": [_text(draw), _text(draw)], "n": 1}
    elif body["logprobs"] is None:
        body |= {"echo": draw.random() < 0.3}
    return Ask("/v1/completions", body)


def _chat(draw: random.Random, i: int) -> Ask:
    messages = [{"role": "user", "content": _text(draw)}]
    body = {**_sampling(draw), "messages": messages, "logprobs": draw.random() < 0.3}
    match i % 8:
        case 3:
            schema = {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": SCHEMA}}
            body |= {"response_format": schema, "ignore_eos": False, "max_tokens": 60, "stop": None}
        case 7:
            body |= {"tools": TOOLS, "tool_choice": "required" if i % 16 == 7 else "auto", "ignore_eos": False}
            body |= {"max_tokens": 60, "stop": None}
    return Ask("/v1/chat/completions", body)


@cache
def alone(n: int) -> list[bytes]:
    """Each request by itself: one slot, nothing cached, one process."""

    async def go() -> list[bytes]:
        async with real(cold=True, n_slots=1) as server:
            return [await server.say(ask) for ask in asks(n)]

    with ThreadPoolExecutor(1) as pool:  # an event loop of its own, also where one runs
        return pool.submit(asyncio.run, go()).result()


def compare(found: list[bytes], expected: list[bytes]) -> None:
    """Equal, told by the first that is not."""
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one == other, i


def same(n: int, check: Callable[[Real], Any] | None = None, times: int = 1, **options: Any) -> None:
    """Ask all at once, so often, and compare with each alone."""

    async def go() -> None:
        async with real(**options) as server:
            for _ in range(times):
                compare(await server.storm(asks(n)), alone(n))
                await server.settled()
            if check is not None:
                await check(server)

    asyncio.run(go())


def test_the_set_has_what_it_should_have() -> None:
    """Requests that end in every way are among the few."""
    joined = b"".join(alone(FEW))
    for word in (b'"stop"', b'"length"', b'"tool_calls"', b'"logprobs":{', b'"index":2'):
        assert word in joined, word
    arguments = b"".join(re.findall(rb'"arguments":"((?:[^"\\]|\\.)*)"', joined))
    assert b'\\"age\\"' in arguments


async def _preempted(server: Real) -> None:
    assert await server.metric("zinc_preemptions_total") > 0


async def _reused(server: Real) -> None:
    assert await server.metric('zinc_prefix_tokens_total{result="hit"}') > 0
    assert await server.metric("zinc_preemptions_total") == 0


def test_a_storm_on_few_pages() -> None:
    """Texts lose their pages to others. A busy machine may read requests so late that none does: then once more."""

    async def go() -> None:
        async with real(n_slots=8, kv_tokens=36) as server:
            for _ in range(5):
                compare(await server.storm(asks(FEW)), alone(FEW))
                await server.settled()
                if await server.metric("zinc_preemptions_total") > 0:
                    return
        pytest.fail("no text lost its pages in five storms")

    asyncio.run(go())


def test_a_warm_cache() -> None:
    """The second time all prompts are cached, and parts of the answers."""
    same(FEW, _reused, times=2, n_slots=16)


@pytest.mark.slow  # `tests/adapters/test_server.py` kills one while it answers
@pytest.mark.parametrize("n", [FEW, MANY])
def test_an_engine_that_is_killed_again_and_again(n: int) -> None:
    draw, left, kills = random.Random(3), [60], 2 if n == FEW else 8
    clients: list[Real] = []

    def kill(report: StepReport) -> None:
        left[0] -= tokens_in(report)
        if left[0] < 0 and len(clients) == 1 and server_restarts(clients[0]) < kills:
            left[0] = draw.randint(20, 15 * n // kills)
            os.kill(clients[0].engine.pid or 0, signal.SIGKILL)

    async def go() -> None:
        async with real(process=True, report=kill, restarts=kills + 1, n_slots=8) as server:
            clients.append(server)
            compare(await server.storm(asks(n)), alone(n))
            assert await server.metric("zinc_engine_restarts_total") > 0
            await server.settled()

    asyncio.run(go())


def server_restarts(server: Real) -> int:
    """Engines that were replaced so far."""
    return server.engine.restarts


@pytest.mark.slow
def test_a_gpu_that_leaves_the_bus(tmp_path: Path) -> None:
    """An emulated one: the stream goes on with the next engine, and is the CPU's to the byte."""
    body = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 7, "temperature": 1.0}
    marker, ask = tmp_path / "lost", Ask("/v1/completions", body)

    async def stream(**options: Any) -> tuple[bytes, int]:
        async with real(process=True, n_slots=2, n_ctx=64, stuck=60.0, **options) as server:
            return await server.say(ask), server.engine.restarts

    cpu, restarts = asyncio.run(stream())
    assert restarts == 0
    gpu = asyncio.run(stream(factory="tests.serving.lost_gpu:open_core", marker=str(marker)))
    assert marker.exists()
    assert gpu == (cpu, 1)


def test_replays_are_equal(tmp_path: Path) -> None:
    """Answers of a storm, computed again by the server that gave them."""
    replays(FEW, tmp_path)


def replays(n: int, folder: Path) -> None:
    async def go() -> None:
        async with real(records=folder / "records", n_slots=16) as server:
            asked = asks(n)
            compare(await server.storm(asked), alone(n))
            recorder = server.service.recorder
            assert recorder is not None
            await server.until(lambda: recorder.identity is not None)
            await asyncio.to_thread(recorder.records._writer.close, 30)
            names = [f"{server.ids[id(ask)]}{'-1' if ask.body['n'] > 1 else ''}" for ask in asked]
            found = await asyncio.gather(*(server.http.post("/v1/zinc/replay", json={"id": name}) for name in names))
            assert [answer.json()["equal"] for answer in found] == [True] * n
            await server.settled()

    asyncio.run(go())


@pytest.mark.slow  # `tests/test_golden.py` says it of the same model
def test_the_reference_kernels_say_the_same() -> None:
    """A handful, as they are slow."""

    async def go() -> None:
        async with real(kernels="reference", n_slots=4) as server:
            chosen = [i for i, ask in enumerate(asks(FEW)) if ask.body["max_tokens"] <= 8][:3]
            found = await server.storm([asks(FEW)[i] for i in chosen])
            compare(found, [alone(FEW)[i] for i in chosen])

    asyncio.run(go())


@pytest.mark.slow
@pytest.mark.parametrize("n_slots", [1, 2, 4, 16])
def test_any_number_of_slots(n_slots: int) -> None:
    same(MANY, n_slots=n_slots)


@pytest.mark.slow
@pytest.mark.parametrize("n_batch", [16, 32, 512])
def test_any_size_of_a_batch(n_batch: int) -> None:
    same(MANY, n_slots=8, n_batch=n_batch)


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
def test_many_on_few_pages(process: bool) -> None:
    same(MANY, _preempted, n_slots=8, kv_tokens=48, process=process)


@pytest.mark.slow
def test_many_replays_are_equal(tmp_path: Path) -> None:
    replays(MANY, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("cold", [False, True])
def test_cold_and_warm_caches_at_temperature_one(cold: bool) -> None:
    """The same requests three times over."""
    same(MANY, times=3, cold=cold, n_slots=8)


@pytest.mark.slow
def test_many_through_a_router_whose_servers_are_killed(tmp_path: Path) -> None:
    """One of two servers in the middle of answers, three times; it is started again at its port."""
    chosen = [i for i, ask in enumerate(asks(MANY)) if ask.path == "/v1/completions"]
    expected = [alone(MANY)[i] for i in chosen]
    long = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 1.0, "ignore_eos": True}
    longer = [Ask("/v1/completions", {**long, "seed": seed}) for seed in range(12)]

    def start(port: str = "0") -> Command:
        return Command(tmp_path, "--alias", "story", "--ctx-size", "256", "--one-process", port=port)

    async def say(http: httpx.AsyncClient, ask: Ask) -> bytes:
        answer = await http.post(ask.path, content=ask.json)
        assert answer.status_code == 200, answer.text
        return told(answer.content)

    async def holder(servers: list[Command], name: str) -> int | None:
        """The server that computes a request; None where it has ended."""
        async with httpx.AsyncClient(timeout=600) as http:
            for i, server in enumerate(servers):
                found = await http.get(f"{server.url}/v1/zinc/requests/{name}")
                if found.status_code == 200 and found.json()["phase"] != "finished":
                    return i
        return None

    async def killed(http: httpx.AsyncClient, servers: list[Command], ask: Ask) -> tuple[bytes, int | None]:
        """A stream whose server is killed in the middle of it, and that server; None where the stream was faster.

        The server is stopped first: what its client has not got then, it has not written.
        """
        got = bytearray()
        async with http.stream("POST", ask.path, content=ask.json) as answer:

            async def read() -> None:
                async for data in answer.aiter_raw():
                    got.extend(data)

            reading = asyncio.create_task(read())
            while not got:
                await asyncio.sleep(0.001)
            if (i := await holder(servers, answer.headers["x-request-id"])) is not None:
                servers[i].process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.5)  # until the client has what is on its way
                if b"[DONE]" in got:
                    servers[i].process.send_signal(signal.SIGCONT)
                    i = None
                else:
                    servers[i].end()
            await reading
        return told(bytes(got)), i

    async def go(servers: list[Command], router: Command) -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=router.url, timeout=600, limits=limits) as http:
            wanted = [*expected, *[await say(http, ask) for ask in longer]]
            storm = asyncio.gather(*(say(http, ask) for ask in (*(asks(MANY)[i] for i in chosen), *longer)))
            kills, said = 0, dict(zip(map(id, longer), wanted[len(expected) :], strict=True))
            for ask in itertools.cycle(longer):
                answer, i = await killed(http, servers, ask)
                assert answer == said[id(ask)]
                if i is None:
                    continue
                kills += 1
                if kills == 3:
                    break
                port = servers[i].url.rpartition(":")[2]
                servers[i] = await asyncio.to_thread(start, port)
                await asyncio.sleep(2.5)  # the router asks each second
            compare(await storm, wanted)
            moved = (await http.get("/metrics")).text
            assert float(moved.partition("\nzinc_route_migrations_total ")[2].split()[0]) >= kills

    servers = [start(), start()]
    router = Command(tmp_path, "-b", servers[0].url, "-b", servers[1].url, verb="route")
    try:
        asyncio.run(go(servers, router))
    finally:
        for command in (*servers, router):
            command.end()

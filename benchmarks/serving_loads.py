"""The loads that both servers get, each a function that returns its figures by name.

Prompts are token ids, or letters where a conversation is needed, drawn from the load's name and a number: both servers
get the same, and no two requests begin alike unless a load wants that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from serving_client import Answer, AnswerBroken, Connection
from serving_servers import Server, Sizes

Figures = dict[str, float]
GREEDY: dict[str, Any] = {"temperature": 0}
SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "top_k": 0, "min_p": 0}
CLIENTS = 16
SHORT, LONG = Sizes(CLIENTS, 512), Sizes(10, 3072)
"""Sizes of the servers for most loads, and for those with long prompts."""
_STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
_SCHEMA = {
    "type": "array",
    "minItems": 40,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "n": {"type": "integer"},
            "ok": {"type": "boolean"},
        },
        "required": ["name", "n", "ok"],
        "additionalProperties": False,
    },
}


@dataclass
class Site:
    """What a load is run on. n_vocab: of the model; scale: of the loads' lengths; notes: for the result file."""

    server: Server
    n_vocab: int
    scale: float = 1.0
    notes: list[str] = field(default_factory=list)

    def connect(self, tenant: str = "ops") -> Connection:
        """A connection of a tenant."""
        return Connection(self.server.port, self.server.key(tenant))

    def prompt(self, name: str, number: int, length: int) -> list[int]:
        """Token ids, other ones for every name and number."""
        rng = np.random.default_rng([zlib.crc32(name.encode()), number])
        return [int(x) for x in rng.integers(300, self.n_vocab - 16, length)]


def body(prompt: Sequence[int], n: int, sampling: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """A streamed completion of `n` tokens."""
    return {"prompt": list(prompt), "max_tokens": n, "seed": seed, **_STREAM, **sampling}


def chat(number: int, n: int, **more: Any) -> dict[str, Any]:
    """A streamed answer of `n` tokens in a conversation; its prompt has about 32 tokens."""
    letters = np.random.default_rng(number).integers(ord("a"), ord("z") + 1, 60).astype(np.uint8).tobytes().decode()
    return {"messages": [{"role": "user", "content": letters}], "max_tokens": n, "seed": 0, **_STREAM, **GREEDY, **more}


@contextlib.contextmanager
def connections(site: Site, n: int, tenant: str = "ops") -> Iterator[list[Connection]]:
    """Connections that are closed at the end, with what still runs on them."""
    made = [site.connect(tenant) for _ in range(n)]
    try:
        yield made
    finally:
        for one in made:
            one.close()


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values is; nan without a value."""
    return float(np.quantile(values, share)) if values else float("nan")


async def crowd(site: Site, bodies: Callable[[int], dict[str, Any]], path: str = "/v1/completions") -> list[Answer]:
    """16 clients, each with its requests one after the other; all answers. Raises where one is refused."""
    repeats = max(1, round(2 * site.scale))
    with connections(site, CLIENTS) as clients:
        for client in clients:
            await client.open()

        async def work(number: int, client: Connection) -> list[Answer]:
            return [await client.post(path, bodies(number * repeats + k)) for k in range(repeats)]

        found = await asyncio.gather(*(work(i, client) for i, client in enumerate(clients)))
    answers = [answer for several in found for answer in several]
    for answer in answers:
        if answer.status != 200:
            raise AnswerBroken(f"status {answer.status}: {answer.raw[-300:]!r}")
    return answers


def speed(answers: Sequence[Answer]) -> float:
    """Tokens/s of all answers together, from the first request to the last token."""
    seconds = max(a.end for a in answers) - min(a.sent for a in answers)
    return sum(a.n_tokens for a in answers) / seconds


async def greedy(site: Site) -> Figures:
    """16 clients, 32 tokens read and 64 generated, the likeliest tokens."""
    answers = await crowd(site, lambda i: body(site.prompt("greedy", i, 32), 64, GREEDY))
    figures = {"tokens/s": speed(answers), "TTFT, s": statistics.median(a.first for a in answers)}
    return figures | ({"while all decode, tokens/s": rate} if (rate := decode_speed(answers)) else {})


def decode_speed(answers: Sequence[Answer]) -> float | None:
    """Tokens/s while 16 answers are generated and no prompt is read: from the last one's first token to the first one's
    last, over the clients' first requests. None where that is too short to tell.
    """
    first = answers[:: len(answers) // CLIENTS]
    begin, end = max(a.tokens[0][0] for a in first), min(a.tokens[-1][0] for a in first)
    n = sum(begin < moment <= end for a in first for moment, _ in a.tokens)
    return n / (end - begin) if n > 8 * CLIENTS else None


async def sampled(site: Site) -> Figures:
    """The same with temperature 0.8 and top_p 0.95 over the whole vocabulary."""
    answers = await crowd(site, lambda i: body(site.prompt("sampled", i, 32), 64, SAMPLED, seed=i))
    return {"tokens/s": speed(answers)}


async def streams(site: Site) -> Figures:
    """16 streams of 400 tokens: what a token costs in the process that speaks HTTP, and in those that it started."""
    figures = {}
    for name, sampling in (("", GREEDY), (", sampled", SAMPLED)):
        begin, before = time.perf_counter(), site.server.cpu_apart()
        answers = await crowd(site, lambda i, sampling=sampling: body(site.prompt("streams", i, 32), 400, sampling, i))
        after, n = site.server.cpu_apart(), sum(a.n_tokens for a in answers)
        speaks, computes = (1e6 * (b - a) / n for a, b in zip(before, after, strict=True))
        figures |= {f"HTTP, us a token{name}": speaks, f"engine, us a token{name}": computes}
        figures |= {f"tokens/s{name}": n / (time.perf_counter() - begin)}
        figures |= {f"reads of the client a token{name}": sum(len(a.parts) for a in answers) / n}
    return figures


async def single(site: Site) -> Figures:
    """One client: the time between tokens, and the rate."""
    with connections(site, 1) as (client,):
        await client.post("/v1/completions", body(site.prompt("warm", 0, 32), 4, GREEDY))
        answers = [
            await client.post("/v1/completions", body(site.prompt("single", i, 32), 64, GREEDY))
            for i in range(max(1, round(2 * site.scale)))
        ]
    return {"between tokens, ms": 1000 * min(a.between for a in answers), "TTFT, s": answers[-1].first}


async def schema(site: Site) -> Figures:
    """16 clients whose answers must follow a JSON schema, and the same conversations without one."""
    form = {"type": "json_schema", "json_schema": {"name": "list", "schema": _SCHEMA, "strict": True}}
    path = "/v1/chat/completions"
    with connections(site, 1) as (client,):  # both compile what they need
        await client.post(path, chat(-1 % 999, 4, response_format=form))
    free = await crowd(site, lambda i: chat(1000 + i, 64), path)
    bound = await crowd(site, lambda i: chat(2000 + i, 64, response_format=form), path)
    short = sum(a.n_tokens < 64 for a in bound)
    if short:
        site.notes.append(f"{site.server.name}: {short} answers to the schema ended early")
    return {"free, tokens/s": speed(free), "schema, tokens/s": speed(bound), "share": speed(bound) / speed(free)}


async def gap(site: Site) -> Figures:
    """A prompt of 2,000 tokens comes while 8 streams decode: the longest wait of one of them for its next token."""
    with connections(site, 8) as readers, connections(site, 1) as (late,):
        tasks = [
            asyncio.create_task(r.post("/v1/completions", body(site.prompt("gap", i, 32), 2500, GREEDY)))
            for i, r in enumerate(readers)
        ]
        try:
            await _until(lambda: all(r.answer and len(r.answer.parts) > 12 for r in readers), 60)
            long = await late.post("/v1/completions", body(site.prompt("long", 0, 2000), 1, GREEDY), 120)
        finally:
            streams = [r.answer for r in readers]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    worst, usual = [], []
    for stream in streams:
        assert stream is not None
        moments = [moment for moment, _ in stream.tokens]
        steps = list(itertools.pairwise(moments))
        worst.append(max((b - a for a, b in steps if b >= long.sent and a <= long.end), default=long.end - long.sent))
        usual += [b - a for a, b in steps if b < long.sent]
    usual_ms = 1000 * statistics.median(usual)
    return {"worst gap, ms": 1000 * max(worst), "usual gap, ms": usual_ms, "TTFT of the prompt, s": long.first}


async def prefix(site: Site) -> Figures:
    """A system prompt of 1,000 tokens that requests share: time to the first token of the first and of later ones."""
    cold, warm = [], []
    with connections(site, 1) as (client,):
        await client.post("/v1/completions", body(site.prompt("warm", 1, 64), 4, GREEDY))
        for i in range(max(1, round(2 * site.scale))):
            shared = site.prompt("system", i, 1000)
            for k in range(4):
                asked = body(shared + site.prompt("tail", 10 * i + k, 16), 2, GREEDY)
                answer = await client.post("/v1/completions", asked)
                (warm if k else cold).append(answer.first)
    first, later = statistics.median(cold), statistics.median(warm)
    return {"cold TTFT, s": first, "warm TTFT, s": later, "share": later / first}


async def idle(site: Site) -> Figures:
    """1,000 idle connections beside 16 clients: what they cost in speed and memory."""
    before = speed(await crowd(site, lambda i: body(site.prompt("before", i, 32), 64, GREEDY)))
    memory = site.server.memory_mb()
    with connections(site, 1000) as sleepers:
        for at in range(0, len(sleepers), 50):
            await asyncio.gather(*(s.get("/health", 20) for s in sleepers[at : at + 50]))
        more = site.server.memory_mb() - memory
        after = speed(await crowd(site, lambda i: body(site.prompt("after", i, 32), 64, GREEDY)))
    return {"share of the speed": after / before, "memory, MB": more}


async def _until(true: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


async def keep_asking(
    client: Connection, bodies: Callable[[int], dict[str, Any]], end: float, found: list[Answer]
) -> None:
    """Requests one after the other until a time."""
    number = 0
    while time.perf_counter() < end:
        try:
            found.append(await client.post("/v1/completions", bodies(number)))
        except AnswerBroken:
            await asyncio.sleep(0.05)
        number += 1

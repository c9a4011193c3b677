"""Loads in which callers compete: tenants, floods, more requests than can be served, and a long run with cancels."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import statistics
import time
from collections.abc import Sequence

import numpy as np
from serving_client import Answer, AnswerBroken, Connection
from serving_loads import (
    CLIENTS,
    GREEDY,
    SAMPLED,
    Figures,
    Site,
    body,
    connections,
    crowd,
    keep_asking,
    percentile,
    speed,
)

FIRST_SECONDS, TOKEN_SECONDS = 1.0, 0.1
"""What `goodput` takes for an answer in time: the first token, and each one behind it on average."""
_SAMPLE = re.compile(rb"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.M)


async def metrics(site: Site) -> dict[str, float]:
    """Our server's metrics by name and labels, `name{labels}`."""
    with connections(site, 1) as (client,):
        answer = await client.get("/metrics")
    found = {}
    for name, labels, value in _SAMPLE.findall(answer.raw):
        found[name.decode() + (f"{{{labels.decode()}}}" if labels else "")] = float(value)
    return found


async def tenants(site: Site) -> Figures:
    """64 requests of one tenant wait all the time, and 16 of another: the second one's share of engine and tokens."""
    seconds = 12 * site.scale
    begin = time.perf_counter()
    counted = begin + seconds / 3
    end = begin + seconds
    got: dict[str, list[Answer]] = {"crowd": [], "single": []}
    with connections(site, 64, "crowd") as many, connections(site, CLIENTS, "single") as few:
        tasks = [
            asyncio.create_task(
                keep_asking(c, lambda k, i=i, t=t: body(site.prompt(t, 1000 * i + k, 32), 32, GREEDY), end, got[t])
            )
            for t, clients in (("crowd", many), ("single", few))
            for i, c in enumerate(clients)
        ]
        await asyncio.sleep(counted - time.perf_counter())
        first = await metrics(site) if site.server.keys else {}
        await asyncio.sleep(end - time.perf_counter())
        last = await metrics(site) if site.server.keys else {}
        running = [c.answer for c in (*many, *few)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for tenant, answers in zip(("crowd", "single"), (running[:64], running[64:]), strict=True):
        got[tenant] += [a for a in answers if a is not None and a not in got[tenant]]
    tokens = {t: sum(counted <= at <= end for a in answers for at, _ in a.tokens) for t, answers in got.items()}
    figures = {"tokens, share": tokens["single"] / max(1, sum(tokens.values()))}
    if last:
        spent = {t: _engine(last, t) - _engine(first, t) for t in got}
        figures["engine time, share"] = spent["single"] / sum(spent.values())
    return figures


def _engine(sample: dict[str, float], tenant: str) -> float:
    return sample.get(f'zinc_engine_seconds_total{{tenant="{tenant}"}}', 0.0)


async def quiet(site: Site) -> Figures:
    """A tenant that asks now and then, alone and while another one floods: the 95th percentile of its first tokens."""
    seconds = 8 * site.scale
    alone = await _now_and_then(site, seconds / 2, 0)
    before = await metrics(site) if site.server.keys else {}
    end = time.perf_counter() + seconds + 2
    flood: list[Answer] = []
    with connections(site, 64, "crowd") as many:
        tasks = [
            asyncio.create_task(
                keep_asking(c, lambda k, i=i: body(site.prompt("flood", 1000 * i + k, 32), 64, GREEDY), end, flood)
            )
            for i, c in enumerate(many)
        ]
        await asyncio.sleep(2)
        among = await _now_and_then(site, seconds, 500)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    figures = {"alone, ms": 1000 * percentile(alone, 0.95), "in the flood, ms": 1000 * percentile(among, 0.95)}
    if before:
        after = await metrics(site)
        steps = after["zinc_step_seconds_count"] - before["zinc_step_seconds_count"]
        step = 1000 * (after["zinc_step_seconds_sum"] - before["zinc_step_seconds_sum"]) / steps
        figures |= {"step, ms": step, "steps more": (figures["in the flood, ms"] - figures["alone, ms"]) / step}
    return figures


async def _now_and_then(site: Site, seconds: float, number: int) -> list[float]:
    """Seconds to the first token of requests that come every 0.5 s at the most, one at a time."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    with connections(site, 1, "single") as (client,):
        while (now := time.perf_counter()) < end:
            asked = body(site.prompt("quiet", number + len(found), 32), 4, GREEDY)
            try:
                found.append((await client.post("/v1/completions", asked, 30)).first)
            except TimeoutError:
                found.append(30.0)
            await asyncio.sleep(max(0.0, now + 0.5 - time.perf_counter()))
    return found


async def overload(site: Site) -> Figures:
    """Requests come at ten times the rate that can be served: how soon the excess is refused, and the memory."""
    rng, seconds, rate = np.random.default_rng(1), 8 * site.scale, 50.0
    memory = site.server.memory_mb()
    clients: list[Connection] = []
    answers: list[Answer] = []

    async def one(number: int) -> None:
        client = site.connect("crowd")
        clients.append(client)
        with contextlib.suppress(AnswerBroken, OSError):
            await client.open()
            answers.append(await client.post("/v1/completions", body(site.prompt("over", number, 32), 64, GREEDY)))

    begin, tasks, due = time.perf_counter(), [], 0.0
    while due < seconds:
        await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(len(tasks))))
        due += rng.exponential(1 / rate)
    more = site.server.memory_mb() - memory
    begun = [a for a in (c.answer for c in clients) if a is not None and a not in answers]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    refused = [a.end - a.sent for a in answers if a.status in (429, 503)]
    served = [a for a in (*answers, *begun) if a.status == 200 and a.tokens]
    figures = {"requests": len(tasks), "refused": len(refused), "memory, MB": more}
    if refused:
        figures |= {
            "refusal p50, ms": 1000 * percentile(refused, 0.5),
            "refusal p99, ms": 1000 * percentile(refused, 0.99),
        }
    if served:
        figures["TTFT p99 so far, s"] = percentile([a.first for a in served], 0.99)
    return figures


async def goodput(site: Site) -> Figures:
    """Requests come at random at a given rate, whatever runs: the share that is answered in time, with the first token
    within 1 s and 100 ms for each one behind it. Rates: 80 % of what 16 clients get, and the same for both servers.
    """
    capacity = speed(await crowd(site, lambda i: body(site.prompt("capacity", i, 32), 64, GREEDY))) / 64
    figures = {"capacity, requests/s": capacity}
    for number, (name, rate) in enumerate((("80 % of it", 0.8 * capacity), ("1/s", 1.0), ("2/s", 2.0), ("4/s", 4.0))):
        answers, sent = await _arrivals(site, rate, 20 * site.scale, 1000 * number)
        firsts = [a.first for a in answers]
        in_time = sum(a.first < FIRST_SECONDS and a.between < TOKEN_SECONDS for a in answers)
        figures[f"{name}, share in time"] = in_time / sent
        figures[f"{name}, TTFT p95, s"] = percentile([*firsts, *[30.0] * (sent - len(firsts))], 0.95)
    return figures


async def _arrivals(site: Site, rate: float, seconds: float, number: int) -> tuple[list[Answer], int]:
    """The answers to requests that come `rate` times a second on average, as far as they are whole a while after the
    last request, and how many were sent.
    """
    rng, answers = np.random.default_rng(number), list[Answer]()

    async def one(client: Connection, i: int) -> None:
        with contextlib.suppress(AnswerBroken, OSError, TimeoutError):
            answer = await client.post("/v1/completions", body(site.prompt("arrivals", number + i, 32), 64, GREEDY), 60)
            if answer.status == 200 and answer.n_tokens > 1:
                answers.append(answer)

    moments = np.cumsum(rng.exponential(1 / rate, max(4, round(rate * seconds))))
    begin = time.perf_counter()
    with connections(site, len(moments), "crowd") as clients:
        tasks = []
        for i, (moment, client) in enumerate(zip(moments, clients, strict=True)):
            await asyncio.sleep(max(0.0, begin + moment - time.perf_counter()))
            tasks.append(asyncio.create_task(one(client, i)))
        await asyncio.wait(tasks, timeout=10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(1)
    return answers, len(tasks)


async def soak(site: Site) -> Figures:
    """64 streams with random cancels for some minutes: memory, pages, and whether any text differs from its first."""
    seconds, kinds = 60 * site.scale, 24
    rng = random.Random(1)
    bodies = [body(site.prompt("soak", i, 8 + 5 * i), 48, SAMPLED if i % 2 else GREEDY, seed=i) for i in range(kinds)]
    with connections(site, 1) as (client,):
        wanted = [(await client.post("/v1/completions", one)).text for one in bodies]
    end = time.perf_counter() + seconds
    seen = {"done": 0, "cut": 0, "different": 0}

    async def one(client: Connection) -> None:
        while time.perf_counter() < end:
            kind = rng.randrange(kinds)
            limit = rng.uniform(0.05, 20.0) if rng.random() < 0.4 else 120.0
            try:
                answer = await client.post("/v1/completions", bodies[kind], limit)
            except TimeoutError:
                seen["cut"] += 1
                seen["different"] += client.answer is not None and not wanted[kind].startswith(client.answer.text)
                continue
            seen["done"] += 1
            seen["different"] += answer.status != 200 or answer.text != wanted[kind]

    samples: list[tuple[float, float]] = []
    sums: set[float] = set()
    with connections(site, 64, "crowd") as clients:
        tasks = [asyncio.create_task(one(client)) for client in clients]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.5)
            samples.append((time.perf_counter(), site.server.memory_mb()))
            if site.server.keys:
                sums.add(_pages(await metrics(site)))
        await asyncio.gather(*tasks)
    figures = {name: float(n) for name, n in seen.items()} | {"MB/min": slope(samples[len(samples) // 4 :])}
    return figures | ({"sums of pages": float(len(sums))} if sums else {})


def _pages(sample: dict[str, float]) -> float:
    return sum(sample[f'zinc_kv_pages{{state="{state}"}}'] for state in ("free", "cached", "used"))


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """How much a value grows in a minute: Theil and Sen's median of slopes, which jumps do not move."""
    points = samples[:: max(1, len(samples) // 200)]
    slopes = [(b - a) / (t - s) for i, (s, a) in enumerate(points) for t, b in points[i + 1 :]]
    return 60 * statistics.median(slopes) if slopes else float("nan")

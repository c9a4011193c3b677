"""An engine's process that is killed, hangs or loses its device: open requests go on with the same tokens."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.serving.fake_core import HANGS, KILLS, LOSES, SHOWS, STOPS, token_at
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.mem.plan import HEADROOM
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import (
    Admitted,
    CancelReason,
    Event,
    Failed,
    Fault,
    Finished,
    FinishReason,
    Submit,
    TenantShare,
    Token,
)
from zinc_rt.scheduler.output import RequestOutput
from zinc_rt.serving.process import PACE, EngineNotStarted, EngineRefused, ProcessClient
from zinc_rt.serving.request_log import LiveRequest
from zinc_rt.serving.wire import Planned, Start

FACTORY = "tests.serving.fake_core:make"
Shared = tuple[asyncio.Runner, ProcessClient, list[float]]
"""What runs a test's coroutines, an engine on its loop, and the moments of its reports."""


def asked(request_id: str, *prompt: int, n: int = 40) -> Submit:
    return Submit(request_id, prompt or (1, 2), SamplingParams(max_tokens=n), seed=7)


@asynccontextmanager
async def client(arguments: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[ProcessClient]:
    made = ProcessClient(Start(FACTORY, arguments or {}), **options)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def read(stream: LiveRequest) -> list[Event]:
    return [event async for event in stream]


def tokens(events: list[Event]) -> list[int]:
    return [event.token_id for event in events if isinstance(event, Token)]


def whole(request: Submit) -> list[int]:
    assert request.params.max_tokens is not None
    return [token_at(request, i) for i in range(request.params.max_tokens)]


def run(test: Callable[[], Awaitable[None]], shared: Shared | None = None) -> None:
    """Run a test, on the loop of an engine that it shares."""

    async def limited() -> None:
        await asyncio.wait_for(test(), 120)

    (asyncio.run if shared is None else shared[0].run)(limited())


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """An engine that no test ends."""
    moments: list[float] = []
    with asyncio.Runner() as runner:
        made = ProcessClient(Start(FACTORY, {}), report=lambda _: moments.append(time.monotonic()))
        runner.run(made.start())
        yield runner, made, moments
        runner.run(made.close())


def test_an_engine_that_works_on_a_large_picture_does_not_hang() -> None:
    """Two seconds without a step, where half a second counts as hung."""

    async def test() -> None:
        async with client(stuck=0.5) as engine:
            request = asked("r", 1, SHOWS, n=5)
            assert tokens(await read(engine.submit(RequestOutput[Event](request)))) == whole(request)
            assert engine.restarts == 0
            assert engine.status.encoded == 200

    run(test)


def test_requests_side_by_side(shared: Shared) -> None:
    _, engine, _ = shared

    async def test() -> None:
        requests = [asked(f"r{i}", i, n=10 + i) for i in range(10)]
        answers = await asyncio.gather(*(read(engine.submit(RequestOutput(request))) for request in requests))
        for request, events in zip(requests, answers, strict=True):
            assert tokens(events) == whole(request)
            assert isinstance(events[0], Admitted)
            assert isinstance(events[-1], Finished)
            assert events[-1].reason is FinishReason.length
        assert engine.n_starts == 1
        assert engine.healthy is None

    run(test, shared)


def test_reports_of_short_steps_are_read_together(shared: Shared) -> None:
    """200 steps of a millisecond, 60 readings a second."""
    _, engine, moments = shared
    moments.clear()

    async def test() -> None:
        request = asked("r", n=200)
        assert tokens(await read(engine.submit(RequestOutput[Event](request)))) == whole(request)

    run(test, shared)
    readings = sum(after - before > 0.0005 for before, after in pairwise(moments))
    assert readings < 10 + 1.5 * (moments[-1] - moments[0]) / PACE


def test_an_id_runs_once(shared: Shared) -> None:
    _, engine, _ = shared

    async def test() -> None:
        stream = engine.submit(RequestOutput(asked("same")))
        with pytest.raises(UsageError, match="same runs already"):
            engine.submit(RequestOutput(asked("same")))
        await stream.aclose()

    run(test, shared)


@pytest.mark.slow  # `test_requests_that_wait_are_not_blamed` kills engines, too
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_engine_goes_unnoticed(sign: int) -> None:
    async def test() -> None:
        said: list[str] = []
        async with client(notify=said.append) as engine:
            requests = [asked(f"r{i}", i, n=200 + 20 * i) for i in range(5)]
            reading = [asyncio.create_task(read(engine.submit(RequestOutput(request)))) for request in requests]
            for _ in range(2):
                await asyncio.sleep(0.05)
                before = engine.n_starts
                assert engine.pid is not None
                os.kill(engine.pid, sign)
                while engine.n_starts == before or engine.healthy is not None:
                    await asyncio.sleep(0.01)
            late = asked("late", 9)
            answers = [*await asyncio.gather(*reading), await read(engine.submit(RequestOutput(late)))]
            for request, events in zip([*requests, late], answers, strict=True):
                assert tokens(events) == whole(request)
                assert sum(isinstance(event, Admitted) for event in events) == 1
            assert engine.n_starts == 3
            assert any(signal.Signals(sign).name in line for line in said)

    run(test)


@pytest.mark.parametrize("what", [HANGS, pytest.param(STOPS, marks=pytest.mark.slow), LOSES])
def test_an_engine_that_hangs_or_loses_its_device_is_replaced(what: int, tmp_path: Path) -> None:
    async def test() -> None:
        said: list[str] = []
        arguments = {"marker": str(tmp_path / "once")}
        async with client(arguments, notify=said.append, stuck=1.0) as engine:
            requests = [asked("bad", what), asked("good", 1)]
            answers = await asyncio.gather(*(read(engine.submit(RequestOutput(request))) for request in requests))
            assert [tokens(events) for events in answers] == [whole(request) for request in requests]
            assert engine.n_starts == 2
            told = "the device is lost" if what == LOSES else "made no step"
            assert any(told in line for line in said)

    run(test)


def test_a_request_that_ends_engines_fails_alone() -> None:
    async def test() -> None:
        async with client() as engine:
            good, bad = asked("good", 1, n=300), asked("bad", KILLS)
            answers = await asyncio.gather(
                read(engine.submit(RequestOutput(good))), read(engine.submit(RequestOutput(bad)))
            )
            assert tokens(answers[0]) == whole(good)
            assert tokens(answers[1]) == whole(bad)[:3]
            assert isinstance(answers[1][-1], Failed)
            assert answers[1][-1].error == Fault.poisoned
            assert engine.n_starts == 4
            assert tokens(await read(engine.submit(RequestOutput(asked("next"))))) == whole(asked("next"))

    run(test)


def test_requests_that_wait_are_not_blamed() -> None:
    """An engine serves few at a time: what it never computed is not what ended it, however often that happens."""

    async def test() -> None:
        async with client({"n_slots": 1}, restarts=9) as engine:
            requests = [asked(f"r{i}", i, n=200) for i in range(6)]
            reading = [asyncio.create_task(read(engine.submit(RequestOutput(request)))) for request in requests]
            for _ in range(3):  # as many as end a request that is blamed
                before = engine.n_starts
                await asyncio.sleep(0.02)
                os.kill(engine.pid or 0, signal.SIGKILL)
                while engine.n_starts == before or engine.healthy is not None:
                    await asyncio.sleep(0.01)
            for request, events in zip(requests, await asyncio.gather(*reading), strict=True):
                assert tokens(events) == whole(request)

    run(test)


def test_after_too_many_ends_requests_fail_until_the_time_is_over() -> None:
    async def test() -> None:
        async with client(restarts=1, within=3.0) as engine:
            for _ in range(2):
                events = engine.submit(RequestOutput(asked("r", KILLS)))
                found = await read(events)
                if isinstance(found[-1], Failed) and found[-1].error == Fault.engine_lost:
                    break
            assert isinstance(found[-1], Failed)
            assert found[-1].error == Fault.engine_lost
            assert "1 times in 3 s" in str(engine.healthy)
            assert tokens(await read(engine.submit(RequestOutput(asked("later"))))) == whole(asked("later"))

    run(test)


def test_leaving_and_cancelling(shared: Shared) -> None:
    _, engine, _ = shared

    async def test() -> None:
        left = engine.submit(RequestOutput(asked("left", n=100_000)))
        async for event in left:
            if isinstance(event, Token):
                break
        await left.aclose()
        assert [event async for event in left] == []
        stream = engine.submit(RequestOutput(asked("cancelled", n=100_000)))
        await anext(stream)
        engine.cancel("cancelled", CancelReason.deadline)
        last = (await read(stream))[-1]
        assert isinstance(last, Finished)
        assert (last.reason, last.cancelled) == (FinishReason.cancelled, CancelReason.deadline)
        unread = engine.submit(RequestOutput(asked("unread", n=100_000)))
        await unread.aclose()
        while engine.status.decoding:
            await asyncio.sleep(0.01)

    run(test, shared)


def test_cancelling_while_no_engine_runs() -> None:
    async def test() -> None:
        async with client() as engine:
            stream = engine.submit(RequestOutput(asked("r", n=100_000)))
            await anext(stream)
            await anext(stream)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            while engine.healthy is None:
                await asyncio.sleep(0.001)
            engine.cancel("r")
            last = (await read(stream))[-1]
            assert isinstance(last, Finished)
            assert last.reason is FinishReason.cancelled
            assert last.usage.completion_tokens > 0

    run(test)


@pytest.mark.parametrize(
    ("fails", "kind", "message"),
    [
        ("usage", EngineRefused, "n_ctx is -1"),
        ("file", EngineNotStarted, "no such file"),
        pytest.param("memory", EngineNotStarted, "not enough memory", marks=pytest.mark.slow),
        ("dies", EngineNotStarted, "exit code 7"),
    ],
)
def test_an_engine_that_cannot_load(fails: str, kind: type[ZincError], message: str) -> None:
    async def test() -> None:
        said: list[str] = []
        engine = ProcessClient(Start(FACTORY, {"fails": fails}), notify=said.append)
        with pytest.raises(kind, match=message) as error:
            await engine.start()
        assert type(error.value) is kind
        assert error.value.advice == ("give another" if fails == "file" else "")
        assert said == ["loading a fake"]
        await engine.close()

    run(test)


def test_the_process_ends_with_its_owner() -> None:
    async def test() -> None:
        engine = ProcessClient(Start(FACTORY))
        await engine.start()
        engine.share(TenantShare("a"))
        stream = engine.submit(RequestOutput(asked("r", n=100_000)))
        await anext(stream)
        pid = engine.pid
        assert pid is not None
        await engine.close()
        last = (await read(stream))[-1]
        assert isinstance(last, Failed)
        assert last.error == Fault.shutting_down
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    run(test)


def test_a_process_tells_its_plan_and_waits_for_room() -> None:
    async def test() -> None:
        plans: list[Planned] = []

        async def admit(plan: Planned) -> None:
            plans.append(plan)
            if len(plans) > 1:
                raise ZincError("there is no room")

        for fits in (True, False):
            asking = ProcessClient(Start(FACTORY, asks=True), admit=admit)
            asking.share(TenantShare("before", 1.0))
            try:
                if fits:
                    await asking.start()
                    assert asking.healthy is None
                else:
                    with pytest.raises(ZincError, match="no room"):
                        await asking.start()
            finally:
                await asking.close()
            assert asking.pid is None
        assert plans[0] == Planned(1234 + HEADROOM, 5000, False)

    run(test)

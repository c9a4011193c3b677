"""An engine on a thread of this process, behind the client that a server uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.serving.fake_core import LOSES, FakeCore, token_at
from zinc_rt.errors import UsageError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import Admitted, CancelReason, Event, Failed, Finished, FinishReason, Submit, Token
from zinc_rt.scheduler.output import RequestOutput
from zinc_rt.serving.load_engine import open_core
from zinc_rt.serving.request_log import LiveRequest
from zinc_rt.serving.thread import ThreadClient


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 120)

    asyncio.run(limited())


async def read(stream: LiveRequest) -> list[Event]:
    return [event async for event in stream]


def asked(request_id: str, *prompt: int, n: int = 20) -> Submit:
    return Submit(request_id, prompt or (1, 2), SamplingParams(max_tokens=n), seed=7)


def test_requests_side_by_side() -> None:
    async def test() -> None:
        client = ThreadClient(FakeCore)
        assert client.healthy is not None
        info = await client.start()
        assert info.n_ctx == 1000
        assert client.healthy is None
        requests = [asked(f"r{i}", i, n=10 + i) for i in range(5)]
        for request, events in zip(
            requests, await asyncio.gather(*(read(client.submit(RequestOutput(r))) for r in requests)), strict=True
        ):
            expected = [token_at(request, i) for i in range(request.params.max_tokens or 0)]
            assert [e.token_id for e in events if isinstance(e, Token)] == expected
            assert isinstance(events[0], Admitted)
            assert isinstance(events[-1], Finished)
        await client.close()

    run(test)


def test_a_stream_that_is_closed_cancels_its_request() -> None:
    async def test() -> None:
        client = ThreadClient(FakeCore)
        await client.start()
        stream = client.submit(RequestOutput(asked("long", n=100_000)))
        await anext(stream)
        await stream.aclose()
        for _ in range(200):
            await asyncio.sleep(0.01)
            if not client.status.decoding:
                break
        events = await read(client.submit(RequestOutput(asked("next", n=3))))
        assert isinstance(events[-1], Finished)
        assert client.status.decoding == 0
        await client.close()

    run(test)


def test_cancelling_by_name_ends_the_stream() -> None:
    async def test() -> None:
        client = ThreadClient(FakeCore)
        await client.start()
        stream = client.submit(RequestOutput(asked("long", n=100_000)))
        await anext(stream)
        client.cancel("long", CancelReason.deadline)
        last = (await read(stream))[-1]
        assert isinstance(last, Finished)
        assert (last.reason, last.cancelled) == (FinishReason.cancelled, CancelReason.deadline)
        await client.close()

    run(test)


def test_a_device_that_is_lost_ends_all_requests_with_its_reason(tmp_path: Path) -> None:
    async def test() -> None:
        client = ThreadClient(lambda: FakeCore(str(tmp_path / "lost")))
        await client.start()
        events = await read(client.submit(RequestOutput(asked("bad", LOSES))))
        assert isinstance(events[-1], Failed)
        assert "BackendError" in events[-1].message
        assert client.healthy is not None
        later = await read(client.submit(RequestOutput(asked("later"))))
        assert isinstance(later[-1], Failed)
        await client.close()

    run(test)


def test_what_loading_raises_is_raised_by_start() -> None:
    async def test() -> None:
        with pytest.raises(UsageError, match="n_slots"):
            await ThreadClient(lambda: open_core(device="cpu", n_slots=0)).start()

    run(test)


def test_a_real_model_on_a_thread() -> None:
    async def test() -> None:
        client = ThreadClient(lambda: open_core(device="cpu", n_ctx=64, n_slots=2))
        info = await client.start()
        assert (info.n_ctx, info.n_slots) == (64, 2)
        params = SamplingParams(temperature=0.0, max_tokens=5)
        answers = await asyncio.gather(
            *(read(client.submit(RequestOutput(Submit(f"r{i}", (65, 66), params, seed=i)))) for i in range(4))
        )
        texts = {tuple(e.token_id for e in events if isinstance(e, Token)) for events in answers}
        assert len(texts) == 1
        await client.close()

    run(test)

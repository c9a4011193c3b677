"""A text ends where its stop string does: nothing behind it is computed, whoever reads, and however late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zinc_rt
from tests.scheduler.fake_engine import N_VOCAB, STOP, FakeEngine
from tests.serving.fake_core import FakeCore, token_at
from zinc_rt.llm.async_model import AsyncModel
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.in_process import CoreLock, InProcessClient
from zinc_rt.scheduler.messages import Admitted, Event, Failed, Fault, Finished, FinishReason, Submit, Token, Usage
from zinc_rt.scheduler.options import CoreVocabulary
from zinc_rt.scheduler.output import RequestOutput
from zinc_rt.serving.thread import ThreadClient

PROMPT = "Once upon a time"


class EndsAt(RequestOutput[Event]):
    """A text that a stop string ends with its n-th token."""

    def __init__(self, request: Submit, n: int) -> None:
        super().__init__(request)
        self.n = n

    def piece(self, event: Event) -> Event:
        self.n -= isinstance(event, Token)
        self.stopped = self.n <= 0
        return event


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 120)

    asyncio.run(limited())


def request(name: str, n: int | None, resume: tuple[int, ...] = ()) -> Submit:
    return Submit(name, (1, 2), SamplingParams(temperature=1.0, max_tokens=n, ignore_eos=True), 7, resume=resume)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=6), st.integers(1, 4))
def test_texts_that_are_computed_together_end_at_their_stop_strings(drawn: list[tuple[int, int]], n_slots: int) -> None:
    """Those that are read last, too."""
    engine = FakeEngine(n_slots)
    client = InProcessClient(CoreLock(), lambda: None)
    client.serve(EngineCore(engine, CoreVocabulary(N_VOCAB, frozenset({STOP})), clock=engine.clock))  # type: ignore[arg-type]
    inboxes = [client.submit(EndsAt(request(str(i), most), stop)) for i, (stop, most) in enumerate(drawn)]
    for (stop, most), inbox in reversed(list(zip(drawn, inboxes, strict=True))):
        *got, last = client.pieces(inbox)
        assert isinstance(last, Finished)
        kept = sum(isinstance(event, Token) for event in got)
        assert last.usage.completion_tokens == kept == min(stop, most)
        assert last.reason is (FinishReason.stop if stop <= most else FinishReason.length)
    assert client.core.idle


def test_an_engine_behind_a_client_is_told_though_nobody_reads() -> None:
    core = FakeCore()

    async def test() -> None:
        client = ThreadClient(lambda: core)
        await client.start()
        streams = [client.submit(EndsAt(request(str(n), 10**9), n)) for n in (1, 5, 9)]
        while not (core.idle and client.status.steps and not client.status.decoding):
            await asyncio.sleep(0)
        for n, stream in zip((1, 5, 9), streams, strict=True):
            *got, last = [event async for event in stream]
            assert [type(event) for event in got] == [Admitted] + [Token] * n
            assert isinstance(last, Finished)
            assert last.reason is FinishReason.stop
        await client.close()

    run(test)


def test_a_stream_whose_known_tokens_hold_the_stop_string_computes_nothing() -> None:
    core = FakeCore()
    submitted: list[Submit] = []
    core.submit = submitted.append  # type: ignore[method-assign]
    one = request("r", 10**9, tuple(token_at(request("r", 1), i) for i in range(6)))

    async def test() -> None:
        client = ThreadClient(lambda: core)
        await client.start()
        *got, last = [event async for event in client.submit(EndsAt(one, 4))]
        assert [event.token_id for event in got if isinstance(event, Token)] == list(one.resume[:4])
        assert last == Finished("r", FinishReason.stop, Usage(2, completion_tokens=6))
        await client.close()

    run(test)
    assert not submitted


@pytest.mark.parametrize("end", [Failed("r", Fault.engine_error, "lost"), Finished("r", FinishReason.length, Usage(2))])
def test_what_happens_behind_a_stop_string_is_not_told(end: Failed | Finished) -> None:
    output = EndsAt(request("r", 9), 2)
    got = [piece for event in (Token("r", 1), Token("r", 2), Token("r", 3), end) for piece in output.take(event)]
    assert got == [Token("r", 1), Token("r", 2), Finished("r", FinishReason.stop, Usage(2))]
    assert output.over


def test_a_text_that_cannot_be_made_ends_its_request() -> None:
    class Broken(RequestOutput[Event]):
        def piece(self, event: Event) -> Event:
            raise ValueError("no text")

    core = FakeCore()

    async def test() -> None:
        client = ThreadClient(lambda: core)
        await client.start()
        with pytest.raises(ValueError, match="no text"):
            _ = [event async for event in client.submit(Broken(request("r", 10**9)))]
        while not core.idle:
            await asyncio.sleep(0)
        await client.close()

    run(test)


@pytest.mark.parametrize("way", ["list", "tasks"])
def test_a_model_computes_no_token_behind_a_stop_string(
    model: zinc_rt.Model, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The first text is the longest: those behind it have ended when they are read."""
    free = model.generate(PROMPT, temperature=0.0, max_tokens=40)
    stops = [free.text[at : at + 7] for at in (60, 40, 15, 5)]
    asked = [SamplingParams(temperature=0.0, max_tokens=40, stop=(stop,)) for stop in stops]
    computed, step = [0], model.engine.step

    def counted(rows: Any, sampling: Any = None) -> Any:
        computed[0] += len(sampling or ())
        return step(rows, sampling)

    monkeypatch.setattr(model.engine, "step", counted)
    if way == "list":
        texts = model.generate([PROMPT] * 4, asked)
    else:
        texts = asyncio.run(AsyncModel(model).generate([PROMPT] * 4, asked))
    assert [text.text for text in texts] == [free.text[: free.text.index(stop)] for stop in stops]
    assert {text.finish_reason for text in texts} == {"stop"}
    assert computed[0] == sum(len(text.token_ids) for text in texts)

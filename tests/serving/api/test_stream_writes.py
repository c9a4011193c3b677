"""How events reach the socket: those due together in one write, and without a task where the client keeps up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import Admitted, Event, Finished, FinishReason, Submit, Token, Usage
from zinc_rt.scheduler.output import RequestOutput
from zinc_rt.serving.api.call import CONNECTION, Call, Scope
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.generate import stream_choices
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.sse import EventStream, Prepared, data
from zinc_rt.serving.request_log import LiveRequest, RequestLog
from zinc_rt.text import Tokenizer


@cache
def tokenizer() -> Tokenizer:
    with GGUFFile.open(built_in_model()) as file:
        return Tokenizer.from_metadata(file.metadata)


class Wire:
    """What is written, in order: bodies that ASGI sends, and chunks that are written at once."""

    def __init__(self) -> None:
        self.slow = False
        self.writes: list[tuple[str, bytes]] = []

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            self.writes.append(("sent", message["body"]))

    def hang_up(self) -> None:
        raise AssertionError

    def takes_chunks(self, scope: Scope) -> bool:
        return not self.slow

    def write_chunk(self, body: bytes) -> None:
        self.writes.append(("at once", body))


class Engine:
    """Stands for a service and its client: the test gives the events."""

    def __init__(self) -> None:
        self.log = RequestLog(lambda *_: None)
        self.client, self.recorder = self, None

    def submit(self, output: RequestOutput[Any]) -> LiveRequest[Any]:
        return self.log.add(output)

    def began(self, *_: object) -> None: ...
    def timed(self, *_: object) -> None: ...
    def seconds(self, call: Call) -> None: ...


def streamed(reports: list[Callable[[Wire], list[Event]]]) -> list[tuple[str, bytes]]:
    """What is written where the engine reports these events; the stream's task runs between two reports."""

    async def run() -> list[tuple[str, bytes]]:
        wire, engine = Wire(), Engine()
        scope = {"method": "POST", "path": "/", "headers": [], CONNECTION: wire}
        call = Call(scope, asyncio.Event().wait, wire.send, Limits())  # type: ignore[arg-type]
        choice = AnswerChoice(0, Submit("r", (1,), SamplingParams(), 0), tokenizer())

        def told(_: AnswerChoice, piece: ChoiceDelta) -> bytes:
            return b"".join(data(delta.text) for delta in piece.deltas)  # type: ignore[union-attr]

        async def serve() -> None:
            async with EventStream(call, Limits()) as stream:
                await stream_choices(engine, call, [choice], stream, told)  # type: ignore[arg-type]

        task = asyncio.create_task(serve())
        for report in reports:
            await asyncio.sleep(0)
            engine.log.take(report(wire))
            for _ in range(5):
                await asyncio.sleep(0)
        await task
        return [(how, b"".join(x for x in body.splitlines() if x[:5] == b"data:")) for how, body in wire.writes]

    return asyncio.run(run())


def tokens(*ids: int, slow: bool = False) -> Callable[[Wire], list[Event]]:
    def report(wire: Wire) -> list[Event]:
        wire.slow = slow
        return [Token("r", i) for i in ids]

    return report


END = Finished("r", FinishReason.length, Usage(1))


def test_events_due_together_are_one_write_and_later_ones_need_no_task() -> None:
    texts = [tokenizer().token_bytes(i).decode() for i in range(300, 307)]
    a, b, c, d, e, f, g = (data(text).strip() for text in texts)
    found = streamed(
        [
            lambda _: [Admitted("r", 0, 0.0), Token("r", 300), Token("r", 301)],
            tokens(302, 303),
            tokens(304, slow=True),
            tokens(305),
            lambda _: [Token("r", 306), END],
        ]
    )
    assert found == [("sent", a + b), ("at once", c + d), ("sent", e), ("at once", f), ("at once", g), ("sent", b"")]


@pytest.mark.parametrize("text", ["", "a", '"\\', "é\n\u2028", "\U0001f98a", "\x00"])
def test_a_prepared_event_is_that_of_the_whole_value(text: str) -> None:
    value = {"id": "x", "choices": [{"text": "MARK", "n": None}], "last": 1.5}
    prepared = Prepared(lambda text: data({**value, "choices": [{"text": text, "n": None}]}))
    assert prepared.event(text) == data({**value, "choices": [{"text": text, "n": None}]})

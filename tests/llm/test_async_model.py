"""`AsyncModel`: texts are those of the model, computed together, and end with the tasks that asked for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

import zinc_rt
from zinc_rt.engine.engine import SequenceChunk
from zinc_rt.engine.prompts import EmptyPrompt
from zinc_rt.errors import UsageError
from zinc_rt.llm.async_model import AsyncModel
from zinc_rt.llm.model import ModelClosed
from zinc_rt.sampling.generation import Chunk
from zinc_rt.sampling.params import SamplingParams, UnknownParameter

PROMPT = "Once upon a time"
ENDLESS: dict[str, Any] = {"max_tokens": None, "ignore_eos": True, "temperature": 0.0}


def run(model: zinc_rt.Model, test: Callable[[AsyncModel], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(AsyncModel(model)), 60))  # type: ignore[arg-type]
    with model._lock:
        assert model.client.core.idle
    model.engine.cache.check_integrity()


def test_texts_are_those_of_the_model(model: zinc_rt.Model) -> None:
    params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=9, logprobs=1) for seed in range(3)]
    plain = model.generate([PROMPT] * 3, params)
    chat = model.chat("Tell me of a cat.", seed=1, max_tokens=9)
    free = model.generate(PROMPT, temperature=0.0, max_tokens=30)

    async def test(tasks: AsyncModel) -> None:
        many = await tasks.generate([PROMPT] * 3, params)
        one = await tasks.generate(PROMPT, params[0])
        chunks = [chunk async for chunk in tasks.stream(PROMPT, params[0])]
        for made, truth in zip([*many, one, zinc_rt.Generation.collect(chunks)], [*plain, *plain[:1] * 2], strict=True):
            for field in ("text", "token_ids", "token_bytes", "logprobs", "top_logprobs", "finish_reason", "seed"):
                assert getattr(made, field) == getattr(truth, field)
        assert (await tasks.chat("Tell me of a cat.", seed=1, max_tokens=9)).content == chat.content
        stop = free.text[20:26]
        cut = await tasks.generate(PROMPT, temperature=0.0, max_tokens=30, stop=stop)
        assert (cut.text, cut.finish_reason) == (free.text[: free.text.index(stop)], "stop")
        ids = model.tokenize(PROMPT)
        assert (await tasks.logits(ids)).tobytes() == model.logits(ids).tobytes()

    run(model, test)


def test_tasks_and_threads_are_computed_together(model: zinc_rt.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests come while a step could run, and none waits for it."""
    expected = [model.generate(PROMPT, seed=seed, max_tokens=20).text for seed in range(4)]
    step, sizes = model.engine.step, list[int]()

    def counted(rows: Sequence[SequenceChunk], *sampling: Any) -> Any:
        sizes.append(len(rows))
        return step(rows, *sampling)

    async def test(tasks: AsyncModel) -> None:
        thread = asyncio.to_thread(model.generate, PROMPT, seed=3, max_tokens=20)
        with model._lock:
            asked = [asyncio.create_task(tasks.generate(PROMPT, seed=seed, max_tokens=20)) for seed in range(3)]
            while len(model.client._gives) < 3:
                await asyncio.sleep(0)
        texts = [made.text for made in await asyncio.gather(*asked, thread)]
        assert texts == expected

    monkeypatch.setattr(model.engine, "step", counted)
    run(model, test)
    assert max(sizes) >= 3
    assert len(sizes) < 60


@pytest.mark.parametrize("how", ["cancelled", "closed", "left"])
def test_a_task_that_ends_takes_its_text_along(model: zinc_rt.Model, how: str) -> None:
    expected = model.generate(PROMPT, seed=1, max_tokens=20).text

    async def read(running: AsyncGenerator[Chunk], began: asyncio.Event) -> None:
        async for _ in running:
            began.set()
            if how == "left":
                break

    async def test(tasks: AsyncModel) -> None:
        began = asyncio.Event()
        if how == "closed":
            async with contextlib.aclosing(tasks.stream(PROMPT, **ENDLESS)) as running:
                await anext(running)
        else:
            task = asyncio.create_task(read(tasks.stream(PROMPT, **ENDLESS), began))
            await began.wait()
            if how == "cancelled":
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert (await tasks.generate(PROMPT, seed=1, max_tokens=20)).text == expected

    run(model, test)


def test_a_loop_that_is_closed_leaves_the_model_usable(model: zinc_rt.Model) -> None:
    loop = asyncio.new_event_loop()
    running = AsyncModel(model).stream(PROMPT, **ENDLESS)
    loop.run_until_complete(anext(running))
    loop.close()
    assert model.generate(PROMPT, max_tokens=2).token_ids
    for _ in range(1000):
        if model.client._driver is None:
            break
        model.generate(PROMPT, max_tokens=2)
    else:
        pytest.fail("steps go on for nobody")
    with model._lock:
        assert model.client.core.idle


def test_wrong_requests_are_refused(model: zinc_rt.Model) -> None:
    def broken(token_ids: list[int], logits: np.ndarray) -> np.ndarray:
        raise KeyError("mine")

    async def test(tasks: AsyncModel) -> None:
        beside = asyncio.create_task(tasks.generate(PROMPT, seed=1, max_tokens=20))
        refused: list[tuple[Any, type[Exception], str]] = [
            (tasks.generate(""), EmptyPrompt, "empty"),
            (tasks.generate([PROMPT, ""]), EmptyPrompt, "empty"),
            (tasks.generate(PROMPT, temprature=1), UnknownParameter, "temprature"),
            (tasks.generate([{"role": "user", "content": "?"}]), UsageError, "chat"),  # type: ignore[list-item]
            (tasks.generate([PROMPT] * 2, logits_processors=[broken]), KeyError, "mine"),
            (anext(tasks.stream([PROMPT])), UsageError, "list of texts"),  # type: ignore[list-item]
            (tasks.chat([]), UsageError, "messages"),
            (tasks.embed(["a"]), UsageError, "embeddings=True"),
        ]
        for call, kind, says in refused:
            with pytest.raises(kind, match=says):
                await call
        assert len((await beside).token_ids) == 20

    run(model, test)


async def exhaust(running: AsyncGenerator[Chunk]) -> None:
    async for _ in running:
        pass


def test_closing_ends_all_texts() -> None:
    async def test() -> None:
        async with await AsyncModel.load(device="cpu", n_ctx=512) as tasks:
            running = [tasks.stream(PROMPT, **ENDLESS) for _ in range(2)]
            for stream in running:
                await anext(stream)
            assert repr(tasks) == f"<AsyncModel of {tasks.model!r}>"
        for stream in running:
            with pytest.raises(ModelClosed):
                await exhaust(stream)
        with pytest.raises(ModelClosed):
            await tasks.generate(PROMPT)

    asyncio.run(test())

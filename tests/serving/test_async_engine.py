"""Tasks of an event loop on one model: the texts that each would get alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import zinc_rt
from zinc_rt.model import EmptyPrompt, PromptTooLong
from zinc_rt.sampling.params import InvalidSamplingParam, SamplingParams
from zinc_rt.serving.async_engine import AsyncEngine
from zinc_rt.serving.messages import QoS

PROMPT = "Once upon a time"


def run(test: Callable[[AsyncEngine], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with AsyncEngine.open(device="cpu", n_ctx=256, n_slots=4) as engine:
            await asyncio.wait_for(test(engine), 120)

    asyncio.run(limited())


def test_tasks_get_what_each_would_get_alone(model: zinc_rt.Model) -> None:
    params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=15, logprobs=1) for seed in range(9)]
    expected = model.generate([PROMPT] * 9, params)

    async def test(engine: AsyncEngine) -> None:
        texts = await asyncio.gather(
            *(engine.generate(PROMPT, own, tenant=f"t{i % 2}", qos=list(QoS)[i % 3]) for i, own in enumerate(params))
        )
        for one, other in zip(texts, expected, strict=True):
            assert (one.text, one.token_ids, one.logprobs) == (other.text, other.token_ids, other.logprobs)
            assert (one.finish_reason, one.seed) == (other.finish_reason, other.seed)
        several = await engine.generate_all([PROMPT, PROMPT], params[3])
        assert [one.text for one in several] == [expected[3].text] * 2

    run(test)


def test_stop_strings_end_a_stream(model: zinc_rt.Model) -> None:
    free = model.generate(PROMPT, temperature=0.0, max_tokens=40).text
    stop = free[15:22]

    async def test(engine: AsyncEngine) -> None:
        chunks = [chunk async for chunk in engine.stream(PROMPT, temperature=0.0, max_tokens=40, stop=stop)]
        assert "".join(chunk.text for chunk in chunks) == free[: free.index(stop)]
        assert chunks[-1].finish_reason == "stop"
        assert chunks[-1].stats is not None
        assert chunks[-1].stats.completion_tokens == len(chunks) - 1

    run(test)


def test_a_stream_that_is_left_frees_its_slot() -> None:
    async def test(engine: AsyncEngine) -> None:
        stream = engine.stream(PROMPT, max_tokens=None, ignore_eos=True)
        await anext(stream)
        await stream.aclose()
        for _ in range(500):
            if not engine.client.status.decoding:
                break
            await engine.generate(PROMPT, max_tokens=1)
        assert (await engine.generate(PROMPT, max_tokens=2)).token_ids
        assert engine.client.status.decoding == 0

    run(test)


def test_a_deadline_ends_a_text() -> None:
    async def test(engine: AsyncEngine) -> None:
        whole = await engine.generate(PROMPT, max_tokens=None, ignore_eos=True, seconds=1e-6)
        assert whole.finish_reason == "cancelled"

    run(test)


def test_bad_requests_are_typed() -> None:
    async def test(engine: AsyncEngine) -> None:
        for prompt, overrides, kind in (
            ("", {}, EmptyPrompt),
            ([65] * 256, {}, PromptTooLong),
            (PROMPT, {"top_p": 2}, InvalidSamplingParam),
            (PROMPT, {"logit_bias": {1 << 20: 1.0}}, InvalidSamplingParam),
        ):
            with pytest.raises(kind):
                await engine.generate(prompt, **overrides)  # type: ignore[arg-type]

    run(test)

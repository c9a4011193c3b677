"""Clients that others wrote, against a server on a real port."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.serving.api.conftest import SAYS, MakeBench
from tests.serving.api.test_server import Running, running

if TYPE_CHECKING:  # imported where they are used: each takes a second, which every worker would pay
    import anthropic
    import openai

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


def openai_client(r: Running) -> openai.AsyncOpenAI:
    import openai

    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{r.port}/v1", api_key="-", max_retries=0)


def anthropic_client(r: Running) -> anthropic.AsyncAnthropic:
    import anthropic

    return anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{r.port}", api_key="-", max_retries=0)


@pytest.mark.slow  # `clients/test_openai.py` has these calls and a whole server
def test_openai_chat(bench: MakeBench) -> None:
    async def go() -> None:
        async with running(bench()) as r, openai_client(r) as client:
            whole = await client.chat.completions.create(model="story", messages=MESSAGES, logprobs=True, seed=3)
            assert whole.choices[0].message.content == SAYS
            assert whole.choices[0].logprobs is not None
            stream = await client.chat.completions.create(
                model="story", messages=MESSAGES, stream=True, stream_options={"include_usage": True}, n=2
            )
            texts = ["", ""]
            usage = None
            async for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
            assert texts == [SAYS, SAYS]
            assert usage is not None
            assert usage.completion_tokens == 2 * len(r.service.model.tokenizer.encode(SAYS, add_special=False))

    asyncio.run(go())


@pytest.mark.slow  # as above
def test_openai_completions_responses_models(bench: MakeBench) -> None:
    async def go() -> None:
        async with running(bench()) as r, openai_client(r) as client:
            text = await client.completions.create(model="story", prompt="A fox", max_tokens=40, logprobs=1)
            assert text.choices[0].text == SAYS
            response = await client.responses.create(model="story", input="Hi")
            assert response.output_text == SAYS
            pieces = ""
            async for event in await client.responses.create(model="story", input="Hi", stream=True):
                if event.type == "response.output_text.delta":
                    pieces += event.delta
                last = event.type
            assert (pieces, last) == (SAYS, "response.incomplete")
            assert [m.id async for m in client.models.list()] == ["story", "alias"]

    asyncio.run(go())


@pytest.mark.slow  # importing the client takes seconds; `test_endpoints.py` and `test_chat.py` read the errors
def test_openai_errors(bench: MakeBench) -> None:
    import openai

    async def go() -> None:
        gate = asyncio.Semaphore(2)
        async with running(bench(gate=gate)) as r, openai_client(r) as client:
            with pytest.raises(openai.NotFoundError) as missing:
                await client.chat.completions.create(model="gpt-4", messages=MESSAGES)
            assert missing.value.code == "model_not_found"
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(model="story", messages=MESSAGES, n=99)
            assert refused.value.param == "n"
            stream = await client.chat.completions.create(model="story", messages=MESSAGES, stream=True)
            name = r.engine.submitted[0].id

            async def read_and_cancel() -> None:
                async for chunk in stream:
                    if chunk.choices[0].delta.content:
                        await r.http.delete(f"/v1/zinc/requests/{name}")

            with pytest.raises(openai.APIError, match="cancelled") as ended:
                await read_and_cancel()
            assert ended.value.code == "cancelled"

    asyncio.run(go())


@pytest.mark.slow  # importing the client takes seconds; `test_endpoints.py` asks as it does
def test_anthropic_messages(bench: MakeBench) -> None:
    import anthropic

    async def go() -> None:
        async with running(bench()) as r, anthropic_client(r) as client:
            ask: list[anthropic.types.MessageParam] = [{"role": "user", "content": "Hi"}]
            whole = await client.messages.create(model="story", max_tokens=50, messages=ask, system="Be brief.")
            assert isinstance(whole.content[0], anthropic.types.TextBlock)
            assert whole.content[0].text == SAYS
            async with client.messages.stream(model="story", max_tokens=50, messages=ask) as stream:
                text = "".join([piece async for piece in stream.text_stream])
                final = await stream.get_final_message()
            assert text == SAYS
            assert final.stop_reason == "max_tokens"
            counted = await client.messages.count_tokens(model="story", messages=ask)
            assert counted.input_tokens == final.usage.input_tokens
            with pytest.raises(anthropic.NotFoundError):
                await client.messages.create(model="claude", max_tokens=5, messages=ask)

    asyncio.run(go())

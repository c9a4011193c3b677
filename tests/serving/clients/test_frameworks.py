"""Frameworks whose own code stands between an application and `zinc serve`. Needs the extra `clients`."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import zinc_rt
from tests.serving.command import Command

pytestmark = pytest.mark.slow

ASK = "Tell me a story."


class Weather(BaseModel):
    """The weather of a town."""

    town: Literal["Rome", "Oslo"]


def told(seed: int, n: int) -> str:
    """What the model says, without a server."""
    with zinc_rt.load() as model:
        return model.chat([{"role": "user", "content": ASK}], seed=seed, max_tokens=n).text


def chat_openai(server: Command, model: str, **options: Any) -> Any:
    made = pytest.importorskip("langchain_openai").ChatOpenAI
    return made(base_url=server.v1, api_key="-", model=model, max_retries=0, timeout=60, **options)


def test_langchain(story: Command) -> None:
    llm = chat_openai(story, "story", seed=3, max_tokens=20)
    whole = llm.invoke(ASK)
    assert whole.content == told(3, 20)
    assert whole.usage_metadata["output_tokens"] == 20
    pieces = list(llm.stream(ASK, stream_usage=True))
    assert "".join(piece.content for piece in pieces) == whole.content
    assert [p.usage_metadata["output_tokens"] for p in pieces if p.usage_metadata] == [20]
    assert [answer.content for answer in llm.batch([ASK, ASK])] == [whole.content] * 2

    async def stream() -> str:
        return "".join([piece.content async for piece in llm.astream(ASK)])

    assert asyncio.run(stream()) == whole.content
    shown = llm.bind(logprobs=True, top_logprobs=2).invoke(ASK)
    assert len(shown.response_metadata["logprobs"]["content"]) == 20


def test_langchain_responses(story: Command) -> None:
    llm = chat_openai(story, "story", use_responses_api=True, max_tokens=16)
    whole = llm.invoke(ASK)
    assert whole.usage_metadata["output_tokens"] == 16
    assert whole.text
    assert "".join(piece.text for piece in llm.stream(ASK))


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structured_output(story: Command, caller: Command, method: str) -> None:
    server, model = (story, "story") if method == "json_schema" else (caller, "caller")
    llm = chat_openai(server, model, seed=1).with_structured_output(Weather, method=method)
    assert isinstance(llm.invoke(ASK), Weather)


def test_langchain_tools(caller: Command) -> None:
    messages = pytest.importorskip("langchain_core.messages")
    llm = chat_openai(caller, "caller", seed=2)
    bound = llm.bind_tools([Weather], tool_choice="any", parallel_tool_calls=False)
    asked = bound.invoke(ASK)
    (call,) = asked.tool_calls
    assert (call["name"], set(call["args"])) == ("Weather", {"town"})
    streamed = None
    for piece in bound.stream(ASK):
        streamed = piece if streamed is None else streamed + piece
    assert [c["args"] for c in streamed.tool_calls] == [call["args"]]
    after = llm.invoke(
        [messages.HumanMessage(ASK), asked, messages.ToolMessage("sunny", tool_call_id=call["id"])], max_tokens=4
    )
    assert after.usage_metadata["output_tokens"] == 4


def test_langchain_embeddings(embedder: Command) -> None:
    made = pytest.importorskip("langchain_openai").OpenAIEmbeddings
    texts = ["a dog", "a small grey owl"]
    with zinc_rt.load(embeddings=True, pooling="mean") as model:
        want = model.embed(texts).tolist()
    plain = made(base_url=embedder.v1, api_key="-", model="embedder", check_embedding_ctx_length=False)
    assert plain.embed_documents(texts) == want


def test_litellm(story: Command, caller: Command, embedder: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # instead of asking the internet for prices
    litellm = pytest.importorskip("litellm")
    fields: dict[str, Any] = {
        "model": "openai/story",
        "api_base": story.v1,
        "api_key": "-",
        "seed": 3,
        "max_tokens": 20,
        "messages": [{"role": "user", "content": ASK}],
    }
    whole = litellm.completion(**fields)
    assert whole.choices[0].message.content == told(3, 20)
    assert whole.usage.completion_tokens == 20

    async def stream() -> str:
        chunks = await litellm.acompletion(**fields, stream=True, stream_options={"include_usage": True})
        return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])

    assert asyncio.run(stream()) == whole.choices[0].message.content
    form = {"type": "json_schema", "json_schema": {"name": "w", "strict": True, "schema": Weather.model_json_schema()}}
    Weather.model_validate_json(
        litellm.completion(**{**fields, "max_tokens": 100}, response_format=form).choices[0].message.content
    )
    tool = {"type": "function", "function": {"name": "weather", "parameters": Weather.model_json_schema()}}
    called = litellm.completion(
        **{**fields, "model": "openai/caller", "api_base": caller.v1, "max_tokens": 200},
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    (call,) = called.choices[0].message.tool_calls
    Weather.model_validate_json(call.function.arguments)
    own = litellm.completion(**{**fields, "model": "anthropic/story", "api_base": story.url, "seed": None})
    assert own.usage.completion_tokens == 20
    vectors = litellm.embedding(model="openai/embedder", input=["a dog"], api_base=embedder.v1, api_key="-")
    with zinc_rt.load(embeddings=True, pooling="mean") as model:
        assert vectors.data[0]["embedding"] == model.embed(["a dog"])[0].tolist()
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**fields, "model": "openai/other"})

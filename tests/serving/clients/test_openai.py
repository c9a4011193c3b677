"""OpenAI's own client against `zinc serve`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import BaseModel

import zinc_rt
from tests.serving.command import Command
from zinc_rt.sampling.sampler import logprobs

if TYPE_CHECKING:  # imported where it is used: it takes a second, which every worker would pay
    import openai
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me a story."}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"town": {"enum": ["Rome", "Oslo"]}, "now": {"type": "boolean"}},
            "required": ["town", "now"],
            "additionalProperties": False,
        },
    },
}


class Animal(BaseModel):
    """What an answer is made of."""

    kind: Literal["owl", "fox"]
    small: bool


def client(server: Command) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=server.v1, api_key="-", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def said() -> str:
    """What the model says to ASK with seed 5, without a server."""
    with zinc_rt.load() as model:
        return model.chat(list(ASK), seed=5, max_tokens=24).text


def test_chat(story: Command, said: str) -> None:
    with client(story) as c:
        whole = c.chat.completions.create(model="story", messages=ASK, seed=5, max_tokens=24)
        assert whole.choices[0].message.content == said
        assert whole.choices[0].finish_reason == "length"
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 24
        chunks = list(
            c.chat.completions.create(
                model="alias", messages=ASK, seed=5, max_completion_tokens=24, n=2, stream=True, logprobs=True,
                top_logprobs=2, stream_options={"include_usage": True},
            )
        )  # fmt: skip
        texts, logprobs = ["", ""], [0, 0]
        for choice in (choice for chunk in chunks for choice in chunk.choices):
            texts[choice.index] += choice.delta.content or ""
            logprobs[choice.index] += len((choice.logprobs and choice.logprobs.content) or [])
        assert texts[0] == said != texts[1]
        assert logprobs == [24, 24]
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 48


def test_logprobs_and_stop(story: Command, said: str) -> None:
    with client(story) as c:
        got = c.chat.completions.create(
            model="story", messages=ASK, seed=5, max_tokens=24, logprobs=True, top_logprobs=3, temperature=0
        )
        assert got.choices[0].logprobs is not None
        content = got.choices[0].logprobs.content
        assert content is not None
        assert b"".join(bytes(t.bytes or ()) for t in content).decode() == got.choices[0].message.content
        assert all(t.logprob == t.top_logprobs[0].logprob for t in content)
        word = said.split()[2]
        stopped = c.chat.completions.create(model="story", messages=ASK, seed=5, max_tokens=24, stop=[word])
        assert stopped.choices[0].message.content == said[: said.index(word)]
        assert stopped.choices[0].finish_reason == "stop"


def test_parsed_answers(story: Command) -> None:
    with client(story) as c:
        parsed = c.chat.completions.parse(model="story", messages=ASK, response_format=Animal, seed=1)
        assert isinstance(parsed.choices[0].message.parsed, Animal)
        with c.chat.completions.stream(model="story", messages=ASK, response_format=Animal, seed=1) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.parsed == parsed.choices[0].message.parsed
        response = c.responses.parse(model="story", input="An animal, please.", text_format=Animal)
        assert isinstance(response.output_parsed, Animal)


@pytest.mark.slow  # takes a server of its own; `api/test_tools.py` calls tools as this client does
def test_tools(caller: Command) -> None:
    fields: dict[str, Any] = {"model": "caller", "messages": ASK, "tools": [WEATHER], "seed": 2}
    with client(caller) as c:
        whole = c.chat.completions.create(**fields, tool_choice="required", parallel_tool_calls=False)
        (call,) = whole.choices[0].message.tool_calls
        assert whole.choices[0].finish_reason == "tool_calls"
        assert set(json.loads(call.function.arguments)) == {"town", "now"}
        with c.chat.completions.stream(**fields, tool_choice="required", parallel_tool_calls=False) as stream:
            (again,) = stream.get_final_completion().choices[0].message.tool_calls or ()
        assert again.function.arguments == call.function.arguments
        assert isinstance(again.function.parsed_arguments, dict)
        answer: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        asked = whole.choices[0].message.model_dump(exclude_none=True)
        end = c.chat.completions.create(model="caller", messages=[*ASK, asked, answer], max_tokens=4, tools=[WEATHER])
        assert end.usage is not None
        assert end.usage.prompt_tokens > whole.usage.prompt_tokens
        function: dict[str, Any] = {"type": "function", **WEATHER["function"]}
        response = c.responses.create(
            model="caller", input="Rome?", tools=[function], tool_choice="required", parallel_tool_calls=False
        )  # type: ignore[list-item]
        assert response.output[0].type == "function_call"
        assert set(json.loads(response.output[0].arguments)) == {"town", "now"}


def test_responses(story: Command) -> None:
    with client(story) as c:
        whole = c.responses.create(
            model="story", input="Hi", instructions="Be kind.", max_output_tokens=16, extra_body={"seed": 4}
        )
        assert whole.status == "incomplete"
        assert whole.usage is not None
        assert whole.usage.output_tokens == 16
        with c.responses.stream(
            model="story", input="Hi", instructions="Be kind.", max_output_tokens=16, extra_body={"seed": 4}
        ) as stream:
            events = list(stream)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert events[-1].type == "response.incomplete"
        assert text == events[-1].response.output_text == whole.output_text
        assert [event.sequence_number for event in events] == list(range(len(events)))


def test_responses_that_are_kept(story: Command) -> None:
    import openai

    with client(story) as c:
        first = c.responses.create(model="story", input="Hi", max_output_tokens=8)
        second = c.responses.create(
            model="story", input="And then?", previous_response_id=first.id, max_output_tokens=8, truncation="auto"
        )
        assert second.previous_response_id == first.id
        kept = c.responses.retrieve(second.id)
        assert (kept.output_text, kept.store) == (second.output_text, True)  # type: ignore[attr-defined]
        items = list(c.responses.input_items.list(second.id, order="asc", limit=2))
        assert [getattr(item, "role", None) for item in items] == ["user", "assistant", "user"]
        c.responses.delete(first.id)
        for gone in (lambda: c.responses.retrieve(first.id), lambda: c.responses.delete(first.id)):
            with pytest.raises(openai.NotFoundError):
                gone()
        with pytest.raises(openai.BadRequestError, match="no response"):
            c.responses.create(model="story", input="Hi", previous_response_id=first.id)


def test_completions_and_models(story: Command) -> None:
    import openai

    with client(story) as c:
        texts = c.completions.create(model="story", prompt=["A fox", "An owl"], max_tokens=6, logprobs=2, seed=1)
        assert [choice.index for choice in texts.choices] == [0, 1]
        assert [len(choice.logprobs.tokens) for choice in texts.choices] == [6, 6]  # type: ignore[union-attr,arg-type]
        streamed = list(c.completions.create(model="story", prompt="A fox", max_tokens=6, seed=1, stream=True))
        assert "".join(chunk.choices[0].text for chunk in streamed) == texts.choices[0].text
        assert [model.id for model in c.models.list()] == ["story", "alias"]
        assert c.models.retrieve("alias").id == "alias"
        with pytest.raises(openai.NotFoundError):
            c.models.retrieve("other")
        with pytest.raises(openai.BadRequestError, match="generates text"):
            c.embeddings.create(model="story", input="a dog")


def test_logprobs_of_a_prompt(story: Command) -> None:
    """They are those that `zinc perplexity` adds up, to the last bit."""
    text = "A small fox lived in the woods. One day it met an owl."
    with zinc_rt.load() as model:
        ids = model.tokenize(text)
        rows = model.logits(ids).astype("float64")
        wanted = [logprobs(row, token, 1) for row, token in zip(rows, ids[1:], strict=False)]
    with client(story) as c:
        both = c.completions.create(model="story", prompt=[ids, ids[:9]], max_tokens=1, logprobs=1, echo=True)
        for n, choice in zip((len(ids), 9), both.choices, strict=True):
            found = choice.logprobs
            assert found is not None
            assert found.token_logprobs is not None
            assert found.top_logprobs is not None
            assert found.token_logprobs[:n] == [None, *(value for value, _ in wanted[: n - 1])]
            assert [max(top.values()) for top in found.top_logprobs[1:n]] == [top[0][1] for _, top in wanted[: n - 1]]
            assert len(found.tokens or ()) == n + 1
        bare = c.completions.create(model="story", prompt=text, max_tokens=0, logprobs=0, echo=True).choices[0]
        assert bare.logprobs is not None
        assert (bare.text, bare.logprobs.token_logprobs) == (text, [None, *(value for value, _ in wanted)])


@pytest.mark.slow  # takes a server of its own; `api/test_states.py` and `llm/test_embedding.py` ask as this client does
def test_embeddings(embedder: Command) -> None:
    import openai

    texts = ["a dog", "a small grey owl"]
    with zinc_rt.load(embeddings=True, pooling="mean") as model:
        want = model.embed(texts).tolist()
    with client(embedder) as c:
        packed = c.embeddings.create(model="embedder", input=texts)  # asks for base64 by itself
        plain = c.embeddings.create(model="embedder", input=texts, encoding_format="float")
        assert [item.embedding for item in packed.data] == [item.embedding for item in plain.data] == want
        with pytest.raises(openai.BadRequestError, match="embeds texts"):
            c.chat.completions.create(model="embedder", messages=ASK)

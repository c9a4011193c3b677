"""Tools, reasoning and formats of answers: as OpenAI's and Anthropic's clients see them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.serving.api.conftest import Bench, MakeBench, events
from tests.serving.api.test_endpoints import named_events
from zinc_rt.llm.chat import ChatFormat
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.text import ChatTemplate

TEMPLATE = """{% for t in tools or [] %}{{ t.function.name }} {% endfor %}
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}{{
reasoning_effort }}{# <think></think> <tool_call> #}{{ enable_thinking }}"""
SAYS = """<think>
The user wants weather.
</think>

I look it up.
<tool_call>
{"name": "weather", "arguments": {"city": "Zürich"}}
</tool_call>
<tool_call>
{"name": "time", "arguments": {}}
</tool_call>"""
ARGUMENTS = {"city": "Zürich"}


def function(name: str) -> dict[str, Any]:
    city = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": "x", "parameters": city}}


TOOLS = [function("weather"), function("time")]
MakeCaller = Callable[..., Bench]


@pytest.fixture(scope="session")
def caller(served: ServedModel) -> Iterator[ServedModel]:
    """A model that thinks and calls tools, as Qwen's do."""
    template = ChatTemplate({"default": TEMPLATE}, {}, None)
    chat = ChatFormat(served.tokenizer, template)
    assert chat.dialect.name == "hermes"
    yield dataclasses.replace(served, chat=chat, template=template, n_ctx=512)
    template.close()


@pytest.fixture
def calls(bench: MakeBench, caller: ServedModel) -> MakeCaller:
    """Makes a server of that model."""

    def make(says: str = SAYS) -> Bench:
        made = bench(says)
        made.service.model = caller
        made.client.stops = frozenset({0})
        script = made.client.script
        made.client.script = lambda request: [*script(request), 0]
        return made

    return make


def test_calls_and_reasoning_of_a_whole_answer(calls: MakeCaller) -> None:
    async def go() -> None:
        b = calls()
        (choice,) = (await b.chat(tools=TOOLS, seed=1)).json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        message = choice["message"]
        assert message["reasoning_content"].strip() == "The user wants weather."
        assert message["content"].strip() == "I look it up."
        first, second = message["tool_calls"]
        assert (first["function"]["name"], json.loads(first["function"]["arguments"])) == ("weather", ARGUMENTS)
        assert (second["function"]["name"], json.loads(second["function"]["arguments"])) == ("time", {})
        assert first["id"] != second["id"]
        again = (await b.chat(tools=TOOLS, seed=1)).json()["choices"][0]["message"]
        assert again == message
        assert b.client.submitted[0].grammar is not None
        usage = (await b.chat(tools=TOOLS)).json()["usage"]
        assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]

    asyncio.run(go())


def test_a_stream_gives_the_same_message(calls: MakeCaller) -> None:
    async def go() -> None:
        b = calls()
        whole = (await b.chat(tools=TOOLS, seed=1)).json()["choices"][0]["message"]
        chunks = events((await b.chat(tools=TOOLS, seed=1, stream=True)).text)
        deltas = [c["choices"][0]["delta"] for c in chunks]
        assert "".join(d.get("content") or "" for d in deltas) == whole["content"]
        assert "".join(d.get("reasoning_content", "") for d in deltas) == whole["reasoning_content"]
        made: dict[int, dict[str, Any]] = {}
        for call in (call for d in deltas for call in d.get("tool_calls", ())):
            if "id" in call:
                assert call["index"] not in made
                made[call["index"]] = call
            else:
                made[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        assert [{k: v for k, v in made[i].items() if k != "index"} for i in sorted(made)] == whole["tool_calls"]
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"

    asyncio.run(go())


def test_the_blocks_of_anthropic(calls: MakeCaller) -> None:
    async def go() -> None:
        b = calls()
        tools = [{"name": "weather", "input_schema": {"type": "object"}}, {"name": "time", "input_schema": {}}]
        ask = {"max_tokens": 300, "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "seed": 1}
        answer = await b.http.post("/v1/messages", json=ask)
        body = answer.json()
        assert [block["type"] for block in body["content"]] == ["thinking", "text", "tool_use", "tool_use"], body
        assert body["stop_reason"] == "tool_use"
        assert (body["content"][2]["name"], body["content"][2]["input"]) == ("weather", ARGUMENTS)
        streamed = named_events((await b.http.post("/v1/messages", json={**ask, "stream": True})).text)
        starts = [data["content_block"]["type"] for name, data in streamed if name == "content_block_start"]
        assert starts == ["thinking", "text", "tool_use", "tool_use"]
        json_text = "".join(
            data["delta"]["partial_json"]
            for name, data in streamed
            if name == "content_block_delta" and data["index"] == 2
        )
        assert json.loads(json_text) == ARGUMENTS
        results = [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": body["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "12 degrees"}]},
        ]
        assert (await b.http.post("/v1/messages", json={**ask, "messages": results})).status_code == 200
        prompt = b.service.model.tokenizer.decode(b.client.submitted[-1].prompt)
        assert "tool: 12 degrees" in prompt
        assert '"city": "Z' in prompt

    asyncio.run(go())


def test_the_items_of_responses(calls: MakeCaller) -> None:
    async def go() -> None:
        b = calls()
        tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
        ask = {"input": "Hi", "tools": tools, "seed": 1}
        body = (await b.http.post("/v1/responses", json=ask)).json()
        assert [item["type"] for item in body["output"]] == ["reasoning", "message", "function_call", "function_call"]
        assert body["status"] == "completed"
        assert json.loads(body["output"][2]["arguments"]) == ARGUMENTS
        streamed = named_events((await b.http.post("/v1/responses", json={**ask, "stream": True})).text)
        done = [data["item"] for name, data in streamed if name == "response.output_item.done"]
        assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
        assert streamed[-1][0] == "response.completed"
        assert [item["arguments"] for item in done[2:]] == [item["arguments"] for item in body["output"][2:]]
        more = [
            {"role": "user", "content": "Hi"},
            *body["output"],
            {"type": "function_call_output", "call_id": body["output"][2]["call_id"], "output": "12 degrees"},
        ]
        assert (await b.http.post("/v1/responses", json={**ask, "input": more})).status_code == 200

    asyncio.run(go())


def test_choice_effort_and_variables_reach_grammar_and_template(calls: MakeCaller) -> None:
    async def go() -> None:
        b = calls()
        assert (await b.chat(tools=TOOLS, tool_choice="none")).status_code == 200
        request = b.client.submitted[-1]
        assert request.grammar is None
        assert "weather" not in b.service.model.tokenizer.decode(request.prompt)
        one = {"type": "function", "function": {"name": "time"}}
        assert (await b.chat(tools=TOOLS, tool_choice=one)).status_code == 200
        grammar = b.client.submitted[-1].grammar
        assert grammar is not None
        assert '"weather' not in grammar.text
        missing = {"type": "function", "function": {"name": "nope"}}
        refused = await b.chat(tools=TOOLS, tool_choice=missing)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice.function.name")
        await b.chat(reasoning_effort="none", chat_template_kwargs={"reasoning_effort": "mine"})
        assert b.service.model.tokenizer.decode(b.client.submitted[-1].prompt).endswith("mineFalse")

    asyncio.run(go())


def test_without_tools_marks_are_text(calls: MakeCaller) -> None:
    async def go() -> None:
        answer = (await calls().chat()).json()["choices"][0]
        assert answer["finish_reason"] == "stop"
        assert "<tool_call>" in answer["message"]["content"]
        assert "tool_calls" not in answer["message"]

    asyncio.run(go())


def fragments_of(answers: dict[str, str]) -> dict[str, list[str]]:
    """The pieces of the first call's arguments, by interface, from the texts of their streams."""
    chat = [c["choices"][0]["delta"] for c in events(answers["chat"])]
    messages = [d for name, d in named_events(answers["messages"]) if name == "content_block_delta"]
    responses = named_events(answers["responses"])
    return {
        "chat": [
            call["function"]["arguments"]
            for d in chat
            for call in d.get("tool_calls", ())
            if call["index"] == 0 and "id" not in call
        ],
        "messages": [d["delta"]["partial_json"] for d in messages if d["index"] == 2],
        "responses": [
            d["delta"]
            for name, d in responses
            if name == "response.function_call_arguments.delta" and d["output_index"] == 2
        ],
    }


async def streams(b: Bench, **limits: int) -> dict[str, str]:
    """One request as a stream of each interface. limits: of tokens, by the interfaces' names of it."""
    anthropic = [{"name": "weather", "input_schema": {"type": "object"}}, {"name": "time", "input_schema": {}}]
    flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
    n = limits.get("n", 300)
    hi = [{"role": "user", "content": "Hi"}]
    asked = {
        "messages": {"max_tokens": n, "messages": hi, "tools": anthropic, "seed": 1, "stream": True},
        "responses": {"max_output_tokens": n, "input": "Hi", "tools": flat, "seed": 1, "stream": True},
    }
    found = {"chat": (await b.chat(tools=TOOLS, seed=1, stream=True, max_tokens=n)).text}
    return found | {name: (await b.http.post(f"/v1/{name}", json=body)).text for name, body in asked.items()}


def test_arguments_come_in_pieces(calls: MakeCaller) -> None:
    """The pieces are those of the tokens, the same for each interface, and their sum is the argument text."""

    async def go() -> None:
        found = fragments_of(await streams(calls()))
        assert len(found["chat"]) > 3
        assert found["messages"] == found["responses"] == found["chat"]
        assert "".join(found["chat"]) == '{"city": "Zürich"}'

    asyncio.run(go())


def test_a_call_that_is_cut_off_is_no_json(calls: MakeCaller) -> None:
    async def go() -> None:
        b = calls()
        said = b.service.model.tokenizer.encode(SAYS.partition("ürich")[0], add_special=False)
        n = len(said)
        texts = await streams(b, n=n)
        found = fragments_of(texts)
        assert found["messages"] == found["responses"] == found["chat"]
        arguments = "".join(found["chat"])
        assert '{"city": "Zürich"}'.startswith(arguments)
        assert 2 < len(arguments) < 18
        assert events(texts["chat"])[-1]["choices"][0]["finish_reason"] == "length"
        (choice,) = (await b.chat(tools=TOOLS, seed=1, max_tokens=n)).json()["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert (call["function"]["arguments"], choice["finish_reason"]) == (arguments, "length")
        tools = [{"name": "weather", "input_schema": {"type": "object"}}]
        ask = {"max_tokens": n, "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "seed": 1}
        whole = (await b.http.post("/v1/messages", json=ask)).json()
        assert whole["content"][2] == {"type": "text", "text": arguments}
        assert whole["stop_reason"] == "max_tokens"
        assert named_events(texts["responses"])[-1][0] == "response.incomplete"

    asyncio.run(go())

"""`Model.chat`: the shipped model answers in OpenAI's form, under grammars, with calls, token by token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

import zinc_rt
from tests.dialects.models import NOTE, REQUEST, SCHEMAS
from tests.text.templates import QWEN3
from zinc_rt.dialects.deltas import CallDelta, ParsedAnswer
from zinc_rt.dialects.record import ThinkingState
from zinc_rt.dialects.tools import RequestError
from zinc_rt.engine.prompts import PromptTooLong
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.llm.chat import ChatAnswer, ChatFormat
from zinc_rt.llm.model import Model
from zinc_rt.text import ChatTemplate

HELLO = [{"role": "user", "content": "Tell me of a cat."}]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with zinc_rt.load(device="cpu", n_ctx=1024) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def hermes(model: Model) -> Iterator[ChatFormat]:
    template = ChatTemplate({"default": QWEN3}, {}, None)
    yield ChatFormat(model.tokenizer, template)
    template.close()


@pytest.fixture
def caller(model: Model, hermes: ChatFormat, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The model with a template of the Hermes family."""
    monkeypatch.setitem(vars(model), "chat_format", hermes)
    return model


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def test_a_chat_is_a_rendered_prompt_and_its_text(model: Model) -> None:
    prompt = model.tokenize(model.chat_template.render(HELLO), add_special=False)
    plain = model.generate(prompt, max_tokens=20, seed=3)
    answer = model.chat(HELLO, max_tokens=20, seed=3)
    assert (answer.text, answer.finish_reason) == (plain.text, plain.finish_reason)
    assert answer.generation.token_ids == plain.token_ids
    assert answer.generation.seed == 3
    assert answer.generation.stats.prompt_tokens == len(prompt)
    assert (answer.reasoning, answer.tool_calls) == (None, ())


def test_the_whole_is_the_sum_of_the_stream(caller: Model) -> None:
    fields: dict[str, Any] = {"tools": REQUEST, "tool_choice": "required", "max_tokens": 120, "seed": 5}
    chunks = list(caller.chat_stream(HELLO, **fields))
    assert [chunk.chunk.token_id is None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert ChatAnswer.collect(chunks).tool_calls == caller.chat(HELLO, **fields).tool_calls
    calls = [delta for chunk in chunks for delta in chunk.deltas if isinstance(delta, CallDelta)]
    assert [call.index for call in calls if call.name] == list(range(len(calls) // 2))


@pytest.mark.parametrize("seed", range(4))
def test_content_follows_a_schema(model: Model, seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["cat", "dog"]},
            "name": {"type": "string", "maxLength": 8},
            "old": {"type": "boolean"},
        },
        "required": ["kind", "name", "old"],
        "additionalProperties": False,
    }
    answer = model.chat(HELLO, response_format=schema_format(schema), seed=seed, temperature=1.5)
    assert answer.finish_reason == "stop"
    assert answer.content is not None
    jsonschema.validate(json.loads(answer.content), schema)
    again = model.chat(HELLO, response_format=schema_format(schema), seed=seed, temperature=1.5)
    assert again.generation.token_ids == answer.generation.token_ids


def test_other_forms(model: Model) -> None:
    chosen = model.chat(HELLO, response_format={"type": "choice", "choice": ["yes", "no"]}, seed=1)
    assert chosen.content in ("yes", "no")
    assert chosen.finish_reason == "stop"
    number = model.chat(HELLO, response_format={"type": "regex", "regex": "[0-9]{3}-[0-9]"}, seed=1)
    assert len(number.text) == 5
    assert number.text[3] == "-"


@pytest.mark.parametrize("seed", range(3))
def test_calls_that_must_be_made(caller: Model, seed: int) -> None:
    tools = [
        REQUEST[0] | {},
        {"type": "function", "function": {"name": "note.add", "parameters": {**NOTE, "required": ["code", "tags"]}}},
    ]
    answer = caller.chat(
        HELLO,
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
        seed=seed,
        max_tokens=200,
        logit_bias={caller.tokenizer.encode('"', add_special=False)[0]: 8.0},
    )
    if answer.finish_reason == "length":  # half a call is none
        assert answer.tool_calls == ()
        assert answer.text.startswith("<tool_call>")
        return
    assert answer.finish_reason == "tool_calls"
    assert answer.content is None
    (call,) = answer.tool_calls
    jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    assert call.id.startswith("call_")


def test_a_named_call_and_its_result(caller: Model) -> None:
    choice = {"type": "function", "function": {"name": "now"}}
    answer = caller.chat(HELLO, tools=REQUEST, tool_choice=choice, seed=1)
    (call,) = answer.tool_calls
    assert (call.name, call.arguments, answer.finish_reason) == ("now", "{}", "tool_calls")
    talk: list[dict[str, Any]] = [
        *HELLO,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "noon"},
    ]
    prompt = caller.chat_format.prompt(talk, tools=REQUEST).ids
    assert "<tool_response>\nnoon\n</tool_response>" in caller.detokenize(prompt)
    second = caller.chat(talk, tools=REQUEST, tool_choice=choice, seed=1)
    assert second.tool_calls[0].id != call.id  # of another prompt


def test_tools_that_may_not_be_called(caller: Model) -> None:
    prompt = caller.chat_format.prompt(HELLO, tools=REQUEST, tool_choice="none")
    assert (prompt.grammar, prompt.tools) == (None, ())
    assert prompt.ids == caller.chat_format.prompt(HELLO).ids
    assert caller.chat(HELLO, tools=REQUEST, tool_choice="none", max_tokens=8, seed=1).tool_calls == ()


def test_reasoning_comes_first(caller: Model) -> None:
    form = {"type": "regex", "regex": "[a-z]{5}"}
    prompt = caller.chat_format.prompt(HELLO, response_format=form, variables={"enable_thinking": False})
    assert prompt.thinking is ThinkingState.off
    answer = caller.chat(HELLO, response_format=form, variables={"enable_thinking": False}, seed=1)
    assert (len(answer.text), answer.reasoning) == (5, None)
    # Its marks are no tokens of this vocabulary: the model may begin with one in letters, or answer at once.
    assert caller.chat_format.prompt(HELLO, response_format=form).thinking is ThinkingState.possible


def test_stop_strings_end_the_content(model: Model) -> None:
    whole = model.chat(HELLO, max_tokens=40, seed=2).text
    word = whole.split()[4]
    cut = model.chat(HELLO, max_tokens=40, seed=2, stop=[word])
    assert (cut.text, cut.finish_reason) == (whole[: whole.index(word)], "stop")


def test_a_stream_that_is_open_or_closed_lets_another_begin(model: Model) -> None:
    alone = model.chat(HELLO, max_tokens=9, seed=1).generation.token_ids
    stream = model.chat_stream(HELLO, max_tokens=20)
    next(stream)
    assert model.chat(HELLO, max_tokens=9, seed=1).generation.token_ids == alone
    stream.close()
    assert model.chat(HELLO, max_tokens=9, seed=1).generation.token_ids == alone


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"messages": []}, RequestError, "messages is empty"),
        ({"tools": REQUEST}, RequestError, "template takes none"),
        ({"response_format": {"type": "xml"}}, RequestError, "response_format is"),
        (
            {"response_format": schema_format({"type": "x"})},
            GrammarError,
            "response_format.json_schema.schema: .*Invalid type",
        ),
        ({"tool_choice": "required"}, RequestError, "there are no tools"),
        ({"variables": 3}, RequestError, "variables are 3"),
        ({"variables": {"tools": []}}, RequestError, "variables have 'tools'"),
        ({"variables": {3: 1}}, RequestError, "variables are"),
        ({"parallel_tool_calls": 1}, zinc_rt.UsageError, "parallel_tool_calls is 1"),
        ({"temperatur": 1}, zinc_rt.UsageError, "temperatur"),
        ({"messages": [{"role": "user", "content": "cat " * 1100}]}, PromptTooLong, "1024"),
    ],
)
def test_what_is_wrong_is_told_before_the_first_token(
    model: Model, fields: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        model.chat_stream(**({"messages": HELLO} | fields))


def test_answers_are_joined_in_order() -> None:
    assert ParsedAnswer.join([]) == ParsedAnswer("")
    told = [
        CallDelta(0, "", "a", "f"),
        CallDelta(1, "", "b", "g"),
        CallDelta(0, "{"),
        CallDelta(1, "{}"),
        CallDelta(0, "}"),
    ]
    assert [(call.name, call.arguments) for call in ParsedAnswer.join(told).tool_calls] == [("f", "{}"), ("g", "{}")]


def test_an_answer_is_a_message_of_the_next_turn(caller: Model) -> None:
    fields: dict[str, Any] = {"tools": REQUEST, "tool_choice": "required", "max_tokens": 120, "seed": 5}
    called = caller.chat(HELLO, **fields)
    assert called.tool_calls
    for answer in (called, caller.chat(HELLO, max_tokens=9, seed=1)):
        message = answer.message
        assert (message["role"], message["content"]) == ("assistant", answer.content)
        calls = [call["function"] for call in message.get("tool_calls", ())]
        assert calls == [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls]
        prompt = caller.chat_format.prompt([*HELLO, message, *HELLO], tools=REQUEST).ids
        for part in (answer.text, *(call.name for call in answer.tool_calls)):
            assert part.strip() in caller.detokenize(prompt)

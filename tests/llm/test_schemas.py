"""Classes as `response_format`, functions and classes as `tools`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, TypedDict

import jsonschema
import msgspec
import pydantic
import pytest

import zinc_rt
from tests.text.templates import QWEN3
from zinc_rt.dialects.tools import RequestError
from zinc_rt.llm import schemas
from zinc_rt.llm.chat import ChatAnswer, ChatFormat
from zinc_rt.text import ChatTemplate


class Kind(pydantic.BaseModel):
    animal: Literal["cat", "dog", "fox"]
    tame: bool = False


class Tree(pydantic.BaseModel):
    kind: Kind
    young: list[Tree] = []


@dataclasses.dataclass
class Pet:
    animal: Literal["cat", "dog", "fox"]
    age: Literal[1, 2]


class Owner(msgspec.Struct):
    pet: Pet


class Word(TypedDict):
    word: Literal["yes", "no"]


def weather(city: Literal["Paris", "Rome"], unit: Literal["C", "F"] = "C", *, day: Word | None = None) -> str:
    """The weather of a city.

    As it is now.

    Args:
        city: whose
            weather.
        unit (str): of the temperature.

    Returns:
        day: a text.
    """
    return f"{city} {unit} {day}"


def visit(kind: Kind) -> None:
    """See an animal."""


@pytest.fixture(scope="module")
def model() -> Iterator[zinc_rt.Model]:
    with zinc_rt.load(device="cpu", n_ctx=1024) as loaded:
        template = ChatTemplate({"default": QWEN3}, {}, None)
        vars(loaded).update(chat_template=template, chat_format=ChatFormat(loaded.tokenizer, template))
        yield loaded


def schema_of(kind: Any) -> Any:
    form: Any = schemas.response_form(kind)
    return form["json_schema"]["schema"]


@pytest.mark.parametrize(
    ("kind", "value", "wrong"),
    [
        (Kind, {"animal": "cat"}, {"animal": "cow"}),
        (
            Tree,
            {"kind": {"animal": "cat"}, "young": [{"kind": {"animal": "dog"}}]},
            {"kind": {"animal": "cat"}, "x": 1},
        ),
        (Pet, {"animal": "fox", "age": 2}, {"animal": "fox", "age": 3}),
        (Owner, {"pet": {"animal": "fox", "age": 2}}, {"pet": {"animal": "fox", "age": 2, "name": "Max"}}),
        (Word, {"word": "no"}, {"word": "no", "more": 1}),
        (list[Kind], [{"animal": "cat"}], [{"animal": "cat", "more": 1}]),
        (Literal["a", "b"], "b", "c"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_type_and_its_schema_take_the_same_values(kind: Any, value: Any, wrong: Any) -> None:
    schema = schema_of(kind)
    jsonschema.validate(value, schema)
    assert schemas.parse(kind, json.dumps(value)) is not None
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


@pytest.mark.parametrize("kind", [Kind, Pet, Owner, Word])
def test_answers_have_a_value_of_the_type(model: zinc_rt.Model, kind: type) -> None:
    answer = model.chat("Invent a pet.", response_format=kind, seed=3, max_tokens=80)
    assert answer.parsed == schemas.parse(kind, answer.text)
    assert isinstance(answer.parsed, dict if kind is Word else kind)
    tasks = asyncio.run(zinc_rt.AsyncModel(model).chat("Invent a pet.", response_format=kind, seed=3, max_tokens=80))
    assert (tasks.text, tasks.parsed) == (answer.text, answer.parsed)


def test_an_answer_without_a_value(model: zinc_rt.Model) -> None:
    cut = model.chat("Invent a pet.", response_format=Pet, seed=3, max_tokens=2)
    with pytest.raises(schemas.AnswerNotParsed, match=r"cut off \(length\) after 2 tokens.*more max_tokens"):
        _ = cut.parsed
    assert model.chat("Invent a pet.", max_tokens=2).parsed is None
    assert model.chat("A pet?", response_format={"type": "choice", "choice": ["1"]}).parsed is None
    refused = dataclasses.replace(cut, content='{"animal": "cow", "age": 1}', finish_reason="stop")
    with pytest.raises(schemas.AnswerNotParsed, match="is no Pet: Invalid enum value 'cow'"):
        _ = refused.parsed


def test_functions_are_tools(model: zinc_rt.Model) -> None:
    tools: Any = schemas.tool_list([weather, visit, Pet])
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    assert list(functions) == ["weather", "visit", "Pet"]
    assert functions["weather"]["description"] == "The weather of a city.\n\nAs it is now."
    parameters = functions["weather"]["parameters"]
    assert parameters["required"] == ["city"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["city"] == {"enum": ["Paris", "Rome"], "description": "whose weather."}
    assert parameters["properties"]["unit"]["default"] == "C"
    jsonschema.validate({"city": "Rome", "day": {"word": "yes"}}, parameters)
    jsonschema.validate({"kind": {"animal": "cat"}}, functions["visit"]["parameters"])
    answer = model.chat("How warm is it?", tools=[weather], tool_choice="required", seed=1, max_tokens=90)
    call = answer.tool_calls[0]
    assert call.name == "weather"
    assert weather(**json.loads(call.arguments)).startswith(("Paris", "Rome"))


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (lambda city: city, r"tools\[0\].function.name is '<lambda>'"),
        (print, r"tools\[0\] has the parameter \*args; a call names each argument"),
        (partial(weather, "Rome"), r"tools\[0\] is .*which has no name"),
        (object, r"tools\[0\] is .*no JSON schema"),
        (3, r"tools\[0\] is 3"),
    ],
)
def test_tools_that_cannot_be_used(model: zinc_rt.Model, tool: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        model.chat("Hello", tools=[tool])


@pytest.mark.parametrize("form", [object, "json", 3, [Pet]])
def test_forms_that_cannot_be_used(model: zinc_rt.Model, form: Any) -> None:
    with pytest.raises(RequestError, match="response_format"):
        model.chat("Hello", response_format=form)


def test_notebooks_show_markdown(model: zinc_rt.Model) -> None:
    text = model.generate("Once", max_tokens=3)
    assert text._repr_markdown_() == text.text
    answer = ChatAnswer("**yes**", "is it?\nit is", (), "stop", text)
    assert answer._repr_markdown_() == "> is it?\n> it is\n\n**yes**"
    called = model.chat("How warm?", tools=[weather], tool_choice="required", seed=1, max_tokens=90)
    assert called._repr_markdown_().rpartition("\n\n")[2].startswith("```json\nweather {")

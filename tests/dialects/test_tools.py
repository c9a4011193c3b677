"""Tools, choices and formats of a request; what is refused, and by which name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.models import NOTE, REQUEST, TOOLS, tool
from zinc_rt.dialects.tools import (
    ChoiceMode,
    FormatKind,
    RequestError,
    ResponseFormat,
    ToolChoice,
    parse_response_format,
    parse_tool_choice,
    parse_tools,
)


def test_tools() -> None:
    assert [each.name for each in TOOLS] == ["weather", "note.add", "now"]
    assert TOOLS[0].description == "The weather of some days"
    assert TOOLS[1].parameters == NOTE
    assert TOOLS[2].parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert TOOLS[1].where == "tools[1].function.parameters"
    assert parse_tools(None) == parse_tools([]) == ()
    assert parse_tools([tool("f", {})])[0].parameters == {"type": "object"}


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ("weather", "tools"),
        ({}, "tools"),
        ([1], "tools[0]"),
        ([{"type": "code_interpreter"}], "tools[0].type"),
        ([{"type": "function"}], "tools[0].function"),
        ([tool("a"), tool("b c")], "tools[1].function.name"),
        ([tool("a"), tool("a")], "tools[1].function.name"),
        ([tool("<|end|>")], "tools[0].function.name"),
        ([tool("")], "tools[0].function.name"),
        ([tool("a" * 65)], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": "a", "description": 1}}], "tools[0].function.description"),
        ([tool("a", strict=1)], "tools[0].function.strict"),  # type: ignore[arg-type]
        ([tool("a", {"type": "string"})], "tools[0].function.parameters.type"),
        ([tool("a", {"properties": []})], "tools[0].function.parameters.properties"),
        ([tool("a", {"required": "b"})], "tools[0].function.parameters.required"),
        ([{"type": "function", "function": {"name": "a", "parameters": True}}], "tools[0].function.parameters"),
        ([tool(f"t{i}") for i in range(129)], "tools"),
    ],
)
def test_tools_that_are_refused(tools: Any, param: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_tools(tools)
    assert error.value.param == param
    assert str(error.value).startswith(f"{param} ")
    assert "\n" not in str(error.value)
    assert error.value.unsupported == (param == "tools[0].type")


def test_choices() -> None:
    named = {"type": "function", "function": {"name": "now"}}
    assert parse_tool_choice(None, TOOLS) == ToolChoice(ChoiceMode.auto)
    assert parse_tool_choice("none", ()) == ToolChoice(ChoiceMode.none)
    assert parse_tool_choice("required", TOOLS) == ToolChoice(ChoiceMode.required)
    assert parse_tool_choice(named, TOOLS) == ToolChoice(ChoiceMode.required, ("now",))
    some = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named, REQUEST[0]]}}
    assert parse_tool_choice(some, TOOLS) == ToolChoice(ChoiceMode.auto, ("now", "weather"))
    empty = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
    assert parse_tool_choice(empty, TOOLS) == ToolChoice(ChoiceMode.none)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("always", "tool_choice"),
        (1, "tool_choice"),
        ({"type": "custom"}, "tool_choice"),
        ({"type": "function"}, "tool_choice.function.name"),
        ({"type": "function", "function": {"name": "other"}}, "tool_choice.function.name"),
        ({"type": "allowed_tools"}, "tool_choice"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "x", "tools": []}}, "tool_choice.allowed_tools.mode"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [1]}},
            "tool_choice.allowed_tools.tools[0].function.name",
        ),
    ],
)
def test_choices_that_are_refused(choice: Any, param: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_tool_choice(choice, TOOLS)
    assert error.value.param == param


def test_a_call_cannot_be_required_without_tools() -> None:
    with pytest.raises(RequestError, match="there are no tools"):
        parse_tool_choice("required", ())
    with pytest.raises(RequestError, match="there are no tools"):
        parse_tool_choice({"type": "function", "function": {"name": "f"}}, ())


def test_formats() -> None:
    schema = {"type": "integer"}
    assert parse_response_format(None) == parse_response_format({"type": "text"}) == ResponseFormat()
    assert parse_response_format({"type": "json_object"}) == ResponseFormat(FormatKind.json_object)
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    where = "response_format.json_schema.schema"
    assert parse_response_format(wanted) == ResponseFormat(FormatKind.json_schema, schema, where)
    assert parse_response_format({"type": "regex", "regex": "a"}).value == "a"


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ("json_object", "response_format"),
        ({}, "response_format"),
        ({"type": "xml"}, "response_format"),
        ({"type": ["text"]}, "response_format"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": None}}, "response_format.json_schema.schema"),
        ({"type": "lark"}, "response_format.lark"),
    ],
)
def test_formats_that_are_refused(form: Any, param: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_response_format(form)
    assert error.value.param == param

"""Which objects get no properties that their schema does not name."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from zinc_rt.grammar.schema import closed

NAMED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
SHUT = {**NAMED, "additionalProperties": False}


def admits(schema: Any, value: Any) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "shut"),
    [
        (NAMED, SHUT),
        ({"type": "array", "items": NAMED}, {"type": "array", "items": SHUT}),
        ({"anyOf": [NAMED, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        ({"$ref": "#/$defs/n", "$defs": {"n": NAMED}}, {"$ref": "#/$defs/n", "$defs": {"n": SHUT}}),
        (
            {"properties": {"properties": NAMED, "allOf": {"const": NAMED}}},
            {"properties": {"properties": SHUT, "allOf": {"const": NAMED}}, "additionalProperties": False},
        ),
    ],
)
def test_objects_that_name_their_properties(schema: dict[str, Any], shut: dict[str, Any]) -> None:
    assert closed(schema) == shut
    assert closed(shut) == shut


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({**NAMED, "additionalProperties": {"type": "null"}}, {"a": 1, "b": None}),
        ({"type": "object"}, {"a": 1}),
        ({"allOf": [NAMED, {"properties": {"b": {}}, "required": ["b"]}]}, {"a": 1, "b": 2}),
        ({**NAMED, "anyOf": [{"properties": {"b": {}}, "required": ["b"]}]}, {"a": 1, "b": 2}),
        ({**NAMED, "required": ["a", "b"]}, {"a": 1, "b": 2}),
        ({**NAMED, "minProperties": 2}, {"a": 1, "b": 2}),
        ({**NAMED, "patternProperties": {"^x": {}}}, {"a": 1, "x": 2}),
        ({"items": {"oneOf": [NAMED, {"required": ["b"]}]}}, [{"a": 1}]),
        ({"not": {"properties": {"a": {"const": 1}}}}, {"a": 2}),
    ],
)
def test_what_stays_as_it_is(schema: dict[str, Any], value: Any) -> None:
    assert closed(schema) == schema
    assert admits(schema, value)

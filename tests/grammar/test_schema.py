"""Which objects get no properties that their schema does not name."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from zinc_rt.grammar.errors import GrammarError
from zinc_rt.grammar.schema import check_schema, closed

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


def entries(n: int) -> dict[str, Any]:
    return {f"p{i}": {"type": "string"} for i in range(n)}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "#"}, "leads back to itself"),
        ({"allOf": [{"$ref": "#"}, {"type": "object"}]}, "leads back to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "back to itself"),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}, "back to itself"),
        ({"properties": {"a": {"properties": entries(600)}, "b": {"properties": entries(600)}}}, "1202 entries"),
        ({"enum": list(range(1001))}, "enum has 1001 entries in all, the limit is 1000"),
        ({"patternProperties": entries(33)}, "patternProperties has 33"),
    ],
)
def test_circles_and_sizes_are_refused_before_a_grammar_is_made(schema: Any, said: str) -> None:
    with pytest.raises(GrammarError, match=said):
        check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}},
        {"items": {"$ref": "#"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"properties": entries(1000), "enum": list(range(1000))},
        {"properties": {"a": {"$ref": "#/$defs/c"}, "b": {"$ref": "#/$defs/c"}}, "$defs": {"c": {"$ref": "#/$defs/d"}}},
    ],
)
def test_trees_and_large_schemas_are_taken(schema: Any) -> None:
    assert check_schema(schema) == schema

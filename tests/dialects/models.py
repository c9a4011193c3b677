"""Small vocabularies with the marks of each family, and the tools that the tests offer."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np

from tests.text.vocabularies import bpe_metadata, recorded
from zinc_rt.dialects.families import FAMILIES
from zinc_rt.dialects.record import Dialect
from zinc_rt.dialects.tools import Tool, parse_tools
from zinc_rt.grammar.vocabulary import GrammarVocabulary
from zinc_rt.text import Tokenizer

HARMONY = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
BY_NAME = {dialect.name: dialect for dialect in FAMILIES}
CALLERS = [dialect for dialect in FAMILIES if dialect.takes_tools]


@cache
def tokenizer(marks: tuple[str, ...], control: bool = True) -> Tokenizer:
    """The byte-level vocabulary of the tokenizer's tests with these marks as tokens."""
    bpe = recorded()["bpe"]
    tokens = [*bpe["tokens"], *marks]
    types = np.array([*bpe["types"], *[3 if control else 4] * len(marks)], np.int32)
    return Tokenizer.from_metadata(bpe_metadata(tokens=tokens, token_type=types))


def marks_of(dialect: Dialect) -> tuple[str, ...]:
    """The marks that are tokens of the family's vocabularies."""
    own = () if dialect.messages is None else dialect.messages.marks
    return own + tuple(mark for mark in dict.fromkeys(dialect.marks) if "\n" not in mark and "thought" not in mark)


@cache
def vocabulary(dialect: Dialect, as_tokens: bool = True) -> GrammarVocabulary:
    """The vocabulary for a family; without its marks as tokens, they are written in letters."""
    always = () if dialect.messages is None else dialect.messages.marks
    return GrammarVocabulary(tokenizer(marks_of(dialect) if as_tokens else always))


def tool(
    name: str, parameters: dict[str, Any] | None = None, description: str = "", strict: bool | None = None
) -> dict[str, Any]:
    """A tool as a request has it."""
    function: dict[str, Any] = {"name": name, "description": description, "strict": strict}
    return {"type": "function", "function": function if parameters is None else function | {"parameters": parameters}}


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F"]},
        "exact": {"type": "boolean"},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
NOTE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 4},
        "code": {"type": "string", "pattern": "^[a-c]{2}-[0-9]+$"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "at": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": ["number", "null"]}},
            "required": ["x"],
            "additionalProperties": False,
        },
    },
    "required": ["code"],
    "additionalProperties": False,
}
REQUEST = [tool("weather", WEATHER, "The weather of some days"), tool("note.add", NOTE), tool("now")]
TOOLS: tuple[Tool, ...] = parse_tools(REQUEST)
SCHEMAS = {each.name: each.parameters for each in TOOLS}


def pretty(value: object) -> str:
    """JSON as the templates write it."""
    return json.dumps(value, ensure_ascii=False)

"""Texts of grammars, as llguidance reads them: from JSON schemas, regular expressions, choices and Lark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class Whitespace(StrEnum):
    """Where a JSON text may have white space."""

    compact = "compact"
    """One space at the most, behind a comma or colon: the fewest tokens."""
    flexible = "flexible"
    """Up to 20 characters wherever JSON allows it."""


def json_schema(schema: Mapping[str, Any] | bool, where: str = "", whitespace: Whitespace = Whitespace.compact) -> str:
    """The grammar of JSON texts that a schema (draft 2020-12) admits. Raises `GrammarError` (see `check_schema`)."""
    raise NotImplementedError


def json_object(whitespace: Whitespace = Whitespace.compact) -> str:
    """The grammar of any JSON object."""
    return json_schema({"type": "object"}, whitespace=whitespace)


def regex(pattern: str, where: str = "") -> str:
    """The grammar of texts that a regular expression (syntax of Rust's) matches in whole."""
    raise NotImplementedError


def choice(texts: Sequence[str], where: str = "") -> str:
    """The grammar of a few texts. Raises `GrammarError` for none."""
    raise NotImplementedError


def lark(text: str, where: str = "") -> str:
    """A Lark grammar in llguidance's form, with a rule `start`."""
    raise NotImplementedError

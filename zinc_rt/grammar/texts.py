"""Texts of grammars, as llguidance reads them: from JSON schemas, regular expressions, choices and Lark.

All are Lark: JSON schemas stand in it as `%json {...}`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from zinc_rt.grammar.errors import GrammarError
from zinc_rt.grammar.schema import check_schema, closed
from zinc_rt.utils.checks import show

MAX_TEXT_BYTES: Final = 64 << 10
"""Of a regular expression, of a Lark grammar, and of all choices together."""
MAX_CHOICES: Final = 1024
HEAD: Final = "%llguidance {}\n"


class Whitespace(StrEnum):
    """Where a JSON text may have white space."""

    compact = "compact"
    """One space at the most, behind a comma or colon: the fewest tokens."""
    flexible = "flexible"
    """Up to 20 characters wherever JSON allows it."""


_OPTIONS: Final[dict[Whitespace, dict[str, object]]] = {
    Whitespace.compact: {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"},
    Whitespace.flexible: {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,20}"},
}


def json_rule(
    schema: object, where: str = "", whitespace: Whitespace = Whitespace.compact, lenient: bool = False
) -> str:
    """The right side of a Lark rule for JSON texts that a schema admits. Raises `GrammarError`: see `check_schema`.

    Objects with named properties get no other properties, unless the schema allows them: see `closed`.
    lenient: keywords and formats that llguidance does not know are ignored, instead of refused.
    """
    checked = closed(check_schema(schema, where))
    if checked is False:
        raise GrammarError("the schema false admits nothing", where)
    keywords = {} if checked is True else dict(checked)
    keywords["x-guidance"] = {**_OPTIONS[whitespace], "lenient": lenient}
    return "%json " + json.dumps(keywords, ensure_ascii=False)


def json_schema(
    schema: object, where: str = "", whitespace: Whitespace = Whitespace.compact, lenient: bool = False
) -> str:
    """The grammar of JSON texts that a schema (draft 2020-12) admits. Properties come in the schema's order.

    Raises `GrammarError`: see `check_schema`. Keywords are read when it is compiled. lenient: see `json_rule`.
    """
    return f"{HEAD}start: {json_rule(schema, where, whitespace, lenient)}\n"


def json_object(whitespace: Whitespace = Whitespace.compact) -> str:
    """The grammar of any JSON object."""
    return json_schema({"type": "object"}, whitespace=whitespace)


def regex_rule(pattern: object, where: str = "") -> str:
    """The right side of a Lark terminal for texts that a regular expression (Rust's syntax) matches in whole.

    Raises `GrammarError`.
    """
    return pattern_literal(_text(pattern, "the pattern", where))


def regex(pattern: object, where: str = "") -> str:
    """The grammar of texts that a regular expression (Rust's syntax) matches in whole. Raises `GrammarError`."""
    return f"{HEAD}start: PATTERN\nPATTERN: {regex_rule(pattern, where)}\n"


def choice_rule(texts: object, where: str = "") -> str:
    """The right side of a Lark rule for a few texts. Raises `GrammarError` for none, more than 1024 or 64 KiB."""
    if not isinstance(texts, Sequence) or isinstance(texts, str | bytes) or not 0 < len(texts) <= MAX_CHOICES:
        raise GrammarError(f"the choices are {show(texts)}; give a list of 1 to {MAX_CHOICES} texts", where)
    if not all(isinstance(text, str) and text for text in texts):
        raise GrammarError("a choice is empty or no text", where)
    return _text(" | ".join(literal(text) for text in texts), "the list of choices", where)


def choice(texts: object, where: str = "") -> str:
    """The grammar of a few texts. Raises `GrammarError`: see `choice_rule`."""
    return f"{HEAD}start: {choice_rule(texts, where)}\n"


def lark(text: object, where: str = "") -> str:
    """A Lark grammar in llguidance's dialect, with a rule `start`. Raises `GrammarError`."""
    return HEAD + _text(text, "the grammar", where)


def literal(text: str) -> str:
    """A text as Lark writes it."""
    return json.dumps(text, ensure_ascii=False)


def pattern_literal(pattern: str) -> str:
    """A regular expression as Lark writes it, between slashes."""
    out, escaped = [], False
    for character in pattern:
        if character == "\n":
            out.append("n" if escaped else "\\n")
        else:
            out.append("\\/" if character == "/" and not escaped else character)
        escaped = character == "\\" and not escaped
    return f"/{''.join(out)}/"


def quoted(text: str) -> str:
    """A regular expression that matches a text alone."""
    return "".join(c if c.isalnum() or c in "_ " or ord(c) > 127 else f"\\x{ord(c):02X}" for c in text)


def _text(value: object, label: str, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise GrammarError(f"{label} is {show(value)}; it must be a text", where)
    try:
        size = len(value.encode())
    except UnicodeError:
        raise GrammarError(f"{label} has half a surrogate pair in it", where) from None
    if size > MAX_TEXT_BYTES:
        raise GrammarError(f"{label} has {size} bytes, the limit is {MAX_TEXT_BYTES}", where)
    return value

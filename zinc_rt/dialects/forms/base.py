"""`CallForm`: one way to write tool calls: its grammar and its reader. Also reads JSON texts in calls without loss."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from zinc_rt.dialects.cursor import TextCursor
from zinc_rt.dialects.lark import LarkText
from zinc_rt.dialects.tools import Tool

LONGEST_NAME: Final = 256
"""Characters of a function's name, from which on a text is no call."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call that was read. arguments: a JSON text, an object."""

    name: str
    arguments: str


Reading = Generator[None, None, list[ParsedCall] | None]
"""Waits for text, and returns the calls; None for what is no call."""


Telling = Generator[None, None, bool]
"""Waits for text, and says whether it came to the end of a call; what was told stays."""


class CallTeller(Protocol):
    """Receives calls piece by piece. A call that was begun is never taken back."""

    def begin(self, name: str) -> None:
        """A call begins; its arguments follow, before the next one begins."""
        ...

    def arguments(self, text: str) -> None:
        """The next piece of its arguments, which together are a JSON text."""
        ...


class CallForm(Protocol):
    """A way to write tool calls, as a family does."""

    @property
    def begin(self) -> str:
        """The mark that begins the first call."""
        ...

    @property
    def bare(self) -> bool:
        """Whether an answer that begins with `{` may be a call without the mark."""
        ...

    @property
    def marks(self) -> tuple[str, ...]:
        """All marks."""
        ...

    def grammar(self, lark: LarkText, tools: Sequence[Tool], parallel: bool) -> str:
        """What follows `begin`, to the end of the last call. Raises `GrammarError`."""
        ...

    def read(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool) -> Reading:
        """Read what follows `begin` (marked), or a bare call: one or several calls, with their end marks."""
        ...

    def tell(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool, teller: CallTeller) -> Telling:
        """`read`, which tells of each call as soon as it is sure that it is one, and of its arguments as they come. For
        answers that follow `grammar`: only a call that is cut off is not whole then.
        """
        ...


_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f]")


def json_value(text: str) -> Any:
    """The value of a JSON text, with numbers as texts; control characters in strings are taken.

    Raises `ValueError` for what is no JSON.
    """
    try:
        return json.loads(text, strict=False, parse_int=str, parse_float=str, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None


def clean_json(text: str) -> str:
    """A JSON text that `json_value` takes, with control characters in its strings escaped."""
    if not _CONTROL.search(text):
        return text
    escape = lambda found: f"\\u{ord(found[0]):04x}"  # noqa: E731
    return _STRING.sub(lambda found: _CONTROL.sub(escape, found[0]), text)


def members(text: str) -> dict[str, str]:
    """The members of a JSON object as they are written. Raises `ValueError` for what is no object."""
    if not isinstance(json_value(text), dict):
        raise ValueError("no object")
    found: dict[str, str] = {}
    at = text.index("{") + 1
    while (start := _STRING.search(text, at)) is not None and text[at : start.start()].strip(" \t\r\n,") == "":
        key = json.loads(start[0], strict=False)
        at = text.index(":", start.end()) + 1
        end = _value_end(text, at)
        found[key] = text[at:end].strip()
        at = end
    return found


def items(text: str) -> list[str]:
    """The items of a JSON array as they are written. Raises `ValueError` for what is no array."""
    if not isinstance(json_value(text), list):
        raise ValueError("no array")
    found, at = [], text.index("[") + 1
    while True:
        end = _value_end(text, at)
        if part := text[at:end].strip():
            found.append(part)
        if text[end] == "]":
            return found
        at = end + 1


def call_of(text: str, names: Sequence[str], arguments: Sequence[str]) -> ParsedCall | None:
    """A call as a JSON object that has one of these keys for the name, and maybe one of those for the arguments."""
    try:
        fields = members(text)
        name = next((fields[key] for key in names if key in fields), "")
        name = json.loads(name, strict=False) if name.startswith('"') else ""
        given = next((fields[key] for key in arguments if key in fields), "{}")
        if given.startswith('"'):  # a JSON text in a string
            given = json.loads(given, strict=False)
        if not name or not isinstance(json_value(given), dict):
            return None
    except ValueError:
        return None
    return ParsedCall(name, clean_json(given))


def _value_end(text: str, at: int) -> int:
    """Where a member or item ends, in valid JSON."""
    depth = 0
    while True:
        c = text[at]
        if c == '"':
            found = _STRING.match(text, at)
            assert found is not None
            at = found.end()
            continue
        if depth == 0 and c in ",}]":
            return at
        depth += (c in "{[") - (c in "}]")
        at += 1


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")

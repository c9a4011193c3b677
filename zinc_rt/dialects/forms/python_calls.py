"""Calls in the notation of Python: `name(key="text", other=3)`. LFM2."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from zinc_rt.dialects.cursor import TextCursor
from zinc_rt.dialects.forms.base import CallTeller, ParsedCall, Reading, Telling
from zinc_rt.dialects.forms.tagged import arguments_of
from zinc_rt.dialects.forms.telling import tell_whole
from zinc_rt.dialects.lark import LarkText
from zinc_rt.dialects.schemas import resolve, types_of
from zinc_rt.dialects.tools import Tool
from zinc_rt.grammar.errors import GrammarError

_T = TypeVar("_T")
_NAME: Final = re.compile(r"[^\W\d][\w.-]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_BOOLEAN: Final = frozenset(["boolean"])


@dataclass(frozen=True)
class PythonCalls:
    """`BEGIN [name(key=value, ...), ...] END`. Values are JSON's or Python's."""

    begin: str
    end: str
    bare: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """See `CallForm`."""
        return (self.begin, self.end)

    def grammar(self, lark: LarkText, tools: Sequence[Tool], parallel: bool) -> str:
        """See `CallForm`. Arguments come in the schema's order."""
        call = lark.any_of(self._call(lark, tool) for tool in tools)
        more = f'(", " {call})*' if parallel else ""
        return lark.rule(f'"[" {call} {more} "]" {lark.mark(self.end)}')

    @staticmethod
    def _call(lark: LarkText, tool: Tool) -> str:
        properties, required = arguments_of(tool)
        first = then = '""'  # what may follow where no argument stands yet, and behind one
        for key, schema in reversed(properties.items()):
            if not _NAME.fullmatch(key):
                raise GrammarError(f"the argument {key!r} cannot be written for this model; rename it", tool.where)
            one = f"{lark.literal(f'{key}=')} {_value(lark, schema, tool, key)}"
            begun = lark.rule(f"{one} {then}")
            first = begun if key in required else lark.rule(f"{begun} | {first}")
            then = lark.rule(f'", " {one} {then}' + ("" if key in required else f" | {then}"))
        return lark.rule(f'{lark.literal(f"{tool.name}(")} {first} ")"')

    def read(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool) -> Reading:
        """See `CallForm`."""
        yield from cursor.space()
        text = yield from _bracketed(cursor)
        try:
            calls = _Notation(text).calls()
        except (ValueError, RecursionError):
            return None
        yield from cursor.close(self.end)
        return calls

    def tell(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool, teller: CallTeller) -> Telling:
        """See `CallForm`. Calls are told when all are complete."""
        calls = yield from self.read(cursor, tools, marked)
        for call in calls or ():
            tell_whole(teller, call)
        return bool(calls)


def _bracketed(cursor: TextCursor) -> Generator[None, None, str]:
    """What stands in brackets, with them; "" where none begin here, and all there is where they do not close."""
    if (yield from cursor.peek(1)) != "[":
        return ""
    out, quote, depth = [], "", 0
    while True:
        text, mark = yield from cursor.until([quote, "\\"] if quote else [*"\"'[]{}()"])
        out += [text, mark]
        if mark == "\\":
            yield from cursor.peek(1)
            out.append(cursor.take(1))
        elif mark in ("'", '"'):
            quote = "" if quote else mark
        else:
            depth += (mark in "[{(") - (mark in "]})") if mark else 0
            if depth == 0 or not mark:
                return "".join(out)


def _value(lark: LarkText, schema: object, tool: Tool, key: str) -> str:
    """The rule of an argument's value."""
    root, where = tool.parameters, f"{tool.where}.properties.{key}"
    if types_of(schema, root, where) == _BOOLEAN and resolve(schema, root, where).keys() <= {"type", "description"}:
        return '("True" | "False")'
    document = {name: root[name] for name in ("$defs", "definitions") if name in root}
    return lark.json({**resolve(schema, root, where), **document}, where, not tool.strict)


class _Notation:
    """Reads calls from their text. Its methods raise `ValueError` for what is none; values are JSON texts."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def calls(self) -> list[ParsedCall]:
        """All of it."""
        made = self._items("[", "]", self._call)
        if not made or self._next():
            raise ValueError("no list of calls")
        return made

    def _call(self) -> ParsedCall:
        name = self._match(_NAME)
        arguments = self._items("(", ")", lambda: self._member(self._key()))
        return ParsedCall(name, f"{{{', '.join(arguments)}}}")

    def _key(self) -> str:
        key = self._match(_NAME)
        self._take("=")
        return json.dumps(key, ensure_ascii=False)

    def _member(self, key: str) -> str:
        return f"{key}: {self._value()}"

    def _named(self) -> str:
        key = self._string()
        self._take(":")
        return self._member(key)

    def _value(self) -> str:
        c = self._next()
        if c == "[":
            return f"[{', '.join(self._items('[', ']', self._value))}]"
        if c == "{":
            return f"{{{', '.join(self._items('{', '}', self._named))}}}"
        if c in ("'", '"'):
            return self._string()
        found = _NUMBER.match(self._text, self._at)
        return self._match(_NUMBER) if found else _WORDS[self._match(re.compile("|".join(_WORDS)))]

    def _string(self) -> str:
        raw = self._match(_TEXT)
        try:
            text = json.loads(raw, strict=False)
        except ValueError:
            text = ast.literal_eval(raw.replace("\n", "\\n").replace("\r", "\\r"))
        return json.dumps(text, ensure_ascii=False)

    def _items(self, begin: str, end: str, one: Callable[[], _T]) -> list[_T]:
        """What stands between brackets, with commas between."""
        self._take(begin)
        found: list[_T] = []
        while self._next() != end:
            if found:
                self._take(",")
            found.append(one())
        self._take(end)
        return found

    def _next(self) -> str:
        """The next character that is no white space; "" at the end."""
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _take(self, c: str) -> None:
        if self._next() != c:
            raise ValueError(f"no {c}")
        self._at += 1

    def _match(self, pattern: re.Pattern[str]) -> str:
        self._next()
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError("something else")
        self._at = found.end()
        return found[0]

"""Calls in Gemma 4's own notation: `call:name{key:value}`, with a mark around texts and names without quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zinc_rt.dialects.cursor import TextCursor
from zinc_rt.dialects.forms.base import LONGEST_NAME, CallTeller, ParsedCall, Reading, Telling
from zinc_rt.dialects.forms.tagged import string_limits
from zinc_rt.dialects.lark import LarkText
from zinc_rt.dialects.schemas import resolve, type_name
from zinc_rt.dialects.tools import Tool
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.grammar.texts import pattern_literal, quoted

_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.$-]*")
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS: Final = ("true", "false", "null")
_KNOWN: Final = frozenset(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "title",
        "description",
        "default",
        "examples",
        "$defs",
        "definitions",
        "$schema",
        "$id",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
        "nullable",
    ]
)
_SAID: Final = frozenset({"title", "description", "default", "examples", "$defs", "definitions", "$comment"})
_OF_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


@dataclass(frozen=True)
class GemmaCalls:
    """`BEGIN call:NAME{key:QUOTE text QUOTE,other:3} END`, repeated for further calls. Keys are sorted."""

    begin: str
    end: str
    quote: str
    bare: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """See `CallForm`."""
        return (self.begin, self.end, self.quote)

    def grammar(self, lark: LarkText, tools: Sequence[Tool], parallel: bool) -> str:
        """See `CallForm`."""
        calls = []
        for tool in tools:
            rules = _Rules(lark, self.quote, tool)
            calls.append(
                lark.rule(f"{lark.literal(f'call:{tool.name}')} {rules.of({**tool.parameters, 'type': 'object'})}")
            )
        one = lark.rule(f"{lark.any_of(calls)} {lark.mark(self.end)}")
        return lark.rule(f"{one} (SPACE? {lark.mark(self.begin)} {one})*") if parallel else one

    def read(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool) -> Reading:
        """See `CallForm`."""
        if not (name := (yield from self._name(cursor))):
            return None
        body = yield from self._body(cursor)
        try:
            arguments = _Notation(body, self.quote).whole()
        except (ValueError, RecursionError):
            return None
        return [ParsedCall(name, arguments)]

    def tell(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool, teller: CallTeller) -> Telling:
        """See `CallForm`. Arguments are told one by one, each when it is complete."""
        if not (name := (yield from self._name(cursor))):
            return False
        members, mark = _Members(name, self.quote, teller), self.quote
        while mark == self.quote:
            marks = [self.quote] if members.in_text else [self.quote, self.end]
            _, mark = yield from cursor.until(marks, tell=members.add)
            if mark == self.quote:
                members.add_quote()
        return members.closed

    @staticmethod
    def _name(cursor: TextCursor) -> Generator[None, None, str]:
        """Read up to the arguments, with their brace; "" where no name comes."""
        yield from cursor.space()
        if not (yield from cursor.accept("call:")):
            return ""
        name, mark = yield from cursor.until(["{"], LONGEST_NAME)
        return name.strip() if mark else ""

    def _body(self, cursor: TextCursor) -> Generator[None, None, str]:
        """The arguments from their brace on, up to the end mark outside of texts, which is read, too."""
        out, inside = ["{"], False
        while True:
            text, mark = yield from cursor.until([self.quote] if inside else [self.quote, self.end])
            out.append(text)
            if mark != self.quote:
                return "".join(out)
            out.append(mark)
            inside = not inside


class _Members:
    """Tells of a call's arguments, each when the comma or the brace behind it has come."""

    def __init__(self, name: str, quote: str, teller: CallTeller) -> None:
        self._name, self._quote, self._teller = name, quote, teller
        self._member, self._depth, self._n = "", 1, 0
        self.in_text = self.closed = self._wrong = False

    def add_quote(self) -> None:
        """The mark around texts."""
        self._member += self._quote
        self.in_text = not self.in_text

    def add(self, text: str) -> None:
        """What comes between these marks."""
        if self.in_text:
            self._member += text
            return
        for c in text:
            if self._wrong or self.closed:
                return
            self._depth += (c in "{[") - (c in "}]")
            if self._depth == 0 or (self._depth == 1 and c == ","):
                self._tell(last=self._depth == 0)
            else:
                self._member += c

    def _tell(self, last: bool) -> None:
        text, self._member = self._member.strip(), ""
        try:
            told = "" if last and not text and not self._n else _Notation(text, self._quote).member()
        except (ValueError, RecursionError):
            self._wrong = True
            return
        if not self._n:
            self._teller.begin(self._name)
        self._teller.arguments(("{" if not self._n else ", ") + told + ("}" if last else ""))
        self._n += 1
        self.closed = last


class _Notation:
    """One value in the notation, read to JSON."""

    def __init__(self, text: str, quote: str) -> None:
        self._text, self._quote, self._at = text, quote, 0

    def whole(self) -> str:
        """The value, when nothing follows it. Raises `ValueError`."""
        value = self._value()
        self._space()
        if self._at < len(self._text):
            raise ValueError("something follows")
        return value

    def member(self) -> str:
        """A name and its value, when nothing follows. Raises `ValueError`."""
        found = self._member()
        self._space()
        if self._at < len(self._text):
            raise ValueError("something follows")
        return found

    def _space(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def _take(self, word: str) -> bool:
        self._space()
        if self._text.startswith(word, self._at):
            self._at += len(word)
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise ValueError(f"{word} is missing")

    def _value(self) -> str:
        if self._take("{"):
            return f"{{{', '.join(self._list('}', self._member))}}}"
        if self._take("["):
            return f"[{', '.join(self._list(']', self._value))}]"
        if self._take(self._quote):
            return self._quoted()
        if word := next((word for word in _WORDS if self._take(word)), None):
            return word
        return self._matched(_NUMBER)

    def _list(self, end: str, part: Any) -> Iterable[str]:
        found: list[str] = []
        while not self._take(end):
            if found:
                self._expect(",")
            found.append(part())
        return found

    def _member(self) -> str:
        self._space()
        if self._take(self._quote):
            key = self._quoted()
        elif self._take('"'):
            key = json.dumps(self._matched(re.compile('[^"]*')))
            self._expect('"')
        else:
            key = json.dumps(self._matched(re.compile(r"[^:,{}\[\]]+")).strip())
        self._expect(":")
        return f"{key}: {self._value()}"

    def _quoted(self) -> str:
        end = self._text.find(self._quote, self._at)
        if end < 0:
            raise ValueError("a text does not end")
        text, self._at = self._text[self._at : end], end + len(self._quote)
        return json.dumps(text, ensure_ascii=False)

    def _matched(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError("no value")
        self._at = found.end()
        return found[0]


class _Rules:
    """Lark rules of one tool's schema in the notation."""

    def __init__(self, lark: LarkText, quote: str, tool: Tool) -> None:
        self._lark, self._quote, self._root, self._where = lark, quote, tool.parameters, tool.where
        self._strict = tool.strict
        self._named: dict[str, str] = {}  # rules of references, which may refer to themselves

    def of(self, schema: Any) -> str:
        """The rule of values that a schema admits. Raises `GrammarError`."""
        if isinstance(schema, Mapping) and "$ref" in schema:
            ref = str(schema["$ref"])
            if ref not in self._named:
                self._named[ref] = self._lark.forward()
                self._lark.define(self._named[ref], self._plain(resolve(schema, self._root, self._where)))
            return self._named[ref]
        return self._plain(resolve(schema, self._root, self._where))

    def _plain(self, schema: Mapping[str, Any]) -> str:
        if self._strict and (unknown := schema.keys() - _KNOWN):
            raise GrammarError(
                f"{sorted(unknown)[0]} is not supported for this model's calls; leave it out", self._where
            )
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return self._lark.any_of(self._written(value) for value in values)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._lark.any_of(self._option(schema, key, option) for option in schema[key])
        named = schema.get("type") or ("object" if "properties" in schema else None)
        if named is None:
            named = ["string", "number", "boolean", "null", "array", "object"]
        return self._lark.any_of(self._typed(str(t), schema) for t in ([named] if isinstance(named, str) else named))

    def _option(self, schema: Mapping[str, Any], key: str, option: Any) -> str:
        rest = {name: value for name, value in schema.items() if name != key and name not in _SAID}
        if not rest:
            return self.of(option)
        if not isinstance(option, Mapping) or "$ref" in option:
            raise GrammarError(f"$ref in {key} beside {min(rest)} is not supported for this model's calls", self._where)
        return self._plain({**rest, **option})

    def _typed(self, name: str, schema: Mapping[str, Any]) -> str:
        match name:
            case "string":
                return self._text(schema)
            case "integer" | "number":
                limits = {key: schema[key] for key in _OF_NUMBERS if key in schema}
                return self._lark.json({"type": name, **limits}, self._where)
            case "boolean":
                return self._lark.rule('"true" | "false"')
            case "null":
                return self._lark.rule('"null"')
            case "array":
                return self._array(schema)
            case "object":
                return self._object(schema)
        raise GrammarError(f"the type {name!r} is not one of JSON's", self._where)

    def _text(self, schema: Mapping[str, Any]) -> str:
        lark, quote = self._lark, self._lark.mark(self._quote)
        limits = string_limits(schema, self._where)
        name = quoted(self._quote)
        if not limits and not quote.startswith("<["):
            return lark.rule(f"{quote} {lark.rule(pattern_literal(f'(?s:.*){name}'), '[lazy]')}")
        body = " & ".join([*limits, f"~/(?s:.*){name}(?s:.*)/", "/(?s:.*)/"])
        if not quote.startswith("<["):
            return lark.rule(f"{quote} {lark.terminal(f'({body}) {quote}')}")
        return lark.rule(f"{quote} {lark.terminal(body)} {quote}")

    def _array(self, schema: Mapping[str, Any]) -> str:
        item = self.of(schema.get("items", self._any()))
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        if most is not None and int(most) == 0:
            return self._lark.rule('"[" "]"')
        bounds = f"{{{max(0, least - 1)},{'' if most is None else int(most) - 1}}}"
        some = f'{item} ("," {item}){bounds}'
        return self._lark.rule(f'"[" {some} "]"' if least else f'"[" ({some})? "]"')

    def _object(self, schema: Mapping[str, Any]) -> str:
        lark = self._lark
        required = set(schema.get("required", ()))
        properties = {**dict.fromkeys(required, True), **schema.get("properties", {})}
        if not properties:
            extra = schema.get("additionalProperties", "properties" not in schema)
            if extra is False:
                return lark.rule('"{" "}"')
            member = lark.rule(f'/[A-Za-z_][A-Za-z0-9_]*/ ":" {self.of(self._any() if extra is True else extra)}')
            return lark.rule(f'"{{" ({member} ("," {member})*)? "}}"')
        first, rest = lark.rule('""'), lark.rule('""')
        for key in sorted(properties, reverse=True):
            if not _KEY.fullmatch(key):
                raise GrammarError(f"the argument {key!r} cannot be written for this model; rename it", self._where)
            member = lark.rule(f"{lark.literal(key + ':')} {self.of(properties[key])}")
            begin, more = lark.rule(f"{member} {rest}"), lark.rule(f'"," {member} {rest}')
            first, rest = (
                (begin, more) if key in required else (lark.rule(f"{begin} | {first}"), lark.rule(f"{more} | {rest}"))
            )
        return lark.rule(f'"{{" {first} "}}"')

    def _any(self) -> Mapping[str, Any]:
        return {"type": ["string", "number", "boolean", "null"]}

    def _written(self, value: Any) -> str:
        lark = self._lark
        match type_name(value):
            case "string":
                return lark.rule(
                    f"{lark.mark(self._quote)} {lark.literal(value) if value else ''} {lark.mark(self._quote)}"
                )
            case "array" | "object":
                raise GrammarError("an enum of lists or objects is not supported for this model's calls", self._where)
        return lark.literal(json.dumps(value))

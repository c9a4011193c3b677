"""Calls with a tag around each argument: Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Seed-OSS, MiniMax M2, GLM,
DeepSeek V3.2 and V4.

A text argument is written as it is, all others as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zinc_rt.dialects.cursor import TextCursor
from zinc_rt.dialects.forms.base import (
    LONGEST_NAME,
    CallTeller,
    ParsedCall,
    Reading,
    Telling,
    clean_json,
    json_value,
)
from zinc_rt.dialects.lark import LarkText
from zinc_rt.dialects.schemas import resolve, types_of
from zinc_rt.dialects.tools import Tool
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.grammar.texts import pattern_literal

_STRING: Final = frozenset(["string"])
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
_UNREADABLE: Final = ("anyOf", "oneOf", "allOf", "$ref")
_IGNORED: Final = ("patternProperties", "minProperties", "maxProperties", "not", "if", "dependentRequired")
_NAME: Final = re.compile(r'[^<>"\n]+')
_FUNCTION: Final = re.compile(r"[\w.:-]+")


@dataclass(frozen=True)
class TaggedCalls:
    """`BEGIN <function=NAME> <parameter=KEY> value </parameter> ... </function> END`, one on each line.

    function: what stands before the name, behind it, and at the end; none of it where `end` is the function's, too.
    parameter: what stands before the key, behind it, and behind the value. json: what stands behind the key of a value
    that is JSON; "" for the same as behind others. lines: whether a value stands on lines of its own. feed: what ends
    a line. section: one `begin` holds all calls; without, it is repeated. inner: marks within the others.
    """

    begin: str
    end: str
    function: tuple[str, str, str] = ("<function=", ">", "</function>")
    parameter: tuple[str, str, str] = ("<parameter=", ">", "</parameter>")
    json: str = ""
    lines: bool = True
    feed: str = "\n"
    section: bool = False
    inner: tuple[str, ...] = ()
    bare: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """See `CallForm`."""
        return (self.begin, self.end, *self.inner)

    def grammar(self, lark: LarkText, tools: Sequence[Tool], parallel: bool) -> str:
        """See `CallForm`. Arguments come in the schema's order."""
        call = lark.any_of(self._call(lark, tool) for tool in tools)
        if self.section:
            item = lark.rule(f'{call} "\\n"')
            return lark.rule(f'"\\n" {item}{"+" if parallel else ""} {lark.mark(self.end)}')
        around = ('"\\n"', '"\\n"') if self.function[2] else ("", "")
        one = lark.rule(f"{around[0]} {call} {around[1]} {lark.mark(self.end)}")
        return lark.rule(f"{one} (SPACE? {lark.mark(self.begin)} {one})*") if parallel else one

    def _call(self, lark: LarkText, tool: Tool) -> str:
        properties, required = arguments_of(tool)
        parts = [lark.tags(f"{self.function[0]}{tool.name}{self.function[1]}{self.feed}")]
        open, behind, close = self.parameter
        feed = lark.literal(self.feed) if self.feed else ""
        for key, schema in properties.items():
            if not _NAME.fullmatch(key):
                raise GrammarError(f"the argument {key!r} cannot be written for this model; rename it", tool.where)
            texts = types_of(schema, tool.parameters, f"{tool.where}.properties.{key}") == _STRING
            before = lark.tags(f"{open}{key}{behind if texts or not self.json else self.json}")
            one = lark.rule(f"{before} {_value(lark, schema, tool, key, self.lines, close)} {feed}")
            parts.append(one if key in required else f"{one}?")
        if self.function[2]:
            parts.append(lark.tags(self.function[2]))
        return lark.rule(" ".join(parts))

    def read(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool) -> Reading:
        """See `CallForm`."""
        calls: list[ParsedCall] = []
        while name := (yield from self._read_name(cursor)):
            schema = tools[name].parameters if name in tools else {}
            arguments: dict[str, str] = {}
            while found := (yield from self._read_parameter(cursor, schema)):
                arguments |= found
            if found is None:
                return None
            text = ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in arguments.items())
            calls.append(ParsedCall(name, f"{{{text}}}"))
            if not self.section:
                break
        if calls and self.function[2]:
            yield from cursor.close(self.end)
        return calls or None

    def tell(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool, teller: CallTeller) -> Telling:
        """See `CallForm`. Arguments are told one by one, each when it is complete."""
        some = False
        while name := (yield from self._read_name(cursor)):
            schema = tools[name].parameters if name in tools else {}
            before = "{"
            while found := (yield from self._read_parameter(cursor, schema)):
                if before == "{":
                    teller.begin(name)
                for key, value in found.items():
                    teller.arguments(f"{before}{json.dumps(key, ensure_ascii=False)}: {value}")
                before = ", "
            if found is None:
                return False
            if before == "{":
                teller.begin(name)
            teller.arguments("}" if before != "{" else "{}")
            some = True
            if not self.section:
                break
        if some and self.function[2]:
            yield from cursor.close(self.end)
        return some

    def _read_name(self, cursor: TextCursor) -> Generator[None, None, str]:
        """The function's name with the tag around it; "" for none."""
        yield from cursor.space()
        if not self.function[0]:
            name = ""
            while (c := (yield from cursor.peek(1))) and c not in "\n<" and len(name) < LONGEST_NAME:
                name += cursor.take(1)
            return name if c and _FUNCTION.fullmatch(name) else ""
        if not (yield from cursor.accept(self.function[0])):
            return ""
        name, mark = yield from cursor.until([self.function[1]], LONGEST_NAME)
        return name.strip() if mark else ""

    def _read_parameter(
        self, cursor: TextCursor, schema: Mapping[str, Any]
    ) -> Generator[None, None, dict[str, str] | None]:
        """An argument as JSON by its name; nothing in it at the end of the function, None for neither."""
        yield from cursor.space()
        open, behind, close = self.parameter
        if not (yield from cursor.accept(open)):
            return {} if (yield from cursor.accept(self.function[2] or self.end)) else None
        key, mark = yield from cursor.until([behind, self.json] if self.json else [behind], LONGEST_NAME)
        value = yield from _read_value(cursor, self.lines, close)
        if not mark or value is None:
            return None
        text = self.json and mark == behind
        return {key.strip(): json.dumps(value, ensure_ascii=False) if text else _as_json(value, key, schema)}


def arguments_of(tool: Tool) -> tuple[dict[str, Any], set[str]]:
    """The schemas of a function's arguments by their names, and which of them are required.

    Raises `GrammarError` where the arguments are no list of names.
    """
    root = tool.parameters
    refused = (*_UNREADABLE, *_IGNORED) if tool.strict else _UNREADABLE
    if used := next((key for key in refused if key in root), None):
        raise GrammarError(
            f"{used} at the top does not go with this model, whose calls name arguments one by one; use properties",
            tool.where,
        )
    required = set(root.get("required", ()))
    properties = dict(root.get("properties", {}))
    for key in sorted(required - properties.keys()):
        properties[key] = True
    return properties, required


def _read_value(cursor: TextCursor, lines: bool, close: str) -> Generator[None, None, str | None]:
    """A value and what closes it. On lines of its own, it ends with the closing tag at the beginning of a line."""
    own_line = lines and (yield from cursor.peek(1)) == "\n"
    value, mark = yield from cursor.until(["\n" + close if own_line else close])
    return value.removeprefix("\n" if own_line else "") if mark else None


def _as_json(value: str, key: str, schema: Mapping[str, Any]) -> str:
    """An argument as JSON, by its schema; what no type tells is JSON if it reads as such."""
    properties = schema.get("properties", {})
    try:
        types = types_of(properties[key], schema) if key in properties else None
    except GrammarError:
        types = None
    if types != _STRING:
        text = _PYTHON.get(value.strip(), value.strip())
        try:
            json_value(text)
            return clean_json(text)
        except ValueError:
            pass
    return json.dumps(value, ensure_ascii=False)


def _value(lark: LarkText, schema: Any, tool: Tool, key: str, lines: bool, close: str) -> str:
    """The rule of an argument's value with the line feed before it, if it has lines of its own, and its closing tag."""
    edge = "\n" if lines else ""
    root, where = tool.parameters, f"{tool.where}.properties.{key}"
    if types_of(schema, root, where) != _STRING:
        document = {key: root[key] for key in ("$defs", "definitions") if key in root}
        full = {**resolve(schema, root, where), **document}
        begin = r'"\n" ' if lines else ""
        return lark.rule(begin + lark.json(full, where, not tool.strict) + " " + lark.tags(edge + close))
    schema = resolve(schema, root, where)
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return lark.any_of(lark.tags(f"{edge}{value}{edge}{close}") for value in values)
    limits = string_limits(schema, where)
    tag = re.escape(close).replace("/", r"\/")
    if not limits:
        return lark.rule(rf"/(\n(?s:.*))?\n{tag}/", "[lazy]") if lines else lark.until(close)
    before = r"((?s:.*)\n)?" if lines else "(?s:.*)"
    body = " & ".join([*limits, f"~/{before}{tag}(?s:.*)/", "/(?s:.*)/"])
    if lines:
        return lark.terminal(rf'"\n" ({body}) "\n{close}"')
    return lark.closed(body, close, empty=not schema.get("minLength", 0) and _matches_nothing(schema.get("pattern")))


def _matches_nothing(pattern: str | None) -> bool:
    """Whether an empty text has the pattern."""
    try:
        return pattern is None or re.search(pattern, "") is not None
    except re.error:
        return False


def string_limits(schema: Mapping[str, Any], where: str) -> list[str]:
    """What a schema asks of a text beside its type, as regular expressions of Lark. Formats are not checked.

    Raises `GrammarError` for other keywords.
    """
    found = []
    if "minLength" in schema or "maxLength" in schema:
        found.append(f"/(?s:.){{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}/")
    if "pattern" in schema:
        pattern = str(schema["pattern"])
        before = "" if pattern.startswith("^") else "(?s:.*)"
        after = "" if pattern.endswith("$") and not pattern.endswith("\\$") else "(?s:.*)"
        found.append(
            pattern_literal(f"{before}(?:{pattern.removeprefix('^').removesuffix('$' if not after else '')}){after}")
        )
    return found

"""Calls as a name and a JSON object behind it: Mistral's later forms, DeepSeek, Kimi K2."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

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
from zinc_rt.dialects.forms.telling import JsonText
from zinc_rt.dialects.lark import LarkText
from zinc_rt.dialects.tools import Tool


@dataclass(frozen=True)
class NamedCalls:
    """`BEGIN [OPEN] [function PREFIX] name [SPLIT id] MIDDLE {...} [TAIL] [CLOSE] ... [END]`.

    With `open`, one `begin` holds all calls, each from `open` to `close`; without, `begin` is repeated. split: a mark
    behind the name, before an id that the model makes up. tail: text behind the object. space: what stands before the
    name where the call's number stands behind it (`functions.NAME:0`); "" for names alone.
    """

    begin: str
    middle: str
    open: str = ""
    prefix: str = ""
    split: str = ""
    tail: str = ""
    close: str = ""
    end: str = ""
    space: str = ""
    bare: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """See `CallForm`."""
        marks = (self.begin, self.open, self.prefix, self.middle, self.split, self.close, self.end)
        return tuple(mark for mark in marks if mark.strip())

    def grammar(self, lark: LarkText, tools: Sequence[Tool], parallel: bool) -> str:
        """See `CallForm`."""
        one = lark.any_of(self._call(lark, tool) for tool in tools)
        if not self.open:
            return lark.rule(f"{one} (SPACE? {lark.mark(self.begin)} {one})*") if parallel else one
        item = lark.rule(f"SPACE? {lark.mark(self.open)} {one}")
        return lark.rule(f"{item}{'+' if parallel else ''} SPACE? {lark.mark(self.end)}")

    def _call(self, lark: LarkText, tool: Tool) -> str:
        parts = [lark.literal("function"), lark.mark(self.prefix)] if self.prefix else []
        parts.append(lark.literal(f"{self.space}{tool.name}:" if self.space else tool.name))
        if self.space:
            parts.append("/[0-9]{1,4}/")
        if self.split:
            parts.append(f"({lark.mark(self.split)} /[a-zA-Z0-9]{{1,40}}/)?")
        parts.append(lark.mark(self.middle))
        parts.append(lark.json(tool.parameters, tool.where, not tool.strict))
        parts += [lark.literal(self.tail)] if self.tail else []
        parts += [lark.mark(self.close)] if self.close else []
        return lark.rule(" ".join(parts))

    def read(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool) -> Reading:
        """See `CallForm`."""
        if not self.open:
            call = yield from self._read_one(cursor)
            return None if call is None else [call]
        calls: list[ParsedCall] = []
        while True:
            yield from cursor.space()
            if not (yield from cursor.accept(self.open)):
                break
            call = yield from self._read_one(cursor)
            if call is None:
                return None
            calls.append(call)
        yield from cursor.close(self.end)
        return calls or None

    def tell(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool, teller: CallTeller) -> Telling:
        """See `CallForm`."""
        if not self.open:
            return (yield from self._tell_one(cursor, teller))
        some = False
        while True:
            yield from cursor.space()
            if not (yield from cursor.accept(self.open)):
                break
            if not (yield from self._tell_one(cursor, teller)):
                return False
            some = True
        yield from cursor.close(self.end)
        return some

    def _tell_one(self, cursor: TextCursor, teller: CallTeller) -> Telling:
        name = yield from self._read_name(cursor)
        if not name or (yield from cursor.peek(1)) != "{":
            return False
        teller.begin(name)
        json = JsonText()
        if not (yield from cursor.json(lambda text: teller.arguments("".join(map(json.add, text))))):
            return False
        yield from self._read_end(cursor)
        return True

    def _read_one(self, cursor: TextCursor) -> Generator[None, None, ParsedCall | None]:
        name = yield from self._read_name(cursor)
        if not name:
            return None
        arguments = yield from cursor.json()
        try:
            if not isinstance(json_value(arguments), dict):
                return None
        except ValueError:
            return None
        yield from self._read_end(cursor)
        return ParsedCall(name, clean_json(arguments))

    def _read_name(self, cursor: TextCursor) -> Generator[None, None, str]:
        """Read up to the arguments; "" where no name comes."""
        if self.prefix and not (yield from cursor.until([self.prefix], LONGEST_NAME))[1]:
            return ""
        name, mark = yield from cursor.until([self.middle, self.split] if self.split else [self.middle], LONGEST_NAME)
        if mark and mark == self.split:
            _, mark = yield from cursor.until([self.middle], LONGEST_NAME)
        yield from cursor.space()
        if self.space:
            name = name.strip().removeprefix(self.space).rpartition(":")[0]
        return name.strip() if mark else ""

    def _read_end(self, cursor: TextCursor) -> Generator[None]:
        for word in (self.tail.strip(), self.close):
            if word:
                yield from cursor.close(word)

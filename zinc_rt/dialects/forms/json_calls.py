"""Calls as JSON objects with name and arguments: Hermes and Qwen, Llama 3, Mistral's first form, Phi 4, Granite,
Command R7B, Apertus.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zinc_rt.dialects.cursor import TextCursor
from zinc_rt.dialects.forms.base import CallTeller, ParsedCall, Reading, Telling, items
from zinc_rt.dialects.forms.telling import USUAL, CallObjects, CallShape
from zinc_rt.dialects.lark import LarkText
from zinc_rt.dialects.tools import Tool


@dataclass(frozen=True)
class JsonCalls:
    """`BEGIN {"name": ..., "arguments": {...}} END`, repeated for further calls; or, listed, `BEGIN [{...}, ...] END`.

    edge: what stands between marks and object. end: "" where there is none. arguments: the key of the arguments.
    shape: the other keys of an object.
    """

    begin: str
    end: str = ""
    edge: str = ""
    arguments: str = "arguments"
    listed: bool = False
    bare: bool = False
    shape: CallShape = USUAL

    @property
    def marks(self) -> tuple[str, ...]:
        """See `CallForm`."""
        return (self.begin, self.end) if self.end else (self.begin,)

    def grammar(self, lark: LarkText, tools: Sequence[Tool], parallel: bool) -> str:
        """See `CallForm`."""
        call = lark.any_of(self._call(lark, tool) for tool in tools)
        edge = f"{lark.literal(self.edge)}?" if self.edge else "SPACE?"
        close = f"{edge} {lark.mark(self.end)}" if self.end else ""
        if self.listed:
            space = "SPACE?" if self.shape.number else ""  # such lists have lines
            between = space or '" "?'
            more = f'("," {between} {call})*' if parallel else ""
            return lark.rule(f'{edge} "[" {space} {call} {more} {space} "]" {close}')
        one = lark.rule(f"{edge} {call} {close}")
        return lark.rule(f"{one} (SPACE? {lark.mark(self.begin)} {one})*") if parallel and self.end else one

    def _call(self, lark: LarkText, tool: Tool) -> str:
        name, shape = json.dumps(tool.name, ensure_ascii=False), self.shape
        head = f'"{shape.name}": {name}, "{self.arguments}": ' if shape.name else f"{name}: "
        begin = lark.literal("{" + head)
        if shape.number:
            number, rest = f'{{"{shape.number}": "', f'", {head}'
            begin = f"{lark.literal(number)} /[0-9]{{1,4}}/ {lark.literal(rest)}"
        return lark.rule(f'{begin} {lark.json(tool.parameters, tool.where, not tool.strict)} "}}"')

    def read(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool) -> Reading:
        """See `CallForm`."""
        yield from cursor.space()
        text = yield from cursor.json()
        calls = self._calls(text)
        if calls is None or (not marked and not all(call.name in tools for call in calls)):
            return None
        if self.end and marked:
            yield from cursor.close(self.end)
        return calls

    def tell(self, cursor: TextCursor, tools: Mapping[str, Tool], marked: bool, teller: CallTeller) -> Telling:
        """See `CallForm`."""
        yield from cursor.space()
        found = CallObjects(teller, None if marked else tools, self.shape)
        if not (yield from cursor.json(found.add)) or found.wrong:
            return False
        if self.end and marked:
            yield from cursor.close(self.end)
        return True

    def _calls(self, text: str) -> list[ParsedCall] | None:
        try:
            parts = items(text) if text.startswith("[") else [text]
        except ValueError:
            return None
        calls = [call for part in parts if (call := self.shape.call(part)) is not None]
        return calls if calls and len(calls) == len(parts) else None

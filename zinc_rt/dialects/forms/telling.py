"""Reports calls while they are written: finds their arguments in a JSON text as it comes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from zinc_rt.dialects.forms.base import CallTeller, ParsedCall, call_of, clean_json, json_value, members


@dataclass(frozen=True)
class CallShape:
    """Of a call as a JSON object: the key of its name, and of the number before it where it has one.

    name: "" where the function's name itself is the key of the arguments, the only one.
    """

    name: str = "name"
    number: str = ""

    @cached_property
    def head(self) -> re.Pattern[str]:
        """What stands before the arguments; its group is the name, in quotes."""
        text = r'("(?:[^"\\]|\\.)+")\s*'
        if not self.name:
            return re.compile(rf"\{{\s*{text}:\s*", re.DOTALL)
        before = rf'(?:"{self.number}"\s*:\s*"[^"]*"\s*,\s*)?' if self.number else ""
        return re.compile(rf'\{{\s*{before}"{self.name}"\s*:\s*{text},\s*"(?:arguments|parameters)"\s*:\s*', re.DOTALL)

    def call(self, text: str) -> ParsedCall | None:
        """The call that an object is; None for none."""
        if self.name:
            return call_of(text, (self.name,), ("arguments", "parameters"))
        try:
            ((name, arguments),) = members(text).items()
            given = isinstance(json_value(arguments), dict)
        except ValueError:
            return None
        return ParsedCall(name, clean_json(arguments)) if name and given else None


USUAL: Final = CallShape()


class JsonText:
    """Escapes control characters in the strings of a JSON text that comes in pieces, as `clean_json` does."""

    def __init__(self) -> None:
        self.in_string = False
        self._escaped = False

    def add(self, character: str) -> str:
        """The next character as it is to be told."""
        if not self.in_string:
            self.in_string = character == '"'
            return character
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self.in_string = False
        return character if character >= " " else f"\\u{ord(character):04x}"


class CallObjects:
    """Calls in a JSON text, an object or a list of objects, told while the text comes.

    A call with the members name and arguments, in this order, is reported from the first bracket of the arguments on.
    Any other object is reported at its end, if it is a call. names: those that may be called, None for all.
    shape: of the objects.
    """

    def __init__(self, teller: CallTeller, names: Collection[str] | None, shape: CallShape) -> None:
        self._teller, self._names, self._shape = teller, names, shape
        self._json = JsonText()
        self._depth = 0
        self._call = 1  # depth inside a call's object
        self._object = ""  # so far, as long as nothing of it was told
        self._telling = self._told = False
        self.wrong = False
        """Whether something was no call; nothing behind it is told."""

    def add(self, text: str) -> None:
        """The next piece."""
        pieces: list[str] = []
        for character in text:
            if self.wrong:
                break
            outside = not self._json.in_string
            shown = self._json.add(character)
            if outside and character in "{[":
                self._open(character)
            if self._telling:
                pieces.append(shown)
            elif not self._told and self._depth >= self._call:
                self._object += character
            elif self._depth < self._call and not (character.isspace() or character in ",[]"):
                self.wrong = True
            if outside and character in "}]":
                self._close(pieces)
        if pieces:
            self._teller.arguments("".join(pieces))

    def _open(self, bracket: str) -> None:
        if not self._depth and bracket == "[":
            self._call = 2
        self._depth += 1
        if self._depth == self._call:
            self._object, self._told = "", False
            self.wrong = bracket != "{"
        elif self._depth == self._call + 1 and bracket == "{" and not self._told:
            head = self._shape.head.fullmatch(self._object)
            name = json.loads(head[1], strict=False) if head is not None and _is_json(head[1]) else ""
            if name and (self._names is None or name in self._names):
                self._telling = self._told = True
                self._teller.begin(name)

    def _close(self, pieces: list[str]) -> None:
        self._depth -= 1
        if self._telling and self._depth == self._call:
            self._telling = False
            self._teller.arguments("".join(pieces))
            pieces.clear()
        elif self._depth == self._call - 1 and self._call_ended():
            self._object, self._told = "", True

    def _call_ended(self) -> bool:
        """An object is complete: tell of it, if nothing was told. Whether there was one."""
        if self._told or not self._object:
            return False
        call = self._shape.call(self._object)
        if call is None or (self._names is not None and call.name not in self._names):
            self.wrong = True
            return False
        tell_whole(self._teller, call)
        return True


def tell_whole(teller: CallTeller, call: ParsedCall) -> None:
    """Tell of a call that is complete."""
    teller.begin(call.name)
    teller.arguments(call.arguments)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except ValueError:
        return False
    return True

"""`Reader`: divides the text of an answer into content, reasoning and tool calls while it is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Part(StrEnum):
    """What a piece of an answer is."""

    content = "content"
    reasoning = "reasoning"
    tool_call = "tool_call"


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of an answer. index, id, name: of a tool call; id and name in its first piece alone."""

    part: Part
    text: str
    index: int = 0
    id: str | None = None
    name: str | None = None


class Reader(Protocol):
    """Reads one answer. The joined pieces of each part do not depend on how the text is cut."""

    def add(self, token_id: int, text: str) -> list[Delta]:
        """The pieces that a token and the text that it completes give, maybe none."""
        ...

    def finish(self, text: str) -> list[Delta]:
        """What was held back, and the last text, at the end of the answer."""
        ...


class PlainReader:
    """All text is content."""

    def add(self, token_id: int, text: str) -> list[Delta]:
        """The text as content."""
        return [Delta(Part.content, text)] if text else []

    def finish(self, text: str) -> list[Delta]:
        """The text as content."""
        return [Delta(Part.content, text)] if text else []

"""The parts of a parsed answer: pieces of a stream, and the whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct


class ReasoningDelta(Struct, frozen=True):  # a struct is made in a tenth of a dataclass's time
    """The next piece of what the model thinks before it answers."""

    text: str


class ContentDelta(Struct, frozen=True):
    """The next piece of the answer."""

    text: str


class CallDelta(Struct, frozen=True):
    """A piece of a tool call. index: its number in the answer, from 0.

    The first piece of a call has id and name and no arguments; the next ones have arguments alone, pieces of a JSON
    text, before the next call begins.
    """

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


Delta = ReasoningDelta | ContentDelta | CallDelta


class ToolCall(Struct, frozen=True):
    """A tool call. arguments: a JSON text, an object."""

    id: str
    name: str
    arguments: str


class ParsedAnswer(Struct, frozen=True):
    """A whole answer. content: None where there are calls and no text beside them. reasoning: None for none."""

    content: str | None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    @classmethod
    def join(cls, deltas: Iterable[Delta]) -> ParsedAnswer:
        """The answer of a whole stream."""
        content, reasoning, calls = "", "", list[ToolCall]()
        for delta in deltas:
            match delta:
                case ReasoningDelta(text):
                    reasoning += text
                case ContentDelta(text):
                    content += text
                case CallDelta(_, arguments, str() as id_, str() as name):
                    calls.append(ToolCall(id_, name, arguments))
                case CallDelta(index, arguments):
                    calls[index] = ToolCall(calls[index].id, calls[index].name, calls[index].arguments + arguments)
        return cls(content if content or not calls else None, reasoning or None, tuple(calls))

    def marks(self) -> dict[str, Any]:
        """What a message in OpenAI's form has beside its content: reasoning and calls, where there are such."""
        found: dict[str, Any] = {}
        if self.reasoning is not None:
            found["reasoning_content"] = self.reasoning
        if self.tool_calls:
            found["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return found

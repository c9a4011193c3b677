"""`ResponseItems`: the items of a response and the events that tell of them, from the pieces of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta, ReasoningDelta
from zinc_rt.scheduler.messages import Token
from zinc_rt.serving.api.choice import ChoiceDelta
from zinc_rt.serving.api.logprobs import chat_logprobs
from zinc_rt.text import Tokenizer

Event = tuple[str, dict[str, Any]]


class ResponseItems:
    """Items open and close one after the other: reasoning, a message, function calls."""

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        """name: a part of the ids, which differ from those of other responses."""
        self._tokenizer, self._name = tokenizer, name
        self._items: list[dict[str, Any]] = []
        self._last: tuple[type[Delta], int] | None = None

    def items(self, status: str) -> list[dict[str, Any]]:
        """The items so far; the last one has this status."""
        return [*self._items[:-1], *({**item, "status": status} for item in self._items[-1:])]

    def add(self, piece: ChoiceDelta) -> list[Event]:
        """The events of a piece. Log-probabilities go with its first text."""
        made: list[Event] = []
        logprobs = list(piece.logprobs)
        for delta in piece.deltas:
            if _key(delta) != self._last:
                made += self.close("completed")
                made += self._open(delta)
            if isinstance(delta, ContentDelta):
                made.append(self._text(delta.text, logprobs))
                logprobs = []
            elif not isinstance(delta, CallDelta) or delta.arguments:
                made.append(self._other(delta))
        return made

    @property
    def _at(self) -> dict[str, Any]:
        """What all events of the open item name."""
        return {"output_index": len(self._items) - 1, "item_id": self._items[-1]["id"]}

    def _open(self, delta: Delta) -> Iterator[Event]:
        self._last = _key(delta)
        n = len(self._items)
        item: dict[str, Any]
        part: dict[str, Any] | None = None
        if isinstance(delta, ContentDelta):
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item = {"id": f"msg_{self._name}{n}", "type": "message", "role": "assistant", "content": []}
        elif isinstance(delta, ReasoningDelta):
            part = {"type": "reasoning_text", "text": ""}
            item = {"id": f"rs_{self._name}{n}", "type": "reasoning", "summary": [], "content": []}
        else:
            item = {"id": f"fc_{self._name}{n}", "type": "function_call", "call_id": delta.id, "name": delta.name}
            item["arguments"] = ""
        item["status"] = "in_progress"
        self._items.append(item)
        yield "response.output_item.added", {"output_index": n, "item": _copy(item)}
        if part is not None:
            item["content"].append(part)
            yield "response.content_part.added", {**self._at, "content_index": 0, "part": dict(part)}

    def _text(self, text: str, logprobs: list[Token]) -> Event:
        part = self._items[-1]["content"][0]
        part["text"] += text
        found = _logprobs(self._tokenizer, logprobs)
        part["logprobs"] = [*part["logprobs"], *found]
        return "response.output_text.delta", {**self._at, "content_index": 0, "delta": text, "logprobs": found}

    def _other(self, delta: ReasoningDelta | CallDelta) -> Event:
        if isinstance(delta, ReasoningDelta):
            self._items[-1]["content"][0]["text"] += delta.text
            return "response.reasoning_text.delta", {**self._at, "content_index": 0, "delta": delta.text}
        self._items[-1]["arguments"] += delta.arguments
        return "response.function_call_arguments.delta", {**self._at, "delta": delta.arguments}

    def close(self, status: str) -> list[Event]:
        """The end of the item that is open."""
        if self._last is None:
            return []
        kind_of, _ = self._last
        self._last = None
        item = self._items[-1]
        item["status"] = status
        made: list[Event] = []
        if kind_of is CallDelta:
            done = {**self._at, "arguments": item["arguments"], "name": item["name"]}
            made.append(("response.function_call_arguments.done", done))
        else:
            inside = item["content"][0]
            kind = "output_text" if kind_of is ContentDelta else "reasoning_text"
            told = {**self._at, "content_index": 0, "text": inside["text"]}
            if kind_of is ContentDelta:
                told["logprobs"] = inside["logprobs"]
            made.append((f"response.{kind}.done", told))
            made.append(("response.content_part.done", {**self._at, "content_index": 0, "part": dict(inside)}))
        made.append(("response.output_item.done", {"output_index": len(self._items) - 1, "item": _copy(item)}))
        return made


def _key(delta: Delta) -> tuple[type[Delta], int]:
    """What must be equal for two pieces to be of one item."""
    return type(delta), delta.index if isinstance(delta, CallDelta) else 0


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """The item as it is now."""
    return {key: [dict(part) for part in value] if isinstance(value, list) else value for key, value in item.items()}


def _logprobs(tokenizer: Tokenizer, tokens: list[Token]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat_logprobs(tokenizer, tokens)["content"]
    return found

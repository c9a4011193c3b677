"""Conversations in Ollama's form: its messages become OpenAI's, and an answer's pieces become parts of its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from zinc_rt.dialects.deltas import ContentDelta, Delta, ParsedAnswer, ReasoningDelta
from zinc_rt.serving.api.errors import invalid
from zinc_rt.serving.api.pictures import PlacedPart


def messages_of(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages in OpenAI's form: calls have ids there, and what a tool answered names its call. Raises `ApiError`."""
    made: list[dict[str, Any]] = []
    open_calls: list[tuple[str, str]] = []  # names and ids of calls that no tool has answered yet
    for at, message in enumerate(given):
        one = {key: message[key] for key in ("role", "content", "name") if message.get(key) is not None}
        if message.get("images"):
            one["content"] = with_images(one.get("content", ""), message["images"], f"messages[{at}].images")
        if message.get("role") == "assistant":
            if message.get("thinking") is not None:
                one["reasoning_content"] = message["thinking"]
            if message.get("tool_calls"):
                one["tool_calls"] = list(_calls_in(message["tool_calls"], at))
                open_calls = [(call["function"]["name"], call["id"]) for call in one["tool_calls"]]
        elif message.get("role") == "tool":
            name, given_id = message.get("tool_name") or message.get("name"), message.get("tool_call_id")
            fits = min(open_calls, key=lambda call: (call[1] != given_id, call[0] != name), default=None)
            if fits is not None:
                open_calls.remove(fits)
            one["tool_call_id"] = fits[1] if fits is not None else f"call_{at}"
            if isinstance(name, str):
                one["name"] = name
        made.append(one)
    return made


def with_images(content: Any, images: object, place: str) -> list[Any]:
    """A message's pictures and its text behind them, as parts. Raises `ApiError`."""
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise invalid(f"{place} must be a list of pictures in base64", place, "invalid_type")
    parts = [PlacedPart(f"data:;base64,{image}", f"{place}[{i}]") for i, image in enumerate(images)]
    return [*parts, {"type": "text", "text": content}]


def _calls_in(given: object, at: int) -> Iterator[dict[str, Any]]:
    if not isinstance(given, list):
        raise invalid(f"messages[{at}].tool_calls must be a list", "messages", "invalid_type")
    for i, call in enumerate(given):
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            raise invalid(f"messages[{at}].tool_calls[{i}] has no function with a name", "messages", "invalid_type")
        arguments = function.get("arguments") or {}
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        given_id = call.get("id") if isinstance(call, Mapping) else None
        call_id = given_id if isinstance(given_id, str) and given_id else f"call_{at}_{i}"
        yield {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def calls_out(deltas: Sequence[Delta]) -> list[dict[str, Any]]:
    """Calls of tools, their arguments as objects; one that was cut off is left out."""
    made: list[dict[str, Any]] = []
    for call in ParsedAnswer.join(deltas).tool_calls:
        try:
            arguments = msgspec.json.decode(call.arguments or "{}")
        except msgspec.DecodeError:
            continue
        made.append({"id": call.id, "function": {"index": len(made), "name": call.name, "arguments": arguments}})
    return made


def texts_of(deltas: Sequence[Delta]) -> tuple[str, str]:
    """Content and thinking."""
    content = "".join(d.text for d in deltas if isinstance(d, ContentDelta))
    return content, "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))

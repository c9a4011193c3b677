"""Conversations in Anthropic's form, turned into OpenAI's."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.pictures import PlacedPart
from zinc_rt.utils.checks import show

BILLING: Final = "x-anthropic-billing-header"
"""Begins a line that a client changes with every request: in the prompt it would make the cache useless."""


class Block(msgspec.Struct):
    """A block of content, of any kind."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Any = None
    source: dict[str, Any] | None = None


class AnthropicMessage(msgspec.Struct):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


def system_text(system: str | list[Block] | None) -> tuple[str, bool]:
    """The instructions, and whether a line about billing was dropped from them. Raises `ApiError`."""
    if system is None or isinstance(system, str):
        blocks = [system or ""]
    else:
        blocks = [_text(block, f"system[{i}]") for i, block in enumerate(system)]
    kept = [text.partition("\n")[2].lstrip("\n") if text.startswith(BILLING) else text for text in blocks]
    return "\n\n".join(text for text in kept if text), kept != blocks


def to_openai(messages: list[AnthropicMessage], system: str) -> list[dict[str, Any]]:
    """The conversation as chat completions have it. Raises `ApiError`."""
    made = [_message("system", system)] if system else []
    if not messages:
        raise invalid("messages is empty; at least one message is needed", "messages", "empty_array")
    for i, message in enumerate(messages):
        at = f"messages[{i}].content"
        if isinstance(message.content, str):
            made.append(_message(message.role, message.content))
        elif message.role == "user":
            made += _user(message.content, at)
        elif message.role == "system":
            texts = [_text(block, f"{at}[{n}]") for n, block in enumerate(message.content)]
            made.append(_message("system", "\n\n".join(texts)))
        else:
            made.append(_assistant(message.content, at))
    return made


def _user(blocks: list[Block], at: str) -> list[dict[str, Any]]:
    """Results of tools are messages of their own, before what the user says with them."""
    results, said = [], []
    for i, block in enumerate(blocks):
        if block.type == "tool_result":
            content = _result(block.content, f"{at}[{i}].content")
            results.append(_message("tool", content, tool_call_id=block.tool_use_id or ""))
        else:
            said.append(_text_or_picture(block, f"{at}[{i}]"))
    return [*results, *([_message("user", _joined(said))] if said or not results else [])]


def _assistant(blocks: list[Block], at: str) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for i, block in enumerate(blocks):
        if block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type == "redacted_thinking":
            continue
        elif block.type == "tool_use":
            arguments = msgspec.json.encode(block.input or {}).decode()
            function = {"name": block.name or "", "arguments": arguments}
            calls.append({"id": block.id or "", "type": "function", "function": function})
        else:
            texts.append(_text(block, f"{at}[{i}]"))
    more = {"tool_calls": calls or None, "reasoning_content": "\n".join(thoughts) or None}
    return _message("assistant", "\n".join(texts), **{key: value for key, value in more.items() if value is not None})


def _message(role: str, content: str | list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _text(block: Block, at: str) -> str:
    if block.type != "text" or block.text is None:
        raise ApiError(
            400, f"{at} is of type {block.type[:40]!r}; only text is understood", param=at, code="unsupported_value"
        )
    return block.text


def _text_or_picture(block: Block, at: str) -> str | PlacedPart:
    if block.type != "image":
        return _text(block, at)
    source = block.source or {}
    if source.get("type") == "url" and isinstance(url := source.get("url"), str):
        return PlacedPart(url, f"{at}.source.url")
    if source.get("type") == "base64" and isinstance(data := source.get("data"), str):
        return PlacedPart(f"data:{source.get('media_type', '')};base64,{data}", f"{at}.source.data")
    place = f"{at}.source"
    raise invalid(
        f"{place} is {show(block.source)}; give an object with type base64 and data, or with type url and url", place
    )


def _joined(blocks: list[str | PlacedPart]) -> str | list[dict[str, Any]]:
    """Texts with line ends between them, and pictures as parts among them."""
    if all(isinstance(one, str) for one in blocks):
        return "\n".join(map(str, blocks))
    parts: list[dict[str, Any]] = []
    for one in blocks:
        if isinstance(one, PlacedPart):
            parts.append(one)
        elif parts and parts[-1]["type"] == "text":
            parts[-1] = {"type": "text", "text": f"{parts[-1]['text']}\n{one}"}
        else:
            parts.append({"type": "text", "text": one})
    return parts


def _result(content: Any, at: str) -> str | list[dict[str, Any]]:
    """What a tool gave: a text, or blocks of text and pictures."""
    if content is None or isinstance(content, str):
        return content or ""
    try:
        blocks = msgspec.convert(content, list[Block])
    except msgspec.ValidationError:
        raise invalid(f"{at} must be a text or blocks", at, "invalid_type") from None
    return _joined([_text_or_picture(block, f"{at}[{i}]") for i, block in enumerate(blocks)])

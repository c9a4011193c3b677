"""Conversations in OpenAI's form: their types, what is refused in them, and how a chat template gets them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from zinc_rt.serving.api.errors import ApiError, invalid


class ContentPart(msgspec.Struct):
    """A part of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None


class FunctionCall(msgspec.Struct):
    """What a tool call calls. arguments: JSON in a string."""

    name: str
    arguments: str = "{}"


class ToolCall(msgspec.Struct):
    """A call that the assistant made earlier."""

    function: FunctionCall
    id: str = ""
    type: Literal["function"] = "function"


class Message(msgspec.Struct):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None


def for_template(messages: list[Message], param: str = "messages") -> list[dict[str, Any]]:
    """The messages as chat templates expect them: text as one string, arguments as mappings. Raises `ApiError`."""
    if not messages:
        raise invalid(f"{param} is empty; at least one message is needed", param, "empty_array")
    return [_for_template(f"{param}[{i}]", message) for i, message in enumerate(messages)]


def _for_template(at: str, message: Message) -> dict[str, Any]:
    role = {"developer": "system", "function": "tool"}.get(message.role, message.role)
    text = _text(message.content, at)
    if message.content is None and not (message.role == "assistant" and (message.tool_calls or message.refusal)):
        raise ApiError(400, f"{at}.content is missing", param=f"{at}.content", code="missing_required_parameter")
    made: dict[str, Any] = {"role": role, "content": text or message.refusal or ""}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            made[name] = value
    if message.tool_calls:
        made["tool_calls"] = [_call(call) for call in message.tool_calls]
    return made


def _text(content: str | list[ContentPart] | None, at: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for j, part in enumerate(content):
        text = part.text if part.type in ("text", "input_text", "output_text") else part.refusal
        if text is None:
            what = f"{at}.content[{j}]"
            raise ApiError(
                400,
                f"{what} is of type {part.type[:40]!r}; only text is understood",
                param=what,
                code="unsupported_value",
            )
        texts.append(text)
    return "\n".join(texts)


def _call(call: ToolCall) -> dict[str, Any]:
    """A call with its arguments as a mapping: templates that write JSON themselves would quote a string again."""
    arguments: Any = call.function.arguments
    try:
        tree = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        tree = None
    function = {"name": call.function.name, "arguments": tree if isinstance(tree, dict) else arguments}
    return {"id": call.id, "type": "function", "function": function}

"""Conversations in the form of OpenAI's Responses, turned into that of chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from zinc_rt.serving.api.errors import ApiError, invalid, unsupported
from zinc_rt.serving.api.requests import converted


class _Part(msgspec.Struct):
    """A part of a message's content."""

    type: str
    text: str | None = None


class _Item(msgspec.Struct):
    """An item of the input, of any kind; a message where it names none."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[dict[str, Any]] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[dict[str, Any]] | None = None


def to_messages(items: str | Sequence[Any], instructions: str | None) -> list[dict[str, Any]]:
    """The conversation. Raises `ApiError`."""
    made = [_message("system", instructions)] if instructions else []
    if isinstance(items, str):
        return [*made, _message("user", items)]
    if not items:
        raise invalid("input is empty; at least one item is needed", "input", "empty_array")
    reasoning: str | None = None
    for i, raw in enumerate(items):
        at = f"input[{i}]"
        if not isinstance(raw, dict):
            raise invalid(f"{at} must be an object", at, "invalid_type")
        item = converted(raw, _Item)
        if item.type == "reasoning":
            reasoning = _reasoning(item)
        elif item.type == "message":
            if item.role is None or item.content is None:
                missing = f"{at}.{'role' if item.role is None else 'content'}"
                raise ApiError(400, f"{missing} is missing", param=missing, code="missing_required_parameter")
            thought = {"reasoning_content": reasoning} if reasoning and item.role == "assistant" else {}
            made.append(_message(item.role, item.content, **thought))
            reasoning = None
        elif item.type == "function_call":
            function = {"name": item.name or "", "arguments": item.arguments or "{}"}
            call = {"id": item.call_id or "", "type": "function", "function": function}
            _add_call(made, call, reasoning)
            reasoning = None
        elif item.type == "function_call_output":
            made.append(_message("tool", item.output or "", tool_call_id=item.call_id or ""))
        else:
            raise unsupported(at, f"items of type {item.type[:40]!r} are not understood here")
    return made


def _reasoning(item: _Item) -> str | None:
    if isinstance(item.content, list):
        parts = [converted(part, _Part) for part in item.content]
        return "\n".join(part.text for part in parts if part.text) or None
    return item.content


def _add_call(messages: list[dict[str, Any]], call: dict[str, Any], reasoning: str | None) -> None:
    """Calls that follow each other, and the text before them, are one message of the assistant."""
    last = messages[-1] if messages else None
    if last is not None and last["role"] == "assistant" and reasoning is None:
        last["tool_calls"] = [*last.get("tool_calls", ()), call]
    else:
        thought = {"reasoning_content": reasoning} if reasoning else {}
        messages.append(_message("assistant", None, tool_calls=[call], **thought))


def _message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def to_tools(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Tools as chat completions have them. Raises `ApiError` for those that OpenAI's servers would run."""
    made = []
    for i, tool in enumerate(tools or ()):
        if tool.get("type") != "function":
            raise unsupported(f"tools[{i}]", f"tools of type {str(tool.get('type'))[:40]!r} are not run here")
        function = {
            key: tool[key] for key in ("name", "description", "parameters", "strict") if tool.get(key) is not None
        }
        made.append({"type": "function", "function": function})
    return made or None


def to_choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    """A choice of tools as chat completions have it."""
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        tools = [
            {"type": "function", "function": {"name": t.get("name")}}
            for t in choice.get("tools", ())
            if isinstance(t, dict)
        ]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": tools}}
    return choice


def to_format(text: dict[str, Any] | None) -> dict[str, Any] | None:
    """The form of the answer as chat completions have it. Raises `ApiError`."""
    form = (text or {}).get("format")
    if form is None:
        return None
    if not isinstance(form, dict):
        raise invalid("text.format must be an object", "text.format", "invalid_type")
    if form.get("type") != "json_schema":
        return {"type": form.get("type")}
    schema = {key: form[key] for key in ("name", "description", "schema", "strict") if key in form}
    return {"type": "json_schema", "json_schema": schema}

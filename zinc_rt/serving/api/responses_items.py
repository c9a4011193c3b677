"""Conversations in the form of OpenAI's Responses, turned into that of chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.fields import Skipped
from zinc_rt.serving.api.pictures import PlacedPart
from zinc_rt.serving.api.requests import converted
from zinc_rt.serving.api.responses_store import ResponseStore
from zinc_rt.utils.checks import show


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


_SETTINGS: Final = ("additional_tools", "configuration_update")
"""Types of items that are no part of the conversation."""


def to_items(given: str | Sequence[Any], store: ResponseStore, tenant: str) -> list[dict[str, Any]]:
    """The items of an input; a text is a message, references are what they refer to. Raises `ApiError`."""
    if isinstance(given, str):
        text = {"type": "input_text", "text": given}
        return [{"type": "message", "role": "user", "content": [text]}]
    if not given:
        raise invalid("input is empty; at least one item is needed", "input", "empty_array")
    made = []
    for i, item in enumerate(given):
        at = f"input[{i}]"
        if not isinstance(item, dict):
            raise invalid(f"{at} must be an object", at, "invalid_type")
        if item.get("type") == "item_reference":
            found = store.item(tenant, str(item.get("id")))
            if found is None:
                raise invalid(f"{at} refers to an item that is not kept; send the item itself", at, "item_not_found")
            item = found
        made.append(item)
    return made


def to_messages(items: Sequence[dict[str, Any]], instructions: str | None, skipped: Skipped) -> list[dict[str, Any]]:
    """The conversation. Raises `ApiError`."""
    made = [_message("system", instructions)] if instructions else []
    reasoning: str | None = None
    for i, raw in enumerate(items):
        at = f"input[{i}]"
        if raw.get("type") in _SETTINGS:
            continue
        item = converted(raw, _Item)
        if item.type == "reasoning":
            reasoning = _reasoning(item)
        elif item.type == "message":
            if item.role is None or item.content is None:
                missing = f"{at}.{'role' if item.role is None else 'content'}"
                raise ApiError(400, f"{missing} is missing", param=missing, code="missing_required_parameter")
            thought = {"reasoning_content": reasoning} if reasoning and item.role == "assistant" else {}
            made.append(_message(item.role, _with_places(item.content, f"{at}.content"), **thought))
            reasoning = None
        elif item.type == "function_call":
            function = {"name": item.name or "", "arguments": item.arguments or "{}"}
            call = {"id": item.call_id or "", "type": "function", "function": function}
            _add_call(made, call, reasoning)
            reasoning = None
        elif item.type == "function_call_output":
            output = _with_places(item.output or "", f"{at}.output")
            made.append(_message("tool", output, tool_call_id=item.call_id or ""))
        else:
            skipped.add(at, item.type)
    return made


def _with_places(content: str | list[dict[str, Any]], at: str) -> str | list[dict[str, Any]]:
    """Content whose pictures know where they stand in the input. Raises `ApiError`."""
    if isinstance(content, str):
        return content
    made: list[dict[str, Any]] = []
    for i, part in enumerate(content):
        if part.get("type") == "input_image":
            place = f"{at}[{i}].image_url"
            url = part.get("image_url")
            if not isinstance(url, str):
                raise invalid(f"{place} is {show(url)}; give the picture as a data: URL (no files are kept)", place)
            part = PlacedPart(url, place)
        made.append(part)
    return made


def effort_of(items: Sequence[dict[str, Any]], effort: Any) -> Any:
    """How much the model is to think: what the last item that sets it says, else `effort`."""
    for item in items:
        if item.get("type") == "configuration_update" and isinstance(item.get("reasoning"), dict):
            effort = item["reasoning"].get("effort", effort)
    return effort


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


def to_tools(
    tools: Sequence[dict[str, Any]] | None, items: Sequence[dict[str, Any]], skipped: Skipped
) -> list[dict[str, Any]] | None:
    """Tools of a request and of its items, as chat completions have them; others than functions are skipped.

    Raises `ApiError`.
    """
    given = list(tools or ())
    for i, item in enumerate(items):
        if item.get("type") == "additional_tools":
            more = item.get("tools")
            if not isinstance(more, list) or not all(isinstance(tool, dict) for tool in more):
                raise invalid(f"input[{i}].tools must be a list of objects", f"input[{i}].tools", "invalid_type")
            given += more
    made = []
    for i, tool in enumerate(given):
        if tool.get("type") != "function":
            skipped.add(f"tools[{i}]", tool.get("type"))
            continue
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
            if isinstance(t, dict) and t.get("type") == "function"
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

"""`Intent`: what an answer may be made of: tools, a format, reasoning; and how it is read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.serving.api.errors import unsupported
from zinc_rt.serving.api.reader import PlainReader, Reader
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.messages import Grammar


@dataclass(frozen=True, slots=True)
class Intent:
    """tools, variables: for the chat template. grammar: what tokens must follow. reader: divides the answer."""

    tools: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] | None = None
    grammar: Grammar | None = None
    reader: Callable[[], Reader] = PlainReader


async def intend(
    service: Service,
    *,
    tools: list[dict[str, Any]] | None = None,
    tool_choice: str | dict[str, Any] | None = None,
    parallel: bool = True,
    response_format: dict[str, Any] | None = None,
    effort: str | None = None,
    variables: Mapping[str, Any] | None = None,
) -> Intent:
    """What a request asks of the form of its answer, in OpenAI's words. Raises `ApiError`."""
    if tools:
        raise unsupported("tools", "this model has no known form of tool calls")
    if response_format is not None and response_format.get("type") != "text":
        raise unsupported("response_format", "only text is made here")
    asked: dict[str, Any] = dict(variables or {})
    if effort is not None:
        asked["reasoning_effort"] = effort
        if effort in ("none", "minimal"):
            asked.setdefault("enable_thinking", False)
    return Intent(variables=asked)

"""Conversations in OpenAI's form, rendered by a model's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zinc_rt.dialects.record import Dialect, Thinking
from zinc_rt.dialects.tools import Tool

if TYPE_CHECKING:
    from zinc_rt.text import ChatTemplate


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt's text, to be encoded with `add_special=False`, and where it leaves the model."""

    text: str
    thinking: Thinking


class ChatRenderer:
    """A model's template and what it was found to take. One a model; any thread may use it, one at a time."""

    def __init__(self, template: ChatTemplate, dialect: Dialect) -> None:
        self.template = template
        self.dialect = dialect

    def render_messages(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool] = (), **variables: Any
    ) -> RenderedPrompt:
        """The prompt of a conversation.

        messages: roles system, developer, user, assistant and tool; content a string, None or text parts; of the
        assistant `tool_calls` with arguments as JSON strings, and `reasoning_content`; of a tool `tool_call_id`.
        variables: of the template, as `enable_thinking=False`.

        Raises `RequestError`, which names the message's index and the field, for another form and for images, audio and
        files; `ChatTemplateError` for what the template refuses.
        """
        raise NotImplementedError

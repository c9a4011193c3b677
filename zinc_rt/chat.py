"""Conversations with a model: `Model.chat` and `Model.chat_stream`."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.dialects.deltas import Delta, ToolCall
from zinc_rt.sampling.generation import Generation, Stats


@dataclass(frozen=True)
class ChatAnswer:
    """An answer. content: None where there are calls and no text beside them; reasoning: None where there is none.

    finish_reason: "stop", "tool_calls", "length" or "context". generation: the tokens and counts behind it; its text is
    the answer's text with the family's marks in it.
    """

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    generation: Generation


@dataclass(frozen=True)
class ChatChunk:
    """A piece of an answer: the deltas that one token completed, maybe none; the last chunk has no token but the rest."""

    deltas: tuple[Delta, ...]
    token_id: int | None = None
    finish_reason: str | None = None
    stats: Stats | None = None
    seed: int | None = None

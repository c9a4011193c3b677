"""`build_grammar`: what a request's answer has to follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zinc_rt.dialects.record import Dialect, Thinking
from zinc_rt.dialects.tools import ResponseFormat, Tool, ToolChoice
from zinc_rt.serving.messages import Grammar

if TYPE_CHECKING:
    from zinc_rt.grammar.vocabulary import GrammarVocabulary


def build_grammar(
    dialect: Dialect,
    vocabulary: GrammarVocabulary,
    tools: Sequence[Tool] = (),
    tool_choice: ToolChoice | None = None,
    parallel: bool = True,
    response_format: ResponseFormat | None = None,
    thinking: Thinking = Thinking.off,
) -> Grammar | None:
    """The grammar of an answer; None where it is free.

    tool_choice: None is auto. parallel: whether several calls may be made, where the family can. With tools of choice
    and a response format, the answer is calls, or content of that form. thinking: where the prompt leaves the model;
    reasoning is free, and the grammar holds behind it.

    Raises `GrammarError` for schemas that cannot be used, `RequestError` for tools where the family makes no calls.
    """
    raise NotImplementedError

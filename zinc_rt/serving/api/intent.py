"""`Prompt`: a conversation as tokens, with the grammar of its answer and the reader that divides it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from zinc_rt.dialects.grammars import build_grammar
from zinc_rt.dialects.parser import StreamParser
from zinc_rt.dialects.record import Thinking
from zinc_rt.dialects.tools import (
    ChoiceMode,
    RequestError,
    Tool,
    parse_response_format,
    parse_tool_choice,
    parse_tools,
)
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.limits import SCHEMA_BYTES, TOOLS
from zinc_rt.serving.api.reader import Reader
from zinc_rt.serving.api.served import ServedModel
from zinc_rt.serving.messages import Grammar
from zinc_rt.text import ChatTemplateError, TokenizerError


@dataclass(frozen=True, slots=True)
class Form:
    """What a request asks of the form of its answer, in the words of chat completions."""

    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel: bool = True
    response_format: dict[str, Any] | None = None
    effort: str | None = None
    variables: Mapping[str, Any] | None = None

    def template_variables(self) -> dict[str, Any]:
        """Variables of the chat template."""
        given = dict(self.variables or {})
        if self.effort is not None:
            given.setdefault("reasoning_effort", self.effort)
            if self.effort in ("none", "minimal"):
                given.setdefault("enable_thinking", False)
        return given


@dataclass(frozen=True, slots=True)
class Prompt:
    """tokens: of the conversation. grammar: what the answer must follow. tools: that the answer may call."""

    tokens: tuple[int, ...]
    thinking: Thinking
    grammar: Grammar | None
    tools: tuple[Tool, ...]

    def reader(self, model: ServedModel, seed: int) -> Callable[[], Reader]:
        """Makes what divides an answer. Ids of calls depend on prompt and seed, so that a replay has the same."""
        name = hashlib.blake2b(msgspec.json.encode([self.tokens, seed]), digest_size=16).hexdigest()
        return partial(StreamParser, model.dialect, self.tools, self.thinking, name)


def make_prompt(model: ServedModel, messages: Sequence[Mapping[str, Any]], form: Form, param: str) -> Prompt:
    """Render, tokenize and compile; for another thread than the event loop's. Raises `ApiError`."""
    _check_sizes(form)
    try:
        tools = parse_tools(form.tools)
        choice = parse_tool_choice(form.tool_choice, tools)
        wanted = parse_response_format(form.response_format)
        if choice.mode is ChoiceMode.none:
            tools = ()
        tokens, thinking = model.rendered(messages, tools, form.template_variables(), param)
        grammar = build_grammar(model.dialect, model.grammar, tools, choice, form.parallel, wanted, thinking)
    except RequestError as error:
        place = error.param
        if place.startswith("variables"):
            place = "chat_template_kwargs"
        elif place.startswith("messages") and param != "messages":
            place = param
        code = "unsupported_value" if error.unsupported else "invalid_value"
        raise ApiError(400, str(error), param=place, code=code) from None
    except GrammarError as error:
        raise ApiError(400, str(error), param=error.where or "response_format", code="invalid_schema") from None
    except ChatTemplateError as error:
        raise invalid(str(error), param, "template_error") from None
    except TokenizerError as error:
        raise invalid(str(error), param) from None
    return Prompt(tuple(tokens), thinking, grammar, tools)


def _check_sizes(form: Form) -> None:
    """Refuse what is too much before it is looked at. Raises `ApiError`."""
    if form.tools is not None and len(form.tools) > TOOLS:
        raise invalid(f"tools has {len(form.tools)} tools; at most {TOOLS} are taken", "tools")
    for name, part in (
        ("response_format", form.response_format),
        *((f"tools[{i}]", t) for i, t in enumerate(form.tools or ())),
    ):
        if part is not None and len(msgspec.json.encode(part)) > SCHEMA_BYTES:
            raise invalid(f"{name} has more than {SCHEMA_BYTES} bytes", name)

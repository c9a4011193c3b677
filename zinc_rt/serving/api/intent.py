"""From what a request says of its answer (tools, a format, reasoning) to a prompt, a grammar and a reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec

from zinc_rt.dialects.messages import Ending
from zinc_rt.dialects.parser import StreamParser
from zinc_rt.dialects.tools import RequestError
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.llm.chat import ChatRequest
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.limits import SCHEMA_BYTES, TOOLS
from zinc_rt.serving.api.reader import Reader
from zinc_rt.serving.api.served import ServedModel
from zinc_rt.text import ChatTemplateError, TokenizerError

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model is to think. Templates that know other words get them as `chat_template_kwargs`."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a request asks of the form of its answer, in the words of chat completions."""

    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel: bool = True
    response_format: dict[str, Any] | None = None
    effort: Effort | None = None
    variables: Mapping[str, Any] | None = None
    ending: Ending | None = None

    def template_variables(self) -> dict[str, Any]:
        """Variables of the chat template."""
        given = dict(self.variables or {})
        if self.effort is not None:
            given.setdefault("reasoning_effort", self.effort)
            if self.effort in ("none", "minimal"):
                given.setdefault("enable_thinking", False)
        return given


def make_prompt(model: ServedModel, messages: Sequence[Mapping[str, Any]], form: Form, param: str) -> ChatRequest:
    """Render, tokenize and compile; for another thread than the event loop's. Raises `ApiError`."""
    if model.chat is None:
        raise ApiError(
            400,
            "the model has no chat template, so it is not made for chat; use /v1/completions",
            param=param,
            code="no_chat_template",
        )
    _check_sizes(form)
    try:
        with model.lock:
            return model.chat.request(
                messages,
                tools=form.tools,
                tool_choice=form.tool_choice,
                parallel_tool_calls=form.parallel,
                response_format=form.response_format,
                variables=form.template_variables(),
                ending=form.ending,
                check=lambda text: model.check_bytes(text, param),
            )
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


def reader_of(model: ServedModel, request: ChatRequest, seed: int) -> Callable[[], Reader]:
    """Makes what divides an answer to a request. Ids of calls depend on prompt and seed: a replay has the same."""
    assert model.chat is not None
    return partial(StreamParser, model.chat.dialect, request.tools, request.thinking, request.salt(seed), request.bound)


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

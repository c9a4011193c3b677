"""The common part of the endpoints for chat: a `ChatRequest`, its prompt, and the choices that answer it.

Endpoints of other interfaces turn their requests into OpenAI's chat completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from zinc_rt.dialects.messages import Ending
from zinc_rt.dialects.tools import RequestError
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.llm.chat import ChatPrompt
from zinc_rt.sampling.params import Api
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.choice import AnswerChoice
from zinc_rt.serving.api.completions import token_ids
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.limits import TOOLS, TOP_LOGPROBS, check_schema
from zinc_rt.serving.api.pictures import refuse_pictures, without_pictures
from zinc_rt.serving.api.requests import (
    Count,
    StreamOptions,
    choices_of,
    given_sampling,
    nth_seed,
    sampling_params,
    seed_of,
    stops_of,
    takes_sampling,
)
from zinc_rt.serving.api.served_adapters import LoraScale
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.text import ChatTemplateError, TokenizerError

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model is to think. Templates that know other words get them as `chat_template_kwargs`."""


@takes_sampling(Api.openai)
class ChatRequest(msgspec.Struct, kw_only=True):
    """The fields that are obeyed; `fields.CHAT` says what each does."""

    messages: list[dict[str, Any]]
    model: str | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] | None = None
    max_completion_tokens: Count | None = None
    max_tokens: Count | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    reasoning_effort: Effort | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    lora: list[LoraScale] | None = None


def make_prompt(model: ServedModel, request: ChatRequest, param: str = "messages") -> ChatPrompt:
    """Render, tokenize and compile; for another thread than the event loop's. param: the field of the messages.

    Raises `ApiError`.
    """
    if model.chat is None:
        raise ApiError(
            400,
            "the model has no chat template, so it is not made for chat; use /v1/completions",
            param=param,
            code="no_chat_template",
        )
    _check_sizes(request)
    try:
        with model.lock:
            return model.chat.prompt(
                request.messages,
                tools=request.tools,
                tool_choice=request.tool_choice,
                parallel_tool_calls=request.parallel_tool_calls is not False,
                response_format=request.response_format,
                variables=_variables(request),
                ending=Ending(request.continue_final_message, request.add_generation_prompt),
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


def _variables(request: ChatRequest) -> dict[str, Any]:
    """Variables of the chat template."""
    given = dict(request.chat_template_kwargs or {})
    if request.reasoning_effort is not None:
        given.setdefault("reasoning_effort", request.reasoning_effort)
        if request.reasoning_effort in ("none", "minimal"):
            given.setdefault("enable_thinking", False)
    return given


def _check_sizes(request: ChatRequest) -> None:
    """Refuse what is too much before it is looked at. Raises `ApiError`."""
    if request.tools is not None and len(request.tools) > TOOLS:
        raise invalid(f"tools has {len(request.tools)} tools; at most {TOOLS} are taken", "tools")
    check_schema("response_format", request.response_format)
    for i, tool in enumerate(request.tools or ()):
        check_schema(f"tools[{i}]", tool)


async def prompt_of(service: Service, request: ChatRequest, param: str = "messages") -> ChatPrompt:
    """Token ids of a conversation, and what its answer may be made of. Raises `ApiError`."""
    model = service.model
    model.check_name(request.model)
    shown = await with_pictures(service, request)
    return await model.aside(lambda: make_prompt(model, shown, param))


async def with_pictures(service: Service, request: ChatRequest) -> ChatRequest:
    """The request with its pictures read. Raises `ApiError`."""
    if (pictures := service.model.pictures) is None:
        refuse_pictures(request.messages)
        return request
    shown = await pictures.show(request.messages, service.tenants.limits)
    return request if shown is request.messages else msgspec.structs.replace(request, messages=shown)


async def chat_choices(
    service: Service,
    call: Call,
    request: ChatRequest,
    *,
    param: str = "messages",
    limit_param: str = "max_completion_tokens",
    cut: bool = False,
    before: Sequence[int] = (),
) -> list[AnswerChoice]:
    """The choices of a conversation, to be computed. Reserves places and tokens. Raises `ApiError`.

    param, limit_param: the endpoint's fields of the messages and of the limit of tokens. cut: leave out the oldest
    turns where the prompt is too long. before: token ids with which the prompt begins.
    """
    model, defaults = service.model, service.model.defaults
    service.choose(call, request.model, request.lora)
    stops, n = stops_of(request.stop), choices_of(request.n)
    asked = request.max_completion_tokens or request.max_tokens
    limit = service.max_tokens(call, asked, limit_param, defaults.max_tokens)
    n_logprobs = (request.top_logprobs or 0) if request.logprobs else None
    given = given_sampling(request, Api.openai)
    params = sampling_params(given, model, limit, n_logprobs)
    seed = call.draw_seed(seed_of(given), defaults.seed)
    service.admission.widen(service.ticket(call), n)
    service.note_prompt(call, without_pictures(request.messages))
    model.check_name(request.model)
    request = await with_pictures(service, request)
    prompt = await (_cut(service, call, request, param, asked) if cut else prompt_of(service, request, param))
    if before:
        (context,) = await token_ids(service, [[*before]], "context")
        skip = int(model.tokenizer.add_bos and prompt.ids[0] == model.tokenizer.bos_id)  # a text begins once
        prompt = replace(prompt, ids=context + prompt.ids[skip:])
    service.count(call, [prompt.ids], param)
    params = service.fitted(call, params, prompt.ids)
    call.extra.append((b"x-zinc-seed", b"%d" % seed))
    chat = model.chat
    assert chat is not None
    made = []
    for i in range(n):
        submit = service.submit_of(
            call, i, prompt.ids, params, nth_seed(seed, i), grammar=prompt.grammar, pictures=prompt.pictures
        )
        parser = chat.parser(prompt, submit.seed, prompt.bound)
        made.append(AnswerChoice(i, submit, model.tokenizer, stops, parser, chat.mark_ids, prefill=prompt.prefill))
    return made


async def _cut(service: Service, call: Call, request: ChatRequest, param: str, asked: int | None) -> ChatPrompt:
    """The prompt without its oldest turns, as few of them as will do, where it is too long with them.

    The prompt leaves a quarter of the context to the answer then, or what the answer may have. Raises `ApiError`.
    """
    context = min(service.model.n_ctx, service.tenants.get(call.tenant).max_context or service.model.n_ctx)

    async def within(messages: list[dict[str, Any]], limit: int) -> ChatPrompt | None:
        try:
            prompt = await prompt_of(service, msgspec.structs.replace(request, messages=messages), param)
        except ApiError as error:
            if error.code != "context_length_exceeded":
                raise
            return None
        return prompt if len(prompt.ids) < limit else None

    messages = request.messages
    if (found := await within(messages, context)) is not None:
        return found
    first = next((i for i, m in enumerate(messages) if m["role"] not in ("system", "developer")), 0)
    starts = [i for i, m in enumerate(messages) if m["role"] == "user" and i > first]
    limit = context - min(context // 4, asked or context)
    low, high, dropped = 0, len(starts), 0
    while low < high:
        middle = (low + high) // 2
        rest = [*messages[:first], *messages[starts[middle] :]]
        prompt = await within(rest, limit if middle + 1 < len(starts) else context)
        if prompt is None:
            low = middle + 1
        else:
            high, found, dropped = middle, prompt, starts[middle] - first
    if found is None:
        return await prompt_of(service, request, param)  # its length is refused where tokens are counted
    call.extra.append((b"x-zinc-dropped", b"messages=%d" % dropped))
    return found

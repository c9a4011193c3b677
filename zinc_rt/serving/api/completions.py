"""`POST /v1/completions`: a text, or token ids, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from zinc_rt.dialects.grammars import text_grammar
from zinc_rt.dialects.tools import RequestError, parse_response_format
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.sampling.params import Api
from zinc_rt.scheduler.messages import Grammar
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.fields import COMPLETIONS
from zinc_rt.serving.api.generate import stream_choices, whole_answers
from zinc_rt.serving.api.limits import PROMPTS, TOP_LOGPROBS, check_schema
from zinc_rt.serving.api.logprobs import text_logprobs
from zinc_rt.serving.api.requests import (
    StreamOptions,
    check_stream_options,
    choices_of,
    given_sampling,
    nth_seed,
    read,
    sampling_params,
    seed_of,
    stops_of,
    takes_sampling,
)
from zinc_rt.serving.api.served_adapters import LoraScale
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import DONE, Prepared, data, event_stream
from zinc_rt.serving.api.usage import chat_usage, own_usage
from zinc_rt.utils.checks import show, whole

_MAX_TOKENS = 16


@takes_sampling(Api.openai)
class CompletionRequest(msgspec.Struct, kw_only=True):
    """The fields that are obeyed; `fields.COMPLETIONS` says what each does."""

    prompt: str | list[Any]
    model: str | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    lora: list[LoraScale] | None = None
    response_format: dict[str, Any] | None = None


async def completions(service: Service, call: Call) -> None:
    """Continue texts."""
    call.begin_answer("cmpl-")
    service.enter(call)
    request = read(call, await call.body(), CompletionRequest, COMPLETIONS, service.config.strict)
    async with call.attended():
        service.choose(call, request.model, request.lora)
        if request.max_tokens == 0 and not request.echo:
            raise invalid("max_tokens is 0; it must be at least 1, or 0 together with echo", "max_tokens")
        usage = check_stream_options(request.stream, request.stream_options)
        choices = await text_choices(service, call, request)
        writer = _Writer(service, call, request)
        if request.stream:
            await _stream(service, call, choices, writer, usage)
        else:
            await _whole(service, call, choices, writer)


def prompts_of(prompt: str | list[Any], param: str = "prompt") -> list[str | list[int]]:
    """The prompts of a field that may hold a text, token ids, or several of either. Raises `ApiError`."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise invalid(f"{param} is empty", param, "empty_array")
    if all(isinstance(one, str | list) for one in prompt):
        if len(prompt) > PROMPTS:
            raise invalid(f"{param} has {len(prompt)} prompts; at most {PROMPTS} are taken", param)
        return [one if isinstance(one, str) else _ids(one, f"{param}[{i}]") for i, one in enumerate(prompt)]
    return [_ids(prompt, param)]


def _ids(values: list[Any], param: str) -> list[int]:
    for value in values:
        if whole(value) is None:
            raise invalid(f"{param} has {show(value)}; it must be a text, token ids, or a list of both", param)
    return values


async def token_ids(service: Service, prompts: Sequence[str | list[int]], param: str) -> list[tuple[int, ...]]:
    """Token ids of prompts. Raises `ApiError`."""
    n_vocab = service.model.tokenizer.n_vocab
    made: list[tuple[int, ...]] = []
    for prompt in prompts:
        if isinstance(prompt, str):
            made.append(tuple(await service.model.tokens_of_text(prompt, param)))
            continue
        service.model.check_fits(len(prompt), param)
        for token_id in prompt:
            if not 0 <= token_id < n_vocab:
                raise invalid(f"{param} has token id {show(token_id)}; the vocabulary has {n_vocab} tokens", param)
        made.append(tuple(prompt))
    return made


async def text_choices(service: Service, call: Call, request: CompletionRequest) -> list[AnswerChoice]:
    """The choices of a list of prompts, to be computed. Reserves places and tokens. Raises `ApiError`."""
    prompts = prompts_of(request.prompt)
    defaults = service.model.defaults
    silent = request.max_tokens == 0
    echo = request.logprobs if request.echo else None
    asked = 1 if silent else request.max_tokens
    limit = service.max_tokens(call, asked, "max_tokens", defaults.max_tokens or _MAX_TOKENS)
    given = given_sampling(request, Api.openai)
    params = sampling_params(given, service.model, limit, request.logprobs)
    if echo is not None and limit == 1:  # an end of the text has a log-probability, too, as lm_eval takes for granted
        params = replace(params, ignore_eos=True)
    stops, n, seed = stops_of(request.stop), choices_of(request.n), call.draw_seed(seed_of(given), defaults.seed)
    service.admission.widen(service.ticket(call), n * len(prompts))
    service.note_prompt(call, prompts)
    model, form = service.model, request.response_format
    grammar = None if form is None else await model.aside(lambda: _grammar(model, form))
    tokens = await token_ids(service, prompts, "prompt")
    service.count(call, tokens, "prompt")
    call.extra.append((b"x-zinc-seed", b"%d" % seed))
    made: list[AnswerChoice] = []
    for prompt in tokens:
        fitted = service.fitted(call, params, prompt)
        for i in range(n):
            submit = service.submit_of(call, len(made), prompt, fitted, nth_seed(seed, i), grammar, echo)
            made.append(AnswerChoice(len(made), submit, service.model.tokenizer, stops, silent=silent))
    return made


def _grammar(model: ServedModel, form: dict[str, Any]) -> Grammar | None:
    """What a text must follow, for another thread than the event loop's. Raises `ApiError`."""
    check_schema("response_format", form)
    try:
        return text_grammar(model.vocabulary, parse_response_format(form))
    except RequestError as error:
        raise invalid(str(error), error.param) from None
    except GrammarError as error:
        raise ApiError(400, str(error), param=error.where or "response_format", code="invalid_schema") from None


class _Writer:
    """Bodies and chunks of one request."""

    def __init__(self, service: Service, call: Call, request: CompletionRequest) -> None:
        self._tokenizer = service.model.tokenizer
        self._logprobs = request.logprobs is not None
        self._echo = bool(request.echo)
        self._offsets: dict[int, int] = {}
        self._prepared: dict[int, Prepared] = {}  # by choice: events that add text alone
        self._common = {
            "id": call.id,
            "object": "text_completion",
            "created": call.created,
            "model": service.name_of(call),
            "system_fingerprint": service.fingerprint,
        }

    def body(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """An answer, or a part of one."""
        return {**self._common, "choices": choices, **more}

    def event(self, answer: AnswerChoice, piece: ChoiceDelta) -> bytes:
        """The event of a piece, empty where it adds nothing."""
        if not (piece.deltas or piece.finish is not None or piece.logprobs):
            return b""
        found, text = self._prepared.get(answer.index), piece.content
        if found is not None and piece.finish is None and not self._logprobs:
            return found.event(text)
        if found is None:  # the first one, which may have more

            def make(text: str) -> bytes:
                return data(self.body([self.choice(answer, text, [], None, begins=False)]))

            self._prepared[answer.index] = Prepared(make)
        return data(self.body([self.choice(answer, text, [piece], piece.finish, begins=found is None)]))

    def choice(
        self, answer: AnswerChoice, text: str, pieces: Sequence[ChoiceDelta], finish: str | None, begins: bool
    ) -> dict[str, Any]:
        """A choice with this text more. begins: it is the first of its answer; the prompt comes before it then."""
        logprobs, first = None, None
        tokens = [lp for piece in pieces for lp in piece.logprobs]
        if begins and self._echo:
            text = self._tokenizer.decode(answer.request.prompt, skip_special=True) + text
            first, tokens = answer.request.prompt[0], [*answer.prompt_logprobs, *tokens]
        if self._logprobs and (tokens or finish is not None):
            start = self._offsets.get(answer.index, 0)
            logprobs, self._offsets[answer.index] = text_logprobs(self._tokenizer, tokens, start, first)
        return {"text": text, "index": answer.index, "logprobs": logprobs, "finish_reason": finish}


async def _whole(service: Service, call: Call, choices: list[AnswerChoice], writer: _Writer) -> None:
    made = [
        writer.choice(answer, "".join([piece.content for piece in pieces]), pieces, answer.finish, begins=True)
        for answer, pieces in zip(choices, await whole_answers(service, call, choices), strict=True)
    ]
    usage = {**chat_usage(call.choices), "zinc": own_usage(call.choices)}
    await call.reply_json(writer.body(made, usage=usage))


async def _stream(service: Service, call: Call, choices: list[AnswerChoice], writer: _Writer, usage: bool) -> None:
    async with event_stream(call, service.tenants.limits) as stream:
        await stream_choices(service, call, choices, stream, writer.event)
        if usage:
            figures = {**chat_usage(call.choices), "zinc": own_usage(call.choices)}
            stream.add(data(writer.body([], usage=figures)))
        stream.add(DONE)

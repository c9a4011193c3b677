"""Endpoints of llama.cpp's server beside OpenAI's: `/completion`, `/infill`, `/apply-template`, `/props`, `/slots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

import zinc_rt
from zinc_rt.sampling.params import Api, SamplingParams, parameters_of
from zinc_rt.scheduler.messages import Token
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.chat_common import ChatRequest, prompt_of
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.completions import CompletionRequest, text_choices
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.fields import LORA, ApiField, FieldRule, sampling
from zinc_rt.serving.api.generate import stream_choices, whole_answers
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.limits import CHOICES, TOP_LOGPROBS
from zinc_rt.serving.api.logprobs import token_logprob
from zinc_rt.serving.api.requests import (
    DRAWN_SEED,
    converted,
    given_sampling,
    read,
    read_json,
    stops_of,
    takes_sampling,
)
from zinc_rt.serving.api.served_adapters import LoraScale
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import data, event_stream

COMPLETION_PATHS: Final = ("/completion", "/completions")
"""The second is the older name."""
_COMMON: Final = (
    ApiField("n_predict", FieldRule.obeyed, "tokens of the answer; omitted and below 0: until the model ends"),
    ApiField("model", FieldRule.obeyed, "this server's model or one of its aliases, else 404; may be left out"),
    ApiField("lora", FieldRule.obeyed, LORA),
    ApiField("stop", FieldRule.obeyed, "up to 16 strings of up to 256 bytes"),
    ApiField("stream", FieldRule.obeyed, "server-sent events"),
    ApiField(
        "n_probs", FieldRule.obeyed, "0 to 20; log-probabilities of so many tokens, as `completion_probabilities`"
    ),
    ApiField("return_tokens", FieldRule.obeyed, "the answer's token ids as `tokens`; a stream always has them"),
    ApiField(
        "response_fields", FieldRule.obeyed, "the members of the answer that are sent; `a/b` is a member's member"
    ),
    ApiField("json_schema", FieldRule.obeyed, "the answer is JSON that fits"),
    ApiField("grammar", FieldRule.refused, "send `json_schema`, or `response_format` to `/v1/completions`", ("",)),
    ApiField("post_sampling_probs", FieldRule.refused, "log-probabilities are those of the model", (False,)),
    ApiField("cache_prompt", FieldRule.accepted, "prefixes are cached as memory allows"),
    ApiField("id_slot", FieldRule.accepted, "a request takes any place"),
    ApiField("n_keep", FieldRule.accepted, "nothing is cut from a prompt"),
    ApiField("timings_per_token", FieldRule.ignored, "the end of the answer has the times", (False,)),
    ApiField("samplers", FieldRule.ignored, "the order is llama.cpp's default"),
    *sampling(Api.llamacpp),
)
COMPLETION: Final = (
    ApiField("prompt", FieldRule.obeyed, "a text, token ids, both in one list, or up to 64 of these in a list"),
    ApiField("n_cmpl", FieldRule.obeyed, "1 to 8 answers; answer i uses `seed` + i"),
    *_COMMON,
)
INFILL: Final = (
    ApiField("input_prefix", FieldRule.obeyed, "the text before the gap"),
    ApiField("input_suffix", FieldRule.obeyed, "the text behind it"),
    ApiField("input_extra", FieldRule.obeyed, 'other files, as `{"filename": ..., "text": ...}`, before both'),
    ApiField("prompt", FieldRule.obeyed, "the beginning of what is filled in"),
    *_COMMON,
)
_OFF: Final = {
    "dynatemp_range": 0.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "typical_p": 1.0, "dry_multiplier": 0.0,
    "mirostat": 0, "n_keep": 0, "n_discard": 0, "min_keep": 0, "post_sampling_probs": False,
    "timings_per_token": False, "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
}  # fmt: skip
"""Settings of llama.cpp's server that are always so here."""


class ExtraFile(msgspec.Struct):
    """Another file of the project."""

    text: str
    filename: str = "tmp"


class _Common(msgspec.Struct, kw_only=True):
    """The fields that both requests for texts have."""

    n_predict: int = -1
    model: str | None = None
    lora: list[LoraScale] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    n_probs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] = 0
    return_tokens: bool = False
    response_fields: list[str] | None = None
    json_schema: dict[str, Any] | None = None


@takes_sampling(Api.llamacpp)
class LlamaCompletion(_Common, kw_only=True):
    """The fields that are obeyed; `COMPLETION` says what each does."""

    prompt: str | list[Any]
    n_cmpl: Annotated[int, Meta(ge=1, le=CHOICES)] = 1


@takes_sampling(Api.llamacpp)
class InfillRequest(_Common, kw_only=True):
    """The fields that are obeyed; `INFILL` says what each does."""

    input_prefix: str
    input_suffix: str
    input_extra: list[ExtraFile] = msgspec.field(default_factory=list)
    prompt: str = ""


class TemplateRequest(msgspec.Struct, kw_only=True):
    """A conversation to render."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None


async def props(service: Service, call: Call) -> None:
    """What the server and its model are."""
    model = service.model
    tokenizer = model.tokenizer
    await call.reply_json(
        {
            "default_generation_settings": {
                "params": {"seed": DRAWN_SEED, "stream": False, **_settings(model.defaults)},
                "n_ctx": model.n_ctx,
            },
            "total_slots": service.client.status.n_slots,
            "model_alias": model.name,
            "model_path": model.name,  # where it lies is the owner's affair
            "model_ftype": model.file.quantization,
            "chat_template": "" if model.template is None else model.template.source(),
            "bos_token": _text(model, tokenizer.bos_id),
            "eos_token": _text(model, tokenizer.eos_id),
            "modalities": {"vision": model.pictures is not None, "video": False, "audio": False},
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "is_sleeping": False,
            "build_info": f"zinc {zinc_rt.__version__}",
        }
    )


def _text(model: ServedModel, token_id: int | None) -> str:
    return "" if token_id is None else model.tokenizer.token_text(token_id)


def _settings(params: SamplingParams) -> dict[str, Any]:
    """Parameters of sampling by llama.cpp's names, without the seed."""
    names = {row.json_name(Api.llamacpp): row.name for row in parameters_of(Api.llamacpp) if row.name != "seed"}
    limit = -1 if params.max_tokens is None else params.max_tokens
    return {
        **_OFF,
        **{name: getattr(params, own) for name, own in names.items()},
        "logit_bias": [{"token": token_id, "bias": bias} for token_id, bias in params.logit_bias.items()],
        "max_tokens": limit,
        "n_predict": limit,
        "n_probs": params.logprobs or 0,
    }


async def slots(service: Service, call: Call) -> None:
    """How many requests can be computed at once, and how many are; for administrators."""
    service.check_admin(call)
    status, n_ctx = service.client.status, service.model.n_ctx
    busy = status.prefilling + status.decoding
    one = {"n_ctx": n_ctx, "speculative": False}
    await call.reply_json([{"id": i, **one, "is_processing": i < busy} for i in range(status.n_slots)])


async def apply_template(service: Service, call: Call) -> None:
    """The prompt of a conversation, as a text."""
    call.id = new_id("tmpl-")
    service.enter(call, None)
    request = converted(read_json(await call.body()), TemplateRequest)
    async with call.attended():
        made = await prompt_of(service, ChatRequest(**msgspec.structs.asdict(request)))
        await call.reply_json({"prompt": made.text})


async def completion(service: Service, call: Call) -> None:
    """Continue texts."""
    call.begin_answer("completion-")
    service.enter(call)
    request = read(call, await call.body(), LlamaCompletion, COMPLETION, service.config.strict)
    async with call.attended():
        given = request.prompt
        one = isinstance(given, str) or any(isinstance(part, int) for part in given)
        prompts = [await _joined(service.model, prompt) for prompt in ([given] if one else given)]
        await _answer(service, call, request, prompts, request.n_cmpl)


async def _joined(model: ServedModel, prompt: Any) -> Any:
    """Token ids of a list that has texts, too; any other prompt as it is. Raises `ApiError`."""
    if not isinstance(prompt, list) or not any(isinstance(part, str) for part in prompt):
        return prompt
    ids: list[Any] = []
    for i, part in enumerate(prompt):
        ids += await model.tokens_of_text(part, add_special=not i) if isinstance(part, str) else [part]
    return ids


async def infill(service: Service, call: Call) -> None:
    """What belongs between two texts."""
    call.begin_answer("infill-")
    service.enter(call)
    request = read(call, await call.body(), InfillRequest, INFILL, service.config.strict)
    async with call.attended():
        model, extra = service.model, request.input_extra
        prompt = await model.aside(
            lambda: infill_prompt(model, request.input_prefix, request.input_suffix, extra, request.prompt)
        )
        await _answer(service, call, request, [prompt])


def infill_prompt(
    model: ServedModel,
    prefix: str,
    suffix: str,
    extra: Sequence[ExtraFile] = (),
    begin: str = "",
    names: tuple[str, str] = ("input_prefix", "input_suffix"),
) -> list[int]:
    """Token ids in the order of llama.cpp: other files, what precedes, what follows. begin: of what is filled in.
    names: the fields of the two texts. For another thread than the event loop's. Raises `ApiError`.
    """
    tokenizer, fim = model.tokenizer, model.tokenizer.fim
    if not fills_in(model):
        said = f"the model {model.name!r} has no tokens for filling in; take one that was trained for it"
        raise ApiError(400, said, param="model", code="no_infill")
    for text, name in zip((prefix, suffix), names, strict=True):
        model.check_bytes(text, name)

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False, parse_special=False)

    made = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    if extra and "rep" in fim:
        made += [fim["rep"], *ids("myproject\n")]
    for file in extra:
        model.check_bytes(file.text, "input_extra")
        made += [fim["sep"], *ids(f"{file.filename}\n{file.text}")] if "sep" in fim else ids(f"{file.text}\n")
    if extra and "sep" in fim:
        made += [fim["sep"], *ids("filename\n")]
    made += [fim["pre"], *ids(prefix), fim["suf"], *ids(suffix), fim["mid"]]
    return made + ids(begin)


def fills_in(model: ServedModel) -> bool:
    """Whether a model has the tokens around a gap."""
    return {"pre", "suf", "mid"} <= model.tokenizer.fim.keys()


async def _answer(
    service: Service, call: Call, request: LlamaCompletion | InfillRequest, prompts: list[Any], n: int = 1
) -> None:
    """Continue prompts, in llama.cpp's form."""
    room = service.tenants.get(call.tenant).max_tokens or service.model.n_ctx
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": request.json_schema}}
    asked = CompletionRequest(
        prompt=prompts,
        n=n,
        max_tokens=request.n_predict if request.n_predict >= 0 else room,
        stop=request.stop,
        logprobs=request.n_probs or None,
        response_format=None if request.json_schema is None else form,
        **given_sampling(request, Api.llamacpp),
    )
    service.choose(call, request.model, request.lora)
    choices = await text_choices(service, call, asked)
    writers = [_Writer(service, call, request, choice) for choice in choices]
    if not request.stream:
        added = await whole_answers(service, call, choices)
        bodies = [writer.whole(pieces) for writer, pieces in zip(writers, added, strict=True)]
        await call.reply_json(bodies[0] if len(bodies) == 1 else bodies)
        return
    async with event_stream(call, service.tenants.limits) as stream:

        def told(answer: AnswerChoice, piece: ChoiceDelta) -> bytes:
            return b"".join(map(data, writers[answer.index].events(piece)))

        await stream_choices(service, call, choices, stream, told)


class _Writer:
    """Bodies and events of one answer."""

    def __init__(
        self, service: Service, call: Call, request: LlamaCompletion | InfillRequest, answer: AnswerChoice
    ) -> None:
        self._service, self._call, self._request, self._answer = service, call, request, answer
        self._tokenizer = service.model.tokenizer
        self._n, self._lines = 0, False

    def whole(self, pieces: Sequence[ChoiceDelta]) -> dict[str, Any]:
        """The whole answer."""
        likely = [token for piece in pieces for token in piece.logprobs]
        text = "".join([piece.content for piece in pieces])
        self._lines = "\n" in text
        return self._end(text, self._answer.tokens if self._request.return_tokens else (), likely)

    def events(self, piece: ChoiceDelta) -> list[dict[str, Any]]:
        """The events of a piece; the last one ends the answer."""
        made: list[dict[str, Any]] = []
        text = piece.content
        tokens = self._answer.tokens[self._n :]
        self._n += len(tokens)
        self._lines |= "\n" in text
        if text or tokens or piece.logprobs:
            counts = {"tokens_predicted": self._n, "tokens_evaluated": len(self._answer.request.prompt)}
            made.append({**self._part(text, tokens, piece.logprobs), "stop": False, "id_slot": -1, **counts})
        if piece.finish is not None:
            made.append(self._end("", (), ()))
        return made

    def _part(self, text: str, tokens: Sequence[int], likely: Sequence[Token]) -> dict[str, Any]:
        part: dict[str, Any] = {
            "index": self._answer.index,
            "content": text,
            "tokens": list(tokens),
        }
        if self._request.n_probs and likely:
            part["completion_probabilities"] = [self._likely(token) for token in likely]
        return part

    def _likely(self, token: Token) -> dict[str, Any]:
        top = [{"id": i, **token_logprob(self._tokenizer, i, value)} for i, value in token.top_logprobs or ()]
        own = token_logprob(self._tokenizer, token.token_id, token.logprob)
        return {"id": token.token_id, **own, "top_logprobs": top}

    def _end(self, text: str, tokens: Sequence[int], likely: Sequence[Token]) -> dict[str, Any]:
        """The whole answer, or what the end of a stream has."""
        answer, submit = self._answer, self._answer.request
        n_prompt, n = len(submit.prompt), answer.n_tokens
        kind = "limit" if answer.finish == "length" else "word" if answer.stop is not None else "eos"
        settings = {"seed": submit.seed, "stream": bool(self._request.stream), **_settings(submit.params)}
        body = {
            **self._part(text, tokens, likely),
            "id_slot": answer.index,
            "stop": True,
            "model": self._service.name_of(self._call),
            "tokens_predicted": n,
            "tokens_evaluated": n_prompt,
            "generation_settings": {**settings, "stop": list(stops_of(self._request.stop))},
            "prompt": self._tokenizer.decode(submit.prompt),
            "has_new_line": self._lines,
            "truncated": False,
            "stop_type": kind,
            "stopping_word": answer.stop or "",
            "tokens_cached": max(0, n_prompt + n - 1),
            "timings": _timings(answer),
        }
        named = self._request.response_fields
        return body if named is None else _members(body, named)


def _timings(answer: AnswerChoice) -> dict[str, float]:
    """What an answer took, in milliseconds. Tokens of the prompt that the cache had took none."""
    used, n = answer.usage, answer.n_tokens
    prefill, decode = (used.prefill_seconds * 1e3, used.decode_seconds * 1e3) if used is not None else (0.0, 0.0)
    n_read = len(answer.request.prompt) - answer.cached
    return {
        "cache_n": answer.cached,
        "prompt_n": n_read,
        "prompt_ms": prefill,
        "prompt_per_token_ms": prefill / n_read if n_read else 0.0,
        "prompt_per_second": n_read * 1e3 / prefill if prefill else 0.0,
        "predicted_n": n,
        "predicted_ms": decode,
        "predicted_per_token_ms": decode / n if n else 0.0,
        "predicted_per_second": n * 1e3 / decode if decode else 0.0,
    }


def _members(body: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The named members of an answer, those that it has."""
    made: dict[str, Any] = {}
    for name in names:
        at: Any = body
        for part in name.split("/"):
            at = at.get(part) if isinstance(at, Mapping) else None
        if at is not None:
            made[name] = at
    return made

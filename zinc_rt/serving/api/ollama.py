"""Ollama's endpoints of texts: `/api/chat`, `/api/generate`, `/api/embed`, `/api/embeddings`.

Built on what stands behind OpenAI's endpoints: the same requests have the same texts. Streams are lines of JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from zinc_rt.dialects.deltas import CallDelta, Delta
from zinc_rt.sampling.params import Api
from zinc_rt.scheduler.messages import Token
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.chat_common import ChatRequest, Effort, chat_choices
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.completions import CompletionRequest, prompts_of, text_choices, token_ids
from zinc_rt.serving.api.embeddings import vectors_of
from zinc_rt.serving.api.errors import invalid, unsupported
from zinc_rt.serving.api.fields import ApiField, FieldRule, judge, sampling
from zinc_rt.serving.api.generate import stream_choices, whole_answers
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.limits import TOP_LOGPROBS
from zinc_rt.serving.api.llamacpp import infill_prompt
from zinc_rt.serving.api.logprobs import chat_logprobs
from zinc_rt.serving.api.ollama_messages import calls_out, messages_of, texts_of, with_images
from zinc_rt.serving.api.ollama_models import check_model, error_line, plain, time_text
from zinc_rt.serving.api.requests import converted, given_sampling, ignore, read_json, stops_of, takes_sampling
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import AskedModel, Gives, Service
from zinc_rt.serving.api.sse import event_stream
from zinc_rt.serving.api.usage import completion_tokens, prompt_tokens
from zinc_rt.utils.checks import show
from zinc_rt.utils.durations import seconds_of

_NANO: Final = 10**9

KEEP_ALIVE: Final = ApiField(
    "keep_alive",
    FieldRule.obeyed,
    "how long the model stays loaded behind this request; see [models](#models-that-stay-loaded)",
)
MODEL: Final = ApiField(
    "model", FieldRule.obeyed, "this server's model or one of its aliases, with or without `:latest`"
)
OPTIONS_FIELD: Final = ApiField("options", FieldRule.obeyed, "see below")
COMMON: Final = (
    MODEL,
    ApiField("stream", FieldRule.obeyed, "lines of JSON; `true` where it is omitted"),
    ApiField("format", FieldRule.obeyed, "`json`, or a JSON schema"),
    ApiField(
        "think", FieldRule.obeyed, "given to the chat template as `enable_thinking`, a word as `reasoning_effort`"
    ),
    ApiField("logprobs", FieldRule.obeyed, "log-probabilities of the tokens, with their bytes"),
    ApiField("top_logprobs", FieldRule.obeyed, "0 to 20, with `logprobs`"),
    OPTIONS_FIELD,
    KEEP_ALIVE,
)
CHAT: Final = (
    ApiField(
        "messages",
        FieldRule.obeyed,
        "text, `images` in base64, `thinking`, `tool_calls`; none: says that it is loaded",
    ),
    ApiField("tools", FieldRule.obeyed, "at most 128 functions"),
    *COMMON,
)
GENERATE: Final = (
    ApiField("prompt", FieldRule.obeyed, "the message of the user; empty: says that the model is loaded"),
    ApiField("system", FieldRule.obeyed, "the message of the system"),
    ApiField(
        "raw", FieldRule.obeyed, "the prompt goes to the model as it is, and so it does where there is no chat template"
    ),
    ApiField("suffix", FieldRule.obeyed, "the text behind the gap that is filled in; for models with tokens for that"),
    ApiField("images", FieldRule.obeyed, "pictures in base64, before the prompt; not with `raw`"),
    ApiField("template", FieldRule.refused, "the model's own template is used; send `raw`", ("",)),
    ApiField("context", FieldRule.obeyed, "of an earlier answer: its tokens come first; not with `raw` and `images`"),
    *COMMON,
)
EMBED: Final = (
    MODEL,
    ApiField("input", FieldRule.obeyed, "a text, or up to 64 of them"),
    ApiField("dimensions", FieldRule.obeyed, "keep the first elements; for models trained for it"),
    ApiField("truncate", FieldRule.obeyed, "a text that is too long is cut; `false`: refused"),
    ApiField("options", FieldRule.ignored, "nothing is drawn", ({},)),
    KEEP_ALIVE,
)
EMBEDDINGS: Final = (
    MODEL,
    ApiField("prompt", FieldRule.obeyed, "a text, cut where it is too long"),
    ApiField("options", FieldRule.ignored, "nothing is drawn", ({},)),
    KEEP_ALIVE,
)
_HOW: Final = (
    "num_thread", "num_gpu", "main_gpu", "num_batch", "use_mmap", "use_mlock", "low_vram", "numa", "f16_kv",
)  # fmt: skip
_OFF: Final = {"mirostat": 0, "mirostat_tau": None, "mirostat_eta": None, "tfs_z": 1, "typical_p": 1}
"""Options of sampling that are not obeyed, and the values with which they do nothing."""
OPTIONS: Final = (
    ApiField(
        "num_predict", FieldRule.obeyed, "tokens of the answer; 0 and less: until the model ends or the context is full"
    ),
    ApiField("stop", FieldRule.obeyed, "up to 16 strings of up to 256 bytes"),
    *sampling(Api.ollama),
    ApiField("num_ctx", FieldRule.ignored, "the server's context holds (`zinc serve -c`)"),
    ApiField("num_keep", FieldRule.accepted, "nothing is cut from a prompt"),
    *(ApiField(name, FieldRule.accepted, "how it is computed is the server's affair") for name in _HOW),
    *(ApiField(name, FieldRule.ignored, "not known here", (off,)) for name, off in _OFF.items()),
)


@takes_sampling(Api.ollama)
class OllamaOptions(msgspec.Struct, kw_only=True):
    """The options that are obeyed; `OPTIONS` says what each does."""

    num_predict: int | None = None
    stop: str | list[str] | None = None

    @property
    def limit(self) -> int | None:
        """Tokens of the answer; None for as many as there is room for."""
        return self.num_predict if self.num_predict is not None and self.num_predict > 0 else None


def _in_seconds(kept: Any) -> Any:
    """A `keep_alive` that is a text as seconds, None where it is no time; anything else as it is."""
    return seconds_of(kept) if isinstance(kept, str) else kept


class _OfModel(msgspec.Struct, kw_only=True):
    """The fields that all requests share."""

    model: str
    keep_alive: float | str | None = None

    def seconds(self) -> float | None:
        """How long the model shall stay loaded, infinite for ever; None where that is not said. Raises `ApiError`."""
        found = _in_seconds(self.keep_alive)
        if self.keep_alive is not None and found is None:
            raise invalid(
                f"keep_alive is {show(self.keep_alive)}; it must be seconds, or a time as 5m, 90s or -1", "keep_alive"
            )
        return math.inf if found is not None and found < 0 else found


class _Common(_OfModel, kw_only=True):
    """The fields that chats and texts share."""

    stream: bool | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    think: bool | Effort | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] = 0
    options: OllamaOptions = msgspec.field(default_factory=OllamaOptions)


class OllamaChat(_Common, kw_only=True):
    """The fields that are obeyed; `CHAT` says what each does."""

    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] | None = None


class OllamaGenerate(_Common, kw_only=True):
    """The fields that are obeyed; `GENERATE` says what each does."""

    prompt: str = ""
    system: str = ""
    raw: bool = False
    suffix: str = ""
    images: list[str] | None = None
    context: list[int] | None = None


class OllamaEmbed(_OfModel, kw_only=True):
    """The fields that are obeyed; `EMBED` says what each does."""

    input: str | list[str]
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    truncate: bool = True


class OllamaEmbeddings(_OfModel, kw_only=True):
    """The fields that are obeyed; `EMBEDDINGS` says what each does."""

    prompt: str = ""


R = TypeVar("R", OllamaChat, OllamaGenerate, OllamaEmbed, OllamaEmbeddings)


async def named_for_text(front: Service, call: Call) -> AskedModel:
    """The model that a chat or a text is asked of. Raises `ApiError`."""
    body = read_json(await call.body())
    kept = body.get("keep_alive")
    now = _in_seconds(kept) == 0 and kept is not False
    nothing = not any(body.get(name) for name in ("messages", "prompt", "suffix"))
    return AskedModel(body.get("model"), body.get("name"), unloads=now and nothing and front.is_admin(call))


async def chat(service: Service, call: Call) -> None:
    """The next message of a conversation."""
    call.begin_answer("ollama-")
    if service.table is not None:
        await _not_loaded(call, _message)
        return
    service.enter(call)
    request = await _asked(service, call, OllamaChat, CHAT)
    async with call.attended():
        lines = _Lines(service, request, _message)
        if not request.messages:
            await call.reply_json(lines.line("", "") | _nothing_asked(service, call, request))
            return
        choices = await _chat_choices(service, call, request, messages_of(request.messages), request.tools)
        await _answer(service, call, request, choices, lines)


async def generate(service: Service, call: Call) -> None:
    """The answer to a prompt."""
    call.begin_answer("ollama-")
    if service.table is not None:
        await _not_loaded(call, _response)
        return
    service.enter(call)
    request = await _asked(service, call, OllamaGenerate, GENERATE)
    async with call.attended():
        lines = _Lines(service, request, _response)
        if not request.prompt and not request.suffix:
            await call.reply_json(lines.line("", "") | _nothing_asked(service, call, request))
            return
        raw = request.raw or bool(request.suffix) or service.model.chat is None
        _check_goes_together(request, raw)
        if raw:
            choices = await _raw_choices(service, call, request)
        else:
            said: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
            asked = with_images(request.prompt, request.images, "images") if request.images else request.prompt
            said.append({"role": "user", "content": asked})
            choices = await _chat_choices(service, call, request, said, before=request.context or ())
        await _answer(service, call, request, choices, lines)


async def _not_loaded(call: Call, part: _Part) -> None:
    """Answer a request that unloads a model which is not loaded."""
    model = read_json(await call.body()).get("model")
    line = {"model": model, "created_at": time_text(datetime.now(UTC)), **part("", "", ())}
    await call.reply_json(line | {"done_reason": "unload", "done": True})


def _nothing_asked(service: Service, call: Call, request: OllamaChat | OllamaGenerate) -> dict[str, Any]:
    """The end of an answer where no text is asked for: what becomes of the model."""
    unloads = request.seconds() == 0 and _may_keep(service, call)
    return {"done_reason": "unload" if unloads else "load", "done": True}


def _may_keep(service: Service, call: Call) -> bool:
    """Whether a request says how long the model stays loaded; one that is alone stays."""
    return service.front is not None and service.is_admin(call)


def _check_goes_together(request: OllamaGenerate, raw: bool) -> None:
    """Refuse what a prompt cannot have. raw: it goes to the model as it is. Raises `ApiError`."""
    if raw and request.images:
        raise unsupported("images", "a raw prompt has none; leave out raw")
    if request.system and (request.raw or request.suffix):
        raise unsupported("system", "a raw prompt has none, nor has one with a suffix")
    if request.context and (request.raw or request.suffix or request.images):
        raise unsupported("context", "send the conversation to /api/chat")


async def embed(service: Service, call: Call) -> None:
    """Vectors of texts."""
    call.id = new_id("ollama-")
    service.enter(call, Gives.VECTORS)
    request = await _asked(service, call, OllamaEmbed, EMBED)
    async with call.attended():
        texts = [request.input] if isinstance(request.input, str) else request.input
        vectors, total = await _vectors(service, call, [] if texts == [""] else texts, "input", request)
        took = int((monotonic() - call.started) * _NANO)
        rest = {"total_duration": took, "load_duration": int(call.load_seconds * _NANO), "prompt_eval_count": total}
        await call.reply_json({"model": request.model, "embeddings": vectors, **rest})


async def embeddings(service: Service, call: Call) -> None:
    """The vector of a text, as clients before `/api/embed` ask for it."""
    call.id = new_id("ollama-")
    service.enter(call, Gives.VECTORS)
    request = await _asked(service, call, OllamaEmbeddings, EMBEDDINGS)
    async with call.attended():
        vectors, _ = await _vectors(service, call, [request.prompt] if request.prompt else [], "prompt")
        await call.reply_json({"embedding": vectors[0] if vectors else []})


async def _vectors(
    service: Service, call: Call, texts: list[str], param: str, request: OllamaEmbed | None = None
) -> tuple[list[list[float]], int]:
    """Vectors of texts, and how many tokens these have. Raises `ApiError`."""
    if not texts:
        return [], 0
    cut, dimensions = (True, None) if request is None else (request.truncate, request.dimensions)
    model = service.model
    asked = prompts_of([model.beginning(text) for text in texts] if cut else texts, param)
    tokens = await token_ids(service, asked, param)
    if cut:
        tokens = [_cut(ids, model) for ids in tokens]
    vectors = await vectors_of(service, service.ticket(call), tokens, dimensions, param)
    call.facts["prompt_tokens"] = total = sum(map(len, tokens))
    return [vector.tolist() for vector in vectors], total


def _cut(ids: tuple[int, ...], model: ServedModel) -> tuple[int, ...]:
    """As many token ids as the context holds; the special token at the end stays."""
    if len(ids) <= model.n_ctx:
        return ids
    end = ids[-1:] if model.tokenizer.is_special(ids[-1]) else ()
    return ids[: model.n_ctx - len(end)] + end


async def _asked(service: Service, call: Call, kind: type[R], fields: Sequence[ApiField]) -> R:
    """The request, whose model is here; options are judged one by one. Raises `ApiError`."""
    obeyed, ignored = judge(fields, read_json(await call.body()), service.config.strict)
    given = obeyed.get("options")
    if isinstance(given, Mapping):
        obeyed["options"], more = judge(OPTIONS, given, service.config.strict)
        ignored += [f"options.{name}" for name in more]
    elif given is None:
        obeyed.pop("options", None)
    ignore(call, ignored)
    request = converted(obeyed, kind)
    check_model(service, request.model)
    if (seconds := request.seconds()) is not None and service.front is not None:
        if _may_keep(service, call):
            service.keep(seconds)
        else:
            ignore(call, ["keep_alive"])
    return request


async def _chat_choices(
    service: Service,
    call: Call,
    request: OllamaChat | OllamaGenerate,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    before: Sequence[int] = (),
) -> list[AnswerChoice]:
    options, think = request.options, request.think
    conversation = ChatRequest(
        messages=messages,
        model=plain(service, request.model),
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        max_tokens=options.limit,
        stop=list(stops_of(options.stop, "options.stop")),
        tools=tools or None,
        response_format=_format(request.format),
        reasoning_effort=think if isinstance(think, str) else None,
        chat_template_kwargs={"enable_thinking": think} if isinstance(think, bool) else None,
        **given_sampling(options, Api.ollama),
    )
    return await chat_choices(service, call, conversation, limit_param="options.num_predict", before=before)


async def _raw_choices(service: Service, call: Call, request: OllamaGenerate) -> list[AnswerChoice]:
    service.choose(call, plain(service, request.model))
    options, model = request.options, service.model
    text = request.system + request.prompt
    prompt: str | list[int] = text
    if request.suffix:
        texts, names = (request.prompt, request.suffix), ("prompt", "suffix")
        prompt = await model.aside(lambda: infill_prompt(model, *texts, names=names))
    elif request.context:
        prompt = [*request.context, *await model.tokens_of_text(text, add_special=False)]
    room = service.tenants.get(call.tenant).max_tokens or model.n_ctx
    asked = CompletionRequest(
        prompt=prompt,
        logprobs=request.top_logprobs if request.logprobs else None,
        response_format=_format(request.format),
        max_tokens=options.limit or room,
        stop=options.stop,
        **given_sampling(options, Api.ollama),
    )
    return await text_choices(service, call, asked)


def _format(given: str | dict[str, Any] | None) -> dict[str, Any] | None:
    if not given:
        return None
    if isinstance(given, str):
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": given, "strict": True}}


_Part = Callable[[str, str, Sequence[dict[str, Any]]], dict[str, Any]]


def _message(text: str, thinking: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What `/api/chat` answers with."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = list(calls)
    return {"message": message}


def _response(text: str, thinking: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What `/api/generate` answers with."""
    return {"response": text, **({"thinking": thinking} if thinking else {})}


class _Lines:
    """Lines of one answer; the model has the name in them by which it was asked for. part: how the endpoint writes a
    text.
    """

    def __init__(self, service: Service, request: OllamaChat | OllamaGenerate, part: _Part) -> None:
        self._model, self._part = request.model, part
        self._tokenizer = service.model.tokenizer if request.logprobs else None

    def line(
        self, text: str, thinking: str, calls: Sequence[dict[str, Any]] = (), tokens: Sequence[Token] = ()
    ) -> dict[str, Any]:
        """A piece of the answer, or all of it. tokens: whose log-probabilities it has, where they are asked for."""
        when = time_text(datetime.now(UTC))
        line = {"model": self._model, "created_at": when, **self._part(text, thinking, calls), "done": False}
        if self._tokenizer is not None and tokens:
            line["logprobs"] = chat_logprobs(self._tokenizer, tokens)["content"]
        return line


def _end(call: Call, request: OllamaChat | OllamaGenerate) -> dict[str, Any]:
    """What the last line has more: why the answer ended, counts, times in nanoseconds, and of a prompt the tokens with
    which the next one may begin.
    """
    (answer,) = call.choices
    usage, context = answer.usage, {}
    if isinstance(request, OllamaGenerate) and not (request.raw or request.suffix or request.images):
        context = {"context": [*answer.request.prompt, *answer.tokens]}
    prefill, decode = (usage.prefill_seconds, usage.decode_seconds) if usage is not None else (0.0, 0.0)
    return {
        "done": True,
        "done_reason": "length" if answer.finish == "length" else "stop",
        "total_duration": int((monotonic() - call.started) * _NANO),
        "load_duration": int(call.load_seconds * _NANO),
        "prompt_eval_count": prompt_tokens(call.choices),
        "prompt_eval_duration": int(prefill * _NANO),
        "eval_count": completion_tokens(call.choices),
        "eval_duration": int(decode * _NANO),
        **context,
    }


async def _answer(
    service: Service, call: Call, request: OllamaChat | OllamaGenerate, choices: list[AnswerChoice], lines: _Lines
) -> None:
    if request.stream is False:
        (pieces,) = await whole_answers(service, call, choices)
        deltas = [delta for piece in pieces for delta in piece.deltas]
        tokens = [token for piece in pieces for token in piece.logprobs]
        await call.reply_json(lines.line(*texts_of(deltas), calls_out(deltas), tokens) | _end(call, request))
        return
    async with event_stream(call, service.tenants.limits, error_line, lines=True) as stream:

        def encoded(line: dict[str, Any]) -> bytes:
            return msgspec.json.encode(line) + b"\n"

        calls: list[Delta] = []

        def told(_: AnswerChoice, piece: ChoiceDelta) -> bytes:
            calls.extend(delta for delta in piece.deltas if isinstance(delta, CallDelta))
            text, thinking = texts_of(piece.deltas)
            if not (text or thinking or piece.logprobs):
                return b""
            return encoded(lines.line(text, thinking, tokens=piece.logprobs))

        await stream_choices(service, call, choices, stream, told)
        if calls and (made := calls_out(calls)):
            stream.add(encoded(lines.line("", "", made)))
        stream.add(encoded(lines.line("", "") | _end(call, request)))

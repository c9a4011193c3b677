"""Ollama's interface: `/api/chat`, `/api/generate`, `/api/embed`, `/api/tags`, `/api/show`, `/api/ps`, `/api/version`.

Built on what stands behind OpenAI's endpoints: the same requests have the same texts. Streams are lines of JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta, ReasoningDelta
from zinc_rt.dialects.deltas import ParsedAnswer as Message
from zinc_rt.sampling.params import Api
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.chat_common import ChatRequest, Effort, chat_choices
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.completions import CompletionRequest, prompts_of, text_choices, token_ids
from zinc_rt.serving.api.embeddings import vectors_of
from zinc_rt.serving.api.errors import ApiError, invalid, unsupported
from zinc_rt.serving.api.fields import ApiField, FieldRule, judge, sampling
from zinc_rt.serving.api.generate import run, stream_choices
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.pictures import PlacedPart
from zinc_rt.serving.api.requests import S, converted, given_sampling, ignore, read_json, stops_of, takes_sampling
from zinc_rt.serving.api.service import Gives, Service
from zinc_rt.serving.api.sse import event_stream
from zinc_rt.serving.api.usage import completion_tokens, prompt_tokens

VERSION: Final = "0.12.6"
"""The release of Ollama whose interface this is: clients ask for a least one."""
_LATEST: Final = ":latest"
_NANO: Final = 10**9

KEEP_ALIVE: Final = ApiField("keep_alive", FieldRule.accepted, "the model stays loaded as long as the server runs")
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
    ApiField("suffix", FieldRule.refused, "use `/infill`", ("",)),
    ApiField("images", FieldRule.obeyed, "pictures in base64, before the prompt; not with `raw`"),
    ApiField("template", FieldRule.refused, "the model's own template is used; send `raw`", ("",)),
    ApiField("context", FieldRule.ignored, "send the conversation to `/api/chat`", ([],)),
    *COMMON,
)
EMBED: Final = (
    MODEL,
    ApiField("input", FieldRule.obeyed, "a text, or up to 64 of them"),
    ApiField("dimensions", FieldRule.obeyed, "keep the first elements; for models trained for it"),
    ApiField("truncate", FieldRule.ignored, "a text that is too long is refused", (False,)),
    ApiField("options", FieldRule.ignored, "nothing is drawn", ({},)),
    KEEP_ALIVE,
)
OPTIONS: Final = (
    ApiField(
        "num_predict", FieldRule.obeyed, "tokens of the answer; 0 and less: until the model ends or the context is full"
    ),
    ApiField("stop", FieldRule.obeyed, "up to 16 strings of up to 256 bytes"),
    *sampling(Api.ollama),
    ApiField("num_ctx", FieldRule.ignored, "the server's context holds (`zinc serve -c`)"),
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


class _Common(msgspec.Struct, kw_only=True):
    """The fields that chats and texts share."""

    model: str
    stream: bool | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    think: bool | Effort | None = None
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
    images: list[str] | None = None


class OllamaEmbed(msgspec.Struct, kw_only=True):
    """The fields that are obeyed; `EMBED` says what each does."""

    model: str
    input: str | list[str]
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class OllamaShow(msgspec.Struct, kw_only=True):
    """Which model is asked for, by its newer or older name."""

    model: str | None = None
    name: str | None = None


async def chat(service: Service, call: Call) -> None:
    """The next message of a conversation."""
    call.begin_answer("ollama-")
    service.enter(call)
    request = _read(service, call, await call.body(), OllamaChat, CHAT)
    async with call.attended():
        lines = _Lines(_name(service, request.model), _message)
        if not request.messages:
            await call.reply_json(lines.line("", "") | {"done_reason": "load", "done": True})
            return
        choices = await _chat_choices(service, call, request, _messages(request.messages), request.tools)
        await _answer(service, call, request, choices, lines)


async def generate(service: Service, call: Call) -> None:
    """The answer to a prompt."""
    call.begin_answer("ollama-")
    service.enter(call)
    request = _read(service, call, await call.body(), OllamaGenerate, GENERATE)
    async with call.attended():
        lines = _Lines(_name(service, request.model), _response)
        if not request.prompt:
            await call.reply_json(lines.line("", "") | {"done_reason": "load", "done": True})
            return
        if request.raw or service.model.chat is None:
            if request.images:
                raise unsupported("images", "a raw prompt has none; leave out raw")
            choices = await _raw_choices(service, call, request)
        else:
            said: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
            asked = _with_images(request.prompt, request.images, "images") if request.images else request.prompt
            said.append({"role": "user", "content": asked})
            choices = await _chat_choices(service, call, request, said)
        await _answer(service, call, request, choices, lines)


async def embed(service: Service, call: Call) -> None:
    """Vectors of texts."""
    call.id = new_id("ollama-")
    ticket = service.enter(call, Gives.VECTORS)
    request = _read(service, call, await call.body(), OllamaEmbed, EMBED)
    async with call.attended():
        name = _name(service, request.model)
        tokens = await token_ids(service, prompts_of(request.input, "input"), "input") if request.input else []
        vectors = await vectors_of(service, ticket, tokens, request.dimensions) if tokens else ()
        total = sum(map(len, tokens))
        call.facts["prompt_tokens"] = total
        took = int((monotonic() - call.started) * _NANO)
        rest = {"total_duration": took, "load_duration": 0, "prompt_eval_count": total}
        await call.reply_json({"model": name, "embeddings": [v.tolist() for v in vectors], **rest})


async def tags(service: Service, call: Call) -> None:
    """The model under each of its names."""
    await call.reply_json({"models": [_entry(service, name) for name in service.model.names]})


async def running(service: Service, call: Call) -> None:
    """What is loaded."""
    model = service.model
    state = {"expires_at": "0001-01-01T00:00:00Z", "size_vram": 0, "context_length": model.n_ctx}
    loaded = [] if service.loading is not None else [_entry(service, model.name) | state]
    await call.reply_json({"models": loaded})


async def version(service: Service, call: Call) -> None:
    """The release of Ollama whose interface this is."""
    await call.reply_json({"version": VERSION})


async def show(service: Service, call: Call) -> None:
    """What a client may want to know of the model."""
    request = converted(read_json(await call.body()), OllamaShow)
    name = request.model or request.name
    if not name:
        raise invalid("model is missing", "model", "missing_required_parameter")
    model = service.model
    entry = _entry(service, _name(service, name))
    facts = {**model.file.metadata, "general.parameter_count": model.file.parameters}
    await call.reply_json(
        {
            "modelfile": f"FROM {model.name}",
            "parameters": "",
            "template": "" if model.template is None else model.template.source(),
            "details": entry["details"],
            "model_info": facts,
            "capabilities": _capabilities(service),
            "modified_at": entry["modified_at"],
        }
    )


def error_line(error: ApiError) -> bytes:
    """An error as a line of a stream."""
    return msgspec.json.encode(error.ollama()) + b"\n"


def _capabilities(service: Service) -> list[str]:
    if service.gives is not Gives.TEXT:
        return ["embedding"] if service.gives is Gives.VECTORS else []
    dialect = service.model.chat.dialect if service.model.chat is not None else None
    return [
        "completion",
        *(["vision"] if service.model.pictures is not None else []),
        *(["tools"] if dialect is not None and dialect.takes_tools else []),
        *(["thinking"] if dialect is not None and (dialect.think is not None or dialect.harmony) else []),
    ]


def _entry(service: Service, name: str) -> dict[str, Any]:
    model = service.model
    n = model.file.parameters
    size = f"{n / 1e9:.1f}B" if n >= 10**9 else f"{n / 1e6:.1f}M"
    return {
        "name": name,
        "model": name,
        "modified_at": _time(datetime.fromtimestamp(model.created, UTC)),
        "size": model.file.size,
        "digest": model.fingerprint,
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": model.architecture,
            "families": [model.architecture],
            "parameter_size": size,
            "quantization_level": model.file.quantization,
        },
    }


def _time(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")


def _name(service: Service, name: str) -> str:
    """The model's name as it was asked for. Raises `ApiError`, 404, for another model."""
    service.model.check_name(_plain(service, name))
    return name


def _plain(service: Service, name: str) -> str:
    """A name without what Ollama's clients put behind it."""
    known = name in service.model.names or service.model.adapters.find(name) is not None
    return name if known else name.removesuffix(_LATEST)


def _read(service: Service, call: Call, body: bytes, kind: type[S], fields: Sequence[ApiField]) -> S:
    """A body as a request; options are judged one by one. Raises `ApiError`."""
    obeyed, ignored = judge(fields, read_json(body), service.config.strict)
    given = obeyed.get("options")
    if isinstance(given, Mapping):
        obeyed["options"], more = judge(OPTIONS, given, service.config.strict)
        ignored += [f"options.{name}" for name in more]
    elif given is None:
        obeyed.pop("options", None)
    ignore(call, ignored)
    return converted(obeyed, kind)


async def _chat_choices(
    service: Service,
    call: Call,
    request: OllamaChat | OllamaGenerate,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
) -> list[AnswerChoice]:
    options, think = request.options, request.think
    response_format = _format(request.format)
    conversation = ChatRequest(
        messages=messages,
        model=_plain(service, request.model),
        max_tokens=options.limit,
        stop=list(stops_of(options.stop, "options.stop")),
        tools=tools or None,
        response_format=response_format,
        reasoning_effort=think if isinstance(think, str) else None,
        chat_template_kwargs={"enable_thinking": think} if isinstance(think, bool) else None,
        **given_sampling(options, Api.ollama),
    )
    return await chat_choices(service, call, conversation, limit_param="options.num_predict")


async def _raw_choices(service: Service, call: Call, request: OllamaGenerate) -> list[AnswerChoice]:
    if request.format:
        raise unsupported("format", "a raw prompt has none; leave out raw")
    service.choose(call, _plain(service, request.model))
    options = request.options
    room = service.tenants.get(call.tenant).max_tokens or service.model.n_ctx
    asked = CompletionRequest(
        prompt=request.system + request.prompt,
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


def _messages(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages in OpenAI's form: calls have ids there, and what a tool answered names its call. Raises `ApiError`."""
    made: list[dict[str, Any]] = []
    open_calls: list[tuple[str, str]] = []  # names and ids of calls that no tool has answered yet
    for at, message in enumerate(given):
        one = {key: message[key] for key in ("role", "content", "name") if message.get(key) is not None}
        if message.get("images"):
            one["content"] = _with_images(one.get("content", ""), message["images"], f"messages[{at}].images")
        if message.get("role") == "assistant":
            if message.get("thinking") is not None:
                one["reasoning_content"] = message["thinking"]
            if message.get("tool_calls"):
                one["tool_calls"] = list(_calls_in(message["tool_calls"], at))
                open_calls = [(call["function"]["name"], call["id"]) for call in one["tool_calls"]]
        elif message.get("role") == "tool":
            name = message.get("tool_name") or message.get("name")
            fits = next((call for call in open_calls if call[0] == name), open_calls[0] if open_calls else None)
            if fits is not None:
                open_calls.remove(fits)
            one["tool_call_id"] = fits[1] if fits is not None else f"call_{at}"
            if isinstance(name, str):
                one["name"] = name
        made.append(one)
    return made


def _with_images(content: Any, images: object, place: str) -> list[Any]:
    """A message's pictures and its text behind them, as parts. Raises `ApiError`."""
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise invalid(f"{place} must be a list of pictures in base64", place, "invalid_type")
    parts = [PlacedPart(f"data:;base64,{image}", f"{place}[{i}]") for i, image in enumerate(images)]
    return [*parts, {"type": "text", "text": content}]


def _calls_in(given: object, at: int) -> Iterator[dict[str, Any]]:
    if not isinstance(given, list):
        raise invalid(f"messages[{at}].tool_calls must be a list", "messages", "invalid_type")
    for i, call in enumerate(given):
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            raise invalid(f"messages[{at}].tool_calls[{i}] has no function with a name", "messages", "invalid_type")
        arguments = function.get("arguments") or {}
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        yield {"id": f"call_{at}_{i}", "type": "function", "function": {"name": name, "arguments": text}}


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
    """Lines of one answer. model: its name as it was asked for. part: how the endpoint writes a text."""

    def __init__(self, model: str, part: _Part) -> None:
        self._model, self._part = model, part

    def line(self, text: str, thinking: str, calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """A piece of the answer, or all of it."""
        when = _time(datetime.now(UTC))
        return {"model": self._model, "created_at": when, **self._part(text, thinking, calls), "done": False}


def _end(call: Call) -> dict[str, Any]:
    """What the last line has more: why the answer ended, counts, and times in nanoseconds."""
    (answer,) = call.choices
    usage = answer.usage
    prefill, decode = (usage.prefill_seconds, usage.decode_seconds) if usage is not None else (0.0, 0.0)
    return {
        "done": True,
        "done_reason": "length" if answer.finish == "length" else "stop",
        "total_duration": int((monotonic() - call.started) * _NANO),
        "load_duration": 0,
        "prompt_eval_count": prompt_tokens(call.choices),
        "prompt_eval_duration": int(prefill * _NANO),
        "eval_count": completion_tokens(call.choices),
        "eval_duration": int(decode * _NANO),
    }


def _calls_out(deltas: Sequence[Delta]) -> list[dict[str, Any]]:
    """Calls of tools, their arguments as objects; one that was cut off is left out."""
    made: list[dict[str, Any]] = []
    for call in Message.join(deltas).tool_calls:
        try:
            arguments = msgspec.json.decode(call.arguments or "{}")
        except msgspec.DecodeError:
            continue
        made.append({"id": call.id, "function": {"index": len(made), "name": call.name, "arguments": arguments}})
    return made


def _texts(deltas: Sequence[Delta]) -> tuple[str, str]:
    """Content and thinking."""
    content = "".join(d.text for d in deltas if isinstance(d, ContentDelta))
    return content, "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))


async def _answer(
    service: Service, call: Call, request: OllamaChat | OllamaGenerate, choices: list[AnswerChoice], lines: _Lines
) -> None:
    if request.stream is False:
        steps = run(service, call, choices, service.seconds(call))
        deltas = [delta async for due in steps for _, piece in due for delta in piece.deltas]
        await call.reply_json(lines.line(*_texts(deltas), _calls_out(deltas)) | _end(call))
        return
    async with event_stream(call, service.tenants.limits, error_line, lines=True) as stream:

        def encoded(line: dict[str, Any]) -> bytes:
            return msgspec.json.encode(line) + b"\n"

        calls: list[Delta] = []

        def told(_: AnswerChoice, piece: ChoiceDelta) -> bytes:
            calls.extend(delta for delta in piece.deltas if isinstance(delta, CallDelta))
            text, thinking = _texts(piece.deltas)
            return encoded(lines.line(text, thinking)) if text or thinking else b""

        await stream_choices(service, call, choices, stream, told)
        if calls and (made := _calls_out(calls)):
            stream.add(encoded(lines.line("", "", made)))
        stream.add(encoded(lines.line("", "") | _end(call)))

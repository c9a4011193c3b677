"""Endpoints of llama.cpp's server beside OpenAI's: `/props`, `/slots`, `/apply-template`, `/infill`, `/rerank`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

import zinc_rt
from zinc_rt.dialects.deltas import ContentDelta
from zinc_rt.sampling.params import Api, parameters_of
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.chat_common import ChatRequest, prompt_of
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.completions import CompletionRequest, text_choices
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.fields import LORA, ApiField, FieldRule, sampling
from zinc_rt.serving.api.generate import run, stream_choices
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.requests import converted, given_sampling, read, read_json, takes_sampling
from zinc_rt.serving.api.served_adapters import LoraScale
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import Prepared, data, event_stream
from zinc_rt.serving.api.usage import cached_tokens, completion_tokens, prompt_tokens

INFILL: Final = (
    ApiField("input_prefix", FieldRule.obeyed, "the text before the gap"),
    ApiField("input_suffix", FieldRule.obeyed, "the text behind it"),
    ApiField("input_extra", FieldRule.obeyed, 'other files, as `{"filename": ..., "text": ...}`, before both'),
    ApiField("prompt", FieldRule.obeyed, "the beginning of what is filled in"),
    ApiField("n_predict", FieldRule.obeyed, "tokens of the answer; omitted, 0 and less: until the model ends"),
    ApiField("model", FieldRule.obeyed, "this server's model or one of its aliases, else 404; may be left out"),
    ApiField("lora", FieldRule.obeyed, LORA),
    ApiField("stop", FieldRule.obeyed, "up to 16 strings of up to 256 bytes"),
    ApiField("stream", FieldRule.obeyed, "server-sent events"),
    ApiField("cache_prompt", FieldRule.accepted, "prefixes are cached as memory allows"),
    ApiField("id_slot", FieldRule.accepted, "a request takes any place"),
    *sampling(Api.openai),
)


class ExtraFile(msgspec.Struct):
    """Another file of the project."""

    text: str
    filename: str = "tmp"


@takes_sampling(Api.openai)
class InfillRequest(msgspec.Struct, kw_only=True):
    """The fields that are obeyed; `INFILL` says what each does."""

    input_prefix: str
    input_suffix: str
    input_extra: list[ExtraFile] = msgspec.field(default_factory=list)
    prompt: str = ""
    model: str | None = None
    n_predict: int | None = None
    lora: list[LoraScale] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None


class TemplateRequest(msgspec.Struct, kw_only=True):
    """A conversation to render."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


async def props(service: Service, call: Call) -> None:
    """What the server and its model are."""
    model = service.model
    tokenizer = model.tokenizer
    rows = sorted(parameters_of(Api.ollama), key=lambda row: row.json_name(Api.ollama) != row.name)
    params = {row.json_name(Api.ollama): row.default for row in rows if row.default is not None}
    await call.reply_json(
        {
            "default_generation_settings": {"n_ctx": model.n_ctx, "params": params},
            "total_slots": service.client.status.n_slots,
            "model_alias": model.name,
            "chat_template": "" if model.template is None else model.template.source(),
            "bos_token": _text(model, tokenizer.bos_id),
            "eos_token": _text(model, tokenizer.eos_id),
            "modalities": {"vision": model.pictures is not None, "audio": False},
            "build_info": f"zinc {zinc_rt.__version__}",
        }
    )


def _text(model: ServedModel, token_id: int | None) -> str:
    return "" if token_id is None else model.tokenizer.token_text(token_id)


async def slots(service: Service, call: Call) -> None:
    """How many requests can be computed at once, and how many are; for administrators."""
    service.check_admin(call)
    status, n_ctx = service.client.status, service.model.n_ctx
    busy = status.prefilling + status.decoding
    await call.reply_json([{"id": i, "n_ctx": n_ctx, "is_processing": i < busy} for i in range(status.n_slots)])


async def apply_template(service: Service, call: Call) -> None:
    """The prompt of a conversation, as a text."""
    call.id = new_id("tmpl-")
    service.enter(call, None)
    request = converted(read_json(await call.body()), TemplateRequest)
    async with call.attended():
        asked = ChatRequest(
            messages=request.messages, tools=request.tools, chat_template_kwargs=request.chat_template_kwargs
        )
        made = await prompt_of(service, asked)
        await call.reply_json({"prompt": made.text})


async def infill(service: Service, call: Call) -> None:
    """What belongs between two texts."""
    call.begin_answer("infill-")
    service.enter(call)
    request = read(call, await call.body(), InfillRequest, INFILL, service.config.strict)
    async with call.attended():
        prompt = await service.model.aside(lambda: _prompt(service.model, request))
        room = service.tenants.get(call.tenant).max_tokens or service.model.n_ctx
        limit = request.n_predict if request.n_predict is not None and request.n_predict > 0 else room
        given = given_sampling(request, Api.openai)
        asked = CompletionRequest(prompt=prompt, max_tokens=limit, stop=request.stop, **given)
        service.choose(call, request.model, request.lora)
        choices = await text_choices(service, call, asked)
        if not request.stream:
            steps = run(service, call, choices, service.seconds(call))
            text = "".join([_content(piece) async for due in steps for _, piece in due])
            await call.reply_json({"content": text, **_end(service, call)})
            return
        async with event_stream(call, service.tenants.limits) as stream:
            prepared = Prepared(lambda text: data({"index": 0, "content": text, "stop": False}))

            def told(_: AnswerChoice, piece: ChoiceDelta) -> bytes:
                text = _content(piece)
                return prepared.event(text) if text else b""

            await stream_choices(service, call, choices, stream, told)
            stream.add(data({"index": 0, "content": "", **_end(service, call)}))


def _prompt(model: ServedModel, request: InfillRequest) -> list[int]:
    """Token ids in the order of llama.cpp: other files, what precedes, what follows. Raises `ApiError`."""
    tokenizer, fim = model.tokenizer, model.tokenizer.fim
    if not {"pre", "suf", "mid"} <= fim.keys():
        said = f"the model {model.name!r} has no tokens for filling in; take one that was trained for it"
        raise ApiError(400, said, param="model", code="no_infill")
    for text, name in ((request.input_prefix, "input_prefix"), (request.input_suffix, "input_suffix")):
        model.check_bytes(text, name)

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False, parse_special=False)

    made = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    if request.input_extra and "rep" in fim:
        made += [fim["rep"], *ids("myproject\n")]
    for file in request.input_extra:
        model.check_bytes(file.text, "input_extra")
        made += [fim["sep"], *ids(f"{file.filename}\n{file.text}")] if "sep" in fim else ids(f"{file.text}\n")
    if request.input_extra and "sep" in fim:
        made += [fim["sep"], *ids("filename\n")]
    made += [fim["pre"], *ids(request.input_prefix), fim["suf"], *ids(request.input_suffix), fim["mid"]]
    return made + ids(request.prompt)


def _content(piece: ChoiceDelta) -> str:
    return "".join(delta.text for delta in piece.deltas if isinstance(delta, ContentDelta))


def _end(service: Service, call: Call) -> dict[str, Any]:
    """What the end of an answer has more."""
    (answer,) = call.choices
    n_prompt, n, used = prompt_tokens(call.choices), completion_tokens(call.choices), answer.usage
    prefill, decode = (used.prefill_seconds, used.decode_seconds) if used is not None else (0.0, 0.0)
    kind = "limit" if answer.finish == "length" else "word" if answer.stop is not None else "eos"
    return {
        "stop": True,
        "stop_type": kind,
        "stopping_word": answer.stop or "",
        "model": service.name_of(call),
        "tokens_predicted": n,
        "tokens_evaluated": n_prompt,
        "tokens_cached": cached_tokens(call.choices),
        "truncated": False,
        "timings": {
            "prompt_n": n_prompt - cached_tokens(call.choices),
            "prompt_ms": prefill * 1e3,
            "predicted_n": n,
            "predicted_ms": decode * 1e3,
            "predicted_per_second": n / decode if decode else 0.0,
        },
    }

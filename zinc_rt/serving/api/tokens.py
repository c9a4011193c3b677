"""`POST /tokenize`, `POST /detokenize` and `GET /tokenizer_info`, with the fields of llama.cpp's and vLLM's servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.chat_common import ChatRequest, make_prompt, with_pictures
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.pictures import without_pictures
from zinc_rt.serving.api.requests import converted, read_json
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.text import TokenizerError

_MOST = 1 << 20
_ROW = -1
"""A row of a picture among token ids, as llama.cpp's server has it."""
_BODY = 512 << 10
"""Bytes of a body to tokenize: about a second of work, and 60 MB of memory."""


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """One of content, prompt (another name of it) and messages. add_special_tokens: another name of add_special."""

    model: str | None = None
    content: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special: bool = False
    add_special_tokens: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Token ids."""

    tokens: Annotated[list[int], Meta(max_length=_MOST)]
    model: str | None = None


async def tokenize(service: Service, call: Call) -> None:
    """Token ids of a text or of a conversation."""
    call.id = new_id("tok-")
    service.enter(call, None)
    body = await call.body()
    if service.model.pictures is None:
        _check_size(len(body))
    request = converted(read_json(body), TokenizeRequest)
    service.model.check_name(request.model)
    text = request.content if request.content is not None else request.prompt
    if (text is None) == (request.messages is None):
        raise invalid("give either content or messages", "content", "missing_required_parameter")
    async with call.attended():
        chat = ChatRequest(messages=request.messages) if request.messages is not None else None
        if len(body) > _BODY:  # it may be pictures
            _check_size(len(msgspec.json.encode(text if chat is None else without_pictures(chat.messages))))
        if chat is not None:
            chat = await with_pictures(service, chat)
        await call.reply(await service.model.aside(lambda: _tokenized(service.model, request, chat, text or "")))


def _check_size(n_bytes: int) -> None:
    """Refuse more than is tokenized at once. Raises `ApiError`."""
    if n_bytes > _BODY:
        said = f"the body has {n_bytes} bytes, at most {_BODY} are tokenized at once; send the text in parts"
        raise ApiError(413, said, param="content", code="request_too_large")


def _tokenized(model: ServedModel, request: TokenizeRequest, chat: ChatRequest | None, text: str) -> bytes:
    """The answer, made on another thread than the event loop's; a row of a picture is -1. Raises `ApiError`."""
    tokenizer = model.tokenizer
    if chat is not None:
        ids: Sequence[int] = [max(token, _ROW) for token in make_prompt(model, chat).ids]
    else:
        try:
            special = request.add_special or request.add_special_tokens
            ids = tokenizer.encode(text, add_special=special, parse_special=request.parse_special)
        except TokenizerError as error:
            raise invalid(str(error), "content") from None
    tokens: Sequence[Any] = ids
    if request.with_pieces:
        tokens = [{"id": i, "piece": "" if i == _ROW else _piece(tokenizer.token_bytes(i))} for i in ids]
    return msgspec.json.encode({"tokens": tokens, "count": len(ids), "max_model_len": model.n_ctx})


def _piece(raw: bytes) -> str | list[int]:
    """A token's text; its bytes where it is a part of a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


async def tokenizer_info(service: Service, call: Call) -> None:
    """The special tokens and the chat template, for clients that tokenize by this server."""
    model, tokenizer = service.model, service.model.tokenizer
    special = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    info = {name: None if token_id is None else tokenizer.token_text(token_id) for name, token_id in special.items()}
    template = None if model.template is None else model.template.source()
    await call.reply_json({**info, "chat_template": template, "model_max_length": model.n_ctx})


async def detokenize(service: Service, call: Call) -> None:
    """The text of token ids."""
    call.id = new_id("tok-")
    service.enter(call, None)
    request = converted(read_json(await call.body()), DetokenizeRequest)
    service.model.check_name(request.model)
    async with call.attended():
        try:
            text = await service.model.aside(lambda: service.model.tokenizer.decode(request.tokens))
        except TokenizerError as error:
            raise ApiError(400, str(error), param="tokens", code="invalid_value") from None
        await call.reply_json({"content": text, "prompt": text})

"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta
from zinc_rt.dialects.deltas import ParsedAnswer as Message
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.chat_common import ChatRequest, chat_choices
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.errors import invalid
from zinc_rt.serving.api.fields import CHAT
from zinc_rt.serving.api.generate import stream_choices, whole_answers
from zinc_rt.serving.api.logprobs import chat_logprobs
from zinc_rt.serving.api.requests import check_stream_options, read
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import DONE, Prepared, data, event_stream
from zinc_rt.serving.api.usage import chat_usage, own_usage


async def chat_completions(service: Service, call: Call) -> None:
    """Answer a conversation."""
    call.begin_answer("chatcmpl-")
    service.enter(call)
    request = read(call, await call.body(), ChatRequest, CHAT, service.config.strict)
    async with call.attended():
        if request.top_logprobs is not None and not request.logprobs:
            raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
        options = check_stream_options(request.stream, request.stream_options)
        choices = await chat_choices(service, call, request)
        writer = _Writer(service, call, request)
        if request.stream:
            await _stream(service, call, choices, writer, options)
        else:
            await _whole(service, call, choices, writer)


class _Writer:
    """Bodies and chunks of one request."""

    def __init__(self, service: Service, call: Call, request: ChatRequest) -> None:
        self._tokenizer = service.model.tokenizer
        self._logprobs = bool(request.logprobs)
        self._told: set[int] = set()  # choices that have begun
        self._prepared: dict[tuple[int, type[Delta]], Prepared] = {}  # chunks of text alone, by choice and kind
        self._common = {
            "id": call.id,
            "created": call.created,
            "model": service.name_of(call),
            "system_fingerprint": service.fingerprint,
            "service_tier": "default",
        }

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        """A chunk of a stream."""
        return data({**self._common, "object": "chat.completion.chunk", "choices": choices, **more})

    def choice(self, answer: AnswerChoice, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        """The choice of a chunk."""
        return {"index": answer.index, "delta": delta, "logprobs": None, "finish_reason": finish}

    def events(self, answer: AnswerChoice, piece: ChoiceDelta) -> bytes:
        """All chunks of a piece: the role before the first one of an answer, the reason of its end behind the last."""
        made = self._chunks(answer, piece)
        if answer.index not in self._told:
            self._told.add(answer.index)
            first = {"role": "assistant", "content": "", "refusal": None}
            made.insert(0, self.chunk([self.choice(answer, first)]))
        if piece.finish is not None:
            made.append(self.chunk([self.choice(answer, {}, piece.finish)]))
        return b"".join(made)

    def _chunks(self, answer: AnswerChoice, piece: ChoiceDelta) -> list[bytes]:
        """The chunks of what a piece adds. Log-probabilities go with the first of them."""
        if not self._logprobs:
            return [self._plain(answer, delta) for delta in piece.deltas]
        made = []
        for i, delta in enumerate(piece.deltas):
            choice = self.choice(answer, _delta(delta))
            if i == 0 and piece.logprobs:
                choice["logprobs"] = chat_logprobs(self._tokenizer, piece.logprobs)
            made.append(self.chunk([choice]))
        if piece.logprobs and not piece.deltas:
            choice = {**self.choice(answer, {}), "logprobs": chat_logprobs(self._tokenizer, piece.logprobs)}
            made.append(self.chunk([choice]))
        return made

    def _plain(self, answer: AnswerChoice, delta: Delta) -> bytes:
        """The chunk of a delta, without log-probabilities."""
        if isinstance(delta, CallDelta):
            return self.chunk([self.choice(answer, _delta(delta))])
        kind = type(delta)
        found = self._prepared.get((answer.index, kind))
        if found is None:
            found = Prepared(lambda text: self.chunk([self.choice(answer, _delta(kind(text)))]))
            self._prepared[answer.index, kind] = found
        return found.event(delta.text)

    def body(self, answers: list[AnswerChoice], added: list[list[ChoiceDelta]]) -> dict[str, Any]:
        """The whole answer. added: the pieces of each choice."""
        choices = []
        for answer, pieces in zip(answers, added, strict=True):
            deltas = [delta for piece in pieces for delta in piece.deltas]
            logprobs = None
            if self._logprobs:
                logprobs = chat_logprobs(self._tokenizer, [lp for piece in pieces for lp in piece.logprobs])
            choices.append(
                {
                    "index": answer.index,
                    "message": message_of(deltas),
                    "logprobs": logprobs,
                    "finish_reason": answer.finish,
                }
            )
        usage = {**chat_usage(answers), "zinc": own_usage(answers)}
        return {**self._common, "object": "chat.completion", "choices": choices, "usage": usage}


def _delta(delta: Delta) -> dict[str, Any]:
    if isinstance(delta, ContentDelta):
        return {"content": delta.text}
    if not isinstance(delta, CallDelta):
        return {"reasoning_content": delta.text}
    function: dict[str, Any] = {"arguments": delta.arguments}
    if delta.name is None:
        return {"tool_calls": [{"index": delta.index, "function": function}]}
    function["name"] = delta.name
    return {"tool_calls": [{"index": delta.index, "id": delta.id, "type": "function", "function": function}]}


def message_of(deltas: Sequence[Delta]) -> dict[str, Any]:
    """The pieces of an answer as one message."""
    whole = Message.join(deltas)
    return {"role": "assistant", "content": whole.content, "refusal": None, **whole.marks()}


async def _whole(service: Service, call: Call, choices: list[AnswerChoice], writer: _Writer) -> None:
    await call.reply_json(writer.body(choices, await whole_answers(service, call, choices)))


async def _stream(service: Service, call: Call, choices: list[AnswerChoice], writer: _Writer, usage: bool) -> None:
    async with event_stream(call, service.tenants.limits) as stream:
        await stream_choices(service, call, choices, stream, writer.events)
        if usage:
            figures = {**chat_usage(call.choices), "zinc": own_usage(call.choices)}
            stream.add(writer.chunk([], usage=figures))
        stream.add(DONE)

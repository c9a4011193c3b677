"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from zinc_rt.dialects.deltas import Answer as Message
from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta
from zinc_rt.dialects.messages import Ending
from zinc_rt.sampling.params import Api
from zinc_rt.serving.api.answer import Answer, Plan
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.converse import Conversation, plans_of
from zinc_rt.serving.api.errors import invalid
from zinc_rt.serving.api.fields import CHAT
from zinc_rt.serving.api.generate import Step, run
from zinc_rt.serving.api.intent import Effort, Form
from zinc_rt.serving.api.limits import TOP_LOGPROBS
from zinc_rt.serving.api.logprobs import chat_logprobs
from zinc_rt.serving.api.requests import (
    Count,
    StreamOptions,
    check_stream_options,
    choices_of,
    given_sampling,
    read,
    stops_of,
    takes_sampling,
)
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import DONE, data, event_stream
from zinc_rt.serving.api.usage import chat_usage, own_usage


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


async def chat_completions(service: Service, call: Call) -> None:
    """Answer a conversation."""
    call.begin_answer("chatcmpl-")
    service.enter(call)
    request = read(call, await call.body(), ChatRequest, CHAT, service.config.strict)
    async with call.attended():
        if request.top_logprobs is not None and not request.logprobs:
            raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
        options = check_stream_options(request.stream, request.stream_options)
        plans = await plans_of(service, call, _conversation(request))
        writer = _Writer(service, call, request)
        if request.stream:
            await _stream(service, call, plans, writer, options)
        else:
            await _whole(service, call, plans, writer)


def _conversation(request: ChatRequest) -> Conversation:
    return Conversation(
        messages=request.messages,
        model=request.model,
        sampling=given_sampling(request, Api.openai),
        max_tokens=request.max_completion_tokens or request.max_tokens,
        stops=stops_of(request.stop),
        n=choices_of(request.n),
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        form=Form(
            tools=request.tools,
            tool_choice=request.tool_choice,
            parallel=request.parallel_tool_calls is not False,
            response_format=request.response_format,
            effort=request.reasoning_effort,
            variables=request.chat_template_kwargs,
            ending=Ending(request.continue_final_message, request.add_generation_prompt),
        ),
    )


class _Writer:
    """Bodies and chunks of one request."""

    def __init__(self, service: Service, call: Call, request: ChatRequest) -> None:
        self._tokenizer = service.model.tokenizer
        self._logprobs = bool(request.logprobs)
        self._common = {
            "id": call.id,
            "created": call.created,
            "model": service.model.name,
            "system_fingerprint": service.fingerprint,
            "service_tier": "default",
        }

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        """A chunk of a stream."""
        return data({**self._common, "object": "chat.completion.chunk", "choices": choices, **more})

    def choice(self, answer: Answer, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        """The choice of a chunk."""
        return {"index": answer.index, "delta": delta, "logprobs": None, "finish_reason": finish}

    def chunks(self, step: Step) -> list[bytes]:
        """The chunks of a piece. Log-probabilities go with the first of them."""
        answer, piece = step
        made = []
        for i, delta in enumerate(piece.deltas):
            choice = self.choice(answer, _delta(delta))
            if self._logprobs and i == 0 and piece.logprobs:
                choice["logprobs"] = chat_logprobs(self._tokenizer, piece.logprobs)
            made.append(self.chunk([choice]))
        if self._logprobs and piece.logprobs and not piece.deltas:
            choice = {**self.choice(answer, {}), "logprobs": chat_logprobs(self._tokenizer, piece.logprobs)}
            made.append(self.chunk([choice]))
        return made

    def body(self, answers: list[Answer], steps: list[Step], call: Call) -> dict[str, Any]:
        """The whole answer."""
        choices = []
        for answer in answers:
            pieces = [piece for one, piece in steps if one is answer]
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


async def _whole(service: Service, call: Call, plans: Sequence[Plan], writer: _Writer) -> None:
    steps = [step async for step in run(service, call, plans, service.seconds(call))]
    await call.reply_json(writer.body(call.answers, steps, call))


async def _stream(service: Service, call: Call, plans: Sequence[Plan], writer: _Writer, usage: bool) -> None:
    async with event_stream(call, service.tenants.limits) as stream:
        told: set[int] = set()
        async for step in run(service, call, plans, service.seconds(call)):
            answer, piece = step
            if answer.index not in told:
                told.add(answer.index)
                first = {"role": "assistant", "content": "", "refusal": None}
                await stream.put(writer.chunk([writer.choice(answer, first)]))
            for chunk in writer.chunks(step):
                await stream.put(chunk)
            if piece.finish is not None:
                await stream.put(writer.chunk([writer.choice(answer, {}, piece.finish)]))
        if usage:
            figures = {**chat_usage(call.answers), "zinc": own_usage(call.answers)}
            await stream.put(writer.chunk([], usage=figures))
        await stream.put(DONE)

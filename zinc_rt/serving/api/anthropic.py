"""`POST /v1/messages` and `POST /v1/messages/count_tokens`: Anthropic's form of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta
from zinc_rt.sampling.params import Api
from zinc_rt.serving.api.anthropic_messages import AnthropicMessage, Block, system_text, to_openai
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.chat_common import ChatRequest, Effort, chat_choices, prompt_of
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.fields import ANTHROPIC, Skipped
from zinc_rt.serving.api.generate import stream_choices, whole_answers
from zinc_rt.serving.api.limits import LOGIT_BIASES
from zinc_rt.serving.api.requests import Count, given_sampling, ignore, read, stops_of, takes_sampling
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import event_stream, named
from zinc_rt.serving.api.usage import cached_tokens, completion_tokens, own_usage, prompt_tokens

_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class Thinking(msgspec.Struct):
    """Whether the model thinks before it answers."""

    type: str
    budget_tokens: int | None = None


class OutputConfig(msgspec.Struct):
    """The form of the answer, and how much the model is to think for it."""

    format: dict[str, Any] | None = None
    effort: Effort | None = None


class CountRequest(msgspec.Struct, kw_only=True):
    """The fields that make up a prompt."""

    messages: list[AnthropicMessage]
    model: str | None = None
    system: str | list[Block] | None = None
    thinking: Thinking | None = None
    tool_choice: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    output_config: OutputConfig | None = None


@takes_sampling(Api.anthropic)
class MessagesRequest(CountRequest, kw_only=True):
    """The fields that are obeyed; `fields.ANTHROPIC` says what each does."""

    max_tokens: Count
    stop_sequences: Annotated[list[str], Meta(max_length=LOGIT_BIASES)] | None = None
    stream: bool | None = None


async def messages(service: Service, call: Call) -> None:
    """Answer a conversation."""
    call.begin_answer("msg_")
    service.enter(call)
    request = read(call, await call.body(), MessagesRequest, ANTHROPIC, service.config.strict)
    async with call.attended():
        conversation = _chat_request(
            call,
            request,
            service.config.strict,
            **given_sampling(request, Api.anthropic),
            max_tokens=request.max_tokens,
            stop=list(stops_of(request.stop_sequences, "stop_sequences")),
        )
        choices = await chat_choices(service, call, conversation, limit_param="max_tokens")
        call.extra.append((b"request-id", call.id.encode()))
        if request.stream:
            await _stream(service, call, choices)
        else:
            await _whole(service, call, choices)


async def count_tokens(service: Service, call: Call) -> None:
    """How many tokens a conversation takes."""
    call.begin_answer("msg_")
    service.enter(call)
    request = read(call, await call.body(), CountRequest, ANTHROPIC, service.config.strict)
    async with call.attended():
        prompt = await prompt_of(service, _chat_request(call, request, service.config.strict))
        await call.reply_json({"input_tokens": len(prompt.ids)})


def _chat_request(call: Call, request: CountRequest, strict: bool, **more: Any) -> ChatRequest:
    """The request in the words of chat completions. more: other fields of theirs. Raises `ApiError`."""
    system, dropped = system_text(request.system)
    if dropped:
        call.extra.append((b"x-zinc-dropped", b"billing-header"))
    choice = request.tool_choice or {}
    variables: dict[str, Any] = {}
    if request.thinking is not None:
        variables["enable_thinking"] = request.thinking.type != "disabled"
    config = request.output_config or OutputConfig()
    skipped = Skipped(strict)
    tools = [made for i, tool in enumerate(request.tools or ()) if (made := _tool(tool, i, skipped))]
    ignore(call, skipped.names)
    return ChatRequest(
        messages=to_openai(request.messages, system),
        model=request.model,
        tools=tools or None,
        tool_choice=_tool_choice(choice),
        parallel_tool_calls=not choice.get("disable_parallel_tool_use"),
        response_format=_format(config.format),
        reasoning_effort=config.effort,
        chat_template_kwargs=variables,
        **more,
    )


def _tool(tool: dict[str, Any], i: int, skipped: Skipped) -> dict[str, Any] | None:
    """A tool as chat completions have it; None for one of a type of Anthropic's own. Raises `ApiError`."""
    if (kind := tool.get("type") or "custom") != "custom":
        skipped.add(f"tools[{i}]", kind)
        return None
    if "input_schema" not in tool:
        at = f"tools[{i}].input_schema"
        raise ApiError(400, f"{at} is missing", param=at, code="missing_required_parameter")
    function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _tool_choice(choice: dict[str, Any]) -> str | dict[str, Any] | None:
    kind = choice.get("type")
    if kind is None:
        return None
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if kind in ("auto", "any", "none"):
        return {"auto": "auto", "any": "required", "none": "none"}[kind]
    raise invalid("tool_choice.type must be auto, any, tool or none", "tool_choice.type")


def _format(form: dict[str, Any] | None) -> dict[str, Any] | None:
    if form is None:
        return None
    if form.get("type") != "json_schema":
        raise invalid("output_config.format.type must be json_schema", "output_config.format.type")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.get("schema"), "strict": True}}


def _usage(answers: Sequence[AnswerChoice]) -> dict[str, int]:
    cached = cached_tokens(answers)
    return {
        "input_tokens": prompt_tokens(answers) - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": completion_tokens(answers),
    }


def _ending(answer: AnswerChoice) -> dict[str, Any]:
    if answer.stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop}
    return {"stop_reason": _REASONS.get(answer.finish or "", "end_turn"), "stop_sequence": None}


def _message(service: Service, call: Call, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "message",
        "role": "assistant",
        "model": service.name_of(call),
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
    }


Key = tuple[type[Delta], int]


def _key(delta: Delta) -> Key:
    """What must be equal for two pieces to be of one block."""
    return type(delta), delta.index if isinstance(delta, CallDelta) else 0


def _block(delta: Delta) -> dict[str, Any]:
    """An empty block for a piece."""
    if isinstance(delta, CallDelta):
        return {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}
    if isinstance(delta, ContentDelta):
        return {"type": "text", "text": ""}
    return {"type": "thinking", "thinking": "", "signature": ""}


async def _whole(service: Service, call: Call, choices: list[AnswerChoice]) -> None:
    (pieces,) = await whole_answers(service, call, choices)
    deltas = [delta for piece in pieces for delta in piece.deltas]
    content: list[dict[str, Any]] = []
    last: Key | None = None
    arguments: dict[int, str] = {}
    for delta in deltas:
        if _key(delta) != last:
            last = _key(delta)
            content.append(_block(delta))
        block = content[-1]
        if isinstance(delta, CallDelta):
            arguments[len(content) - 1] = arguments.get(len(content) - 1, "") + delta.arguments
        else:
            block["text" if isinstance(delta, ContentDelta) else "thinking"] += delta.text
    for at, text in arguments.items():
        try:
            content[at]["input"] = msgspec.json.decode(text)
        except msgspec.DecodeError:  # cut off: nobody may take it for a call
            content[at] = {"type": "text", "text": text}
    answer = call.choices[0]
    made = {**_message(service, call, content), **_ending(answer)}
    await call.reply_json({**made, "usage": {**_usage(call.choices), "zinc": own_usage(call.choices)}})


class _Blocks:
    """The events of an answer's blocks, which open and close one after the other."""

    def __init__(self) -> None:
        self._index = -1
        self._last: Key | None = None

    def add(self, delta: Delta) -> bytes:
        """The events of a piece."""
        made = b""
        if _key(delta) != self._last:
            made = self.close()
            self._index += 1
            self._last = _key(delta)
            block = {"type": "content_block_start", "index": self._index, "content_block": _block(delta)}
            made += named("content_block_start", block)
        part: dict[str, Any]
        if isinstance(delta, CallDelta):
            if not delta.arguments:
                return made
            part = {"type": "input_json_delta", "partial_json": delta.arguments}
        elif isinstance(delta, ContentDelta):
            part = {"type": "text_delta", "text": delta.text}
        else:
            part = {"type": "thinking_delta", "thinking": delta.text}
        event = {"type": "content_block_delta", "index": self._index, "delta": part}
        return made + named("content_block_delta", event)

    def close(self) -> bytes:
        """The end of the block that is open."""
        if self._last is None:
            return b""
        self._last = None
        return named("content_block_stop", {"type": "content_block_stop", "index": self._index})


def _told(error: ApiError) -> bytes:
    return named("error", error.anthropic())


async def _stream(service: Service, call: Call, choices: list[AnswerChoice]) -> None:
    blocks = _Blocks()
    async with event_stream(call, service.tenants.limits, _told) as stream:
        begun = False

        def told(answer: AnswerChoice, piece: ChoiceDelta) -> bytes:
            nonlocal begun
            made = b"".join(map(blocks.add, piece.deltas))
            if begun:
                return made
            begun = True
            message = {**_message(service, call, []), "usage": {**_usage([answer]), "output_tokens": 0}}
            return named("message_start", {"type": "message_start", "message": message}) + made

        await stream_choices(service, call, choices, stream, told)
        stream.add(blocks.close())
        answer = call.choices[0]
        usage = {**_usage([answer]), "zinc": own_usage([answer])}
        stream.add(named("message_delta", {"type": "message_delta", "delta": _ending(answer), "usage": usage}))
        stream.add(named("message_stop", {"type": "message_stop"}))

"""`POST /v1/responses`, and responses that are kept: they are read, deleted and gone on from by their ids."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from zinc_rt.sampling.params import Api
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.chat_common import ChatRequest, Effort, chat_choices
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.errors import ApiError, invalid, unsupported
from zinc_rt.serving.api.fields import RESPONSES, Skipped
from zinc_rt.serving.api.generate import stream_choices, whole_answers
from zinc_rt.serving.api.limits import TOP_LOGPROBS
from zinc_rt.serving.api.requests import Count, converted, given_sampling, ignore, read, takes_sampling
from zinc_rt.serving.api.responses_items import effort_of, to_choice, to_format, to_items, to_messages, to_tools
from zinc_rt.serving.api.responses_output import ResponseItems
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import event_stream, named
from zinc_rt.serving.api.usage import cached_tokens, completion_tokens, own_usage, prompt_tokens

_LOGPROBS: Final = "message.output_text.logprobs"


class Reasoning(msgspec.Struct):
    """How much the model thinks."""

    effort: Effort | None = None
    summary: str | None = None


@takes_sampling(Api.responses)
class ResponsesRequest(msgspec.Struct, kw_only=True):
    """The fields that are obeyed; `fields.RESPONSES` says what each does."""

    input: str | list[Any]
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    reasoning: Reasoning | None = None
    store: bool | None = None
    stream: bool | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] | None = None
    truncation: Literal["auto", "disabled"] | None = None


async def responses(service: Service, call: Call) -> None:
    """Answer a conversation."""
    call.begin_answer("resp_")
    service.enter(call)
    request = read(call, await call.body(), ResponsesRequest, RESPONSES, service.config.strict)
    async with call.attended():
        items = _items(service, call, request)
        conversation = _chat_request(service, call, request, items)
        cut = request.truncation == "auto"
        choices = await chat_choices(
            service, call, conversation, param="input", limit_param="max_output_tokens", cut=cut
        )
        response = _Response(service, call, request, items)
        if request.stream:
            await _stream(service, call, choices, response)
        else:
            await _whole(service, call, choices, response)


def _items(service: Service, call: Call, request: ResponsesRequest) -> list[dict[str, Any]]:
    """The conversation so far, that of an earlier response included. Raises `ApiError`."""
    items = to_items(request.input, service.responses, call.tenant)
    if request.previous_response_id is None:
        return items
    kept = service.responses.get(call.tenant, request.previous_response_id)
    if kept is None:
        message = f"no response {request.previous_response_id[:60]!r} is kept; send the whole conversation as input"
        raise invalid(message, "previous_response_id", "previous_response_not_found")
    return [*kept.conversation(), *items]


def _chat_request(service: Service, call: Call, request: ResponsesRequest, items: list[dict[str, Any]]) -> ChatRequest:
    """The request in the words of chat completions. Raises `ApiError`."""
    skipped = Skipped(service.config.strict)
    messages, tools = to_messages(items, request.instructions, skipped), to_tools(request.tools, items, skipped)
    ignore(call, skipped.names)
    effort = effort_of(items, request.reasoning.effort if request.reasoning is not None else None)
    wanted = request.top_logprobs if request.top_logprobs else 0 if _LOGPROBS in (request.include or ()) else None
    return ChatRequest(
        messages=messages,
        model=request.model,
        **given_sampling(request, Api.responses),
        max_tokens=request.max_output_tokens,
        logprobs=wanted is not None,
        top_logprobs=wanted,
        tools=tools,
        tool_choice=to_choice(request.tool_choice),
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=to_format(request.text),
        reasoning_effort=converted({"effort": effort}, Reasoning).effort,
        continue_final_message=False,
    )


class _Response:
    """The object of an answer, in each of its states."""

    def __init__(self, service: Service, call: Call, request: ResponsesRequest, items: list[dict[str, Any]]) -> None:
        self._call, self._items = call, items
        self._store = None if request.store is False else service.responses
        self.output = ResponseItems(service.model.tokenizer, call.id.removeprefix("resp_"))
        defaults, reasoning = service.model.defaults, request.reasoning
        given = given_sampling(request, Api.responses)
        self._common: dict[str, Any] = {
            "id": call.id,
            "object": "response",
            "created_at": call.created,
            "background": False,
            "error": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": service.name_of(call),
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
            "service_tier": "default",
            "store": self._store is not None,
            "temperature": given.get("temperature", defaults.temperature),
            "text": request.text or {"format": {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools or [],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": given.get("top_p", defaults.top_p),
            "truncation": request.truncation or "disabled",
        }

    def begun(self) -> dict[str, Any]:
        """Before the first token."""
        now: dict[str, Any] = {"status": "in_progress", "incomplete_details": None, "output": []}
        return {**self._common, **now}

    def failed(self, error: ApiError) -> dict[str, Any]:
        """After an error."""
        said = {"code": "server_error", "message": str(error)}
        return {**self.begun(), "status": "failed", "error": said, "output": self.output.items("incomplete")}

    def done(self) -> dict[str, Any]:
        """At the end; it is kept then, unless the request wants otherwise."""
        answers = self._call.choices
        whole = answers[0].finish != "length"
        prompt, generated = prompt_tokens(answers), completion_tokens(answers)
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached_tokens(answers), "cache_write_tokens": 0},
            "output_tokens": generated,
            "output_tokens_details": {"reasoning_tokens": sum(a.n_reasoning for a in answers)},
            "total_tokens": prompt + generated,
            "zinc": own_usage(answers),
        }
        made = {
            **self._common,
            "status": "completed" if whole else "incomplete",
            "completed_at": int(time.time()) if whole else None,
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "output": self.output.items("completed" if whole else "incomplete"),
            "usage": usage,
        }
        if self._store is not None:
            self._store.keep(self._call.tenant, made, self._items)
        return made


async def _whole(service: Service, call: Call, choices: list[AnswerChoice], response: _Response) -> None:
    (pieces,) = await whole_answers(service, call, choices)
    for piece in pieces:
        response.output.add(piece)
    response.output.close("completed")
    await call.reply_json(response.done())


class _Numbered:
    """Events with their numbers."""

    def __init__(self) -> None:
        self._n = -1

    def event(self, kind: str, **members: Any) -> bytes:
        """The next event."""
        self._n += 1
        return named(kind, {"type": kind, "sequence_number": self._n, **members})


async def _stream(service: Service, call: Call, choices: list[AnswerChoice], response: _Response) -> None:
    numbered = _Numbered()

    def told(error: ApiError) -> bytes:
        failed = numbered.event("response.failed", response=response.failed(error))
        return failed + numbered.event("error", code=error.code, message=str(error), param=error.param)

    async with event_stream(call, service.tenants.limits, told) as stream:
        begun = False

        def added(_: AnswerChoice, piece: ChoiceDelta) -> bytes:
            nonlocal begun
            made = b""
            if not begun:
                begun = True
                made += numbered.event("response.created", response=response.begun())
                made += numbered.event("response.in_progress", response=response.begun())
            for kind, members in response.output.add(piece):
                made += numbered.event(kind, **members)
            if piece.finish is not None:
                status = "incomplete" if piece.finish == "length" else "completed"
                for kind, members in response.output.close(status):
                    made += numbered.event(kind, **members)
            return made

        await stream_choices(service, call, choices, stream, added)
        done = response.done()
        stream.add(numbered.event(f"response.{done['status']}", response=done))


def _id(call: Call) -> str:
    return call.path.removeprefix("/v1/responses/").partition("/")[0]


async def no_socket(service: Service, call: Call) -> None:
    """Refuse a WebSocket with the status at which OpenAI's clients turn to plain requests at once."""
    if call.header("sec-websocket-key"):  # `upgrade` does not come through routers
        raise ApiError(426, "responses are not served over WebSockets; send a POST", code="no_websocket")
    raise ApiError(405, "/v1/responses takes POST", code="method_not_allowed")


async def show_response(service: Service, call: Call) -> None:
    """A response that is kept."""
    if call.query.get("stream") == "true":
        raise unsupported("stream", "a kept response is given as a whole")
    await call.reply(service.responses.find(call.tenant, _id(call)).body)


async def delete_response(service: Service, call: Call) -> None:
    """Forget a response."""
    service.responses.find(call.tenant, _id(call))
    service.responses.drop(call.tenant, _id(call))
    await call.reply_json({"id": _id(call), "object": "response", "deleted": True})


class Page(msgspec.Struct):
    """Which items of a list are given. order: "desc" has the newest first; after: the id of the last item before."""

    order: Literal["asc", "desc"] = "desc"
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: str | None = None


async def input_items(service: Service, call: Call) -> None:
    """The items of a kept response's input."""
    items: list[dict[str, Any]] = msgspec.json.decode(service.responses.find(call.tenant, _id(call)).items)
    page = converted(call.query, Page, strict=False)
    if page.order == "desc":
        items.reverse()
    start = 0
    if page.after is not None:
        start = next((i + 1 for i, item in enumerate(items) if item["id"] == page.after), -1)
        if start < 0:
            raise invalid(f"the input has no item {page.after[:60]!r}", "after")
    found = items[start : start + page.limit]
    ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {"first_id": None, "last_id": None}
    await call.reply_json({"object": "list", "data": found, **ends, "has_more": start + page.limit < len(items)})

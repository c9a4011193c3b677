"""`POST /v1/responses`, without state: the whole conversation comes with each request."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from zinc_rt.serving.api.answer import Plan
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.converse import Conversation, plans_of
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.fields import RESPONSES
from zinc_rt.serving.api.generate import run
from zinc_rt.serving.api.intent import Effort, Form
from zinc_rt.serving.api.limits import TOP_LOGPROBS
from zinc_rt.serving.api.requests import Count, Sampling, read
from zinc_rt.serving.api.responses_items import to_choice, to_format, to_messages, to_tools
from zinc_rt.serving.api.responses_output import Output
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import event_stream, named
from zinc_rt.serving.api.usage import cached_tokens, completion_tokens, own_usage, prompt_tokens

_LOGPROBS: Final = "message.output_text.logprobs"


class Reasoning(msgspec.Struct):
    """How much the model thinks."""

    effort: Effort | None = None
    summary: str | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """The fields that are obeyed; `fields.RESPONSES` says what each does."""

    input: str | list[Any]
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: int | None = None


async def responses(service: Service, call: Call) -> None:
    """Answer a conversation."""
    call.begin_answer("resp_")
    service.enter(call)
    request = read(call, await call.body(), ResponsesRequest, RESPONSES, service.config.strict)
    async with call.attended():
        (plan,) = await plans_of(service, call, _conversation(request))
        response = _Response(service, call, request)
        if request.stream:
            await _stream(service, call, plan, response)
        else:
            await _whole(service, call, plan, response)


def _conversation(request: ResponsesRequest) -> Conversation:
    wanted = request.top_logprobs if request.top_logprobs else 0 if _LOGPROBS in (request.include or ()) else None
    sampling = Sampling(
        model=request.model,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        seed=request.seed,
    )
    return Conversation(
        messages=to_messages(request.input, request.instructions),
        sampling=sampling,
        param="input",
        max_tokens=request.max_output_tokens,
        max_tokens_param="max_output_tokens",
        logprobs=wanted,
        form=Form(
            tools=to_tools(request.tools),
            tool_choice=to_choice(request.tool_choice),
            parallel=request.parallel_tool_calls is not False,
            response_format=to_format(request.text),
            effort=request.reasoning.effort if request.reasoning is not None else None,
        ),
    )


class _Response:
    """The object of an answer, in each of its states."""

    def __init__(self, service: Service, call: Call, request: ResponsesRequest) -> None:
        self._call = call
        self.output = Output(service.model.tokenizer, call.id.removeprefix("resp_"))
        defaults, reasoning = service.model.defaults, request.reasoning
        self._common: dict[str, Any] = {
            "id": call.id,
            "object": "response",
            "created_at": call.created,
            "background": False,
            "error": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": service.model.name,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": defaults.temperature if request.temperature is None else request.temperature,
            "text": request.text or {"format": {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools or [],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": defaults.top_p if request.top_p is None else request.top_p,
            "truncation": "disabled",
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
        """At the end."""
        answers = self._call.answers
        whole = answers[0].finish != "length"
        prompt, made = prompt_tokens(answers), completion_tokens(answers)
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached_tokens(answers), "cache_write_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": sum(a.side.n_reasoning for a in answers)},
            "total_tokens": prompt + made,
            "zinc": own_usage(answers),
        }
        return {
            **self._common,
            "status": "completed" if whole else "incomplete",
            "completed_at": int(time.time()) if whole else None,
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "output": self.output.items("completed" if whole else "incomplete"),
            "usage": usage,
        }


async def _whole(service: Service, call: Call, plan: Plan, response: _Response) -> None:
    async for _, piece in run(service, call, [plan], service.seconds(call)):
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


async def _stream(service: Service, call: Call, plan: Plan, response: _Response) -> None:
    numbered = _Numbered()

    def told(error: ApiError) -> bytes:
        failed = numbered.event("response.failed", response=response.failed(error))
        return failed + numbered.event("error", code=error.code, message=str(error), param=error.param)

    async with event_stream(call, service.tenants.limits, told) as stream:
        begun = False
        async for _, piece in run(service, call, [plan], service.seconds(call)):
            if not begun:
                begun = True
                await stream.put(numbered.event("response.created", response=response.begun()))
                await stream.put(numbered.event("response.in_progress", response=response.begun()))
            for kind, members in response.output.add(piece):
                await stream.put(numbered.event(kind, **members))
            if piece.finish is not None:
                status = "incomplete" if piece.finish == "length" else "completed"
                for kind, members in response.output.close(status):
                    await stream.put(numbered.event(kind, **members))
        done = response.done()
        await stream.put(numbered.event(f"response.{done['status']}", response=done))

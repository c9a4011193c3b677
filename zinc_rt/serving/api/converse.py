"""`Conversation`: what the three endpoints for chat have in common: from messages to what the engine is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zinc_rt.llm.chat import ChatRequest
from zinc_rt.serving.api.answer import Plan
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.intent import Form, make_prompt, reader_of
from zinc_rt.serving.api.requests import nth_seed, sampling_params, seed_of
from zinc_rt.serving.api.service import Service


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request for the next message, in the words of OpenAI's chat completions.

    sampling: see `given_sampling`. param: the field of the messages."""

    messages: Sequence[Mapping[str, Any]]
    model: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    form: Form = field(default_factory=Form)
    param: str = "messages"
    max_tokens: int | None = None
    max_tokens_param: str = "max_completion_tokens"
    stops: tuple[str, ...] = ()
    n: int = 1
    logprobs: int | None = None
    cut: bool = False  # leave out the oldest turns where the prompt is too long


async def prompt_of(service: Service, conversation: Conversation) -> ChatRequest:
    """Token ids of a conversation, and what its answer may be made of. Raises `ApiError`."""
    model, one = service.model, conversation
    model.check_name(one.model)
    return await model.aside(lambda: make_prompt(model, one.messages, one.form, one.param))


async def plans_of(service: Service, call: Call, conversation: Conversation) -> Sequence[Plan]:
    """What the engine is asked, an answer each. Reserves places and tokens. Raises `ApiError`."""
    defaults = service.model.defaults
    limit = service.max_tokens(call, conversation.max_tokens, conversation.max_tokens_param, defaults.max_tokens)
    params = sampling_params(conversation.sampling, service.model, limit, conversation.logprobs)
    seed = call.draw_seed(seed_of(conversation.sampling), defaults.seed)
    service.admission.widen(service.ticket(call), conversation.n)
    service.note_prompt(call, conversation.messages)
    request = await (_cut(service, call, conversation) if conversation.cut else prompt_of(service, conversation))
    service.count(call, [request.prompt], conversation.param)
    params = service.fitted(call, params, request.prompt)
    call.extra.append((b"x-zinc-seed", b"%d" % seed))
    seeds = [nth_seed(seed, i) for i in range(conversation.n)]
    return [
        Plan(
            request.prompt,
            params,
            one,
            conversation.stops,
            request.grammar,
            reader_of(service.model, request, one),
            service.model.marks,
        )
        for one in seeds
    ]


async def _cut(service: Service, call: Call, conversation: Conversation) -> ChatRequest:
    """The prompt without its oldest turns, as few of them as will do, where it is too long with them.

    The prompt leaves a quarter of the context to the answer then, or what the answer may have. Raises `ApiError`.
    """
    context = min(service.model.n_ctx, service.tenants.get(call.tenant).max_context or service.model.n_ctx)

    async def within(messages: Sequence[Mapping[str, Any]], limit: int) -> ChatRequest | None:
        try:
            request = await prompt_of(service, replace(conversation, messages=messages))
        except ApiError as error:
            if error.code != "context_length_exceeded":
                raise
            return None
        return request if len(request.prompt) < limit else None

    messages = conversation.messages
    if (found := await within(messages, context)) is not None:
        return found
    first = next((i for i, m in enumerate(messages) if m["role"] not in ("system", "developer")), 0)
    starts = [i for i, m in enumerate(messages) if m["role"] == "user" and i > first]
    limit = context - min(context // 4, conversation.max_tokens or context)
    low, high, dropped = 0, len(starts), 0
    while low < high:
        middle = (low + high) // 2
        rest = [*messages[:first], *messages[starts[middle] :]]
        request = await within(rest, limit if middle + 1 < len(starts) else context)
        if request is None:
            low = middle + 1
        else:
            high, found, dropped = middle, request, starts[middle] - first
    if found is None:
        return await prompt_of(service, conversation)  # its length is refused where tokens are counted
    call.extra.append((b"x-zinc-dropped", b"messages=%d" % dropped))
    return found

"""`Conversation`: what the three endpoints for chat have in common: from messages to what the engine is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.chat import ChatRequest
from zinc_rt.serving.api.answer import Plan
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.intent import Form, make_prompt, reader_of
from zinc_rt.serving.api.requests import Sampling, nth_seed, sampling_params, seed_of
from zinc_rt.serving.api.service import Service


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request for the next message, in the words of OpenAI's chat completions. param: the field of the messages."""

    messages: Sequence[Mapping[str, Any]]
    sampling: Sampling
    form: Form = field(default_factory=Form)
    param: str = "messages"
    max_tokens: int | None = None
    max_tokens_param: str = "max_completion_tokens"
    stops: tuple[str, ...] = ()
    n: int = 1
    logprobs: int | None = None


async def prompt_of(service: Service, conversation: Conversation) -> ChatRequest:
    """Token ids of a conversation, and what its answer may be made of. Raises `ApiError`."""
    model, one = service.model, conversation
    model.check_name(one.sampling.model)
    return await model.aside(lambda: make_prompt(model, one.messages, one.form, one.param))


async def plans_of(service: Service, call: Call, conversation: Conversation) -> Sequence[Plan]:
    """What the engine is asked, an answer each. Reserves places and tokens. Raises `ApiError`."""
    defaults = service.model.defaults
    limit = service.max_tokens(call, conversation.max_tokens, conversation.max_tokens_param, defaults.max_tokens)
    params = sampling_params(conversation.sampling, service.model, limit, conversation.logprobs)
    seed = call.draw_seed(seed_of(conversation.sampling), defaults.seed)
    service.admission.widen(service.ticket(call), conversation.n)
    service.note_prompt(call, conversation.messages)
    request = await prompt_of(service, conversation)
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

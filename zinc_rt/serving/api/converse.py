"""`Conversation`: what the three endpoints for chat have in common: from messages to what the engine is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.serving.api.answer import Plan
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.intent import Intent, intend
from zinc_rt.serving.api.messages import Message, for_template
from zinc_rt.serving.api.requests import Sampling, nth_seed, sampling_params, seed_of
from zinc_rt.serving.api.service import Service


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request for the next message, in the words of OpenAI's chat completions. param: the field of the messages."""

    messages: list[Message]
    sampling: Sampling
    param: str = "messages"
    max_tokens: int | None = None
    max_tokens_param: str = "max_completion_tokens"
    stops: tuple[str, ...] = ()
    n: int = 1
    logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel: bool = True
    response_format: dict[str, Any] | None = None
    effort: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


async def prompt_of(service: Service, conversation: Conversation) -> tuple[tuple[int, ...], Intent]:
    """Token ids of a conversation, and what its answer may be made of. Raises `ApiError`."""
    service.model.check_name(conversation.sampling.model)
    intent = await intend(
        service,
        tools=conversation.tools,
        tool_choice=conversation.tool_choice,
        parallel=conversation.parallel,
        response_format=conversation.response_format,
        effort=conversation.effort,
        variables=conversation.variables,
    )
    messages = for_template(conversation.messages, conversation.param)
    tokens = await service.model.tokens_of_chat(messages, intent.tools, intent.variables, conversation.param)
    return tuple(tokens), intent


async def plans_of(service: Service, call: Call, conversation: Conversation) -> Sequence[Plan]:
    """What the engine is asked, an answer each. Reserves places and tokens. Raises `ApiError`."""
    limit = service.max_tokens(call, conversation.max_tokens, conversation.max_tokens_param)
    params = sampling_params(conversation.sampling, service.model, limit, conversation.logprobs)
    seed = seed_of(conversation.sampling)
    service.admission.widen(service.ticket(call), conversation.n)
    service.note_prompt(call, conversation.messages)
    prompt, intent = await prompt_of(service, conversation)
    service.count(call, [prompt], conversation.param)
    params = service.fitted(call, params, prompt)
    call.extra.append((b"x-zinc-seed", b"%d" % seed))
    return [
        Plan(prompt, params, nth_seed(seed, i), conversation.stops, intent.grammar, intent.reader)
        for i in range(conversation.n)
    ]

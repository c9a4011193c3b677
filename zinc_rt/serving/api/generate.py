"""Choices from the engine: a sequence for each choice of a request, their deltas in turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial

from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.errors import invalid
from zinc_rt.serving.api.resume import TOKENS
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.sse import EventStream
from zinc_rt.serving.request_log import LiveRequest

Step = tuple[AnswerChoice, ChoiceDelta]


async def stream_choices(
    service: Service,
    call: Call,
    choices: list[AnswerChoice],
    stream: EventStream,
    told: Callable[[AnswerChoice, ChoiceDelta], bytes],
) -> None:
    """Stream what is added to the choices. told: makes the events of a delta, each of which is asked for once.

    Where the client keeps up, a single choice's events are written as the engine's report is read: no task wakes up for
    them. Raises `ApiError`.
    """

    def at_once(live: LiveRequest[ChoiceDelta], delta: ChoiceDelta) -> bool:
        if not (live.waited and stream.free):  # the caller has not got those that came earlier
            return False
        stream.write(told(choices[0], delta))
        return True

    single = at_once if len(choices) == 1 else None
    async for due in _run(service, call, choices, service.seconds(call), single):
        for choice, delta in due:
            stream.add(told(choice, delta))
        await stream.send()


async def whole_answers(service: Service, call: Call, choices: list[AnswerChoice]) -> list[list[ChoiceDelta]]:
    """All that is added to each of the choices, in their order, when they have ended. Raises `ApiError`."""
    pieces: list[list[ChoiceDelta]] = [[] for _ in choices]
    async for due in _run(service, call, choices, service.seconds(call)):
        for choice, delta in due:
            pieces[choice.index].append(delta)
    return pieces


async def _run(
    service: Service,
    call: Call,
    choices: list[AnswerChoice],
    seconds: float | None,
    at_once: Callable[[LiveRequest[ChoiceDelta], ChoiceDelta], bool] | None = None,
) -> AsyncGenerator[list[Step]]:
    """What is added to the choices, in lists of what is due together: to each choice an empty delta when the engine
    begins with it, then its text, and a last one with a `finish`. A choice itself may be further than its deltas that
    were taken. Closed early, it cancels what runs.

    Several choices get a delta in turn, so that the order does not depend on the load either; a slow one holds up the
    others' deltas, not their computation.

    at_once: takes a delta that can be sent before the caller of this function wakes up, and says whether it did; such
    deltas are in no list.

    Raises `ApiError`.
    """
    if call.resume is not None and len(choices) == 1:
        _resume(service, call, choices[0])
    for choice in choices:
        choice.request = replace(choice.request, seconds=seconds)
        choice.content = None if service.recorder is None else []
        choice.on_begin = partial(service.began, call, choice)
        choice.on_token = partial(service.timed, call, choice)
    call.choices = choices
    live: list[tuple[AnswerChoice, LiveRequest[ChoiceDelta]]] = []
    try:
        for choice in choices:
            deltas = service.client.submit(choice)
            live.append((choice, deltas))
            if at_once is not None:
                choice.at_once = partial(at_once, deltas)
        left, due = list(live), list[Step]()
        while left:
            for one in list(left):
                choice, deltas = one
                if due and not deltas.ready:
                    yield due
                    due = []
                try:
                    due.append((choice, await anext(deltas)))
                except StopAsyncIteration:
                    left.remove(one)
                except Exception:
                    if due:
                        yield due
                    raise
        if due:
            yield due
    finally:
        for _, deltas in live:
            await deltas.aclose()


def _resume(service: Service, call: Call, choice: AnswerChoice) -> None:
    """Go on with a stream that is resumed, behind the tokens of its events, where they will do. Of tokens that the
    client gives, or a router for it, nobody knows where they come from: they are its word, never the model's.

    Log-probabilities are not kept: with them all is generated again. Raises `ApiError`.
    """
    assert call.resume is not None
    given, n_vocab = call.resume.tokens, service.model.tokenizer.n_vocab
    tokens, n_given = (given, len(given)) if given else service.broken_off(call)
    if (wrong := next((t for t in tokens if t >= n_vocab), None)) is not None:
        raise invalid(f"X-Zinc-Resume has token id {wrong}; the vocabulary has {n_vocab} tokens", TOKENS)
    params = choice.request.params
    if params.logprobs is None and (params.max_tokens is None or len(tokens) <= params.max_tokens):
        choice.request, choice.given = replace(choice.request, resume=tokens), n_given

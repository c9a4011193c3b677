"""Choices from the engine: a sequence for each choice of a request, their deltas merged in turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.errors import invalid
from zinc_rt.serving.api.resume import TOKENS
from zinc_rt.serving.api.service import Service

_QUEUE: Final = 256

Step = tuple[AnswerChoice, ChoiceDelta]


async def run(service: Service, call: Call, choices: list[AnswerChoice], seconds: float | None) -> AsyncGenerator[Step]:
    """What is added to the choices: to each an empty delta when the engine begins with it, then its text, and a last
    one with a `finish`. A choice itself may be further than its deltas that were taken. Closed early, it cancels what
    runs.

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
    streams = [_one(service, choice) for choice in choices]
    merged = streams[0] if len(streams) == 1 else _merged(streams)
    async with contextlib.aclosing(merged):
        async for step in merged:
            yield step


_Queue = asyncio.Queue[Step | Exception | None]


async def _merged(streams: Sequence[AsyncGenerator[Step]]) -> AsyncGenerator[Step]:
    """A delta of each in turn, so that the order does not depend on the load either; a slow one holds up the others'
    deltas, not their computation.
    """

    async def pump(stream: AsyncGenerator[Step], queue: _Queue) -> None:
        try:
            async with contextlib.aclosing(stream):
                async for step in stream:
                    await queue.put(step)
            await queue.put(None)
        except Exception as error:  # raised again where the queue is read
            await queue.put(error)

    queues: list[_Queue] = [asyncio.Queue(_QUEUE) for _ in streams]
    tasks = [asyncio.create_task(pump(stream, queue)) for stream, queue in zip(streams, queues, strict=True)]
    try:
        while queues:
            for queue in list(queues):
                step = await queue.get()
                if step is None:
                    queues.remove(queue)
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _one(service: Service, choice: AnswerChoice) -> AsyncGenerator[Step]:
    async with contextlib.aclosing(service.client.submit(choice)) as deltas:
        async for delta in deltas:
            yield choice, delta


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

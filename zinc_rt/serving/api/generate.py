"""Answers from the engine: one sequence for each answer of a request, their pieces merged in turns."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Final

from zinc_rt.scheduler.messages import (
    Admitted,
    CancelReason,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptLogprobs,
    Submit,
    Token,
)
from zinc_rt.serving.api.answer import Answer, Plan
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import cancelled, failed, invalid
from zinc_rt.serving.api.resume import TOKENS
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.textside import Piece, TextSide, checked

_QUEUE: Final = 256

Step = tuple[Answer, Piece]


async def run(service: Service, call: Call, plans: Sequence[Plan], seconds: float | None) -> AsyncGenerator[Step]:
    """The pieces of all answers: of each an empty one when the engine begins with it, then its text, and a last one
    with a `finish`. An answer itself may be further than its pieces that were taken. Closed early, it cancels what
    runs.

    Raises `ApiError`.
    """
    if call.resume is not None and len(plans) == 1:
        plans = [_resumed(service, call, plans[0])]
    answers = [Answer(i, plan, service.text_side(plan)) for i, plan in enumerate(plans)]
    call.answers = answers
    streams = [_one(service, call, answer, seconds) for answer in answers]
    merged = streams[0] if len(streams) == 1 else _merged(streams)
    async with contextlib.aclosing(merged):
        async for step in merged:
            yield step


_Queue = asyncio.Queue[Step | Exception | None]


async def _merged(streams: Sequence[AsyncGenerator[Step]]) -> AsyncGenerator[Step]:
    """A piece of each in turn, so that the order does not depend on the load either; a slow one holds up the others'
    pieces, not their computation.
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


async def _one(service: Service, call: Call, answer: Answer, seconds: float | None) -> AsyncGenerator[Step]:
    plan, tenant = answer.plan, service.tenants.get(call.tenant)
    request = Submit(
        id=call.id if not answer.index else f"{call.id}-{answer.index}",
        prompt=plan.prompt,
        params=plan.params,
        seed=plan.seed,
        tenant=call.tenant,
        qos=tenant.qos,
        salt=service.salt(call.tenant),
        grammar=plan.grammar,
        resume=plan.resume,
        seconds=seconds,
        echo=plan.echo,
    )
    async with contextlib.aclosing(service.client.submit_text(request, _Pieces(service, call, answer))) as pieces:
        async for piece in pieces:
            yield answer, piece


class _Pieces:
    """The pieces of one answer, a `scheduler.delivery.Text`: with each event the answer goes on."""

    def __init__(self, service: Service, call: Call, answer: Answer) -> None:
        self._service, self._call, self._answer = service, call, answer
        self._qos = service.tenants.get(call.tenant).qos

    @property
    def stopped(self) -> bool:
        """See `Text`."""
        return self._answer.side.stop is not None

    def take(self, event: Event) -> Piece | None:
        """See `Text`. Raises `ApiError`."""
        answer = self._answer
        match event:
            case Admitted():
                answer.begun = True
                answer.cached, answer.queue_seconds = event.cached_tokens, event.queue_seconds
                self._service.began(self._call, answer)
                return Piece()
            case PromptLogprobs():
                tokens = zip(answer.plan.prompt[event.start :], event.logprobs, event.top_logprobs, strict=False)
                found = [checked(Token("", *one)) for one in tokens]
                answer.prompt_logprobs = [*answer.prompt_logprobs[: event.start - 1], *found]
                return None
            case Token() if answer.plan.silent:
                return None
            case Token():
                if len(answer.tokens) >= len(answer.plan.resume):
                    self._time()
                answer.tokens.append(event.token_id)
                return answer.side.add(event) or None
            case _:
                last = answer.side.finish()
                answer.usage = event.usage
                answer.finish = _finish(answer.side, event)
                if answer.plan.silent and event.usage is not None:
                    answer.usage, answer.finish = replace(event.usage, completion_tokens=0), "length"
                return replace(last, finish=answer.finish)

    def _time(self) -> None:
        """A token has come."""
        answer, metrics, now = self._answer, self._service.metrics, time.monotonic()
        if answer.first is None:
            answer.first = now
            metrics.ttft.labels(self._qos).observe(now - self._call.started)
        else:
            metrics.inter_token.labels(self._qos).observe(now - answer.last)
        answer.last = now


def _resumed(service: Service, call: Call, plan: Plan) -> Plan:
    """The plan of a stream that is resumed, with the tokens behind its events, where they will do. Of tokens that the
    client gives, or a router for it, nobody knows where they come from: they are its word, never the model's.

    Log-probabilities are not kept: with them all is generated again. Raises `ApiError`.
    """
    assert call.resume is not None
    given, n_vocab = call.resume.tokens, service.model.tokenizer.n_vocab
    tokens, n_given = (given, len(given)) if given else service.broken_off(call)
    if (wrong := next((t for t in tokens if t >= n_vocab), None)) is not None:
        raise invalid(f"X-Zinc-Resume has token id {wrong}; the vocabulary has {n_vocab} tokens", TOKENS)
    limit = plan.params.max_tokens
    usable = plan.params.logprobs is None and (limit is None or len(tokens) <= limit)
    return replace(plan, resume=tokens, given=n_given) if usable else plan


def _finish(side: TextSide, event: Finished | Failed) -> str:
    """Why an answer ended, in OpenAI's words. Raises `ApiError` where it did not end by itself."""
    if side.stop is not None:
        return "stop"
    if isinstance(event, Failed):
        raise failed(event)
    match event.reason:
        case FinishReason.stop:
            return "tool_calls" if side.n_calls else "stop"
        case FinishReason.length | FinishReason.context:
            return "length"
        case FinishReason.cancelled:
            raise cancelled(event.cancelled or CancelReason.caller)

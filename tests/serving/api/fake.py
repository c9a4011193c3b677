"""An engine that says what it is told to say: one text for every prompt, token by token, and no arithmetic."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Generic

from zinc_rt.scheduler.messages import (
    Admitted,
    CancelReason,
    EngineInfo,
    EngineStatus,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptLogprobs,
    Submit,
    TenantShare,
    Token,
    Usage,
)
from zinc_rt.scheduler.output import RequestOutput, T

LOGPROB = -0.5


def from_prompt(request: Submit, start: int, end: int) -> PromptLogprobs:
    """Log-probabilities of a part of a prompt: minus the token's index; of the likeliest, less by one each."""
    assert request.echo is not None
    at, top = range(start, end), range(request.echo)
    tops = tuple(tuple((request.prompt[i] + n, float(-i - n)) for n in top) for i in at)
    return PromptLogprobs(request.id, start, tuple(float(-i) for i in at), tops)


class Pieces(Generic[T]):
    """The pieces of one request; each is waited for."""

    ready = waited = False

    def __init__(self, pieces: AsyncGenerator[T]) -> None:
        self._pieces = pieces
        self.aclose = pieces.aclose

    def __aiter__(self) -> AsyncGenerator[T]:
        return self._pieces

    async def __anext__(self) -> T:
        return await anext(self._pieces)


class FakeClient:
    """script: the tokens that follow a request. slots: requests computed at once, the others wait. gate: if given, each
    token waits for a permit of it.
    """

    def __init__(
        self,
        script: Callable[[Submit], Sequence[int]],
        slots: int = 4,
        gate: asyncio.Semaphore | None = None,
        stops: frozenset[int] = frozenset(),
        n_ctx: int = 64,
    ) -> None:
        self.script, self.slots, self.gate, self.stops = script, slots, gate, stops
        self.n_ctx = n_ctx
        self.submitted: list[Submit] = []
        self.cancelled: list[tuple[str, CancelReason]] = []
        self.shares: list[TenantShare] = []
        self.closed: list[str] = []
        self.state: str | None = None
        self.fail: Failed | None = None
        self.fail_at_once: Failed | None = None
        self.fail_after = 0
        self.steps = 0
        self._ends: dict[str, asyncio.Event] = {}
        self._reasons: dict[str, CancelReason] = {}
        self._free = asyncio.Semaphore(slots)
        self.queued = self.decoding = 0

    async def start(self) -> EngineInfo:
        return EngineInfo("fake", self.n_ctx, self.slots, 16, "f16", 1024)

    def submit(self, output: RequestOutput[T]) -> Pieces[T]:
        output.begin()
        request = output.request
        if output.ended:
            return Pieces(self._pieces(self._over(request), output))
        self.submitted.append(request)
        self._ends[request.id] = asyncio.Event()
        return Pieces(self._pieces(self._events(request), output))

    async def _over(self, request: Submit) -> AsyncGenerator[Event]:
        yield Finished(request.id, FinishReason.cancelled, self._usage(request, len(request.resume)))

    async def _pieces(self, events: AsyncGenerator[Event], output: RequestOutput[T]) -> AsyncGenerator[T]:
        async with aclosing(events):
            async for event in events:
                for piece in output.take(event):
                    if isinstance(piece, BaseException):
                        raise piece
                    yield piece
                if output.ended and not output.over:
                    self.cancel(event.id, CancelReason.stop_string)

    async def _events(self, request: Submit) -> AsyncGenerator[Event]:
        if self.fail_at_once is not None:
            yield self.fail_at_once
            return
        end, admitted, n = self._ends[request.id], False, 0
        try:
            self.queued += 1
            waits = asyncio.create_task(self._free.acquire())
            ends = asyncio.create_task(end.wait())
            try:
                await asyncio.wait({waits, ends}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.queued -= 1
                ends.cancel()
                admitted = waits.done() and not waits.cancelled()
                if not admitted:
                    waits.cancel()
            if admitted:
                self.decoding += 1
                yield Admitted(request.id, cached_tokens=0, queue_seconds=0.25)
                if request.echo is not None:
                    yield from_prompt(request, 1, 2)
                    yield from_prompt(request, 1, len(request.prompt))  # as an engine in the place of one that ended
                n = len(request.resume)
                for token_id in itertools.islice(self.script(request), n, request.params.max_tokens):
                    if self.fail is not None and n >= self.fail_after:
                        yield self.fail
                        return
                    if not await self._permit(end):
                        break
                    self.steps += 1
                    if token_id in self.stops and not request.params.ignore_eos:
                        yield Finished(request.id, FinishReason.stop, self._usage(request, n), token_id)
                        return
                    n += 1
                    yield self._token(request, token_id)
            usage = self._usage(request, n)
            if end.is_set():
                yield Finished(request.id, FinishReason.cancelled, usage, cancelled=self._reasons[request.id])
            else:
                yield Finished(request.id, FinishReason.length, usage)
        finally:
            self.closed.append(request.id)
            if admitted:
                self.decoding -= 1
                self._free.release()

    async def _permit(self, end: asyncio.Event) -> bool:
        """Whether the request goes on with one more token."""
        if self.gate is None:
            await asyncio.sleep(0)
            return not end.is_set()
        permit, ends = asyncio.create_task(self.gate.acquire()), asyncio.create_task(end.wait())
        try:
            await asyncio.wait({permit, ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            permit.cancel()
            ends.cancel()
        return not end.is_set()

    @staticmethod
    def _token(request: Submit, token_id: int) -> Token:
        n = request.params.logprobs
        if n is None:
            return Token(request.id, token_id)
        return Token(request.id, token_id, LOGPROB, tuple((token_id + i, LOGPROB - i) for i in range(n)))

    @staticmethod
    def _usage(request: Submit, n: int) -> Usage:
        return Usage(len(request.prompt), 0, n, 0.25, 0.5, 1.0, 1.5)

    def cancel(self, request_id: str, reason: CancelReason = CancelReason.caller) -> None:
        self.cancelled.append((request_id, reason))
        if request_id in self._ends:
            self._reasons.setdefault(request_id, reason)
            self._ends[request_id].set()

    def share(self, tenant: TenantShare) -> None:
        self.shares.append(tenant)

    @property
    def status(self) -> EngineStatus:
        return EngineStatus(queued=self.queued, decoding=self.decoding, n_slots=self.slots, steps=self.steps)

    @property
    def restarts(self) -> int:
        return 0

    @property
    def healthy(self) -> str | None:
        return self.state

    async def close(self) -> None:
        """Nothing to end."""

"""The requests of a client, kept apart from its engine: when the engine ends, the next one continues them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Self

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.scheduler.messages import (
    AdapterReply,
    Admitted,
    CancelReason,
    EngineEvent,
    Event,
    Failed,
    Fault,
    Finished,
    FinishReason,
    LoadAdapter,
    Message,
    Submit,
    Token,
    UnloadAdapter,
    Usage,
)
from zinc_rt.scheduler.output import RequestOutput, T

POISON_CANDIDATE: Final = 2
"""Engines that ended in a row while they computed a request, without a token of it between; from then on it is tried
apart from others under suspicion.
"""
MOST_LOSSES: Final = POISON_CANDIDATE + 1
"""Engines after which a request fails: it may be what ends them."""
_END: Final = object()


class AdapterRefused(ZincError):
    """The engine did not load, or unload, an adapter."""


class LiveRequest(Generic[T]):
    """One request, from `submit` to its last event. Its caller iterates over the pieces of its output.

    left: called with its id where the caller goes before the last piece.
    """

    def __init__(self, output: RequestOutput[T], now: float, left: Callable[[str], None]) -> None:
        self.request, self.output = output.request, output
        self._left = left
        self._pieces: deque[Any] = deque()  # exceptions among them; `_END` last
        self._waiter: asyncio.Future[None] | None = None  # of the caller that waits for a piece
        self._read = False  # that was the last piece
        self._tokens = list(self.request.resume)
        self._deadline = None if self.request.seconds is None else now + self.request.seconds
        self.cancelled: CancelReason | None = None
        """The reason, where the caller asked for the end."""
        self._told = False  # that it was admitted
        self.in_flight = False
        """Whether the engine that runs computes it: it may be what ends that engine."""
        self.losses = 0
        """Engines that ended in a row while they computed it, without a token of it."""
        output.begin()
        if output.ended:  # by the tokens that it resumes
            self.take(self.as_cancelled())

    def resubmit(self, now: float) -> Submit:
        """The request for an engine that goes on behind the tokens that were sent."""
        left = None if self._deadline is None else max(0.001, self._deadline - now)
        return dataclasses.replace(self.request, resume=tuple(self._tokens), seconds=left)

    def take(self, event: Event) -> bool:
        """Hand an event to the caller; returns whether the caller has got the last of it."""
        output = self.output
        if isinstance(event, Token):
            self._tokens.append(event.token_id)
            self.in_flight, self.losses = True, 0
        elif isinstance(event, Admitted):
            if self._told:
                return False
            self._told = True
        self._pieces += output.take(event)
        if output.over:
            self._pieces.append(_END)
        if self._waiter is not None and self._pieces:
            if not self._waiter.done():  # as it is where the caller was cancelled
                self._waiter.set_result(None)
            self._waiter = None
        return output.over

    @property
    def ready(self) -> bool:
        """Whether the next piece, or the end, is there without waiting."""
        return bool(self._pieces) or self._read

    @property
    def waited(self) -> bool:
        """Whether its caller has all pieces so far and waits for the next one."""
        return self._waiter is not None and not self._waiter.done()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Raises what making a piece raised."""
        if self._read:
            raise StopAsyncIteration
        while not self._pieces:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._pieces.popleft()
        self._read = piece is _END or isinstance(piece, BaseException)
        if piece is _END:
            raise StopAsyncIteration
        if isinstance(piece, BaseException):
            raise piece
        made: T = piece
        return made

    async def aclose(self) -> None:
        """Cancel the request unless its last piece was read; calling it again does nothing."""
        if not self._read:
            self._read = True
            self._left(self.request.id)

    def as_cancelled(self) -> Finished:
        """The last event of a request whose engine cannot give it."""
        usage = Usage(len(self.request.prompt), completion_tokens=len(self._tokens))
        return Finished(self.request.id, FinishReason.cancelled, usage, cancelled=self.cancelled)

    def lost(self) -> None:
        """The engine ended."""
        self.losses += self.in_flight
        self.in_flight = False


class RequestLog:
    """The requests of one client, by id. cancel: tells the engine of a request whose text has ended before it, or
    whose caller has gone."""

    def __init__(
        self, cancel: Callable[[str, CancelReason], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cancel, self._clock = cancel, clock
        self._live: dict[str, LiveRequest[Any]] = {}
        self._at_work: list[LiveRequest[Any]] = []  # without a token of the engine that runs
        self._asked: dict[str, asyncio.Future[AdapterReply]] = {}  # by id
        self._held: deque[str] = deque()  # under suspicion, one after the other; the first is being tried

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._live

    def add(self, output: RequestOutput[T]) -> LiveRequest[T]:
        """A new request, which may be over at once. Raises `UsageError` for an id that runs already."""
        request = output.request
        if request.id in self._live:
            raise UsageError(f"request {request.id} runs already; ids must be unique")
        live = LiveRequest(output, self._clock(), self._leave)
        if not live.output.over:
            self._live[request.id] = live
        return live

    def at_work(self, ids: Iterable[str]) -> None:
        """The engine computes these requests, which have no token of it yet, until its next report."""
        self.clear()
        self._at_work = [self._live[request_id] for request_id in ids if request_id in self._live]
        for live in self._at_work:
            live.in_flight = True

    def clear(self) -> None:
        """The engine did not end over what it computed."""
        for live in self._at_work:
            live.in_flight = False
        self._at_work = []

    def take(self, events: Iterable[EngineEvent]) -> None:
        """Hand events to their callers. Those of requests that nobody waits for any more are dropped. A request whose
        text has ended is cancelled.
        """
        for event in events:
            if isinstance(event, AdapterReply):
                self._answer(event)
                continue
            live = self._live.get(event.id)
            if live is None:
                continue
            if live.take(event):
                del self._live[event.id]
            if live.output.ended and live.cancelled is None and not isinstance(event, Finished | Failed):
                live.cancelled = CancelReason.stop_string
                self._cancel(event.id, CancelReason.stop_string)

    async def ask(self, message: LoadAdapter | UnloadAdapter, send: Callable[[Message], None]) -> None:
        """Send a message and wait until the engine has done what it says. Raises `AdapterRefused`."""
        self._asked[message.id] = answer = asyncio.get_running_loop().create_future()
        send(message)
        if error := (await answer).error:
            raise AdapterRefused(error)

    def _answer(self, reply: AdapterReply) -> None:
        waiting = self._asked.pop(reply.id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def _leave(self, request_id: str) -> None:
        """Nobody waits for the request any more."""
        if self._live.pop(request_id, None) is not None:
            self._cancel(request_id, CancelReason.caller)

    def lost(self) -> None:
        """The engine ended. A request fails where that happened too often while it was computed."""
        for asked in list(self._asked):
            self._answer(AdapterReply(asked, "the engine ended; try again"))
        for live in self._live.values():
            live.lost()
        self._at_work = []
        bad = [request_id for request_id, live in self._live.items() if live.losses >= MOST_LOSSES]
        self.fail(Fault.poisoned, f"the engine ended {MOST_LOSSES} times while it had this request", bad)

    def cancel(self, request_id: str, reason: CancelReason) -> bool:
        """The caller asks for the end of a request; returns whether it runs."""
        live = self._live.get(request_id)
        if live is None:
            return False
        live.cancelled = reason
        return True

    def resubmit(self) -> list[Submit]:
        """The requests for a new engine, in the order in which they came. Those that were cancelled end; of those under
        suspicion only one is among them.
        """
        self.take([live.as_cancelled() for live in self._live.values() if live.cancelled is not None])
        self._held = deque(request_id for request_id, live in self._live.items() if live.losses >= POISON_CANDIDATE)
        now = self._clock()
        first = [live.resubmit(now) for request_id, live in self._live.items() if request_id not in self._held]
        return first + self._try_next()

    def released(self) -> list[Submit]:
        """A request under suspicion to submit now, as the one before it gave a token or is over; mostly none."""
        if not self._held:
            return []
        tried = self._live.get(self._held[0])
        if tried is not None and tried.losses:
            return []
        self._held.popleft()
        return self._try_next()

    def _try_next(self) -> list[Submit]:
        while self._held and self._held[0] not in self._live:
            self._held.popleft()
        return [self._live[self._held[0]].resubmit(self._clock())] if self._held else []

    def fail(self, error: Fault, message: str, requests: Iterable[str] | None = None) -> None:
        """End requests, or all of them."""
        chosen = list(self._live if requests is None else requests)
        self.take([Failed(request_id, error, message) for request_id in chosen])

"""An engine core without a model: tokens are hashes of prompt, seed and place, so that resumed requests go on alike.

Prompts that hold some ids misbehave at their third token: see `KILLS` and the others.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from zinc_rt.errors import BackendError, UsageError, ZincError
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.scheduler.messages import (
    Admitted,
    CancelReason,
    EngineInfo,
    EngineStatus,
    Event,
    Finished,
    FinishReason,
    StepReport,
    Submit,
    TenantShare,
    Token,
    Usage,
)

KILLS, HANGS, LOSES, STOPS, SHOWS = 901, 902, 903, 904, 905
"""SHOWS: has a large picture, which takes 200 turns before the first token."""
_AT = 3


def token_at(request: Submit, index: int) -> int:
    """The token at a place of an answer."""
    data = repr((request.prompt, request.seed, index)).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=2).digest(), "little")


class FakeCore:
    """Serves its first `n_slots` requests a token a turn."""

    def __init__(self, marker: str = "", seconds: float = 0.001, n_slots: int = 1000) -> None:
        self.info = EngineInfo("a fake", 1000, 4, 8, "f16", 4000)
        self._marker, self._seconds, self._n_slots = marker, seconds, n_slots
        self._requests: dict[str, tuple[Submit, list[int]]] = {}
        self._new: list[Submit] = []  # that wait
        self._cancelled: list[tuple[str, CancelReason]] = []
        self._seq = self._encoded = 0
        self.shares: list[TenantShare] = []
        self.at_work: Callable[[tuple[str, ...]], None] = lambda ids: None

    @property
    def idle(self) -> bool:
        return not (self._requests or self._new or self._cancelled)

    def submit(self, request: Submit) -> None:
        self._new.append(request)

    def cancel(self, request_id: str, reason: CancelReason) -> None:
        self._cancelled.append((request_id, reason))

    def share(self, tenant: TenantShare) -> None:
        self.shares.append(tenant)

    def rest(self) -> bool:
        return False

    def turn(self) -> StepReport:
        events: list[Event] = []
        for request_id, reason in self._cancelled:
            if request_id in self._requests:
                events.append(self._finish(request_id, FinishReason.cancelled, reason))
        room = self._n_slots - len(self._requests)
        started, self._new, self._cancelled = self._new[:room], self._new[room:], []
        for request in started:
            self._requests[request.id] = request, list(request.resume)
            self.at_work((request.id,))
            events.append(Admitted(request.id, 0, 0.0))
        for request, _ in self._requests.values():
            if SHOWS in request.prompt and self._encoded < 200:
                self._encoded += 1
                time.sleep(0.01)
                return StepReport(self._seq, tuple(events), self._status)
        busy = bool(self._requests)
        for request_id, (request, tokens) in list(self._requests.items()):
            self._misbehave(request, len(tokens))
            tokens.append(token_at(request, len(tokens)))
            events.append(Token(request_id, tokens[-1], -0.5, ((tokens[-1], -0.5),)))
            if len(tokens) == request.params.max_tokens:
                events.append(self._finish(request_id, FinishReason.length))
        if busy:
            time.sleep(self._seconds)
        self._seq += 1
        return StepReport(
            self._seq, tuple(events), self._status, self._seconds if busy else 0.0, 0, len(self._requests)
        )

    @property
    def _status(self) -> EngineStatus:
        return EngineStatus(decoding=len(self._requests), n_slots=4, steps=self._seq, encoded=self._encoded)

    def _finish(self, request_id: str, reason: FinishReason, cancelled: CancelReason | None = None) -> Finished:
        request, tokens = self._requests.pop(request_id)
        return Finished(request_id, reason, Usage(len(request.prompt), 0, len(tokens)), cancelled=cancelled)

    def _misbehave(self, request: Submit, index: int) -> None:
        if index != _AT:
            return
        once = self._marker and not os.path.exists(self._marker)
        for what in set(request.prompt) & {KILLS, HANGS, LOSES, STOPS}:
            if what == KILLS:
                os.kill(os.getpid(), signal.SIGKILL)
            if not once:
                continue
            with open(self._marker, "w"):
                pass
            if what == HANGS:
                time.sleep(3600)
            elif what == STOPS:
                os.kill(os.getpid(), signal.SIGSTOP)
            elif what == LOSES:
                raise BackendError("the device is lost")

    def close(self) -> None:
        pass


def make(
    notify: Callable[[str], None],
    progress: Callable[[int, int], None],
    fails: str = "",
    planned: Callable[[MemoryPlan, bool], None] | None = None,
    **arguments: Any,
) -> FakeCore:
    """What `wire.Start.factory` names. fails: "usage", "memory" or "dies", to fail while loading."""
    notify("loading a fake")
    if planned is not None:
        planned(MemoryPlan(1000, 0, 200, 30, 4, available=5000), False)
    progress(1, 2)
    if fails == "usage":
        raise UsageError("n_ctx is -1")
    if fails == "file":
        raise ZincError("no such file").with_advice("give another")
    if fails == "memory":
        raise MemoryError
    if fails == "dies":
        os._exit(7)
    return FakeCore(**arguments)

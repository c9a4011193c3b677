"""One core for many callers: what happens where a turn fails between two of them."""

from __future__ import annotations

import threading

import pytest

from zinc_rt.errors import BackendError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.serving.core.shared import CoreLock, SharedCore
from zinc_rt.serving.messages import Event, Finished, FinishReason, Submit, Usage


class Core:
    """Ends each request at once; fails its turns while it is told to."""

    def __init__(self) -> None:
        self.fails = True
        self._events: list[Event] = []

    def submit(self, request: Submit, processors: object = ()) -> None:
        self._events.append(Finished(request.id, FinishReason.stop, Usage(1)))

    def cancel(self, request_id: str) -> None:
        pass

    def collect(self) -> tuple[Event, ...]:
        if self.fails:
            raise BackendError("the device is lost")
        events, self._events = tuple(self._events), []
        return events

    advance = collect


def asked(name: str) -> Submit:
    return Submit(name, (1,), SamplingParams(), seed=1)


def test_a_turn_that_fails_ends_posted_requests_between_other_callers_turns() -> None:
    """Nobody may be delivering events meanwhile: a request would get two ends, or the other caller a `KeyError`."""
    core, lock = Core(), CoreLock()
    shared = SharedCore(lock, lambda: None)
    shared.serve(core)  # type: ignore[arg-type]
    given: list[tuple[object, bool]] = []
    over = threading.Event()

    def give(event: Event | BaseException) -> None:
        given.append((event, lock._lock._is_owned()))  # type: ignore[attr-defined]
        over.set()

    shared.post(asked("a"), give)
    assert over.wait(60)
    (error, held), *more = given
    assert isinstance(error, BackendError)
    assert held
    assert not more
    core.fails = False
    shared.submit(asked("b"))
    assert isinstance(shared.next("b"), Finished)


def test_after_a_turn_that_failed_others_go_on() -> None:
    core = Core()
    shared = SharedCore(CoreLock(), lambda: None)
    shared.serve(core)  # type: ignore[arg-type]
    with pytest.raises(BackendError):
        shared.submit(asked("a"))
    core.fails = False
    shared.submit(asked("b"))
    assert isinstance(shared.next("b"), Finished)

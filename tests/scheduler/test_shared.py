"""One core for many callers: what happens where a turn fails between two of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from zinc_rt.errors import BackendError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.in_process import CoreLock, InProcessClient
from zinc_rt.scheduler.messages import Event, Finished, FinishReason, Submit, Usage
from zinc_rt.scheduler.output import RequestOutput


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
    client = InProcessClient(lock, lambda: None)
    client.serve(core)  # type: ignore[arg-type]
    given: list[tuple[Sequence[object], bool, bool]] = []
    told = threading.Event()

    def give(pieces: Sequence[object], over: bool) -> None:
        given.append((pieces, over, lock.inner._is_owned()))  # type: ignore[attr-defined]
        told.set()

    client.post(RequestOutput(asked("a")), give)
    assert told.wait(60)
    ([error], over, held), *more = given
    assert isinstance(error, BackendError)
    assert over
    assert held
    assert not more
    core.fails = False
    (last,) = client.pieces(client.submit(RequestOutput(asked("b"))))
    assert isinstance(last, Finished)


def test_after_a_turn_that_failed_others_go_on() -> None:
    core = Core()
    client = InProcessClient(CoreLock(), lambda: None)
    client.serve(core)  # type: ignore[arg-type]
    with pytest.raises(BackendError):
        list(client.pieces(client.submit(RequestOutput(asked("a")))))
    core.fails = False
    (last,) = client.pieces(client.submit(RequestOutput(asked("b"))))
    assert isinstance(last, Finished)

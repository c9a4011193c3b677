"""A message that an engine refuses is answered, and the engine goes on; a lost device and wrong books end it."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from tests.scheduler.fake_engine import N_VOCAB, FakeEngine
from tests.serving.fake_core import FakeCore
from zinc_rt.errors import BackendError, IntegrityError, UsageError, ZincError
from zinc_rt.mem.errors import PagesExhausted
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.errors import TooManyTenants
from zinc_rt.scheduler.faults import failed
from zinc_rt.scheduler.messages import (
    AdapterReply,
    Cancel,
    CancelReason,
    Event,
    Failed,
    Fault,
    Finished,
    LoadAdapter,
    Message,
    Ping,
    StepReport,
    Submit,
    TenantShare,
    UnloadAdapter,
)
from zinc_rt.scheduler.options import CoreOptions, CoreVocabulary
from zinc_rt.scheduler.output import RequestOutput
from zinc_rt.serving import engine_process
from zinc_rt.serving.engine_process import hand
from zinc_rt.serving.process import ProcessClient
from zinc_rt.serving.thread import ThreadClient
from zinc_rt.serving.wire import Frames, FromEngine, Notice, Start, ToEngine, pack, unpack_from

BAD = "bad"
LOST = (BackendError, IntegrityError)
REFUSED = (ZincError, UsageError, TooManyTenants, PagesExhausted)


def asked(name: str, n: int = 3) -> Submit:
    return Submit(name, (1, 2), SamplingParams(max_tokens=n), seed=1)


ADAPTERS = [LoadAdapter(BAD, "a", "a.gguf"), UnloadAdapter(BAD, "a")]
MESSAGES: list[ToEngine] = [asked(BAD), Cancel(BAD), TenantShare(BAD), Ping(7), Start("tests", {}), *ADAPTERS]
"""One of each kind."""


class Refusing(FakeCore):
    """Refuses what is named "bad"."""

    def __init__(self, error: type[ZincError] = TooManyTenants) -> None:
        super().__init__()
        self._error = error

    def submit(self, request: Submit) -> None:
        self._check(request.id)
        super().submit(request)

    def cancel(self, request_id: str, reason: CancelReason) -> None:
        self._check(request_id)
        super().cancel(request_id, reason)

    def share(self, tenant: TenantShare) -> None:
        self._check(tenant.tenant)
        super().share(tenant)

    def load_adapter(self, path: str, name: str | None) -> None:
        raise self._error("it is refused")

    def unload_adapter(self, name: str) -> None:
        raise self._error("it is refused")

    def _check(self, name: str) -> None:
        if name == BAD:
            raise self._error("it is refused")


def make(notify: Callable[[str], None], progress: Callable[[int, int], None]) -> FakeCore:
    """What the engine's process loads."""
    return Refusing()


def make_core(notify: Callable[[str], None], progress: Callable[[int, int], None]) -> EngineCore:
    """What the engine's process loads: a real core."""
    return EngineCore(FakeEngine(), CoreVocabulary(N_VOCAB, frozenset()), CoreOptions(max_tenants=3))  # type: ignore[arg-type]


def test_there_is_a_message_of_each_kind() -> None:
    assert {type(message) for message in MESSAGES} == {*get_args(Message), Start}


@pytest.mark.parametrize("message", MESSAGES[:3], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("error", [*LOST, *REFUSED])
def test_one_place_decides_what_ends_an_engine(message: Submit, error: type[ZincError]) -> None:
    core = Refusing(error)
    if error in LOST:
        with pytest.raises(error, match="it is refused"):
            hand(core, message)
        return
    answer = hand(core, message)
    if isinstance(message, Submit):
        assert answer == Failed(BAD, failed(BAD, error("-")).error, "it is refused")
    else:
        assert isinstance(answer, str)
        assert answer.endswith("it is refused")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_an_engine_in_a_process_goes_on_after_a_refusal(message: ToEngine) -> None:
    ours, theirs = socket.socketpair()
    frames, found = Frames(), list[FromEngine]()
    ended: list[BaseException] = []

    def serve() -> None:
        try:
            engine_process.serve(engine_process._Link(theirs))
        except Exception as error:
            ended.append(error)
        finally:
            theirs.close()

    def until(true: Callable[[FromEngine], bool]) -> None:
        while not any(map(true, found)):
            data = ours.recv(1 << 16)
            assert data, ended
            found.extend(map(unpack_from, frames.add(data)))

    thread = threading.Thread(target=serve)
    thread.start()
    ours.settimeout(60)
    try:
        for sent in (Start(f"{__name__}:make", {}), message, asked("good")):
            ours.sendall(pack(sent))
        until(lambda m: isinstance(m, StepReport) and any(isinstance(e, Finished) for e in m.events))
    finally:
        ours.close()
        thread.join(60)
    assert [type(error).__name__ for error in ended] == ["_Gone"]
    events = [event for m in found if isinstance(m, StepReport) for event in m.events]
    if isinstance(message, Submit):
        assert Failed(BAD, Fault.too_many_tenants, "it is refused") in events
    elif isinstance(message, LoadAdapter | UnloadAdapter):
        assert AdapterReply(BAD, "it is refused") in events
    elif isinstance(message, Ping):
        assert 7 in [m.pong for m in found if isinstance(m, StepReport)]
    else:
        assert any(isinstance(m, Notice) and type(message).__name__ in m.line for m in found)


@pytest.mark.parametrize("kind", [Submit, Cancel, TenantShare], ids=lambda kind: kind.__name__)
def test_an_engine_on_a_thread_goes_on_after_a_refusal(kind: type[ToEngine]) -> None:
    async def go() -> None:
        said: list[str] = []
        client = ThreadClient(Refusing, notify=said.append)
        await client.start()
        if kind is TenantShare:
            client.share(TenantShare(BAD))
        else:
            events = [event async for event in client.submit(RequestOutput(asked(BAD)))]
            assert events == [Failed(BAD, Fault.too_many_tenants, "it is refused")]
        if kind is Cancel:
            client._send(Cancel(BAD))
        good = [event async for event in client.submit(RequestOutput(asked("good")))]
        assert isinstance(good[-1], Finished)
        assert client.healthy is None
        assert len(said) == (kind is not Submit)
        await client.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_shares_and_tenants_that_a_core_refuses_end_no_engine() -> None:
    """A weight of infinity, and one tenant more than an engine knows."""

    async def go() -> None:
        said: list[str] = []
        client = ProcessClient(Start(f"{__name__}:make_core", {}), notify=said.append)
        await client.start()
        client.share(TenantShare("a", math.inf))
        for i in range(3):
            client.share(TenantShare(f"t{i}"))
        client.share(TenantShare("late"))

        async def last(tenant: str) -> Event:
            return [event async for event in client.submit(RequestOutput(replace(asked(tenant), tenant=tenant)))][-1]

        assert isinstance(await last("t1"), Finished)
        late = await last("late")
        assert isinstance(late, Failed)
        assert late.error is Fault.too_many_tenants
        assert client.n_starts == 1
        assert ["weight is inf" in said[0], "all 3 places" in said[1], len(said)] == [True, True, 2]
        await client.close()

    asyncio.run(asyncio.wait_for(go(), 60))

"""Receipts of requests that are over, and replays of them on the engine that serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from zinc_rt.scheduler.messages import Admitted, Event, Failed, Finished, Submit, Token
from zinc_rt.scheduler.output import RequestOutput
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError, cancelled, failed, invalid
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.recording import RequestRecorder
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.records.chain import GENESIS
from zinc_rt.serving.records.record import BadRecord, RequestRecord
from zinc_rt.serving.records.replay import NotReplayable, at, check_replayable, first_difference, measured, whole
from zinc_rt.serving.records.store import StoreError, UnknownRecord

T = TypeVar("T")
_TAIL: Final = 1000
"""Entries of the chain that one answer has at the most."""


class ReplayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which request to compute again."""

    id: str


async def receipt(service: Service, call: Call) -> None:
    """The computation receipt of a request, for its tenant and for administrators."""
    name = call.path.rpartition("/")[2]
    recorder = _recorder(service)
    record = await _read(service, call, recorder, name)
    made = await asyncio.to_thread(recorder.store.receipt, name) if record is None else record.receipt()
    entry = await asyncio.to_thread(recorder.store.entry, name)
    await call.reply_json(made if entry is None else {**made, "entry": entry})


async def chain(service: Service, call: Call) -> None:
    """How many entries the chain of receipts has, and the hash of the last one; for administrators."""
    service.check_admin(call)
    store = _recorder(service).store
    tail = await _chain(lambda: store.tail(1))
    count = await _chain(store.chain_length)
    await call.reply_json({"entries": count, "tip": tail[0]["chain"] if tail else GENESIS})


async def chain_tail(service: Service, call: Call) -> None:
    """The last n entries of the chain of receipts, in order; for administrators, since they are all tenants'."""
    service.check_admin(call)
    store = _recorder(service).store
    text = call.query.get("n", "10")
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _TAIL):
        raise invalid(f"n is {text[:20]!r}; it must be from 1 to {_TAIL}", "n")
    entries = await _chain(lambda: store.tail(int(text)))
    await call.reply_json({"entries": entries, "tip": entries[-1]["chain"] if entries else GENESIS})


async def _chain(read: Callable[[], T]) -> T:
    """What a function reads of the chain. Raises `ApiError`."""
    try:
        return await asyncio.to_thread(read)
    except (BadRecord, StoreError) as error:
        raise ApiError(500, str(error), code="records_failed") from None


async def replay(service: Service, call: Call) -> None:
    """Compute a recorded request again and say whether every token is the same. It counts like any other request."""
    ticket = service.enter(call)
    try:
        asked = msgspec.json.decode(await call.body(), type=ReplayRequest)
    except msgspec.MsgspecError as error:
        raise invalid(str(error), "id") from None
    recorder = _recorder(service)
    record = await _read(service, call, recorder, asked.id)
    if record is None or recorder.identity is None:
        raise ApiError(409, "only a receipt is kept of this request; it cannot be replayed", code="not_replayable")
    try:
        identity = recorder.identity
        check_replayable(record, identity.sha256, identity.kv, identity.projector)
    except NotReplayable as error:
        raise ApiError(409, str(error), code="not_replayable") from None
    service.model.check_fits(len(record.prompt), "id")
    service.admission.count(ticket, len(record.prompt) + len(record.output))
    seconds = service.seconds(call)
    async with call.attended():
        found = await compare(service, record, call.tenant, seconds, lambda: service.admission.admitted(ticket))
    await call.reply_json({"id": asked.id, **found})


async def compare(
    service: Service,
    record: RequestRecord,
    tenant: str,
    seconds: float | None = None,
    admitted: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """What a replay of a record finds. tenant: who the engine's time is charged to. seconds: that it may take.
    admitted: called when the engine begins.

    Raises `ApiError` where the engine cannot compute it, or not in time.
    """
    again = replace(whole(record, new_id("replay-")), tenant=tenant, seconds=seconds)
    events = await _run(service, again, admitted)
    replayed = [event.token_id for event in events if isinstance(event, Token)]
    difference = first_difference(record.output, replayed)
    service.metrics.replays.labels("equal" if difference is None else "different").inc()
    if difference is None:
        return {"object": "replay", "equal": True, "tokens": len(record.output), "difference": None}
    one = replace(at(record, difference, new_id("replay-")), tenant=tenant, seconds=seconds)
    difference = measured(difference, await _run(service, one, admitted))
    return {
        "object": "replay",
        "equal": False,
        "tokens": len(record.output),
        "difference": {
            "position": difference.position,
            "recorded": difference.recorded,
            "replayed": difference.replayed,
            "logprob_recorded": difference.logprob_recorded,
            "logprob_replayed": difference.logprob_replayed,
        },
    }


async def _run(service: Service, request: Submit, admitted: Callable[[], None]) -> list[Event]:
    stream = service.client.submit(RequestOutput[Event](request))
    events: list[Event] = []
    n_known = len(request.resume)  # tokens that are told again, and were not computed
    try:
        async for event in stream:
            if n_known and isinstance(event, Token):
                n_known -= 1
                continue
            events.append(event)
            if isinstance(event, Admitted):
                admitted()
    finally:
        await stream.aclose()
    last = events[-1]
    if isinstance(last, Failed):
        raise failed(last)
    if isinstance(last, Finished) and last.cancelled is not None:  # half of it would look like a difference
        raise cancelled(last.cancelled)
    return events


def _recorder(service: Service) -> RequestRecorder:
    if service.recorder is None:
        raise ApiError(404, "this server keeps no records; start it with --records FILE", code="no_records")
    return service.recorder


async def _read(service: Service, call: Call, recorder: RequestRecorder, name: str) -> RequestRecord | None:
    """The record of a request that the caller may see; None where only a receipt is kept. Raises `ApiError`."""
    unknown = ApiError(404, f"no record of request {name[:60]!r} is kept", code="request_not_found")
    try:
        if not service.may_see(call, await asyncio.to_thread(recorder.store.tenant, name)):
            raise unknown
        return await asyncio.to_thread(recorder.store.full_record, name)
    except UnknownRecord:
        raise unknown from None
    except (BadRecord, StoreError) as error:
        raise ApiError(500, str(error), code="records_failed") from None

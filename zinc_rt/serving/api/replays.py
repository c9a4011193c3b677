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
from zinc_rt.serving.api.recording import ServerRecords
from zinc_rt.serving.api.service import AskedModel, Service
from zinc_rt.serving.records.chain import GENESIS
from zinc_rt.serving.records.record import BadRecord, RequestRecord
from zinc_rt.serving.records.replay import (
    NotReplayable,
    at,
    check_replayable,
    first_difference,
    measured,
    whole,
    with_adapters_here,
)
from zinc_rt.serving.records.store import StoreError, UnknownRecord

T = TypeVar("T")
_TAIL: Final = 1000
"""Entries of the chain that one answer has at the most."""


class ReplayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which request to compute again."""

    id: str


async def receipt(service: Service, call: Call) -> None:
    """The computation receipt of a request, for its tenant and for administrators."""
    name, store = call.path.rpartition("/")[2], _records(service).store
    await _check_visible(service, call, name)

    def read() -> dict[str, Any]:
        entry = store.entry(name)
        return store.receipt(name) | ({} if entry is None else {"entry": entry})

    await call.reply_json(await _found(read, name))


async def chain(service: Service, call: Call) -> None:
    """How many entries the chain of receipts has, and the hash of the last one; for administrators."""
    service.check_admin(call)
    store = _records(service).store
    tail = await _read(lambda: store.tail(1))
    count = await _read(store.chain_length)
    await call.reply_json({"entries": count, "tip": tail[0]["chain"] if tail else GENESIS})


async def chain_tail(service: Service, call: Call) -> None:
    """The last n entries of the chain of receipts, in order; for administrators, since they are all tenants'."""
    service.check_admin(call)
    store = _records(service).store
    text = call.query.get("n", "10")
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _TAIL):
        raise invalid(f"n is {text[:20]!r}; it must be from 1 to {_TAIL}", "n")
    entries = await _read(lambda: store.tail(int(text)))
    await call.reply_json({"entries": entries, "tip": entries[-1]["chain"] if entries else GENESIS})


async def _read(read: Callable[[], T]) -> T:
    """What a function reads of the store. Raises `ApiError`, `UnknownRecord`."""
    try:
        return await asyncio.to_thread(read)
    except (BadRecord, StoreError) as error:
        raise ApiError(500, str(error), code="records_failed") from None


async def named_in_record(service: Service, call: Call) -> AskedModel:
    """The model that answered the request which is to be computed again. Raises `ApiError`."""
    return AskedModel(await _check_visible(service, call, await _asked_id(call)))


async def replay(service: Service, call: Call) -> None:
    """Compute a recorded request again and say whether every token is the same. It counts like any other request."""
    ticket = service.enter(call)
    name = await _asked_id(call)
    await _check_visible(service, call, name)
    store = _records(service).store
    record = await _found(lambda: store.full_record(name), name)
    if record is None:
        raise ApiError(409, "only a receipt is kept of this request; it cannot be replayed", code="not_replayable")
    service.model.check_fits(len(record.prompt), "id")
    service.admission.count(ticket, len(record.prompt) + len(record.output))
    seconds = service.seconds(call)
    async with call.attended():
        try:
            record = await check_same(service, record)
        except NotReplayable as error:
            raise ApiError(409, str(error), code="not_replayable") from None
        found = await compare(service, record, call.tenant, seconds, lambda: service.admission.admitted(ticket))
    await call.reply_json({"id": name, **found})


async def _asked_id(call: Call) -> str:
    try:
        return msgspec.json.decode(await call.body(), type=ReplayRequest).id
    except msgspec.MsgspecError as error:
        raise invalid(str(error), "id") from None


async def check_same(service: Service, record: RequestRecord) -> RequestRecord:
    """The record with this server's names of adapters; waits for the hash of the model's file.

    Raises `NotReplayable` unless the service's model, and its adapters, are the record's.
    """
    identity = None if service.recorder is None else await service.recorder.settled()
    if identity is None:
        raise NotReplayable("the model's file has no hash; the server's log says why")
    check_replayable(record, identity.sha256, identity.kv, identity.projector)
    return with_adapters_here(record, {one.sha256: one.name for one in service.model.adapters.entries})


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


def _records(service: Service) -> ServerRecords:
    if service.records is None:
        raise ApiError(404, "this server keeps no records; start it with --records FILE", code="no_records")
    return service.records


async def _check_visible(service: Service, call: Call, name: str) -> str:
    """The model that answered a request which the caller may see. Raises `ApiError`."""
    store = _records(service).store
    tenant, model = await _found(lambda: store.answered(name), name)
    if not service.may_see(call, tenant):
        raise _unknown(name)
    return model


async def _found(read: Callable[[], T], name: str) -> T:
    """What a function reads of a request. Raises `ApiError`."""
    try:
        return await _read(read)
    except UnknownRecord:
        raise _unknown(name) from None


def _unknown(name: str) -> ApiError:
    return ApiError(404, f"no record of request {name[:60]!r} is kept", code="request_not_found")

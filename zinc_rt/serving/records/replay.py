"""Replays: a recorded request computed again, and compared token by token.

Bits depend on the model, the prompt, the parameters and the seed alone. So a replay is equal on every device, whatever
the server did meanwhile; where it is not, the file, the release or the hardware is another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zinc_rt import numerics
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.scheduler.messages import Event, Failed, Submit, Token
from zinc_rt.serving.records.record import RequestRecord

if TYPE_CHECKING:
    from zinc_rt.scheduler.engine_core import EngineCore

TOP = 20
"""Log-probabilities that a replay asks for at a place that differs."""


class NotReplayable(ZincError):
    """A record of another model, or of a release with other bits: nothing can be learnt from computing it again."""


@dataclass(frozen=True)
class Difference:
    """The first place where a replay differs. recorded, replayed: token ids there, None behind the end;
    logprob_recorded, logprob_replayed: of these tokens now, where they are among the likeliest.
    """

    position: int
    recorded: int | None
    replayed: int | None
    logprob_recorded: float | None = None
    logprob_replayed: float | None = None


def check_replayable(record: RequestRecord, sha256: str, kv: str, projector: str) -> None:
    """Raise `NotReplayable` unless the model at hand would give the record's bits. See `ModelIdentity`."""
    if record.model.sha256 != sha256:
        raise NotReplayable(
            f"request {record.id} was answered by another model: its file's SHA-256 begins with"
            f" {record.model.sha256[:16]}, this one's with {sha256[:16]}"
        )
    if record.numerics != numerics.VERSION:
        raise NotReplayable(
            f"request {record.id} was answered with version {record.numerics} of the numerics, this release has"
            f" {numerics.VERSION}; replay it with a release of that time"
        )
    if record.pictures and record.model.projector != projector:
        here = f"this one's with {projector[:16]}" if projector else "and there is none here"
        raise NotReplayable(
            f"request {record.id} has pictures, which another projector read: its file's SHA-256 begins with"
            f" {record.model.projector[:16]}, {here}; give --mmproj"
        )
    if record.model.kv != kv:
        raise NotReplayable(
            f"request {record.id} was answered with a KV cache in {record.model.kv}, this one is in {kv};"
            f" give --kv {record.model.kv}"
        )


def with_adapters_here(record: RequestRecord, here: Mapping[str, str]) -> RequestRecord:
    """The record with the names by which its adapters are known here. here: names by the SHA-256 of the files.

    Raises `NotReplayable` where one is missing.
    """
    for one in record.adapters:
        if one.sha256 not in here:
            raise NotReplayable(
                f"request {record.id} was answered with the adapter {one.name!r}, whose file's SHA-256 begins with"
                f" {one.sha256[:16]}; no adapter here has it; give --lora FILE"
            )
    renamed = tuple(dataclasses.replace(one, name=here[one.sha256]) for one in record.adapters)
    return dataclasses.replace(record, adapters=renamed)


def first_difference(recorded: Sequence[int], replayed: Sequence[int]) -> Difference | None:
    """Where two answers differ. A record may end earlier, as a stop string or a client that left ends a text."""
    for position, (old, new) in enumerate(zip(recorded, replayed, strict=False)):
        if old != new:
            return Difference(position, old, new)
    if len(replayed) < len(recorded):
        return Difference(len(replayed), recorded[len(replayed)], None)
    return None


def whole(record: RequestRecord, request_id: str) -> Submit:
    """The request that computes a record again, no further than the record goes."""
    again = record.submit(request_id)
    most = len(record.given) + max(1, len(record.output))
    return dataclasses.replace(again, params=dataclasses.replace(again.params, max_tokens=most))


def at(record: RequestRecord, difference: Difference, request_id: str) -> Submit:
    """The request for the one token where a replay differs, behind the recorded ones, with log-probabilities."""
    again = record.submit(request_id)
    resume = record.given + record.output[: difference.position]
    params = dataclasses.replace(again.params, max_tokens=len(resume) + 1, logprobs=TOP)
    return dataclasses.replace(again, params=params, resume=resume)


def answered(core: EngineCore, request: Submit) -> list[Event]:
    """All events of one request, which the engine computes alone. Raises `UsageError` where it refuses it."""
    core.submit(request)
    events: list[Event] = []
    while not core.idle:
        events += core.advance()
    if events and isinstance(failed := events[-1], Failed):
        raise UsageError(f"the request cannot be computed here: {failed.message}")
    return events


def measured(difference: Difference, events: Sequence[Event]) -> Difference:
    """The difference with what the engine said at its place."""
    token = next((event for event in events if isinstance(event, Token)), None)
    if token is None:
        return difference
    known = dict(token.top_logprobs or ())
    if token.logprob is not None:
        known[token.token_id] = token.logprob
    old, new = (None if t is None else known.get(t) for t in (difference.recorded, difference.replayed))
    return dataclasses.replace(difference, logprob_recorded=old, logprob_replayed=new)

"""Streams that go on where they broke off: the ids of their events, and what a client says to resume one.

An event's id is the request's id, the second it was created, the fingerprint of the model, its seed and the event's
number. With the same body that is all a server needs to know: the events of a request depend on nothing else. So any
server of the model can go on with it, and skips what was sent; a server of another model refuses, whoever asks. The
tokens that were sent spare it to generate them again: a client may give them (`X-Zinc-Resume`), and a server knows
those of streams that broke off lately. Of several answers in one stream all tokens are generated again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from zinc_rt.serving.api.errors import ApiError, invalid

LAST_EVENT: Final = "last-event-id"
TOKENS: Final = "x-zinc-resume"
TELLS: Final = "x-zinc-tokens"
"""A request's header with which it wants comments that tell the tokens behind the events, as a router does."""

_ID: Final = re.compile(r"([A-Za-z_]{2,12}[-_]?[A-Za-z0-9]{24})\.(\d{1,12})\.(\w{1,64})\.(\d{1,20})\.(\d{1,9})")
_LIST: Final = re.compile(r"\d{1,9}(,\d{1,9})*")


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a stream broke off. events: that were sent; tokens: behind them, as far as they are known."""

    id: str
    created: int
    seed: int
    events: int
    tokens: tuple[int, ...] = ()


def parse(event_id: str, tokens: str, model: str) -> Resume:
    """What the headers of a request say. model: the fingerprint of what is served here. Raises `ApiError`."""
    found = _ID.fullmatch(event_id)
    if found is None or int(found[4]) >= 1 << 64:
        raise invalid(f"Last-Event-ID is {event_id[:60]!r}; it must be the id of an event of this server", LAST_EVENT)
    if found[3] != model:
        message = "the stream was begun with another model, or by another release, than this server's; ask anew"
        raise ApiError(409, message, param=LAST_EVENT, code="other_model")
    if tokens and not _LIST.fullmatch(tokens):
        raise invalid(f"X-Zinc-Resume is {tokens[:60]!r}; it must be token ids with commas between them", TOKENS)
    ids = tuple(map(int, tokens.split(","))) if tokens else ()
    return Resume(found[1], int(found[2]), int(found[4]), int(found[5]), ids)


def check_kind(resume: Resume, kind: str) -> None:
    """Refuse a stream of another endpoint. Raises `ApiError`."""
    if not resume.id.startswith(kind):
        raise invalid(f"the stream of {resume.id} is not of this endpoint", LAST_EVENT)


class Numbering:
    """Gives the events of a stream their ids, and leaves out those that were sent before.

    prefix: of the ids. skip: events to leave out.
    """

    def __init__(self, prefix: str, skip: int) -> None:
        self._prefix, self._skip = prefix.encode(), skip
        self._n = 0

    def events(self, chunk: bytes, comment: bytes = b"") -> bytes:
        """The events of a chunk with ids; comment: a line to go with the first one that is sent."""
        made = []
        for event in chunk.split(b"\n\n")[:-1]:
            self._n += 1
            if self._n > self._skip:
                made.append(b"%bid: %b.%d\n%b\n\n" % (comment, self._prefix, self._n, event))
                comment = b""
        return b"".join(made)

"""Streams that a client resumes after its connection broke: the ids of their events, and the headers of such a request.

An event's id has five parts: the request's id, the second of its creation, the fingerprint of the model, the seed and
the event's number. The request's events depend on these and on its body alone. So any server of the model can continue
the stream, and skips the events that were sent. A server of another model refuses. If a server knows the tokens that
were sent, it need not generate them again: a client may send them (`X-Zinc-Resume`), and a server remembers those of
streams that broke off lately. In a stream of several answers, all tokens are generated again.
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
    """Where a stream broke off. events: how many were sent; tokens: those of these events, as far as known."""

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
        if self._n >= self._skip and chunk.count(b"\n\n") == 1:  # mostly
            self._n += 1
            return b"%bid: %b.%d\n%b" % (comment, self._prefix, self._n, chunk)
        made = []
        for event in chunk.split(b"\n\n")[:-1]:
            self._n += 1
            if self._n > self._skip:
                made.append(b"%bid: %b.%d\n%b\n\n" % (comment, self._prefix, self._n, event))
                comment = b""
        return b"".join(made)

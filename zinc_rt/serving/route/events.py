"""The events of a stream on their way through a router: where it stands, so that another server can go on there."""

from __future__ import annotations

from typing import Final

TOKENS: Final = b": tokens "
"""How a comment begins that tells the router, and nobody else, which tokens the next event has."""
MOST_HEADER: Final = 24_000
"""Bytes of tokens that a header has room for. Without them the next server generates what was sent once more."""


class Passage:
    """Cuts a stream into events, takes the router's own comments out, and remembers the last event's id and all tokens.

    A server writes an event with all that belongs to it at once; the connection may cut it anywhere.
    """

    def __init__(self) -> None:
        self._rest = b""
        self.last_id: str | None = None
        self.tokens: list[str] = []
        self.done = False
        """Whether the stream's end was seen."""

    def add(self, data: bytes) -> bytes:
        """The next bytes of a server; returns the whole events among what there is now."""
        blocks = (self._rest + data).split(b"\n\n")
        self._rest = blocks.pop()
        return b"".join(self._event(block) for block in blocks)

    def broke(self) -> None:
        """The server is gone; what it sent of an event is void."""
        self._rest = b""

    def _event(self, block: bytes) -> bytes:
        lines, tokens, event_id = [], "", None
        for line in block.split(b"\n"):
            if line.startswith(TOKENS):
                tokens = line[len(TOKENS) :].decode("ascii", "replace")
                continue
            if line.startswith(b"id: "):
                event_id = line[4:].decode("ascii", "replace")
            if line.startswith(b"data: [DONE]") or line in _ENDS:
                self.done = True
            lines.append(line)
        if tokens:
            self.tokens += tokens.split(",")
        self.last_id = event_id or self.last_id
        return b"\n".join(lines) + b"\n\n" if lines else b""

    def headers(self) -> dict[str, str]:
        """The headers with which another server goes on behind the last event."""
        if self.last_id is None:
            return {}
        tokens = ",".join(self.tokens)
        resume = {"x-zinc-resume": tokens} if tokens and len(tokens) <= MOST_HEADER else {}
        return {"last-event-id": self.last_id, **resume}


_ENDS: Final = frozenset(
    {
        b"event: message_stop",
        b"event: response.completed",
        b"event: response.incomplete",
        b"event: response.failed",
        b"event: error",
    }
)

"""`StopMatcher`: ends a stream of text at the first stop string, without ever emitting a part of it."""

from __future__ import annotations

from collections.abc import Iterable


class StopMatcher:
    """Watches text that arrives in pieces. The text ends where a stop string is first complete; when
    several are complete at the same character, the longest of them is cut off.

    The emitted text does not depend on how the pieces are cut. Held back is only a tail that could still
    grow into a stop string; without stop strings nothing is held back.
    """

    def __init__(self, stop_strings: Iterable[str]) -> None:
        self._stops = tuple(sorted(set(stop_strings), key=len, reverse=True))
        if "" in self._stops:
            raise ValueError("a stop string must not be empty")
        self._held = ""
        self.matched: str | None = None
        """The stop string that ended the text, or None."""

    def add(self, text: str) -> tuple[str, bool]:
        """Take the next piece; returns the text that may be shown now and whether a stop string was met.
        After a stop, everything more is dropped."""
        if self.matched is not None:
            return "", True
        if not self._stops:
            return text, False
        buffer = self._held + text
        end, start = len(buffer) + 1, 0
        for stop in self._stops:
            found = buffer.find(stop)
            if found >= 0 and found + len(stop) < end:  # longest first: a tie keeps the longer one
                end, start, self.matched = found + len(stop), found, stop
        if self.matched is not None:
            self._held = ""
            return buffer[:start], True
        cut = len(buffer) - self._pending(buffer)
        self._held = buffer[cut:]
        return buffer[:cut], False

    def flush(self) -> str:
        """The text ends here: what was held back, which no stop string can claim any more."""
        held, self._held = self._held, ""
        return held

    def _pending(self, buffer: str) -> int:
        """Length of the longest tail of `buffer` that begins some stop string."""
        longest = len(self._stops[0]) - 1 if self._stops else 0
        for size in range(min(longest, len(buffer)), 0, -1):
            tail = buffer[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0

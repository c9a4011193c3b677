"""`Reader`: divides the text of an answer into content, reasoning and tool calls while it is made."""

from __future__ import annotations

from typing import Protocol

from zinc_rt.dialects.deltas import ContentDelta, Delta


class Reader(Protocol):
    """Reads one answer, as `StreamParser` does. The joined pieces of each part do not depend on how the text is cut."""

    def add(self, text: str) -> list[Delta]:
        """The pieces that a text completes, maybe none."""
        ...

    def finish(self) -> list[Delta]:
        """What was held back, at the end of the answer."""
        ...


class PlainReader:
    """All text is content."""

    def add(self, text: str) -> list[Delta]:
        """The text as content."""
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[Delta]:
        """Nothing is held back."""
        return []

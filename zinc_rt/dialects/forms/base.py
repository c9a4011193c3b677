"""`CallForm`: what a way to write tool calls has to say."""

from __future__ import annotations

from typing import Protocol


class CallForm(Protocol):
    """A way to write tool calls, as a family does."""

    @property
    def begin(self) -> str:
        """The mark that begins the first call."""
        ...

    @property
    def marks(self) -> tuple[str, ...]:
        """All marks."""
        ...

"""`AnswerReader`: from tokens to an answer's deltas, with stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zinc_rt.dialects.deltas import Delta
from zinc_rt.dialects.record import Dialect, Thinking
from zinc_rt.dialects.tools import Tool

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer


class AnswerReader:
    """Reads one answer token by token: text, marks, stop strings, calls.

    Stop strings end the content; reasoning and calls are not searched for them.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        dialect: Dialect,
        tools: Sequence[Tool] = (),
        thinking: Thinking = Thinking.possible,
        stop: Sequence[str] = (),
        salt: str = "",
    ) -> None:
        """As for `StreamParser`; stop: strings that end the answer."""
        self.stopped = False
        """Whether a stop string was met; what comes later is dropped."""
        self.n_calls = 0
        """Tool calls so far."""
        raise NotImplementedError

    def add(self, token_id: int) -> list[Delta]:
        """The deltas that a token completes, maybe none. Stop tokens are not given here."""
        raise NotImplementedError

    def finish(self) -> list[Delta]:
        """What was held back, at the end of the answer."""
        raise NotImplementedError

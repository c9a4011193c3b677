"""`AnswerReader`: from tokens to an answer's deltas, with stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta
from zinc_rt.dialects.parser import StreamParser
from zinc_rt.dialects.record import Dialect, Thinking
from zinc_rt.dialects.tools import Tool
from zinc_rt.sampling.stop import StopMatcher

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
        bound: bool = False,
    ) -> None:
        """As for `StreamParser`; stop: strings that end the answer."""
        from zinc_rt.text import Detokenizer

        self.stopped = False
        """Whether a stop string was met; what comes later is dropped."""
        self.n_calls = 0
        """Tool calls so far."""
        self.text = ""
        """The text of the last token, with marks."""
        self._detokenizer = Detokenizer(tokenizer, at_start=False, shown=dialect.mark_ids(tokenizer))
        self._parser = StreamParser(dialect, tools, thinking, salt, bound)
        self._stops = StopMatcher(stop)

    def add(self, token_id: int) -> list[Delta]:
        """The deltas that a token completes, maybe none. Stop tokens are not given here."""
        self.text = self._detokenizer.add(token_id)
        return self._through(self._parser.add(self.text))

    def finish(self) -> list[Delta]:
        """What was held back, at the end of the answer."""
        self.text = self._detokenizer.flush()
        deltas = self._through(self._parser.add(self.text) + self._parser.finish())
        if not self.stopped and (rest := self._stops.flush()):
            deltas.append(ContentDelta(rest))
        return deltas

    def _through(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas before a stop string."""
        told: list[Delta] = []
        for delta in deltas:
            if self.stopped:
                break
            if isinstance(delta, ContentDelta):
                text, self.stopped = self._stops.add(delta.text)
                told += [ContentDelta(text)] if text else []
                continue
            if isinstance(delta, CallDelta) and (held := self._stops.flush()):
                told.append(ContentDelta(held))  # no stop string goes on behind a call
            self.n_calls += isinstance(delta, CallDelta) and delta.name is not None
            told.append(delta)
        return told

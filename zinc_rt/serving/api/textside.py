"""`TextSide`: from the tokens of one answer to its text, up to a stop string, with log-probabilities of what is shown.

Every endpoint uses it, so that the text of an answer is the same behind all of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta, ReasoningDelta
from zinc_rt.sampling.stop import StopMatcher
from zinc_rt.scheduler.messages import Token
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.reader import PlainReader, Reader
from zinc_rt.text import Detokenizer, Tokenizer

LEAST_LOGPROB = -9999.0
"""What stands for a log-probability of minus infinity, which JSON has not."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its log-probability and those of the likeliest tokens: (id, log-probability)."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """What a token adds to an answer. tokens: those whose text is shown with it. finish: why the answer ends with it,
    in OpenAI's words; None where it does not.
    """

    deltas: Sequence[Delta] = ()
    logprobs: Sequence[TokenLogprob] = ()
    tokens: Sequence[int] = ()
    finish: str | None = None

    def __bool__(self) -> bool:
        return bool(self.deltas)


class TextSide:
    """Text of one answer. Stop strings are looked for in its content; none of them is ever shown in part."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str] = (),
        reader: Reader | None = None,
        marks: Collection[int] = (),
    ) -> None:
        """marks: special tokens that the reader needs to see."""
        self._text = Detokenizer(tokenizer, at_start=False, shown=marks)
        self._reader: Reader = reader or PlainReader()
        self._stops = StopMatcher(stops)
        self._fed = self._shown = 0  # characters of content
        self._held: deque[tuple[int, int, TokenLogprob | None]] = deque()
        self.n_tokens = 0
        self.n_reasoning = 0
        self.n_calls = 0

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stops.matched

    def add(self, token: Token) -> Piece:
        """What this token adds, maybe nothing yet. Raises `ApiError` where a log-probability is not a number."""
        if self.stop is not None:
            return Piece()
        self.n_tokens += 1
        logprob = None if token.logprob is None else checked(token)
        self._held.append((self._fed, token.token_id, logprob))
        deltas = self._reader.add(self._text.add(token.token_id))
        if any(isinstance(delta, ReasoningDelta) for delta in deltas):
            self.n_reasoning += 1
        return self._piece(deltas)

    def finish(self) -> Piece:
        """What was held back, at the end of the tokens."""
        if self.stop is not None:
            return Piece()
        piece = self._piece(self._reader.add(self._text.flush()) + self._reader.finish())
        rest = "" if self.stop is not None else self._stops.flush()
        self._shown += len(rest)
        more = [ContentDelta(rest)] if rest else []
        held = self._take(everything=self.stop is None)
        return Piece(
            [*piece.deltas, *more],
            [*piece.logprobs, *(lp for _, lp in held if lp)],
            [*piece.tokens, *(i for i, _ in held)],
        )

    def _piece(self, deltas: list[Delta]) -> Piece:
        shown: list[Delta] = []
        for delta in deltas:
            if self.stop is not None:
                break
            if isinstance(delta, ContentDelta):
                self._fed += len(delta.text)
                self._show(self._stops.add(delta.text)[0], shown)
                continue
            if isinstance(delta, CallDelta):
                self._show(self._stops.flush(), shown)  # no stop string goes on behind a call
                self.n_calls += delta.name is not None
            shown.append(delta)
        if not shown:
            return Piece()
        other = not isinstance(shown[-1], ContentDelta)
        held = self._take(everything=other and self._fed == self._shown)
        return Piece(shown, [lp for _, lp in held if lp], [i for i, _ in held])

    def _show(self, text: str, shown: list[Delta]) -> None:
        self._shown += len(text)
        if text:
            shown.append(ContentDelta(text))

    def _take(self, everything: bool) -> list[tuple[int, TokenLogprob | None]]:
        """The tokens whose text is shown by now, in part or wholly."""
        taken = []
        while self._held and (everything or self._held[0][0] < self._shown):
            _, token_id, logprob = self._held.popleft()
            taken.append((token_id, logprob))
        return taken


def checked(token: Token) -> TokenLogprob:
    """A token's log-probabilities, as JSON can hold them. Raises `ApiError` where one is not a number."""
    top = tuple((i, _finite(value)) for i, value in token.top_logprobs or ())
    assert token.logprob is not None
    return TokenLogprob(token.token_id, _finite(token.logprob), top)


def _finite(value: float) -> float:
    """A log-probability that JSON can hold. Raises `ApiError` for NaN, which is a fault of the engine."""
    if math.isnan(value):
        raise ApiError(500, "a log-probability is not a number; the model's logits are broken", code="nan_logprob")
    return max(value, LEAST_LOGPROB)

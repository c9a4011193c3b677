"""`AnswerChoice`: one of the answers to a request while it is made."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from zinc_rt.dialects.deltas import ContentDelta, Delta
from zinc_rt.llm.output_processor import OutputProcessor
from zinc_rt.scheduler.messages import (
    Admitted,
    CancelReason,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptLogprobs,
    Submit,
    Token,
    Usage,
)
from zinc_rt.serving.api.errors import ApiError, cancelled, failed

if TYPE_CHECKING:
    from zinc_rt.dialects.parser import StreamParser
    from zinc_rt.text import Tokenizer

LEAST_LOGPROB = -9999.0
"""What stands for a log-probability of minus infinity, which JSON has not."""


class ChoiceDelta(msgspec.Struct, frozen=True):
    """The part of a choice that one event adds. logprobs: the tokens whose text comes with it, where log-probabilities
    were asked for. finish: why the choice ends here, in OpenAI's words; None if it does not.
    """

    deltas: Sequence[Delta] = ()
    logprobs: Sequence[Token] = ()
    finish: str | None = None

    @property
    def content(self) -> str:
        """The text in it, without reasoning and calls."""
        return "".join([delta.text for delta in self.deltas if isinstance(delta, ContentDelta)])


class AnswerChoice(OutputProcessor[ChoiceDelta]):
    """One answer to a request while it is made (OpenAI calls it a choice).

    index: its number. given: how many of the resumed tokens only the client knows; this server did not generate them.
    silent: one token is generated and nobody gets it. prefill: how many tokens at the prompt's end the client wrote as
    the beginning of the answer. The rest: as for `OutputProcessor`.

    Attributes:
        tokens: those of the text, up to the one that completes a stop string.
        logprobs: of the tokens, where they were asked for.
        content: the parts of the content so far; None where nobody keeps them.
        prompt_logprobs: from the prompt's second token on.
        begun, cached, queue_seconds: set when the engine admits the request.
        finish: why it ended, in OpenAI's words; None before.
        usage: what it took; None before it ends.
        first, last: when its first and its last token came; set by the caller that measures time.
        at_once: takes a delta in which the choice does not end, and says whether it did; the caller does not get it
            then.
        on_begin, on_token: called when the engine admits the request, and for each token that is not resumed.
    """

    def __init__(
        self,
        index: int,
        request: Submit,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        parser: StreamParser | None = None,
        marks: Collection[int] = (),
        *,
        given: int = 0,
        silent: bool = False,
        prefill: int = 0,
    ) -> None:
        super().__init__(request, tokenizer, stop, parser, marks)
        self.index, self.given, self.silent, self.prefill = index, given, silent, prefill
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.content: list[str] | None = None
        self.prompt_logprobs: list[Token] = []
        self.begun = False
        self.cached = 0
        self.queue_seconds = 0.0
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.first: float | None = None
        self.last = 0.0
        self.on_begin: Callable[[], None] = lambda: None
        self.on_token: Callable[[], None] = lambda: None
        self.at_once: Callable[[ChoiceDelta], bool] | None = None
        self._held: deque[tuple[int, Token]] = deque()
        """Tokens with log-probabilities that are not shown yet, behind so many characters of content."""

    @property
    def n_resumed(self) -> int:
        """Tokens of it that were not generated for this request."""
        return min(len(self.request.resume), len(self.tokens))

    def piece(self, event: Event) -> ChoiceDelta | None:
        """See `RequestOutput`: an empty one when the engine begins, then what is shown, and a last one with a `finish`.

        Raises `ApiError` where the choice does not end by itself, and where a log-probability is not a number.
        """
        if isinstance(event, Token):  # mostly
            return None if self.silent else self._add(event)
        match event:
            case Admitted():
                self.begun = True
                self.cached, self.queue_seconds = event.cached_tokens, event.queue_seconds
                self.on_begin()
                return ChoiceDelta()
            case PromptLogprobs():
                tokens = zip(self.request.prompt[event.start :], event.logprobs, event.top_logprobs, strict=False)
                found = [checked(Token("", *one)) for one in tokens]
                self.prompt_logprobs = [*self.prompt_logprobs[: event.start - 1], *found]
                return None
            case _:
                return self._end(event)

    def _add(self, token: Token) -> ChoiceDelta | None:
        if len(self.tokens) >= len(self.request.resume):
            self.on_token()
        self.tokens.append(token.token_id)
        n_before = self.n_read
        deltas = self.read(token.token_id)
        if token.logprob is not None:
            self.logprobs.append(token.logprob)
            self._held.append((n_before, checked(token)))
        if not deltas:
            return None
        if self.content is not None:
            self._keep(deltas)
        logprobs: Sequence[Token] = ()
        if self._held:
            everything = not isinstance(deltas[-1], ContentDelta) and self.n_read == self.n_shown
            logprobs = self._shown(everything)
        made = ChoiceDelta(deltas, logprobs)
        return None if self.at_once is not None and self.at_once(made) else made

    def _keep(self, deltas: Sequence[Delta]) -> None:
        """Keep the content in them, where it is kept."""
        if self.content is not None:
            self.content += [delta.text for delta in deltas if isinstance(delta, ContentDelta)]

    def _shown(self, everything: bool) -> list[Token]:
        """The tokens whose text is shown by now, in part or wholly."""
        taken: list[Token] = []
        while self._held and (everything or self._held[0][0] < self.n_shown):
            taken.append(self._held.popleft()[1])
        return taken

    def _end(self, event: Finished | Failed) -> ChoiceDelta:
        deltas, logprobs = [], []
        if self.stop is None:
            deltas = self.read_end()
            self._keep(deltas)
            logprobs = self._shown(everything=self.stop is None)
        self.usage = event.usage
        self.finish = self._finish(event)
        if self.silent and event.usage is not None:
            self.usage, self.finish = replace(event.usage, completion_tokens=0), "length"
        return ChoiceDelta(deltas, logprobs, self.finish)

    def _finish(self, event: Finished | Failed) -> str:
        """Why it ended, in OpenAI's words. Raises `ApiError` where it did not end by itself."""
        if self.stop is not None:
            return "stop"
        if isinstance(event, Failed):
            raise failed(event)
        match event.reason:
            case FinishReason.stop:
                return "tool_calls" if self.n_calls else "stop"
            case FinishReason.length | FinishReason.context:
                return "length"
            case FinishReason.cancelled:
                raise cancelled(event.cancelled or CancelReason.caller)


def checked(token: Token) -> Token:
    """A token with log-probabilities that JSON can hold. Raises `ApiError` where one is not a number."""
    top = tuple((i, _finite(value)) for i, value in token.top_logprobs or ())
    assert token.logprob is not None
    return Token(token.id, token.token_id, _finite(token.logprob), top)


def _finite(value: float) -> float:
    """A log-probability that JSON can hold. Raises `ApiError` for NaN, which is a fault of the engine."""
    if math.isnan(value):
        raise ApiError(500, "a log-probability is not a number; the model's logits are broken", code="nan_logprob")
    return max(value, LEAST_LOGPROB)

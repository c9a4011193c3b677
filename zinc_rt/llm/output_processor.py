"""`OutputProcessor`: from a request's tokens to text, reasoning and tool calls, up to a stop string.

`Model`, `AsyncModel` and the server read every answer with it. They differ in the pieces that a caller gets: chunks of
a text (`TextOutput`), chunks of a chat (`chat.ChatOutput`), parts of a choice (`serving.api.choice.AnswerChoice`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta, ReasoningDelta
from zinc_rt.sampling.generation import Chunk, Stats, TokenLogprob
from zinc_rt.sampling.stop import StopMatcher
from zinc_rt.scheduler.messages import Event, Finished, Submit, Token
from zinc_rt.scheduler.output import RequestOutput, T

if TYPE_CHECKING:
    from zinc_rt.dialects.parser import StreamParser
    from zinc_rt.text import Tokenizer


class OutputProcessor(RequestOutput[T]):
    """Reads one answer token by token. Stop strings end its content; reasoning and calls are not searched for them, and
    no stop string is ever shown in part.

    Args:
        request: as for `RequestOutput`.
        tokenizer: of the model.
        stop: strings that end the answer.
        parser: divides the text into content, reasoning and calls; None where all of it is content.
        marks: special tokens that the parser needs to see.

    Attributes:
        text: of the last token, with marks, before stop strings are looked for.
        n_tokens, n_reasoning: tokens so far, and how many of them completed reasoning.
        n_calls: tool calls so far.
        n_read, n_shown: characters of content so far, and how many of them cannot belong to a stop string any more.
    """

    def __init__(
        self,
        request: Submit,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        parser: StreamParser | None = None,
        marks: Collection[int] = (),
    ) -> None:
        from zinc_rt.text import Detokenizer

        super().__init__(request)
        self.token_bytes = tokenizer.token_bytes
        self.text = ""
        self.n_tokens = self.n_reasoning = self.n_calls = self.n_read = self.n_shown = 0
        self._detokenizer = Detokenizer(tokenizer, at_start=False, shown=marks)
        self._parser = parser
        self._stops = StopMatcher(stop)
        self._has_stops = bool(stop)

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stops.matched

    def read(self, token_id: int) -> list[Delta]:
        """What a token completes, maybe nothing."""
        self.n_tokens += 1
        self.text = text = self._detokenizer.add(token_id)
        if self._parser is None:
            found: list[Delta] = [ContentDelta(text)] if text else []
            if self._has_stops:
                return self._before_stop(found)
            self.n_read = self.n_shown = self.n_read + len(text)
            return found
        deltas = self._parser.add(text)
        self.n_reasoning += any(isinstance(delta, ReasoningDelta) for delta in deltas)
        return self._before_stop(deltas)

    def read_text(self, token_id: int) -> str:
        """As `read`, of an answer that is content alone."""
        self.n_tokens += 1
        text = self._detokenizer.add(token_id)
        if self._has_stops:
            text, self.stopped = self._stops.add(text)
        return text

    def read_end(self) -> list[Delta]:
        """What was held back, at the end of the tokens."""
        self.text = text = self._detokenizer.flush()
        if self.stopped:
            return []
        if self._parser is None:
            found: list[Delta] = [ContentDelta(text)] if text else []
        else:
            found = self._parser.add(text) + self._parser.finish()
        deltas = self._before_stop(found)
        if not self.stopped:
            self._show(self._stops.flush(), deltas)
        return deltas

    def _before_stop(self, deltas: Sequence[Delta]) -> list[Delta]:
        """The deltas before a stop string."""
        shown: list[Delta] = []
        for delta in deltas:
            if self.stopped:
                break
            if isinstance(delta, ContentDelta):
                self.n_read += len(delta.text)
                text, self.stopped = self._stops.add(delta.text)
                self._show(text, shown)
                continue
            if isinstance(delta, CallDelta):
                self._show(self._stops.flush(), shown)  # no stop string goes on behind a call
                self.n_calls += delta.name is not None
            shown.append(delta)
        return shown

    def _show(self, text: str, shown: list[Delta]) -> None:
        self.n_shown += len(text)
        if text:
            shown.append(ContentDelta(text))

    def chunk(self, token: Token, text: str) -> Chunk:
        """A token's chunk."""
        tops, token_id = token.top_logprobs, token.token_id
        named = None if tops is None else tuple(TokenLogprob(i, value, self.token_bytes(i)) for i, value in tops)
        return Chunk(text, token_id, token.logprob, named, token_bytes=self.token_bytes(token_id))

    def last_chunk(self, event: Finished, text: str) -> Chunk:
        """The chunk that ends a text, with its figures."""
        usage = event.usage
        stats = Stats(
            usage.prompt_tokens,
            self.n_tokens,
            usage.prefill_seconds,
            usage.decode_seconds,
            usage.cached_tokens,
            usage.drafted_tokens,
            usage.accepted_tokens,
        )
        return Chunk(text, finish_reason=event.reason.value, stats=stats, seed=self.request.seed)


class TextOutput(OutputProcessor[Chunk]):
    """The chunks of a text: one for each token, and one that ends it."""

    def piece(self, event: Event) -> Chunk | None:
        """See `RequestOutput`."""
        if type(event) is Token:
            return self.chunk(event, self.read_text(event.token_id))
        if isinstance(event, Finished):
            return self.last_chunk(event, "".join(d.text for d in self.read_end() if isinstance(d, ContentDelta)))
        return None

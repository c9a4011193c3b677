"""From a request's events to the chunks of its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from zinc_rt.sampling.generation import Chunk, Stats, TokenLogprob
from zinc_rt.sampling.stop import StopMatcher
from zinc_rt.scheduler.messages import Event, Finished, Token

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer


class TokenText(Protocol):
    """The text of one generation."""

    def add(self, token_id: int) -> tuple[str, bool]:
        """The text that a token completes, maybe none, and whether a stop string was met."""
        ...

    def finish(self) -> str:
        """What was held back, at the end."""
        ...


class PlainText:
    """Text without special tokens, up to a stop string."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        from zinc_rt.text import Detokenizer

        self._text, self._stops = Detokenizer(tokenizer, at_start=False), StopMatcher(stop)

    def add(self, token_id: int) -> tuple[str, bool]:
        """See `TokenText`."""
        return self._stops.add(self._text.add(token_id))

    def finish(self) -> str:
        """See `TokenText`."""
        if self._stops.matched is not None:
            return ""
        shown, stopped = self._stops.add(self._text.flush())
        return shown if stopped else shown + self._stops.flush()


class ChunkMaker:
    """The chunks of one request, a `serving.delivery.Text`. seed: of the request. tokenizer: gives the bytes of single
    tokens.
    """

    def __init__(self, text: TokenText, seed: int, tokenizer: Tokenizer) -> None:
        self._text, self._seed, self._tokenizer, self._n = text, seed, tokenizer, 0
        self.stopped = False

    def take(self, event: Event) -> Chunk | None:
        """The chunk of a token, and the one that ends the text."""
        match event:
            case Token():
                return self._token(event)
            case Finished():
                return self._last(event)
        return None

    def _token(self, event: Token) -> Chunk:
        self._n += 1
        shown, self.stopped = self._text.add(event.token_id)
        tops = event.top_logprobs
        named = None if tops is None else tuple(TokenLogprob(i, value, self._bytes(i)) for i, value in tops)
        return Chunk(shown, event.token_id, event.logprob, named, token_bytes=self._bytes(event.token_id))

    def _bytes(self, token_id: int) -> bytes:
        return self._tokenizer.token_bytes(token_id)

    def _last(self, event: Finished) -> Chunk:
        """What was held back, and the figures."""
        usage, text = event.usage, self._text.finish()
        stats = Stats(
            usage.prompt_tokens,
            self._n,
            usage.prefill_seconds,
            usage.decode_seconds,
            usage.cached_tokens,
            usage.drafted_tokens,
            usage.accepted_tokens,
        )
        return Chunk(text, finish_reason=event.reason.value, stats=stats, seed=self._seed)

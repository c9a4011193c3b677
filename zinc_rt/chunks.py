"""From a request's events to the chunks of its text: detokenizer and stop strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zinc_rt.sampling.generation import Chunk, Stats
from zinc_rt.sampling.stop import StopMatcher
from zinc_rt.serving.messages import Finished, FinishReason, Submit, Token

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer


class ChunkMaker:
    """The text of one request, piece by piece. stopped: whether a stop string has ended it."""

    def __init__(self, tokenizer: Tokenizer, request: Submit) -> None:
        from zinc_rt.text import Detokenizer

        self._text, self._stops = Detokenizer(tokenizer, at_start=False), StopMatcher(request.params.stop)
        self._request, self._n = request, 0
        self.stopped = False

    def token(self, event: Token) -> Chunk:
        """The chunk of a token. Tokens behind a stop string are not to be asked for."""
        self._n += 1
        shown, self.stopped = self._stops.add(self._text.add(event.token_id))
        return Chunk(shown, event.token_id, event.logprob, event.top_logprobs)

    def last(self, event: Finished) -> Chunk:
        """The chunk that ends the text: what was held back, and the figures."""
        reason, rest = event.reason.value, ""
        if not self.stopped:
            shown, self.stopped = self._stops.add(self._text.flush())
            rest = shown if self.stopped else shown + self._stops.flush()
        else:
            reason = FinishReason.stop.value
        usage = event.usage
        stats = Stats(usage.prompt_tokens, self._n, usage.prefill_seconds, usage.decode_seconds, usage.cached_tokens)
        return Chunk(rest, finish_reason=reason, stats=stats, seed=self._request.seed)

"""What the loop that generates one text asks each turn: how the next token is chosen, and what text a token gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.sampling.stop import StopMatcher

if TYPE_CHECKING:
    from zinc_rt.grammar.matcher import Matcher
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


class Choosing:
    """How each token of one text is chosen: by a sampler, and by a grammar once that has begun."""

    def __init__(self, sampler: Sampler, history: Sequence[int], matcher: Matcher | None) -> None:
        """history: the text's tokens, to which the loop adds."""
        self._matcher = matcher
        self._free = [SamplingRequest(sampler, history)]
        self._bound: list[SamplingRequest] = []
        if matcher is not None:
            self._mask = np.zeros(matcher.words, np.uint32)
            self._bound = [SamplingRequest(sampler, history, self._mask)]

    def next(self) -> list[SamplingRequest]:
        """The request for the next token. Raises `GrammarError` where the grammar takes too much work."""
        if self._matcher is None or self._matcher.is_free:
            return self._free
        self._matcher.fill_mask(self._mask)
        return self._bound

    def chosen(self, token_id: int) -> None:
        """The token that was chosen, which is no stop token."""
        if self._matcher is not None:
            self._matcher.consume(token_id)

    @property
    def is_done(self) -> bool:
        """Whether the grammar lets nothing more follow."""
        return self._matcher is not None and self._matcher.is_done

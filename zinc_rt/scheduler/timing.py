"""`Timing`: the time of a turn for grammars and for choosing tokens, for the metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zinc_rt.scheduler.messages import Grammar, StepTimes
from zinc_rt.scheduler.options import CoreVocabulary, GrammarMatcher


class Timing:
    """Adds up until the next `take`.

    Args:
        clock: seconds, from any point.

    Attributes:
        compiles: seconds of each grammar that was compiled.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._masks = 0.0
        self.compiles: list[float] = []

    def watched(self, vocabulary: CoreVocabulary) -> CoreVocabulary:
        """The vocabulary, with its compiler of grammars timed; also where a grammar is refused."""
        made = vocabulary.grammar
        if made is None:
            return vocabulary

        def compiled(grammar: Grammar) -> GrammarMatcher:
            began = self._clock()
            try:
                return made(grammar)
            finally:
                self.compiles.append(self._clock() - began)

        return dataclasses.replace(vocabulary, grammar=compiled)

    @contextmanager
    def masks(self) -> Iterator[None]:
        """Masks are made inside of it."""
        began = self._clock()
        try:
            yield
        finally:
            self._masks += self._clock() - began

    def take(self, sampling: float) -> StepTimes:
        """What was added up since the last time, beside the seconds of choosing tokens."""
        times = StepTimes(self._masks, sampling, tuple(self.compiles))
        self._masks = 0.0
        self.compiles.clear()
        return times

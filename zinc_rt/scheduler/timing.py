"""`Timing`: what a turn spends on grammars and on choosing tokens, for the metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.scheduler.messages import Grammar, StepTimes
from zinc_rt.scheduler.options import Matcher, Vocabulary
from zinc_rt.scheduler.request import Request


class Timing:
    """Adds up until the next `take`. clock: seconds, from any point."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._masks = 0.0
        self._compiles: list[float] = []

    def watched(self, vocabulary: Vocabulary) -> Vocabulary:
        """The vocabulary, with its compiler of grammars timed; also where a grammar is refused."""
        made = vocabulary.grammar
        if made is None:
            return vocabulary

        def compiled(grammar: Grammar) -> Matcher:
            began = self._clock()
            try:
                return made(grammar)
            finally:
                self._compiles.append(self._clock() - began)

        return dataclasses.replace(vocabulary, grammar=compiled)

    def sampling(self, request: Request) -> SamplingRequest:
        """`Request.sampling`, timed where there is a mask to fill."""
        if request.matcher is None:
            return request.sampling()
        with self.masks():
            return request.sampling()

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
        times = StepTimes(self._masks, sampling, tuple(self._compiles))
        self._masks = 0.0
        self._compiles.clear()
        return times

"""Which of several ways to do the same is the fastest here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

Name = TypeVar("Name")
Timer = Callable[[object, Callable[[], None]], float]
"""Seconds that a call takes; the first argument is its name."""

ROUNDS: Final = 15
LEAST_ROUNDS: Final = 5
MOST_SECONDS: Final = 0.1
"""After so many no round begins that is not one of the least."""
MARGIN: Final = 0.03
"""By how much less time another way must do with than one that is named before it."""


def clocked(name: object, call: Callable[[], None]) -> float:
    """By the clock."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def medians(contestants: Mapping[Name, Callable[[], None]], timer: Timer = clocked) -> dict[Name, float]:
    """Seconds of each, the medians of short runs.

    One run of each way makes a round, so other work on the machine slows all ways alike; a first round is not counted.
    """
    times: dict[Name, list[float]] = {name: [] for name in contestants}
    spent = 0.0
    for turn in range(ROUNDS + 1):
        if turn > LEAST_ROUNDS and spent > MOST_SECONDS:
            break
        for name, call in contestants.items():
            seconds = timer(name, call)
            spent += seconds
            if turn:
                times[name].append(seconds)
    return {name: sorted(runs)[len(runs) // 2] for name, runs in times.items()}


def winner(times: Mapping[Name, float]) -> Name:
    """The fastest; those named first win ties."""
    best, *others = times
    for name in others:
        if times[name] < times[best] * (1 - MARGIN):
            best = name
    return best

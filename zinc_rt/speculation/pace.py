"""How long a draft should be: learned from the time of steps by their number of rows, and from the share of right
guesses.

With acceptance a, the i-th guess of a draft is worth a^i tokens, because all guesses before it have to be right, too.
Example: with a = 0.5 the guesses are worth 0.5, 0.25, 0.125, .... The guesses of all texts of a step are sorted by
their worth, and as many are taken as give the most tokens in a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_KEEP: Final = 0.8
"""Weight that a draft leaves to all earlier ones of its text."""
_FIRST: Final = (1.2, 2.0)
"""Right guesses and guesses that a text begins with, where nothing is known of others."""
_NEWS: Final = 0.3
"""Weight of a step's milliseconds beside those of earlier ones with as many rows."""
_STALL: Final = 2.0
"""Times the known milliseconds: no more of a step is believed."""
_ROW: Final = 0.04
"""What a row more is taken to cost where steps of so many rows were not seen: this part of the largest one seen."""
_GAIN: Final = 1.02
"""Times as many tokens in a second that a draft has to promise."""
_TRY: Final = 3
"""Guesses of a draft that is only made to see whether drafts pay by now."""
_WAIT, _LONGEST_WAIT = 8, 512
"""Steps without a draft before one is tried: the first time, and after many that failed."""


class StepCosts:
    """Milliseconds of steps by their rows, where all rows belong to texts that are generated."""

    def __init__(self) -> None:
        self._ms: dict[int, float] = {}

    def learn(self, n_rows: int, ms: float) -> None:
        """A step took so long."""
        known = self._ms.get(n_rows)
        ms = max(ms, 1e-6)
        self._ms[n_rows] = ms if known is None else known + _NEWS * (min(ms, _STALL * known) - known)

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self._ms)

    def ms(self, n_rows: int) -> float:
        """What a step is expected to take. Above all that were seen it is little more, so that more is tried.

        Raises `ValueError` where none was seen.
        """
        known = self._ms.get(n_rows)
        if known is not None:
            return known
        below = max((n for n in self._ms if n < n_rows), default=0)
        above = min((n for n in self._ms if n > n_rows), default=0)
        if not above:
            return self._ms[max(self._ms)] * (1 + _ROW * (n_rows - max(self._ms)))
        if not below:
            return self._ms[above]
        part = (n_rows - below) / (above - below)
        return self._ms[below] + part * (self._ms[above] - self._ms[below])


@dataclass(slots=True)
class DraftRecord:
    """How good the guesses for one text were; later drafts count more.

    right, all: weighted counts of right guesses and of guesses that were checked. wait: steps without a draft before a
    short one is tried; since: how many of them have passed.
    """

    right: float
    all: float
    wait: int = _WAIT
    since: int = 0

    @property
    def acceptance(self) -> float:
        """The probability that a guess is right where all before it were."""
        return self.right / self.all

    def learn(self, n_guessed: int, n_right: int) -> None:
        """A draft was checked. Of the guesses behind the first wrong one nothing is known."""
        self.right = _KEEP * self.right + n_right
        self.all = _KEEP * self.all + n_right + (n_right < n_guessed)
        self.wait = min(2 * self.wait, _LONGEST_WAIT) if not n_right else _WAIT


@dataclass(frozen=True, slots=True)
class Wish:
    """A text that could have a draft. draft_max: the most guesses that it could take."""

    record: DraftRecord
    draft_max: int


class Pace:
    """Decides how many guesses each text of a step gets.

    returns: whether a wrong guess takes the sequence back to where its step began, as with recurrent layers. Then the
    rows before the wrong guess are computed again, which costs time.
    """

    def __init__(self, *, returns: bool = False) -> None:
        self.costs = StepCosts()
        self._returns = returns
        self._guess_ms = 0.0  # what the drafter takes for one guess of each text
        self._right, self._all = _FIRST

    def record(self) -> DraftRecord:
        """For a new text: it is expected to go as others did."""
        return DraftRecord(self._right, self._all)

    def learn(self, record: DraftRecord, n_guessed: int, n_right: int) -> None:
        """A text's draft was checked."""
        record.learn(n_guessed, n_right)
        part = 0.05
        self._right += part * (_FIRST[1] * record.acceptance - self._right)

    def learn_guesses(self, n_deep: int, ms: float) -> None:
        """The drafter took so long for drafts of at most so many guesses."""
        each = ms / n_deep
        known = self._guess_ms
        self._guess_ms = each if not known else known + _NEWS * (min(each, _STALL * known) - known)

    def lengths(self, wishes: Sequence[Wish], n_rows: int, most_rows: int, *, free: bool) -> list[int]:
        """Guesses of each text. n_rows: rows of the step without them; most_rows: of them all at the most. free:
        whether guessing itself takes no time.
        """
        found = self._best(wishes, n_rows, most_rows - n_rows, 0.0 if free else self._guess_ms)
        left = most_rows - n_rows - sum(found)
        for i, wish in enumerate(wishes):
            record = wish.record
            if found[i]:
                record.since = 0
            elif wish.draft_max and left > 0:
                record.since += 1
                if record.since > record.wait:
                    record.since = 0
                    found[i] = min(wish.draft_max, left, _TRY)
                    left -= found[i]
        return found

    def _best(self, wishes: Sequence[Wish], n_rows: int, left: int, guess_ms: float) -> list[int]:
        taken, best = [0] * len(wishes), [0] * len(wishes)
        if not self.costs:
            return best
        order = sorted(
            (-(wish.record.acceptance**deep), i)
            for i, wish in enumerate(wishes)
            for deep in range(1, wish.draft_max + 1)
        )
        tokens, ms = float(len(wishes)), self.costs.ms
        without = ms(n_rows)
        again, a_row = 0.0, max(ms(n_rows + 1) - without, 0.0) if self._returns else 0.0
        highest = _GAIN * tokens / without
        for n, (less, i) in enumerate(order[:left], 1):
            tokens -= less
            taken[i] += 1
            again += (1 + less) * a_row
            rate = tokens / (ms(n_rows + n) + guess_ms * max(taken) + again)
            if rate > highest:
                highest, best = rate, list(taken)
        return best

"""Predicts the milliseconds of a step from its rows, learned from earlier steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

_FIRST = (8.0, 1.0, 1.0, 0.25)
"""Terms before anything was measured, to a factor: a step reads the weights once, which takes as long as some rows."""
_UNSURE = 100.0
"""How far a term may be off of which nothing is known, in times itself, beside a step's usual relative error."""
_KEEP = 0.9  # weight that the last step's measurement leaves to all earlier ones of its kind
_UNSURE_AFTER_JUMP = 10.0  # the same, where steps suddenly take longer or shorter
_STRANGE = 3.0  # mean deviations; an error above counts as so much, until it repeats itself
_REPEATS = 4  # strange errors of one sign in a row: the machine has changed
_LEAST_DEVIATION, _FIRST_DEVIATION = 0.05, 0.25  # of relative errors
_STALL = 4.0  # times the expected time, or a part of it: no more of a step is ever believed
_LEAST = 1e-6  # milliseconds: nothing is free
_ROUNDING = 1e-12
_POSITIONS = 1000.0  # positions in the unit of attention's term

_DECODE, _PREFILL = 1, 2
_AT = ((0, 1, 2, 3), (1, 4, 5, 6), (2, 5, 7, 8), (3, 6, 8, 9))
"""Where a symmetric matrix has its elements, in the list of those on and above its diagonal."""
_TERM = {False: _DECODE, True: _PREFILL}


class CostPart(msgspec.Struct, frozen=True):  # made for every row, in a tenth of a dataclass's time
    """Rows of one sequence in a step. prefill: whether they are of a prompt; depth: position of the last of them."""

    prefill: bool
    rows: int
    depth: int

    @property
    def positions(self) -> float:
        """Positions that its rows look at, all rows together."""
        return self.rows * (self.depth - (self.rows - 1) / 2)


class CostModel:
    """A step's milliseconds as a sum of four terms: the step itself, each row of a text that is generated, each row of
    a prompt, and each position that a row looks at.

    The terms are those of recursive least squares over relative errors, none below 0. A measurement replaces earlier
    ones of steps like it, and says nothing of others: while texts are generated for a long time, what was learned of
    prompts stays (Kulhavý, "Restricted exponential forgetting in real-time identification", Automatica 23 (5), 1987).
    A step that took far longer than expected hardly counts, as something else may have held it up; several in a row
    count in full.
    """

    def __init__(self) -> None:
        self._terms = list(_FIRST)
        self._learned = False
        self._deviation = _FIRST_DEVIATION
        self._strange = 0  # in a row; negative where steps took less time than expected
        self._forget_terms()

    def _forget_terms(self) -> None:
        """Of no term more is known than its size: `_spread` is the covariance of their errors, see `_AT`."""
        self._spread = [0.0] * 10
        for i, term in enumerate(self._terms):
            self._spread[_AT[i][i]] = (_UNSURE * term) ** 2

    @property
    def learned(self) -> bool:
        """Whether any step was measured."""
        return self._learned

    def row_ms(self, depth: int, *, prefill: bool) -> float:
        """Milliseconds of one more row at a position. prefill: whether it is of a prompt."""
        return self._terms[_TERM[prefill]] + self._terms[3] * depth / _POSITIONS

    def step_ms(self, parts: Sequence[CostPart]) -> float:
        """Milliseconds that a step of these parts is expected to take."""
        return _sum(self._terms, _counts(parts))

    def shares(self, parts: Sequence[CostPart]) -> list[float]:
        """Which part of a step's time belongs to each of its parts; they sum to 1. The step itself is split by rows."""
        if len(parts) == 1:
            return [1.0]
        terms = self._terms
        a_row, a_position = terms[0] / sum(part.rows for part in parts), terms[3] / _POSITIONS
        costs = [(terms[_TERM[part.prefill]] + a_row) * part.rows + a_position * part.positions for part in parts]
        total = sum(costs)
        return [cost / total for cost in costs]

    def learn(self, parts: Sequence[CostPart], ms: float) -> None:
        """A step of these parts took `ms` milliseconds."""
        counts = _counts(parts)
        expected = _sum(self._terms, counts)
        ms = max(ms, _LEAST)
        if not self._learned:  # nothing was known but ratios
            self._learned = True
            self._terms = [max(term * ms / expected, _LEAST) for term in self._terms]
            self._forget_terms()
            return
        error = ms / expected - 1
        a, b, c, d, unsure = self._reach(counts, expected)
        error, jumped = self._believed(error, math.sqrt(1 + unsure))
        if jumped:
            for i, term in enumerate(self._terms):
                self._spread[_AT[i][i]] += (_UNSURE_AFTER_JUMP * term) ** 2
            a, b, c, d, unsure = self._reach(counts, expected)
        if not _ROUNDING < unsure < math.inf:  # after very many steps
            self._forget_terms()
            return
        gain = error / (1 + unsure)
        terms = self._terms
        terms[0] += gain * a
        terms[1] += gain * b
        terms[2] += gain * c
        terms[3] += gain * d
        less = (_KEEP - (1 - _KEEP) / unsure) / (_KEEP * (1 + unsure))
        e, f, g, h = less * a, less * b, less * c, less * d
        aa, ab, ac, ad, bb, bc, bd, cc, cd, dd = self._spread
        self._spread = [
            aa - e * a, ab - e * b, ac - e * c, ad - e * d, bb - f * b, bc - f * c, bd - f * d, cc - g * c, cd - g * d,
            dd - h * d,
        ]  # fmt: skip
        if terms[0] < _LEAST or terms[1] < _LEAST or terms[2] < _LEAST or terms[3] < _LEAST:
            self._bound()

    def _reach(self, counts: Sequence[float], expected: float) -> tuple[float, float, float, float, float]:
        """Covariances of the four terms with a step's relative error, and the variance of that beside its own noise
        of 1.
        """
        aa, ab, ac, ad, bb, bc, bd, cc, cd, dd = self._spread
        w, x, y, z = counts
        w, x, y, z = w / expected, x / expected, y / expected, z / expected
        a = aa * w + ab * x + ac * y + ad * z
        b = ab * w + bb * x + bc * y + bd * z
        c = ac * w + bc * x + cc * y + cd * z
        d = ad * w + bd * x + cd * y + dd * z
        return a, b, c, d, a * w + b * x + c * y + d * z

    def _believed(self, error: float, usual: float) -> tuple[float, bool]:
        """What is believed of a relative error, and whether the machine has changed.

        usual: times the mean deviation that such a step's error has, as less or more is known of steps like it.
        """
        limit = _STRANGE * self._deviation * usual
        bounded = min(max(error, -limit), limit)
        self._deviation = max(self._deviation + 0.1 * (abs(bounded) / usual - self._deviation), _LEAST_DEVIATION)
        if bounded == error:
            self._strange = 0
            return error, False
        sign = 1 if error > 0 else -1
        self._strange = self._strange + sign if self._strange * sign > 0 else sign
        if abs(self._strange) < _REPEATS:
            return bounded, False
        self._strange = 0
        return min(max(error, 1 / _STALL - 1), _STALL - 1), True

    def _bound(self) -> None:
        """Move terms that fell below 0 back, and the others with them as far as they are known together only."""
        terms, spread = self._terms, self._spread
        for i, (p, q, r, s) in enumerate(_AT):
            if terms[i] < _LEAST:
                by = (_LEAST - terms[i]) / spread[_AT[i][i]]
                terms[0] += by * spread[p]
                terms[1] += by * spread[q]
                terms[2] += by * spread[r]
                terms[3] += by * spread[s]
        for i in range(4):  # where several fell, or rounding left a little
            terms[i] = max(terms[i], _LEAST)


def _counts(parts: Sequence[CostPart]) -> list[float]:
    """How often each term occurs in a step."""
    counts = [1.0, 0.0, 0.0, 0.0]
    for part in parts:
        counts[_TERM[part.prefill]] += part.rows
        counts[3] += part.positions / _POSITIONS
    return counts


def _sum(a: Sequence[float], b: Sequence[float]) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]

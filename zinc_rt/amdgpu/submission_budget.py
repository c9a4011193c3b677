"""How much work one submission may have: as much as the GPU does in a given time, judged by earlier submissions.

Work is counted in products, as in `CommandList.work`. The rate starts low, because a card may be idle, throttled or
shared. It is learned from submissions that the GPU's own clock measured.
"""

from __future__ import annotations

RATE_PER_UNIT = 1 << 31
"""Products a second of one compute unit to begin with: an eighth of what the slowest kernels do at full clock."""
_GROWTH = 2.0
"""By how much the rate may rise after one submission."""
_TELLING = 1 / 16
"""Of the longest submission: shorter ones say more about their overhead than about the card."""
_SMALLEST = 1 << 20
"""A bound of less work would not make submissions shorter: they are whole phases."""


class SubmissionBudget:
    """The bound of one device. longest: seconds that a submission shall take at most; rate: products a second."""

    def __init__(self, longest: float, compute_units: int) -> None:
        self.longest = longest
        self.rate = float(RATE_PER_UNIT * max(compute_units, 1))

    @property
    def most_work(self) -> int:
        """Products of one submission."""
        return max(_SMALLEST, int(self.rate * self.longest))

    def took(self, work: int, seconds: float) -> None:
        """Learn from a submission. A submission that took too long sets the rate to its own at once; a fast one raises
        the rate by degrees, and only if it was long enough to measure.
        """
        if seconds <= 0 or work <= 0:
            return
        seen = work / seconds
        telling = work >= _TELLING * self.most_work
        if seconds > self.longest:
            self.rate = min(self.rate, seen)
        elif telling and (seen > self.rate or seconds >= _TELLING * self.longest):
            self.rate = min(seen, _GROWTH * self.rate)

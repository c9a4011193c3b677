"""`TokenBucket`: so many a minute, with a minute's worth saved up at the most."""

from __future__ import annotations

import math


class TokenBucket:
    """A bucket that refills evenly. Times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self._level = per_minute
        self._at = now

    def _fill(self, now: float) -> None:
        self._level = min(self.per_minute, self._level + max(0.0, now - self._at) * self.per_minute / 60)
        self._at = max(now, self._at)

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` can be taken: 0 now, infinity never."""
        self._fill(now)
        if amount <= self._level:
            return 0.0
        return math.inf if amount > self.per_minute else (amount - self._level) * 60 / self.per_minute

    def take(self, amount: float, now: float) -> None:
        """Take an amount, negative to give it back. The level may fall below 0: later requests wait for it."""
        self._fill(now)
        self._level = min(self.per_minute, self._level - amount)

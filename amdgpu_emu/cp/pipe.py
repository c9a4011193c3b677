"""Unfinished work of a queue: waves, and the fences that wait for them.

The work happens only when something waits for it: hardware may be that late. Unordered work happens in the worst order:
of the dispatches between two waits the last one runs first. So a missing barrier shows every time, for each kind of
dependence (read after write, write after read, write after write).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from amdgpu_emu.clock import Clock
from amdgpu_emu.gpu import POLLING


class Pipe:
    """The unfinished waves and fences of one queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waves: list[Callable[[], None]] = []
        self._fences: deque[tuple[float, Callable[[], None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waves or self._fences)

    @property
    def has_waves(self) -> bool:
        """Whether there are waves that nothing has waited for."""
        return bool(self._waves)

    def waves(self, run: Callable[[], None]) -> None:
        """Add a dispatch, which runs when something waits for it."""
        self._waves.append(run)

    def fence(self, act: Callable[[], None], delay: float) -> None:
        """Add an action for the time when all earlier work is done and `delay` seconds have passed."""
        self._fences.append((self._clock.now() + delay if delay else 0.0, act))

    def drain(self) -> Iterator[str]:
        """Finish all work; yields while a delayed fence is not due. After an error the rest is lost."""
        try:
            while self._waves:
                self._waves.pop()()
            while self._fences:
                due, act = self._fences[0]
                while due and self._clock.now() < due:
                    yield POLLING
                self._fences.popleft()
                act()
        except Exception:
            self._waves.clear()
            self._fences.clear()
            raise

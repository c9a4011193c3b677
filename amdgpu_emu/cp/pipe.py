"""Work that a queue has started and that is not done: waves, and the fences that wait for them.

Nothing of it happens before something waits for it: that is how late hardware may be. And what nothing orders happens
in the worst order: of the dispatches between two waits the last runs first. So a missing barrier shows each time,
whether the later dispatch reads what the earlier one writes, writes what it reads, or writes what it writes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from amdgpu_emu.gpu import POLLING


class Pipe:
    """Waves and fences of one queue."""

    def __init__(self) -> None:
        self._waves: list[Callable[[], None]] = []
        self._fences: deque[tuple[float, Callable[[], None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waves or self._fences)

    @property
    def has_waves(self) -> bool:
        """Whether waves run that nothing has waited for."""
        return bool(self._waves)

    def waves(self, run: Callable[[], None]) -> None:
        """A dispatch: runs when it is waited for."""
        self._waves.append(run)

    def fence(self, act: Callable[[], None], delay: float) -> None:
        """What happens when everything before is done, and `delay` seconds have gone."""
        self._fences.append((time.monotonic() + delay if delay else 0.0, act))

    def drain(self) -> Iterator[str]:
        """Let everything be done; yields while a delayed fence is not due. After an error the rest is lost."""
        try:
            while self._waves:
                self._waves.pop()()
            while self._fences:
                due, act = self._fences[0]
                while due and time.monotonic() < due:
                    yield POLLING
                self._fences.popleft()
                act()
        except Exception:
            self._waves.clear()
            self._fences.clear()
            raise

"""The clock of an emulated machine: a host that is busy makes nothing late on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Clock:
    """Seconds since some point. They pass with the processor time of this process, and while it only waits, but never
    faster than the host's. So a limit of five seconds is five seconds of the emulator, however long the host takes.

    computes: whether a GPU has packets to run: then waiting for it takes no time, but what it computes does.
    """

    def __init__(self, computes: Callable[[], bool]) -> None:
        self._computes = computes
        self._lock = threading.Lock()
        self._wall, self._used = time.monotonic(), time.process_time()
        self._now = self._wall

    def now(self) -> float:
        """Seconds."""
        with self._lock:
            wall, used = time.monotonic(), time.process_time()
            self._now += max(0.0, min(wall - self._wall, used - self._used))
            self._wall, self._used = wall, used
            return self._now

    def now_ns(self) -> int:
        """Nanoseconds."""
        return int(self.now() * 1e9)

    def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        end = self.now() + seconds
        time.sleep(seconds)
        self._reach(end)

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        """Wait until something changes, for so long at the most; what the condition's lock guards may change."""
        end = self.now() + seconds
        if not changed.wait(seconds):
            self._reach(end)

    def _reach(self, end: float) -> None:
        """A wait until then is over: where nothing was computed, its time has passed."""
        if not self._computes():
            self.now()
            with self._lock:
                self._now = max(self._now, end)

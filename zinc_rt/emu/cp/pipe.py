"""Work that a queue has started and that is not done: waves, and the fences that wait for them.

Nothing of it takes effect before something waits for it: that is how late hardware may be. Entries are done in order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from zinc_rt.emu.gpu import POLLING
from zinc_rt.emu.shader_memory import ShaderMemory


class Pipe:
    """Waves and fences of one queue, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[tuple[float, Callable[[], None], bool]] = deque()

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def has_waves(self) -> bool:
        """Whether waves run that nothing has waited for."""
        return any(waves for _, _, waves in self._entries)

    @property
    def has_fences(self) -> bool:
        """Whether a fence has not come."""
        return not all(waves for _, _, waves in self._entries)

    def waves(self, memory: ShaderMemory) -> None:
        """A dispatch: its writes arrive when it is done."""
        self._entries.append((0.0, memory.retire, True))

    def fence(self, act: Callable[[], None], delay: float) -> None:
        """What happens when everything before is done, and `delay` seconds have gone."""
        self._entries.append((time.monotonic() + delay if delay else 0.0, act, False))

    def drain(self) -> Iterator[str]:
        """Let everything be done; yields while a delayed fence is not due. An entry that faults is gone."""
        while self._entries:
            due, act, _ = self._entries[0]
            while due and time.monotonic() < due:
                yield POLLING
            self._entries.popleft()
            act()

    def clear(self) -> None:
        """The queue was reset."""
        self._entries.clear()

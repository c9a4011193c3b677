"""Submissions on their way: what they are, what they hold, how a message calls them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zinc_rt.amdgpu.fence import Fence
from zinc_rt.amdgpu.pool import GpuMemory, Pool
from zinc_rt.amdgpu.recorded import PacketCopy

_NAMED = 4  # kernels that a message lists


@dataclass(eq=False, slots=True)
class Flight:
    """interface_sequence: the interface's number for it; packets: its indirect buffer; dispatched_before: dispatches
    of all submissions before it.
    """

    fence: Fence
    interface_sequence: int
    packets: PacketCopy
    label: str
    kernels: Sequence[str]
    dispatched_before: int

    def __str__(self) -> str:
        names = ", ".join(self.kernels[:_NAMED])
        more = f" and {len(self.kernels) - _NAMED} more" if len(self.kernels) > _NAMED else ""
        return f"submission {self.fence.sequence} ({self.label}: {f'kernels {names}{more}' if names else 'no kernels'})"


class Flights:
    """Those that have not retired, oldest first, and memory that waits for some of them before it is free."""

    def __init__(self) -> None:
        self._flying: deque[Flight] = deque()
        self._waiting: deque[tuple[int, Pool, GpuMemory]] = deque()

    def __len__(self) -> int:
        return len(self._flying)

    def __iter__(self) -> Iterator[Flight]:
        return iter(self._flying)

    @property
    def newest(self) -> Flight | None:
        """The last that was submitted."""
        return self._flying[-1] if self._flying else None

    def add(self, flight: Flight) -> None:
        """One more."""
        self._flying.append(flight)

    def of(self, fence: Fence) -> Flight | None:
        """The submission with this fence, or None."""
        return next((flight for flight in self._flying if flight.fence is fence), None)

    def free_later(self, pool: Pool, memory: GpuMemory) -> None:
        """Free memory once everything that flies now has retired."""
        memory.freed = True
        if self._flying:
            self._waiting.append((self._flying[-1].fence.sequence, pool, memory))
        else:
            pool.free(memory)

    def land(self, interface_sequence: int) -> list[Flight]:
        """Take out what the interface has retired, and free the memory that waited for it."""
        landed = []
        while self._flying and self._flying[0].interface_sequence <= interface_sequence:
            landed.append(self._flying.popleft())
        oldest = self._flying[0].fence.sequence if self._flying else None
        while self._waiting and (oldest is None or self._waiting[0][0] < oldest):
            _, pool, memory = self._waiting.popleft()
            pool.free(memory)
        return landed

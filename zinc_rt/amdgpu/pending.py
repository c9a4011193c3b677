"""Submissions on their way: their packets, the memory that they hold, and their names in messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zinc_rt.amdgpu.command_buffer import PacketCopy
from zinc_rt.amdgpu.fence import QueueFence
from zinc_rt.amdgpu.pool import GpuMemory, Pool

_NAMED = 4  # kernels that a message lists


@dataclass(eq=False, slots=True)
class PendingSubmission:
    """interface_sequence: the interface's number for it; packets: its indirect buffer; dispatched_before: dispatches
    of all submissions before it.
    """

    fence: QueueFence
    interface_sequence: int
    packets: PacketCopy
    label: str
    kernels: Sequence[str]
    dispatched_before: int

    def __str__(self) -> str:
        names = ", ".join(self.kernels[:_NAMED])
        more = f" and {len(self.kernels) - _NAMED} more" if len(self.kernels) > _NAMED else ""
        return f"submission {self.fence.sequence} ({self.label}: {f'kernels {names}{more}' if names else 'no kernels'})"


class PendingSubmissions:
    """Submissions that have not retired, oldest first, and memory that becomes free when some of them retire."""

    def __init__(self) -> None:
        self._pending: deque[PendingSubmission] = deque()
        self._waiting: deque[tuple[int, Pool, GpuMemory]] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[PendingSubmission]:
        return iter(self._pending)

    @property
    def newest(self) -> PendingSubmission | None:
        """The last that was submitted."""
        return self._pending[-1] if self._pending else None

    def add(self, submission: PendingSubmission) -> None:
        """One more."""
        self._pending.append(submission)

    def of(self, fence: QueueFence) -> PendingSubmission | None:
        """The submission with this fence, or None."""
        return next((submission for submission in self._pending if submission.fence is fence), None)

    def free_later(self, pool: Pool, memory: GpuMemory) -> None:
        """Free memory once everything that is pending now has retired."""
        memory.freed = True
        if self._pending:
            self._waiting.append((self._pending[-1].fence.sequence, pool, memory))
        else:
            pool.free(memory)

    def retire(self, interface_sequence: int) -> list[PendingSubmission]:
        """Take out what the interface has retired, and free the memory that waited for it."""
        retired = []
        while self._pending and self._pending[0].interface_sequence <= interface_sequence:
            retired.append(self._pending.popleft())
        oldest = self._pending[0].fence.sequence if self._pending else None
        while self._waiting and (oldest is None or self._waiting[0][0] < oldest):
            _, pool, memory = self._waiting.popleft()
            pool.free(memory)
        return retired

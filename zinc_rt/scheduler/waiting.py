"""Requests that wait for a slot: a queue for each tenant and class of service."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from zinc_rt.scheduler.batch import TenantId

T = TypeVar("T")


class Waiting(Generic[T]):
    """Queues of requests by level, 0 being served first, and by tenant."""

    def __init__(self) -> None:
        self._queues: dict[tuple[int, TenantId], deque[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[T]:
        for queue in self._queues.values():
            yield from queue

    def push(self, level: int, tenant: TenantId, request: T, *, front: bool = False) -> None:
        """Queue a request, behind the others of its tenant and level or before them."""
        queue = self._queues.setdefault((level, tenant), deque())
        if front:
            queue.appendleft(request)
        else:
            queue.append(request)

    def remove(self, level: int, tenant: TenantId, request: T) -> bool:
        """Take a request out; whether it was there."""
        queue = self._queues.get((level, tenant))
        if queue is None or request not in queue:
            return False
        queue.remove(request)
        if not queue:
            del self._queues[level, tenant]
        return True

    def levels(self) -> list[int]:
        """Levels at which requests wait, in order."""
        return sorted({level for level, _ in self._queues})

    def tenants(self, level: int) -> list[TenantId]:
        """Tenants whose requests wait at a level, in the order of their arrival there."""
        return [tenant for at, tenant in self._queues if at == level]

    def head(self, level: int, tenant: TenantId) -> T:
        """A tenant's next request of a level at which it has one."""
        return self._queues[level, tenant][0]

    def depth(self, tenant: TenantId) -> int:
        """How many requests of a tenant wait."""
        return sum(len(queue) for (_, of), queue in self._queues.items() if of == tenant)

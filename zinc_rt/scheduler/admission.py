"""Which of the requests that wait gets a sequence next."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

from zinc_rt.scheduler.cost import CostModel
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.sequence_pool import SequencePool
from zinc_rt.scheduler.tenants import TenantAccount

_LOWER = 5
"""Every so many admissions the lowest class that waits has its turn, so that none starves."""


class WaitingQueue:
    """Requests that wait: a queue for each class of service and tenant."""

    def __init__(self) -> None:
        self._queues: dict[tuple[int, TenantAccount], deque[Request]] = {}
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Request]:
        for queue in self._queues.values():
            yield from queue

    def push(self, request: Request, *, front: bool = False) -> None:
        """Queue a request, behind the others of its tenant and class or before them."""
        queue = self._queues.setdefault((request.level, request.tenant), deque())
        if front:
            queue.appendleft(request)
        else:
            queue.append(request)
        self._n += 1

    def remove(self, request: Request) -> None:
        """Take out a request that waits."""
        at = request.level, request.tenant
        queue = self._queues[at]
        queue.remove(request)
        if not queue:
            del self._queues[at]
        self._n -= 1

    def levels(self) -> list[int]:
        """Levels at which requests wait, in order."""
        return sorted({level for level, _ in self._queues})

    def heads(self, level: int) -> list[Request]:
        """The next request of each tenant that has some at a level, in the order of the tenants' arrival there."""
        return [queue[0] for (at, _), queue in self._queues.items() if at == level]


class AdmissionOrder:
    """The order in which requests are admitted: by class, then by what their tenants have had."""

    def __init__(self, waiting: WaitingQueue, pool: SequencePool, cost: CostModel) -> None:
        self._waiting, self._pool, self._cost = waiting, pool, cost
        self._since_lowest = 0  # admissions since the lowest class had its turn
        self._ahead: dict[TenantAccount, float] = {}  # service that was given out since `begin`

    def begin(self) -> None:
        """A step is scheduled."""
        self._ahead.clear()

    def pages_by_tenant(self, running: Iterable[Request]) -> Counter[TenantAccount]:
        """KV pages promised to the requests of each tenant."""
        pages: Counter[TenantAccount] = Counter()
        for request in running:
            pages[request.tenant] += self._pool.promised[request.seq_id]
        return pages

    def candidates(self, running: Sequence[Request]) -> Iterator[Request]:
        """Requests to try, one after the other until one is admitted: first the next request of the lowest class that
        waits, if it has its turn, then that of the highest class.
        """
        levels = self._waiting.levels()
        head = self._head(levels, running)
        if self._since_lowest + 1 >= _LOWER:
            low = self._head(levels[::-1], running)
            if low is not None and low is not head:
                yield low
        if head is not None:
            yield head

    def _head(self, levels: Iterable[int], running: Sequence[Request]) -> Request | None:
        """The next request of these classes. Tenants that have all that they may are passed over; nobody else is, so a
        large request is not overtaken by small ones for ever.
        """
        pages, counts = self.pages_by_tenant(running), Counter(request.tenant for request in running)

        def turn(request: Request) -> tuple[float, int]:
            tenant = request.tenant
            return tenant.service + self._ahead.get(tenant, 0.0), counts[tenant]

        for level in levels:
            for request in sorted(self._waiting.heads(level), key=turn):
                tenant = request.tenant
                if tenant.max_active is not None and counts[tenant] >= tenant.max_active:
                    continue
                wish = pages[tenant] + self._pool.needed(len(request.tokens))
                if not pages[tenant] or wish <= tenant.most_pages(self._pool.n_pages):
                    return request
        return None

    def admitted(self, request: Request) -> None:
        """The request has a sequence. What it is about to cost counts until the next `begin`."""
        due = self._since_lowest + 1 >= _LOWER and request.level == self._waiting.levels()[-1]
        self._since_lowest = 0 if due else self._since_lowest + 1
        self._waiting.remove(request)
        row_ms = self._cost.row_ms(request.computed, prefill=True)
        cost = row_ms * (len(request.tokens) - request.computed) / request.tenant.weight
        self._ahead[request.tenant] = self._ahead.get(request.tenant, 0.0) + cost

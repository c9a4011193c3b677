"""Which request gets a sequence next, and what tenants hold of the KV pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from zinc_rt.scheduler.batch import BatchKind, TenantId
from zinc_rt.scheduler.fair import FairScheduler
from zinc_rt.scheduler.preemption import excess, slot_victim, victim
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.slots import Slots
from zinc_rt.scheduler.tenants import Tenants
from zinc_rt.scheduler.waiting import Waiting

_LOWER = 5
"""Every so many admissions the lowest class that waits has its turn, so that none starves."""


class Admission:
    """The requests that wait, and the order in which they are admitted."""

    def __init__(self, scheduler: FairScheduler, tenants: Tenants, slots: Slots) -> None:
        self._scheduler, self._tenants, self._slots = scheduler, tenants, slots
        self.waiting: Waiting[Request] = Waiting()
        self._since_lowest = 0  # admissions since the lowest class had its turn
        self._ahead: dict[TenantId, float] = {}  # service that was given out in this turn

    def begin(self) -> None:
        """A turn begins."""
        self._ahead.clear()

    def most_pages(self, tenant: TenantId) -> int:
        """KV pages that a tenant may have."""
        return max(1, int(self._scheduler.accounts.share(tenant).kv_share * self._slots.n_pages))

    def pages_by_tenant(self, running: Iterable[Request]) -> Counter[TenantId]:
        """KV pages promised to the requests of each tenant."""
        pages: Counter[TenantId] = Counter()
        for request in running:
            pages[request.tenant] += self._slots.pages(request.slot)
        return pages

    def candidates(self, running: Iterable[Request]) -> Iterator[Request]:
        """Requests to admit next, each to be tried where the one before finds no place. That is the head of the highest
        class that waits; the lowest class's before it when it has its turn, so that nobody waits for it.
        """
        levels = self.waiting.levels()
        running = list(running)
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
        accounts = self._scheduler.accounts
        pages, counts = self.pages_by_tenant(running), Counter(request.tenant for request in running)

        def turn(tenant: TenantId) -> tuple[float, int]:
            return accounts.service(tenant) + self._ahead.get(tenant, 0.0), counts[tenant]

        for level in levels:
            for tenant in sorted(self.waiting.tenants(level), key=turn):
                request = self.waiting.head(level, tenant)
                wish = pages[tenant] + self._slots.needed(len(request.tokens))
                too_many = pages[tenant] and wish > self.most_pages(tenant)
                if self._tenants.may_start(tenant, counts[tenant]) and not too_many:
                    return request
        return None

    def slot_victim(self, request: Request, running: Sequence[Request], work: Counter[TenantId]) -> Request | None:
        """Whose sequence a request that waits gets where all are taken; None where it shall wait. work: requests of
        each tenant.
        """
        weights = {tenant: self._scheduler.accounts.share(tenant).weight for tenant, n in work.items() if n}
        part = self._slots.n_slots / sum(weights.values())
        return slot_victim(request, running, lambda tenant: weights[tenant] * part)

    def page_victim(self, running: Sequence[Request], work: Counter[TenantId]) -> Request:
        """The request that gives up its KV pages where there are too few, of one or more."""
        if len(running) == 1:
            return running[0]
        pages = self.pages_by_tenant(running)
        above = excess(self._scheduler.accounts, pages, [tenant for tenant, n in work.items() if n])
        return victim(running, above.__getitem__)

    def admitted(self, request: Request) -> None:
        """The request has a sequence. What it is about to cost counts for the rest of the turn."""
        due = self._since_lowest + 1 >= _LOWER and request.level == self.waiting.levels()[-1]
        self._since_lowest = 0 if due else self._since_lowest + 1
        self.waiting.remove(request.level, request.tenant, request)
        row_ms = self._scheduler.cost.row_ms(BatchKind.prefill, request.computed)
        weight = self._scheduler.accounts.share(request.tenant).weight
        cost = row_ms * (len(request.tokens) - request.computed) / weight
        self._ahead[request.tenant] = self._ahead.get(request.tenant, 0.0) + cost

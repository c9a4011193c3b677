"""Whose pages are taken when there are too few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.scheduler.accounts import Accounts
from zinc_rt.scheduler.batch import TenantId
from zinc_rt.scheduler.request import Request

_PATIENCE = 2
"""Preemptions after which a request is left alone until it has generated a page of tokens."""


def protected(request: Request) -> bool:
    """Whether a request was preempted so often that it shall generate something first."""
    return request.preemptions >= _PATIENCE and len(request.tokens) - request.admitted_tokens < PAGE_TOKENS


def victim(running: Sequence[Request], excess: Callable[[TenantId], float]) -> Request:
    """The request to preempt of at least two: of the lowest class, then of the tenant with the greatest excess over its
    share, then the one that loses the fewest computed tokens.

    Where all are protected the one that came first is left out, so that it goes on.
    """
    open_to = [request for request in running if not protected(request)]
    if not open_to:
        first = min(running, key=lambda request: request.number)
        open_to = [request for request in running if request is not first]
    return min(open_to, key=lambda r: (-r.level, -excess(r.tenant), r.computed, -r.number))


def slot_victim(request: Request, running: Sequence[Request], fair: Callable[[TenantId], float]) -> Request | None:
    """The request to preempt where all sequences are taken and another one waits; None where it shall wait.

    One of a lower class makes way for a higher one. In one class, tenants have their parts of the sequences: one that
    has less than its part gets a sequence of one that has more. fair: a tenant's part, in sequences. So a tenant that
    comes back does not wait until another one's long answers are done.
    """
    open_to = [other for other in running if not protected(other)]
    counts = Counter(other.tenant for other in running)
    found = [other for other in open_to if other.level > request.level]
    if not found and counts[request.tenant] + 1 <= fair(request.tenant):
        found = [o for o in open_to if o.level == request.level and counts[o.tenant] - 1 >= fair(o.tenant)]
    return min(found, key=lambda o: (-o.level, fair(o.tenant) - counts[o.tenant], o.computed, -o.number), default=None)


def excess(accounts: Accounts, pages: dict[TenantId, int], working: Iterable[TenantId]) -> dict[TenantId, float]:
    """How far each tenant's part of the used KV pages is above its weight's part of all weights."""
    weights = {tenant: accounts.share(tenant).weight for tenant in working}
    total, used = sum(weights.values()), sum(pages.values())
    return {tenant: pages.get(tenant, 0) / max(used, 1) - weight / total for tenant, weight in weights.items()}

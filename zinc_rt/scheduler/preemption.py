"""Which request gives up its sequence or its KV pages where there are too few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.tenants import TenantAccount


def victim(running: Sequence[Request], excess: Mapping[TenantAccount, float]) -> Request:
    """The request to preempt of at least two: of the lowest class, then of the tenant with the greatest excess over its
    share, then the one that loses the fewest computed tokens.

    Where all are protected the one that came first is left out, so that it goes on.
    """
    open_to = [request for request in running if not request.protected]
    if not open_to:
        first = min(running, key=lambda request: request.number)
        open_to = [request for request in running if request is not first]
    return min(open_to, key=lambda r: (-r.level, -excess[r.tenant], r.computed, -r.number))


def sequence_victim(
    request: Request, running: Sequence[Request], parts: Mapping[TenantAccount, float]
) -> Request | None:
    """The request to preempt where all sequences are taken and another one waits; None where it shall wait.

    One of a lower class makes way for a higher one. In one class, tenants have their parts of the sequences: one that
    has less than its part gets a sequence of one that has more. parts: in sequences. So a tenant that comes back does
    not wait until another one's long answers are done.
    """
    open_to = [other for other in running if not other.protected]
    counts = Counter(other.tenant for other in running)
    found = [other for other in open_to if other.level > request.level]
    if not found and counts[request.tenant] + 1 <= parts[request.tenant]:
        found = [o for o in open_to if o.level == request.level and counts[o.tenant] - 1 >= parts[o.tenant]]
    return min(found, key=lambda o: (-o.level, parts[o.tenant] - counts[o.tenant], o.computed, -o.number), default=None)


def excess(pages: Mapping[TenantAccount, int], working: Sequence[TenantAccount]) -> dict[TenantAccount, float]:
    """How far each tenant's part of the used KV pages is above its weight's part of all weights."""
    total, used = sum(tenant.weight for tenant in working), sum(pages.values())
    return {tenant: pages.get(tenant, 0) / max(used, 1) - tenant.weight / total for tenant in working}

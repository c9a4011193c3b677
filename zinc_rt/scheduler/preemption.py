"""Which request gives up its sequence or its KV pages where there are too few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.tenants import TenantAccount


def victim(running: Sequence[Request], excess: Mapping[TenantAccount, float]) -> Request:
    """The request to preempt, of at least two. The order: the lowest class, then the tenant with the greatest excess
    over its share, then the request that loses the fewest computed tokens.

    If all requests are protected, the one that came first is spared, so that it goes on.
    """
    open_to = [request for request in running if not request.protected]
    if not open_to:
        first = min(running, key=lambda request: request.number)
        open_to = [request for request in running if request is not first]
    return min(open_to, key=lambda r: (-r.level, -excess[r.tenant], r.computed, -r.number))


def sequence_victim(
    request: Request, running: Sequence[Request], parts: Mapping[TenantAccount, float]
) -> Request | None:
    """The request that gives up its sequence to `request`, where all sequences are taken; None if `request` has to
    wait.

    A request of a lower class makes way for a higher one. Within a class, each tenant has a part of the sequences; a
    tenant below its part gets a sequence from one above its part. So a tenant that comes back does not wait for another
    tenant's long answers. Example: of 4 sequences, two tenants of equal weight have 2 each; if one runs 4 requests, the
    other gets a sequence of it.

    parts: of each tenant, in sequences.
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

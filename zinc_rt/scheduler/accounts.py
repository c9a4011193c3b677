"""What tenants have had of an engine's time: the counter that decides whose turn it is, and the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from zinc_rt.scheduler.batch import TenantId
from zinc_rt.scheduler.errors import InvalidTenantLimits


@dataclass(frozen=True, slots=True)
class Share:
    """A tenant's part of an engine. weight: of its time, beside the other tenants' weights; kv_share: of its KV pages
    at the most, above 0 and up to 1.

    Raises `InvalidTenantLimits` for values outside their range.
    """

    weight: float = 1.0
    kv_share: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InvalidTenantLimits(f"a tenant's weight is {self.weight}, it must be a number above 0")
        if not 0 < self.kv_share <= 1:
            raise InvalidTenantLimits(f"a tenant's kv_share is {self.kv_share}, it must be above 0 and at most 1")


class Accounts:
    """The virtual token counter, counted in milliseconds of the engine.

    Service is time divided by weight, and the tenant with the least of it is next. A tenant that comes back from having
    no work is lifted to the least of those that have work: time that it left unused is nobody's debt.

    Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024 (arXiv 2401.00588).
    """

    def __init__(self) -> None:
        self._shares: dict[TenantId, Share] = {}
        self._service: dict[TenantId, float] = {}
        self._ms: dict[TenantId, float] = {}

    def share(self, tenant: TenantId) -> Share:
        """A tenant's part."""
        return self._shares.get(tenant) or Share()

    def put_share(self, tenant: TenantId, share: Share) -> None:
        """Change a tenant's part from now on."""
        self._shares[tenant] = share

    def service(self, tenant: TenantId) -> float:
        """Milliseconds that the tenant has had, divided by its weight, and lifted after idle times."""
        return self._service.get(tenant, 0.0)

    def seconds(self, tenant: TenantId) -> float:
        """Seconds of the engine that the tenant has had."""
        return self._ms.get(tenant, 0.0) / 1000

    def charge(self, tenant: TenantId, ms: float) -> None:
        """The tenant has had `ms` milliseconds."""
        self._ms[tenant] = self._ms.get(tenant, 0.0) + ms
        self._service[tenant] = self.service(tenant) + ms / self.share(tenant).weight

    def lift(self, tenant: TenantId, others: Iterable[TenantId]) -> None:
        """The tenant has work again; others: those that have some."""
        least = min((self.service(other) for other in others if other != tenant), default=0.0)
        self._service[tenant] = max(self.service(tenant), least)

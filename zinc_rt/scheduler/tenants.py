"""Tenants of an engine: the limits of each, and the time of the engine that it has used."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from zinc_rt.errors import UsageError
from zinc_rt.scheduler.errors import TooManyTenants
from zinc_rt.scheduler.messages import TenantShare


@dataclass(eq=False, slots=True)
class TenantAccount:
    """One tenant, between its first request or share and the engine's end.

    The tenant with the least service is next: the virtual token counter of Sheng et al., "Fairness in Serving Large
    Language Models", OSDI 2024 (arXiv 2401.00588), counted in milliseconds of the engine.

    Attributes:
        number: in the order of arrival.
        weight: of its share of the engine's time, beside the other tenants' weights.
        kv_share: of the KV pages that it may have at the most.
        max_active: of its requests that may run at once; None for no limit.
        n_requests: of its requests that wait or run.
        ms: milliseconds of the engine that it has had.
        service: the same divided by its weight, and raised after it had no work.
        next_decode: number of the request with which its next turn begins, where not all fit into a step.
    """

    name: str
    number: int
    weight: float = 1.0
    kv_share: float = 1.0
    max_active: int | None = None
    n_requests: int = 0
    ms: float = 0.0
    service: float = 0.0
    next_decode: int = 0

    def most_pages(self, n_pages: int) -> int:
        """Of so many KV pages, those that it may have."""
        return max(1, int(self.kv_share * n_pages))


class TenantAccounts:
    """Tenants by name, at most so many."""

    def __init__(self, max_tenants: int) -> None:
        self._max_tenants = max_tenants
        self._known: dict[str, TenantAccount] = {}

    def get(self, name: str) -> TenantAccount:
        """A tenant, maybe a new one. Raises `TooManyTenants`."""
        known = self._known.get(name)
        if known is None:
            number = len(self._known)
            if number >= self._max_tenants:
                raise TooManyTenants(f"tenant {number} cannot be registered: all {self._max_tenants} places are taken")
            known = self._known[name] = TenantAccount(name, number)
        return known

    def all(self) -> Iterable[TenantAccount]:
        """All that are known."""
        return self._known.values()

    def working(self) -> list[TenantAccount]:
        """Those with requests."""
        return [tenant for tenant in self._known.values() if tenant.n_requests]

    def share(self, share: TenantShare) -> None:
        """How a tenant is served from now on. Raises `UsageError`, `TooManyTenants`."""
        if not (math.isfinite(share.weight) and share.weight > 0):
            raise UsageError(f"a tenant's weight is {share.weight}, it must be a number above 0")
        if not 0 < share.kv_share <= 1:
            raise UsageError(f"a tenant's kv_share is {share.kv_share}, it must be above 0 and at most 1")
        if share.max_active is not None and share.max_active < 1:
            raise UsageError(f"max_active of tenant {share.tenant} is {share.max_active}, it must be above 0")
        tenant = self.get(share.tenant)
        tenant.weight, tenant.kv_share, tenant.max_active = share.weight, share.kv_share, share.max_active

    def begin_request(self, tenant: TenantAccount) -> None:
        """The tenant has one more request. A tenant that had no request is raised to the least service of the tenants
        that have some, so unused time is not saved up.
        """
        if not tenant.n_requests:
            least = min((other.service for other in self.working()), default=0.0)
            tenant.service = max(tenant.service, least)
        tenant.n_requests += 1

"""Tenants by name, as the core has them, and the requests of theirs that wait."""

from __future__ import annotations

from zinc_rt.scheduler.accounts import Share
from zinc_rt.scheduler.batch import MAX_U32, TenantId, TenantLimits
from zinc_rt.scheduler.errors import InvalidTenantLimits
from zinc_rt.scheduler.fair import FairScheduler
from zinc_rt.scheduler.messages import TenantShare


class Tenants:
    """Names of tenants and the scheduler's numbers for them. A tenant is registered by its first request or share."""

    def __init__(self, scheduler: FairScheduler) -> None:
        self._scheduler = scheduler
        self._ids: dict[str, TenantId] = {}
        self._most: dict[TenantId, int] = {}  # requests computed at once

    def id(self, name: str) -> TenantId:
        """A tenant's number. Raises `TooManyTenants`."""
        known = self._ids.get(name)
        if known is not None:
            return known
        tenant = TenantId(len(self._ids))
        self._scheduler.register_tenant(tenant, TenantLimits(MAX_U32, MAX_U32, MAX_U32))
        self._ids[name] = tenant
        return tenant

    def names(self) -> dict[str, TenantId]:
        """All tenants."""
        return dict(self._ids)

    def share(self, share: TenantShare) -> None:
        """How a tenant is served from now on. Raises `InvalidTenantLimits`, `TooManyTenants`."""
        part = Share(share.weight, share.kv_share)
        if share.max_active is not None and share.max_active < 1:
            raise InvalidTenantLimits(f"max_active of tenant {share.tenant} is {share.max_active}, it must be above 0")
        tenant = self.id(share.tenant)
        self._scheduler.accounts.put_share(tenant, part)
        if share.max_active is None:
            self._most.pop(tenant, None)
        else:
            self._most[tenant] = share.max_active

    def may_start(self, tenant: TenantId, n_running: int) -> bool:
        """Whether a tenant with so many requests running may have another one."""
        return n_running < self._most.get(tenant, MAX_U32)

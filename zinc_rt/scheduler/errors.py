"""Errors of the scheduler. Nothing has changed in the scheduler when one is raised."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class SchedulerError(ZincError):
    """Base of the errors below."""


class InvalidCapacity(SchedulerError):
    """A scheduler was asked for with an impossible number of slots or tenants."""


class InvalidTenantId(SchedulerError):
    """A tenant id is not an unsigned 32-bit number."""


class InvalidTenantLimits(SchedulerError):
    """A tenant's limits are outside their range."""


class LimitBelowActiveRequests(SchedulerError):
    """A tenant's new limits allow fewer requests than it has active."""


class TooManyTenants(SchedulerError):
    """All places for tenants are taken."""


class UnknownTenant(SchedulerError):
    """The tenant is not registered."""


class InvalidRequest(SchedulerError):
    """A request's token counts are outside their range."""


class TenantRequestQuotaExceeded(SchedulerError):
    """The tenant has as many active requests as its limits allow."""


class AllSlotsBusy(SchedulerError):
    """No slot is free for another request."""


class InvalidSlot(SchedulerError):
    """The slot does not exist, or holds no request."""


class InvalidState(SchedulerError):
    """The slot's request is in a state that does not allow this."""


class InvalidTokenCount(SchedulerError):
    """A number of tokens, or a token budget, is outside its range."""

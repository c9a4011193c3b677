"""`AdmissionControl`: counts requests that run and refuses those that are too many.

It reserves a place when it looks, so no burst gets by.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.scheduler.messages import EngineStatus
from zinc_rt.serving.api.config import TenantConfigs
from zinc_rt.serving.api.errors import ApiError

_NEVER = 3600.0
"""Seconds that stand for a quota that can never allow the request."""


@dataclass(slots=True)
class Ticket:
    """The places that a request takes, one for each answer. prompt_tokens: tokens that count as waiting; 0 before the
    prompt is tokenized, and once the engine computes the request.
    """

    tenant: str
    places: int = 1
    prompt_tokens: int = 0
    released: bool = False


class TokenBucket:
    """A bucket that refills evenly. Times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self._level = per_minute
        self._at = now

    def _fill(self, now: float) -> None:
        self._level = min(self.per_minute, self._level + max(0.0, now - self._at) * self.per_minute / 60)
        self._at = max(now, self._at)

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` can be taken: 0 now, infinity never."""
        self._fill(now)
        if amount <= self._level:
            return 0.0
        return math.inf if amount > self.per_minute else (amount - self._level) * 60 / self.per_minute

    def take(self, amount: float, now: float) -> None:
        """Take an amount, negative to give it back. The level may fall below 0: later requests wait for it."""
        self._fill(now)
        self._level = min(self.per_minute, self._level - amount)


class AdmissionControl:
    """Places of requests, by tenant and in all."""

    def __init__(
        self,
        tenants: TenantConfigs,
        status: Callable[[], EngineStatus],
        clock: Callable[[], float] = time.monotonic,
        shares_rates_of: AdmissionControl | None = None,
    ) -> None:
        """shares_rates_of: that of another model, with which the tenants' rates are one."""
        self._tenants = tenants
        self._status, self._clock = status, clock
        self._inside: Counter[str] = Counter()
        self._queued_tokens: Counter[str] = Counter()
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        if shares_rates_of is not None:
            self._buckets = shares_rates_of._buckets
        self._seconds = 1.0  # that a request takes, lately

    def replace(self, tenants: TenantConfigs) -> None:
        """Other limits from now on; tokens taken from a bucket whose rate stays are not given back."""
        self._tenants = tenants

    @property
    def inside(self) -> int:
        """Requests that wait or are computed."""
        return self._inside.total()

    def why_full(self) -> ApiError | None:
        """The refusal that a request of any tenant would get now, or None."""
        slots, limit = max(1, self._status().n_slots), self._tenants.limits.queue
        if self.inside >= slots + limit:
            message = f"the queue is full: {limit} requests wait; try again later"
            return ApiError(503, message, code="server_busy", retry_after=min(60.0, max(1.0, self.wait())))
        return None

    def enter(self, name: str) -> Ticket:
        """Reserve a place. Raises `ApiError`: 429 for what the tenant has too much of, 503 where the queue is full."""
        tenant = self._tenants.get(name)
        if (full := self.why_full()) is not None:
            raise full
        if tenant.queued is not None:
            slots = tenant.active or max(1, self._status().n_slots)
            if self._inside[name] >= slots + tenant.queued:
                raise _quota(f"{tenant.queued} requests of this key's tenant wait already", self._seconds)
        bucket = self._bucket(name, "requests", tenant.requests_per_minute)
        if bucket is not None:
            if (wait := bucket.wait(1, self._clock())) > 0:
                raise _quota(f"more than {tenant.requests_per_minute:g} requests a minute", wait)
            bucket.take(1, self._clock())
        self._inside[name] += 1
        return Ticket(name)

    def widen(self, ticket: Ticket, places: int) -> None:
        """Reserve as many places as the request has answers. Raises `ApiError`, 503."""
        more = places - ticket.places
        if more > 0 and self.inside + more > max(1, self._status().n_slots) + self._tenants.limits.queue:
            message = f"there is no room for {places} answers in the queue; ask for fewer, or try again later"
            raise ApiError(503, message, code="server_busy", retry_after=min(60.0, max(1.0, self._seconds)))
        self._inside[ticket.tenant] += more
        ticket.places = places

    def wait(self) -> float:
        """Seconds that a new request waits, by what requests took lately."""
        slots = max(1, self._status().n_slots)
        return self._seconds * max(0, self.inside - slots) / slots

    def count(self, ticket: Ticket, prompt_tokens: int) -> None:
        """Reserve room for a prompt. Raises `ApiError`."""
        name, tenant = ticket.tenant, self._tenants.get(ticket.tenant)
        limit = self._tenants.limits.queued_tokens
        if self._queued_tokens.total() and self._queued_tokens.total() + prompt_tokens > limit:
            message = f"{self._queued_tokens.total()} prompt tokens wait, at most {limit} may; try again later"
            raise ApiError(503, message, code="server_busy", retry_after=min(60.0, max(1.0, self._seconds)))
        mine = self._queued_tokens[name]
        if tenant.queued_tokens is not None and mine and mine + prompt_tokens > tenant.queued_tokens:
            said = f"{mine} prompt tokens of this key's tenant wait, at most {tenant.queued_tokens} may"
            raise _quota(said, self._seconds)
        bucket = self._bucket(name, "tokens", tenant.tokens_per_minute)
        if bucket is not None:
            if (wait := bucket.wait(prompt_tokens, self._clock())) > 0:
                raise _quota(f"more than {tenant.tokens_per_minute:g} tokens a minute", wait)
            bucket.take(prompt_tokens, self._clock())
        ticket.prompt_tokens += prompt_tokens
        self._queued_tokens[name] += prompt_tokens

    def admitted(self, ticket: Ticket) -> None:
        """The engine computes the request: its prompt waits no more."""
        self._queued_tokens[ticket.tenant] -= ticket.prompt_tokens
        ticket.prompt_tokens = 0

    def leave(self, ticket: Ticket, generated: int = 0, seconds: float | None = None) -> None:
        """Give the place back. generated: tokens, which count for the quota. seconds: of computing, if it finished."""
        if ticket.released:
            return
        ticket.released = True
        self.admitted(ticket)
        self._inside[ticket.tenant] -= ticket.places
        bucket = self._bucket(ticket.tenant, "tokens", self._tenants.get(ticket.tenant).tokens_per_minute)
        if bucket is not None:
            bucket.take(generated, self._clock())
        if seconds is not None:
            self._seconds += 0.2 * (seconds - self._seconds)

    def _bucket(self, name: str, unit: str, per_minute: float | None) -> TokenBucket | None:
        if per_minute is None:
            return None
        bucket = self._buckets.get((name, unit))
        if bucket is None or bucket.per_minute != per_minute:
            bucket = self._buckets[name, unit] = TokenBucket(per_minute, self._clock())
        return bucket


def _quota(reason: str, wait: float) -> ApiError:
    seconds = _NEVER if math.isinf(wait) else max(wait, 0.1)
    advice = "the request is larger than the quota" if math.isinf(wait) else "try again later"
    return ApiError(429, f"{reason}; {advice}", code="rate_limit_exceeded", retry_after=seconds)

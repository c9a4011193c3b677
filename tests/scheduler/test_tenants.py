"""What tenants may have, and that wrong books are seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.scheduler.fake_engine import FakeEngine
from tests.scheduler.test_engine_core import asked, core_on
from zinc_rt.errors import UsageError
from zinc_rt.scheduler.errors import SchedulerIntegrityError, TooManyTenants
from zinc_rt.scheduler.messages import TenantShare
from zinc_rt.scheduler.scheduler import Scheduler
from zinc_rt.scheduler.tenants import TenantAccounts


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (TenantShare("a", weight=0.0), "weight is 0.0, it must be a number above 0"),
        (TenantShare("a", weight=math.nan), "weight is nan"),
        (TenantShare("a", kv_share=0.0), "kv_share is 0.0, it must be above 0 and at most 1"),
        (TenantShare("a", kv_share=1.5), "kv_share is 1.5"),
        (TenantShare("a", max_active=0), "max_active of tenant a is 0, it must be above 0"),
    ],
)
def test_shares_outside_their_range_change_nothing(share: TenantShare, message: str) -> None:
    accounts = TenantAccounts(1)
    with pytest.raises(UsageError, match=message):
        accounts.share(share)
    assert not list(accounts.all())


def test_there_are_no_more_tenants_than_places() -> None:
    accounts = TenantAccounts(2)
    first = accounts.get("a")
    accounts.get("b")
    with pytest.raises(TooManyTenants, match="all 2 places are taken"):
        accounts.get("c")
    assert accounts.get("a") is first


def test_a_tenant_that_comes_back_is_raised_to_those_with_work() -> None:
    """Time that it left unused is nobody's debt; time that it had counts."""
    accounts = TenantAccounts(3)
    a, b, c = map(accounts.get, "abc")
    for tenant, service in ((a, 50.0), (b, 80.0)):
        accounts.begin_request(tenant)
        tenant.service = service
    accounts.begin_request(c)
    assert c.service == 50.0
    c.n_requests, c.service = 0, 70.0
    accounts.begin_request(c)
    assert c.service == 70.0
    accounts.begin_request(a)
    assert (a.service, a.n_requests) == (50.0, 2)


def lose_request(scheduler: Scheduler) -> None:
    scheduler.running.pop()


def run_twice(scheduler: Scheduler) -> None:
    scheduler.waiting.push(scheduler.running[0])


def go_ahead(scheduler: Scheduler) -> None:
    scheduler.running[0].computed += 1


def promise_nothing(scheduler: Scheduler) -> None:
    scheduler.pool.promised.clear()


def miscount(scheduler: Scheduler) -> None:
    scheduler.running[0].tenant.n_requests += 1


@pytest.mark.parametrize("damage", [lose_request, run_twice, go_ahead, promise_nothing, miscount])
def test_the_integrity_check_sees_damage(damage: Callable[[Scheduler], None]) -> None:
    core = core_on(FakeEngine())
    core.submit(asked("a", n=None))
    core.turn()
    core.check_integrity()
    damage(core.scheduler)
    with pytest.raises(SchedulerIntegrityError):
        core.check_integrity()


def test_a_turn_that_can_do_nothing_raises() -> None:
    """Somebody else has all the sequences: for ever, as far as the scheduler knows."""
    core = core_on(FakeEngine(n_slots=1, n_pages=16))
    core.scheduler.pool.promised[0] = 16
    core.submit(asked("a"))
    with pytest.raises(SchedulerIntegrityError, match="1 requests wait and 0 run, but none can go on"):
        core.turn()

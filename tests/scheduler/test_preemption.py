"""Whose KV pages are taken, by the tenants' weights."""

from __future__ import annotations

import pytest

from tests.scheduler.fake_engine import N_VOCAB
from tests.scheduler.test_engine_core import asked
from zinc_rt.scheduler.accounts import Accounts, Share
from zinc_rt.scheduler.batch import TenantId
from zinc_rt.scheduler.options import Vocabulary
from zinc_rt.scheduler.preemption import excess, victim
from zinc_rt.scheduler.request import Request

A, B = TenantId(0), TenantId(1)


def accounts(weight: float) -> Accounts:
    """Of two tenants, the first with this weight, the second with 1."""
    made = Accounts()
    made.put_share(A, Share(weight))
    return made


def test_excess_is_the_part_of_the_pages_above_the_part_of_the_weights() -> None:
    found = excess(accounts(3.0), {A: 6, B: 4}, [A, B])
    assert found == {A: pytest.approx(0.6 - 0.75), B: pytest.approx(0.4 - 0.25)}
    assert excess(accounts(3.0), {A: 6}, [A, B]) == {A: pytest.approx(0.25), B: pytest.approx(-0.25)}
    assert excess(accounts(3.0), {}, [A, B]) == {A: pytest.approx(-0.75), B: pytest.approx(-0.25)}


@pytest.mark.parametrize(("weight", "loses"), [(3.0, B), (1.0, A), (0.5, A), (1.4, A), (1.6, B)])
def test_the_tenant_that_has_most_above_its_weight_gives_up_pages(weight: float, loses: TenantId) -> None:
    vocabulary = Vocabulary(N_VOCAB, frozenset())
    running = [Request.make(asked(f"{i}"), tenant, vocabulary, i, 0.0) for i, tenant in enumerate([A, B, A, B])]
    above = excess(accounts(weight), {A: 6, B: 4}, [A, B])
    assert victim(running, above.__getitem__).tenant == loses

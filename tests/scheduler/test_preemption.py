"""Whose KV pages are taken, by the tenants' weights."""

from __future__ import annotations

import pytest

from tests.scheduler.fake_engine import N_VOCAB
from tests.scheduler.test_engine_core import asked
from zinc_rt.scheduler.options import CoreVocabulary
from zinc_rt.scheduler.preemption import excess, victim
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.tenants import TenantAccount


def tenants(weight: float) -> tuple[TenantAccount, TenantAccount]:
    """The first with this weight, the second with 1."""
    return TenantAccount("a", 0, weight), TenantAccount("b", 1)


def test_excess_is_the_part_of_the_pages_above_the_part_of_the_weights() -> None:
    a, b = tenants(3.0)
    assert excess({a: 6, b: 4}, [a, b]) == {a: pytest.approx(0.6 - 0.75), b: pytest.approx(0.4 - 0.25)}
    assert excess({a: 6}, [a, b]) == {a: pytest.approx(0.25), b: pytest.approx(-0.25)}
    assert excess({}, [a, b]) == {a: pytest.approx(-0.75), b: pytest.approx(-0.25)}


@pytest.mark.parametrize(("weight", "loses"), [(3.0, "b"), (1.0, "a"), (0.5, "a"), (1.4, "a"), (1.6, "b")])
def test_the_tenant_that_has_most_above_its_weight_gives_up_pages(weight: float, loses: str) -> None:
    vocabulary = CoreVocabulary(N_VOCAB, frozenset())
    a, b = tenants(weight)
    running = [Request.make(asked(f"{i}"), owner, vocabulary, 96, i, 0.0) for i, owner in enumerate([a, b, a, b])]
    assert victim(running, excess({a: 6, b: 4}, [a, b])).tenant.name == loses

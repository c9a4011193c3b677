"""How a step's rows are split among classes and tenants: what one class leaves goes to the others."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.scheduler.fake_engine import N_VOCAB
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.cost import CostModel
from zinc_rt.scheduler.fair_share import FairShare
from zinc_rt.scheduler.messages import QoS, Submit
from zinc_rt.scheduler.options import CoreVocabulary
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.tenants import TenantAccount

PROMPTS = st.lists(st.tuples(st.integers(1, 100), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8)


def running(prompts: list[tuple[int, int, int]]) -> list[Request]:
    """Requests that were just admitted: tokens of the prompt, class, tenant."""
    tenants = [TenantAccount(str(number), number) for number in range(3)]
    made = []
    for i, (n, level, tenant) in enumerate(prompts):
        submit = Submit(str(i), (1,) * n, SamplingParams(), 1, qos=list(QoS)[level])
        made.append(Request.make(submit, tenants[tenant], CoreVocabulary(N_VOCAB), 200, i, 0.0))
        made[-1].admit(i, 0, 0.0)
    return made


def test_what_a_lower_class_leaves_goes_to_a_prompt_that_was_begun() -> None:
    first, second = running([(100, 0, 0), (2, 1, 1)])
    assert FairShare(CostModel()).rows([first, second], 50, prefill=True) == {first: 48, second: 2}


@settings(max_examples=40, deadline=None)
@given(PROMPTS, st.integers(0, 200))
def test_no_row_of_a_budget_is_left_while_a_prompt_could_have_it(
    prompts: list[tuple[int, int, int]], budget: int
) -> None:
    given_out = FairShare(CostModel()).rows(running(prompts), budget, prefill=True)
    assert sum(given_out.values()) == min(budget, sum(n for n, _, _ in prompts))
    assert all(1 <= rows <= request.n_prompt for request, rows in given_out.items())


@settings(max_examples=15, deadline=None)
@given(PROMPTS, st.integers(1, 12))
@example([(1, level, 0) for level in (0, 0, 0, 0, 0, 1, 1, 2)], 5)
def test_every_class_that_waits_has_its_part(prompts: list[tuple[int, int, int]], budget: int) -> None:
    requests, share = running(prompts), FairShare(CostModel())
    served: set[Request] = set()
    for _ in range(10 * len(prompts)):
        given_out = share.rows(requests, budget, prefill=False)
        assert set(given_out.values()) == {1}
        assert len(given_out) == min(budget, len(prompts))
        served |= given_out.keys()
    assert {request.level for request in served} == {level for _, level, _ in prompts}


@settings(max_examples=30, deadline=None)
@given(PROMPTS, st.integers(1, 9))
def test_of_equal_tenants_of_one_class_each_text_has_its_turn(prompts: list[tuple[int, int, int]], budget: int) -> None:
    """Whatever other tenants ask for: within as many steps as there are requests of the tenants, all together."""
    requests, share = running([(n, 0, tenant) for n, _, tenant in prompts]), FairShare(CostModel())
    for request in requests:
        request.computed = 1
    waited = dict.fromkeys(requests, 0)
    for _ in range(40):
        given_out = share.rows(requests, budget, prefill=False)
        for request in requests:
            waited[request] = 0 if request in given_out else waited[request] + 1
            request.tenant.service += 0.01 * (request in given_out)
        assert max(waited.values()) <= 3 * len(requests)

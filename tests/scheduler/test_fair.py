"""Properties of the scheduler with classes: what one class leaves goes to the others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.scheduler.batch import MAX_U32, BatchKind, RequestConfig, TenantId, TenantLimits
from zinc_rt.scheduler.fair import FairScheduler

PROMPTS = st.lists(st.tuples(st.integers(1, 100), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8)


def placed(prompts: list[tuple[int, int, int]], most: int = MAX_U32) -> FairScheduler:
    """Prompts of so many tokens, by class and tenant. most: tokens of a tenant in a batch."""
    scheduler = FairScheduler(len(prompts), 3)
    for tenant in range(3):
        scheduler.register_tenant(TenantId(tenant), TenantLimits(MAX_U32, most, most))
    for tokens, level, tenant in prompts:
        scheduler.place(RequestConfig(TenantId(tenant), tokens, 10), level)
    return scheduler


def test_what_a_lower_class_leaves_goes_to_a_prompt_that_was_begun() -> None:
    batch = placed([(100, 0, 0), (2, 1, 1)]).select_prefill_batch(50)
    assert {entry.slot_id: entry.tokens for entry in batch} == {0: 48, 1: 2}


@settings(max_examples=40, deadline=None)
@given(PROMPTS, st.integers(0, 200), st.sampled_from([7, MAX_U32]))
def test_no_token_of_a_budget_is_left_while_a_prompt_could_have_it(
    prompts: list[tuple[int, int, int]], budget: int, most: int
) -> None:
    scheduler = placed(prompts, most)
    batch = scheduler.select_prefill_batch(budget)
    given_out = {entry.slot_id: entry.tokens for entry in batch}
    assert len(given_out) == len(list(batch))  # one entry a slot
    wishes = [sum(n for n, _, tenant in prompts if tenant == own) for own in range(3)]
    assert sum(given_out.values()) == min(budget, sum(min(wish, most) for wish in wishes))
    for slot, tokens in given_out.items():
        assert 1 <= tokens <= prompts[slot][0]
        scheduler.advance_prefill(slot, tokens)
    scheduler.check_integrity()


@settings(max_examples=15, deadline=None)
@given(PROMPTS, st.integers(1, 12))
def test_every_class_that_waits_has_its_part(prompts: list[tuple[int, int, int]], budget: int) -> None:
    scheduler = placed(prompts)
    for slot, (tokens, _, _) in enumerate(prompts):
        scheduler.advance_prefill(slot, tokens)
    served: set[int] = set()
    for _ in range(10 * len(prompts)):
        batch = scheduler.select_decode_batch(budget)
        assert batch.kind is BatchKind.decode
        assert len({entry.slot_id for entry in batch}) == len(list(batch)) == min(budget, len(prompts))
        served |= {entry.slot_id for entry in batch}
    assert {prompts[slot][1] for slot in served} == {level for _, level, _ in prompts}

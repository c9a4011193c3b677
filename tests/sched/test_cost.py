"""What the model of a step's cost learns, and what it does not."""

from __future__ import annotations

import pytest

from zinc_rt.sched.cost import CostModel, CostPart
from zinc_rt.sched.request import BatchKind

TEXTS = [CostPart(BatchKind.decode, 1, 40)] * 8
PROMPT = [*TEXTS, CostPart(BatchKind.prefill, 16, 30)]


def taught(steps: int = 200) -> CostModel:
    cost = CostModel()
    for _ in range(steps):
        cost.learn(TEXTS, 20.0)
        cost.learn(PROMPT, 50.0)
    return cost


def test_it_learns_what_steps_take() -> None:
    cost = taught()
    assert cost.step_ms(TEXTS) == pytest.approx(20.0, rel=0.01)
    assert cost.step_ms(PROMPT) == pytest.approx(50.0, rel=0.01)


def test_a_step_that_was_held_up_counts_as_one_of_four_times_its_cost() -> None:
    for ms in (80.0, 8000.0):
        cost = taught()
        cost.learn(TEXTS, ms)
        assert cost.step_ms(TEXTS) < 20.0 + 80.0


def test_no_row_becomes_free_at_once() -> None:
    cost = taught()
    before = cost.row_ms(BatchKind.prefill, 30)
    cost.learn(PROMPT, 1.0)
    assert cost.row_ms(BatchKind.prefill, 30) >= before / 2

"""How long drafts are, from what steps took and how guesses went."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from zinc_rt.errors import UsageError
from zinc_rt.speculation import DraftOptions, SpecKind
from zinc_rt.speculation.pace import DraftRecord, Pace, StepCosts, Wish


def paced(step: float, row: float, *, returns: bool = False) -> Pace:
    """A pace that has seen steps of 1 to 32 rows."""
    pace = Pace(returns=returns)
    for n in range(1, 33):
        pace.costs.learn(n, step + row * n)
    return pace


def best(acceptances: list[float], step: float, row: float, guess: float, most: int, rows: int) -> list[int]:
    """The lengths that give the most tokens in a second, by trying all."""

    def rate(lengths: tuple[int, ...]) -> float:
        tokens = sum(sum(a**i for i in range(n + 1)) for a, n in zip(acceptances, lengths, strict=True))
        return tokens / (step + row * (len(lengths) + sum(lengths)) + guess * max(lengths))

    every = itertools.product(range(most + 1), repeat=len(acceptances))
    return list(max((n for n in every if sum(n) + len(n) <= rows), key=rate))


@pytest.mark.parametrize("row", [0.0, 0.1, 0.4, 3.0])
@pytest.mark.parametrize("acceptances", [[0.9], [0.2], [0.95, 0.5], [0.8, 0.3, 0.6]])
def test_the_lengths_are_the_best_ones(acceptances: list[float], row: float) -> None:
    pace = paced(5.0, row)
    wishes = [Wish(DraftRecord(a * 100, 100), 6) for a in acceptances]
    assert pace.lengths(wishes, len(wishes), 12, free=True) == best(acceptances, 5.0, row, 0.0, 6, 12)


def test_a_drafter_that_takes_time_guesses_less() -> None:
    pace, wishes = paced(5.0, 0.1), [Wish(DraftRecord(80, 100), 6)]
    free = pace.lengths(wishes, 1, 12, free=True)
    pace.learn_guesses(3, 6.0)
    assert pace.lengths(wishes, 1, 12, free=False) == best([0.8], 5.0, 0.1, 2.0, 6, 12) < free


def test_state_that_goes_back_makes_guesses_dearer() -> None:
    wishes = [Wish(DraftRecord(70, 100), 6)]
    assert paced(5.0, 0.6, returns=True).lengths(wishes, 1, 12, free=True) < paced(5.0, 0.6).lengths(
        wishes, 1, 12, free=True
    )


def test_guesses_that_fail_are_tried_less_and_less_and_come_back() -> None:
    pace = paced(5.0, 4.0)
    record = pace.record()
    drafted = []
    for step in range(3000):
        n = pace.lengths([Wish(record, 16)], 1, 64, free=True)[0]
        if n:
            drafted.append(step)
            pace.learn(record, n, 0)
    assert len(drafted) < 30
    assert drafted[-1] - drafted[-2] > 500
    for _ in range(2000):
        n = pace.lengths([Wish(record, 16)], 1, 64, free=True)[0]
        if n:
            pace.learn(record, n, n)
    assert record.acceptance > 0.9
    assert pace.lengths([Wish(record, 16)], 1, 64, free=True)[0] > 2


def test_steps_of_other_rows_are_between_those_that_were_seen() -> None:
    costs = StepCosts()
    assert not costs
    costs.learn(2, 10.0)
    assert costs.ms(1) == costs.ms(2) == 10.0
    assert 10.0 < costs.ms(8) < 15.0
    costs.learn(6, 30.0)
    assert costs.ms(4) == 20.0
    costs.learn(6, 1e9)  # something held it up
    assert costs.ms(6) < 60.0


def test_nothing_is_guessed_before_a_step_was_seen() -> None:
    assert Pace().lengths([Wish(Pace().record(), 8)], 1, 64, free=True) == [0]


def test_options() -> None:
    assert DraftOptions().kind is SpecKind.off
    assert DraftOptions(draft_model="model.gguf").kind is SpecKind.draft


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"spec": "heads"}, "known: off, ngram, draft, mtp"),
        ({"spec": "draft"}, "needs the file of a draft model"),
        ({"spec": "ngram", "draft_model": "model.gguf"}, "give spec 'draft'"),
        ({"spec": "ngram", "draft_max": 65}, "between 1 and 64"),
        ({"spec": "ngram", "draft_max": 4, "draft_min": 5}, "draft_min is 5"),
        ({"draft_model": ""}, "draft_model is empty"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        DraftOptions(**given)

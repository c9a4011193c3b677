"""The index of n-grams against a search of the whole text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.speculation import DraftText
from zinc_rt.speculation.ngram import NgramDrafter, NgramIndex

LEAST, MOST, PLACES = 2, 5, 8


def searched(tokens: list[int], most: int) -> list[int]:
    """What follows the longest of the last few places that end as the text does."""
    places = [at for at in range(len(tokens) - 1, LEAST - 1, -1) if tokens[at - LEAST : at] == tokens[-LEAST:]]

    def same(at: int) -> int:
        return max(n for n in range(LEAST, MOST + 1) if n <= at and tokens[at - n : at] == tokens[len(tokens) - n :])

    if not places:
        return []
    best = max(places[:PLACES], key=lambda at: (same(at), at))
    whole = list(tokens)
    for _ in range(most):
        whole.append(whole[best + len(whole) - len(tokens)])
    return whole[len(tokens) :]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=60), st.lists(st.integers(1, 9), max_size=20), st.integers(1, 12))
def test_guesses_are_those_of_a_search(tokens: list[int], pieces: list[int], most: int) -> None:
    index, n = NgramIndex(LEAST, MOST), 0
    for piece in [*pieces, len(tokens)]:
        n = min(n + piece, len(tokens))
        assert index.guess(tokens[:n], most) == searched(tokens[:n], most)


def test_each_text_has_an_index_until_it_is_forgotten() -> None:
    drafter, sampler = NgramDrafter(), Sampler(SamplingParams(), 100)

    def text(number: int, tokens: list[int]) -> DraftText:
        return DraftText(number, 0, tokens, sampler, 0, 4)

    one, other = [1, 2, 3, 4, 5, 6, 1, 2, 3], [1, 2, 3, 9, 9, 9, 1, 2, 3]
    assert drafter.draft([text(1, one), text(2, other)]) == [[4, 5, 6, 1], [9, 9, 9, 1]]
    drafter.forget(1)
    assert drafter.draft([text(1, other), text(2, [*other, 9])]) == [[9, 9, 9, 1], [9, 9, 1, 2]]
    assert drafter.draft([text(3, [1, 2])]) == [[]]

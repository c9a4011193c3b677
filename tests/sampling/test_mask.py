"""Token masks: which tokens they leave, where they stand among the stages, and steps whose rows have different ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.errors import UsageError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import HostSampled, SamplingRequest
from zinc_rt.sampling.sampler import DegenerateLogits, Sampler


def mask_of(allowed: set[int], n: int) -> np.ndarray:
    """Written bit by bit, as the format is described."""
    words = [0] * -(-n // 32)
    for token in allowed:
        words[token // 32] |= 1 << (token % 32)
    return np.array(words, np.uint32)


@given(st.integers(1, 100), st.data())
@settings(max_examples=60, deadline=None)
def test_a_masked_token_counts_as_minus_infinity(n: int, data: st.DataObject) -> None:
    """The same as a row whose logits are -inf there."""
    allowed = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    logits = np.float32(data.draw(st.lists(st.sampled_from([-3.0, 0.0, 1.5, 2.0, math.nan]), min_size=n, max_size=n)))
    logits[min(allowed)] = 0.5
    how = data.draw(
        st.fixed_dictionaries(
            {
                "temperature": st.sampled_from([0, 1.0]),
                "top_k": st.sampled_from([0, 3]),
                "top_p": st.sampled_from([1.0, 0.7]),
                "logit_bias": st.dictionaries(st.integers(0, n - 1), st.sampled_from([2.0, math.inf]), max_size=3),
                "repetition_penalty": st.sampled_from([1.0, 1.5]),
            }
        )
    )
    params = SamplingParams(**how, min_p=0.0, seed=3)
    cut = np.where(np.isin(np.arange(n), list(allowed)), logits, np.float32(-np.inf))
    history = [0, n - 1]
    want = Sampler(params, n).sample(cut, history)
    sampler = Sampler(params, n)
    assert sampler.sample(logits, history, mask=mask_of(allowed, n)) == want
    assert want.token_id in allowed
    assert sampler.n_nan == int(np.isnan(logits).sum())


def test_a_bias_does_not_undo_a_mask() -> None:
    sampler = Sampler(SamplingParams(temperature=0, logit_bias={1: math.inf}), 3)
    assert sampler.sample(np.float32([1, 2, 3]), [], mask=mask_of({0}, 3)).token_id == 0


def test_log_probabilities_are_those_without_a_mask() -> None:
    logits = np.float32([1, 2, 3])
    free = Sampler(SamplingParams(temperature=0, logprobs=2), 3).sample(logits, [])
    bound = Sampler(SamplingParams(temperature=0, logprobs=2), 3).sample(logits, [], mask=mask_of({0}, 3))
    assert bound.token_id == 0
    assert bound.top_logprobs == free.top_logprobs
    assert bound.logprob == pytest.approx(free.logprob - 2)


def test_the_likeliest_token_is_taken_only_where_it_may_be() -> None:
    logits = np.float32([1, 2, 3])
    sampler = Sampler(SamplingParams(temperature=0), 3)
    assert sampler.sample(logits, [], 2, mask_of({0, 2}, 3)).token_id == 2
    assert sampler.sample(logits, [], 2, mask_of({0, 1}, 3)).token_id == 1


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.zeros(1, np.uint32), "1 words; 40 tokens need 2"),
        (np.zeros(2, np.int32), "contiguous array of uint32"),
        (np.zeros((2, 2), np.uint32), "contiguous array of uint32"),
        (np.zeros(4, np.uint32)[::2], "contiguous array of uint32"),
        ([1, 2], "contiguous array of uint32"),
    ],
)
def test_masks_of_another_form_are_refused(mask: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SamplingRequest(Sampler(SamplingParams(), 40), [], mask)  # type: ignore[arg-type]


def test_a_row_without_tokens_fails_alone() -> None:
    logits = np.float32([[1, 2, 3], [1, 2, 3], [4, 2, 3]])
    masks = [None, mask_of(set(), 3), mask_of({1, 2}, 3)]
    requests = [SamplingRequest(Sampler(SamplingParams(temperature=0), 3), [], mask) for mask in masks]
    step = HostSampled(requests, logits, np.int32([2, 2, 0]))
    with pytest.raises(DegenerateLogits, match="NaN, -inf or masked; check the mask, logit_bias"):
        step.tokens()
    assert [step.token(row).token_id for row in (0, 2)] == [2, 2]
    assert [request.sampler.step for request in requests] == [1, 0, 1]
    with pytest.raises(DegenerateLogits):
        step.token(1)


def test_tokens_are_chosen_once() -> None:
    logits = np.float32(np.random.default_rng(1).standard_normal((4, 50)))
    requests = [SamplingRequest(Sampler(SamplingParams(seed=i, top_k=0), 50), []) for i in range(4)]
    step = HostSampled(requests, logits, logits.argmax(axis=1).astype(np.int32))
    first = step.token(2)
    together = step.tokens()
    assert together[2] is first
    assert [step.token(row) for row in range(4)] == together
    assert {request.sampler.step for request in requests} == {1}

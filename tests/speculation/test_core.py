"""Texts are the same with and without guesses, whichever of them are right, on an engine that computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.fake_engine import N_VOCAB, NAN, STOP, FakeEngine
from tests.speculation.oracle import Oracle, lengths
from zinc_rt.engine.batch import SequenceChunk
from zinc_rt.errors import BackendError, UsageError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import HostSampled, SamplingRequest
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import Event, Failed, Fault, Finished, FinishReason, Grammar, Submit, Token
from zinc_rt.scheduler.options import CoreVocabulary
from zinc_rt.speculation import Drafter
from zinc_rt.speculation.ngram import NgramDrafter
from zinc_rt.speculation.pace import Pace

VOCABULARY = CoreVocabulary(N_VOCAB, frozenset({STOP}))
Text = tuple[list[tuple[int, float | None, object]], object]


def requests(limits: Sequence[int | None], params: SamplingParams) -> list[Submit]:
    """Prompts that begin alike, and two that are the same with the same seed."""
    made = []
    for i, limit in enumerate(limits):
        prompt = tuple([3] * 14 + [4, 5, 6, 7, 3, 4, 5, 6] + [8 + i // 2] * (i // 2))
        made.append(Submit(f"r{i}", prompt, replace(params, max_tokens=limit), seed=i // 2))
    return made


def answers(engine: FakeEngine, asked: Sequence[Submit], drafter: Drafter | None = None) -> dict[str, Text]:
    """What came of each request; the books are checked after each turn."""
    core = EngineCore(engine, VOCABULARY, clock=engine.clock, drafter=drafter)  # type: ignore[arg-type]
    for request in asked:
        core.submit(request)
    found: dict[str, Text] = {request.id: ([], None) for request in asked}
    while not core.idle:
        for event in core.turn().events:
            _note(event, found)
        core.check_integrity()
    return found


def _note(event: Event, found: dict[str, Text]) -> None:
    if isinstance(event, Token):
        found[event.id][0].append((event.token_id, event.logprob, event.top_logprobs))
    elif isinstance(event, Finished):
        found[event.id] = found[event.id][0], (event.reason, event.token_id, event.usage.completion_tokens)
    elif isinstance(event, Failed):
        found[event.id] = found[event.id][0], (event.error, event.message)


def whole(asked: Sequence[Submit], found: dict[str, Text]) -> list[list[int]]:
    """Prompts with their answers, and the stop token that ended them."""
    ends = [found[r.id][1] for r in asked]
    stops = [[end[1]] if isinstance(end, tuple) and isinstance(end[1], int) else [] for end in ends]
    return [[*r.prompt, *(t for t, _, _ in found[r.id][0]), *stop] for r, stop in zip(asked, stops, strict=True)]


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    repeat_last_n=st.sampled_from([-1, 0, 3, 64]),
    logit_bias=st.sampled_from([{}, {2: 1.5, NAN: 200.0}, {5: -1.0}]),
    logprobs=st.sampled_from([None, 0, 3]),
    ignore_eos=st.booleans(),
)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 9, 40, 61]), min_size=1, max_size=6),
    PARAMS,
    st.lists(st.booleans(), min_size=1, max_size=9),
    st.lists(st.integers(0, 9), min_size=1, max_size=7),
    st.tuples(st.integers(1, 4), st.integers(1, 24), st.integers(0, 12)),
    st.tuples(st.booleans(), st.booleans()),
)
def test_texts_do_not_depend_on_guesses(
    limits: list[int],
    params: SamplingParams,
    wrong: list[bool],
    lengths_: list[int],
    sizes: tuple[int, int, int],
    kinds: tuple[bool, bool],
) -> None:
    """Tokens, log-probabilities, how texts end and what failures say: with all sizes of steps, few pages, recurrent
    state, and any pattern of right and wrong guesses.
    """
    n_slots, n_batch, spare = sizes
    free, recurrent = kinds
    make = lambda: FakeEngine(n_slots, n_batch, 96, 6 + spare, recurrent=recurrent)  # noqa: E731
    asked = requests(limits, params)
    want = answers(make(), asked)
    drafter = Oracle(whole(asked, want), lambda i: wrong[i % len(wrong)], N_VOCAB, free=free)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pace, "lengths", lengths(lengths_))
        assert answers(make(), asked, drafter) == want


def test_a_draft_is_cut_where_its_pages_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two texts have all pages, three each: nobody gives one up for a guess, and none behind them is lost."""
    params = SamplingParams(temperature=1.0, max_tokens=30, ignore_eos=True)
    asked = [Submit(f"r{i}", (i,) * 22, params, seed=i) for i in (1, 2)]
    want = answers(FakeEngine(2, 24, 96, 6), asked)
    monkeypatch.setattr(Pace, "lengths", lengths([9]))
    engine, ends = FakeEngine(2, 24, 96, 6), []
    step = engine.step

    def watched(rows: Sequence[SequenceChunk], sampling: Sequence[SamplingRequest] = ()) -> HostSampled:
        ends.extend(part.start + len(part.tokens) for part in rows if part.n_draft)
        return step(rows, sampling)

    monkeypatch.setattr(engine, "step", watched)
    assert answers(engine, asked, Oracle(whole(asked, want), lambda i: False, N_VOCAB, free=True)) == want
    assert ends[:6] == [33, 32, 43, 42, 48, 48]


def test_right_guesses_save_steps() -> None:
    asked = requests([60, None], SamplingParams(temperature=1.0, ignore_eos=True))
    plain, fast = FakeEngine(), FakeEngine(text_ms=0.1, prompt_ms=0.1)
    want = answers(plain, asked)
    assert answers(fast, asked, Oracle(whole(asked, want), lambda i: False, N_VOCAB, free=True)) == want
    assert fast.n_steps < plain.n_steps / 4


def test_wrong_guesses_are_given_up() -> None:
    asked = requests([200], SamplingParams(temperature=1.0, ignore_eos=True))
    plain, slow = FakeEngine(), FakeEngine(text_ms=2.0, prompt_ms=2.0)
    want = answers(plain, asked)
    assert answers(slow, asked, Oracle(whole(asked, want), lambda i: True, N_VOCAB, free=True)) == want
    assert sum(slow.rows) < sum(plain.rows) + 45


def test_a_step_that_fails_leaves_the_text_as_it_was() -> None:
    asked = requests([40], SamplingParams(temperature=1.0, ignore_eos=True))
    want = answers(FakeEngine(), asked)
    for recurrent in (False, True):
        engine = FakeEngine(recurrent=recurrent)
        drafter = Oracle(whole(asked, want), lambda i: i % 3 == 0, N_VOCAB, free=True)
        core = EngineCore(engine, VOCABULARY, clock=engine.clock, drafter=drafter)  # type: ignore[arg-type]
        core.submit(asked[0])
        found: dict[str, Text] = {"r0": ([], None)}
        turn = 0
        while not core.idle:
            turn += 1
            if turn % 4 == 0:
                engine.lose()
                with pytest.raises(BackendError, match="lost"):
                    core.turn()
            for event in core.turn().events:
                _note(event, found)
            core.check_integrity()
        assert found == want


class Even:
    """A grammar: from its beginning on even tokens alone, four of them, the last of which may be too much work."""

    def __init__(self, after: int) -> None:
        self._after, self._n = after, 0
        self.is_free = True

    @property
    def is_done(self) -> bool:
        return self._n == 4

    def fill_mask(self, out: npt.NDArray[np.uint32]) -> None:
        assert not self.is_free
        out.fill(0x55555555)

    def consume(self, token_id: int) -> bool:
        if self.is_free:
            self.is_free = token_id != self._after
            return True
        self._n += 1
        if self._n == 4 and token_id == 6:
            raise UsageError("too much work")
        return token_id % 2 == 0

    def copy(self) -> Even:
        return copy(self)


def test_grammars() -> None:
    """Guesses go into a grammar with its masks, and end where it does; what fails without them fails with them."""
    params = SamplingParams(temperature=1.0, max_tokens=80, ignore_eos=True)
    vocabulary = replace(VOCABULARY, grammar=lambda grammar: Even(grammar.after[0]))
    asked = [Submit(f"r{i}", (3, 4, i), params, i, grammar=Grammar("even", (11,))) for i in range(24)]
    texts: list[dict[str, Text]] = []
    for drafter in (None, lambda: Oracle(whole(asked, texts[0]), lambda i: i % 7 == 0, N_VOCAB, free=True)):
        engine = FakeEngine()
        made = None if drafter is None else drafter()
        core = EngineCore(engine, vocabulary, clock=engine.clock, drafter=made)  # type: ignore[arg-type]
        for request in asked:
            core.submit(request)
        texts.append({request.id: ([], None) for request in asked})
        while not core.idle:
            for event in core.turn().events:
                _note(event, texts[-1])
        assert made is None or core.status.accepted_tokens
    assert texts[0] == texts[1]
    ends = [end for _, end in texts[0].values()]
    assert (Fault.engine_error, "too much work") in ends
    assert FinishReason.stop in [end[0] for end in ends if isinstance(end, tuple)]


def test_counts() -> None:
    engine = FakeEngine(text_ms=0.1, prompt_ms=0.1)
    core = EngineCore(engine, VOCABULARY, clock=engine.clock, drafter=NgramDrafter())  # type: ignore[arg-type]
    params = SamplingParams(temperature=0.0, max_tokens=60, logit_bias={9: 1000.0}, ignore_eos=True)
    core.submit(Submit("a", (1, 2, 3), params, 1))
    n = 0
    while not core.idle:
        n += sum(isinstance(event, Token) for event in core.turn().events)
    status = core.status
    assert n == 60
    assert status.steps + status.accepted_tokens == 60
    assert 40 < status.accepted_tokens <= status.drafted_tokens < 60

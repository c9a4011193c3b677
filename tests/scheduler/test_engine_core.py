"""Properties of the loop of steps, on an engine that computes nothing and a clock that its steps move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.fake_engine import N_VOCAB, NAN, STOP, Clock, FakeEngine
from zinc_rt.errors import BackendError, UsageError
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import (
    Admitted,
    CancelReason,
    Event,
    Failed,
    Fault,
    Finished,
    FinishReason,
    Grammar,
    PromptLogprobs,
    QoS,
    StepReport,
    StepTimes,
    Submit,
    TenantShare,
    Token,
)
from zinc_rt.scheduler.options import CoreOptions, CoreVocabulary

VOCABULARY = CoreVocabulary(N_VOCAB, frozenset({STOP}))
ENDLESS = SamplingParams(temperature=1.0, max_tokens=None, ignore_eos=True)


def core_on(engine: FakeEngine, options: CoreOptions | None = None) -> EngineCore:
    return EngineCore(engine, VOCABULARY, options, clock=engine.clock)  # type: ignore[arg-type]


def asked(name: str, n_prompt: int = 5, n: int | None = 10, tenant: str = "a", qos: QoS = QoS.standard) -> Submit:
    """A request whose prompt begins as all others do, and differs then."""
    prompt = ([3] * 20 + [7, *map(ord, name)] * 40)[20 - min(20, n_prompt // 2) :][:n_prompt]
    params = SamplingParams(temperature=1.0, max_tokens=n, ignore_eos=n is None)
    seed = sum(map(ord, name)) + n_prompt
    return Submit(name, tuple(t % STOP for t in prompt if t != NAN), params, seed, tenant=tenant, qos=qos)


def turned(core: EngineCore, most: int = 100_000) -> list[StepReport]:
    """The reports until nothing is left to do."""
    reports = []
    while not core.idle:
        reports.append(core.turn())
        core.check_integrity()
        assert len(reports) < most
    return reports


def events(reports: Sequence[StepReport]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for report in reports:
        for event in report.events:
            found[event.id].append(event)
    return found


def tokens(found: Sequence[Event]) -> list[int]:
    return [event.token_id for event in found if isinstance(event, Token)]


def queue_depth(core: EngineCore, tenant: str) -> int:
    return sum(request.tenant.name == tenant for request in core.scheduler.waiting)


def seconds_of(core: EngineCore) -> dict[str, float]:
    """Seconds of the engine that each tenant has had."""
    return {tenant.name: tenant.ms / 1000 for tenant in core.scheduler.tenants.all()}


def alone(request: Submit, **sizes: int) -> list[Event]:
    core = core_on(FakeEngine(**sizes))
    core.submit(request)
    return events(turned(core))[request.id]


def same(one: Sequence[Event], other: Sequence[Event]) -> None:
    assert tokens(one) == tokens(other)
    assert isinstance(one[-1], Finished)
    assert isinstance(other[-1], Finished)
    assert (one[-1].reason, one[-1].token_id) == (other[-1].reason, other[-1].token_id)


REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 60),  # tokens of the prompt
        st.sampled_from([1, 3, 17, 40, None]),  # max_tokens
        st.sampled_from("abc"),  # tenant
        st.sampled_from(list(QoS)),
        st.integers(0, 12),  # the turn of its arrival
        st.sampled_from([None, None, None, 0, 4]),  # turns until it is cancelled
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=10, deadline=None)
@given(REQUESTS, st.integers(1, 5), st.integers(1, 40), st.integers(0, 20))
def test_every_request_ends_as_it_would_alone(
    drawn: list[tuple[int, int | None, str, QoS, int, int | None]], n_slots: int, n_batch: int, spare: int
) -> None:
    """Whatever arrives when, with however few pages: the books add up after each turn, each turn makes progress (or
    raises), and each request gets the tokens that it would get alone.
    """
    n_ctx = 96
    engine = FakeEngine(n_slots, n_batch, n_ctx, n_pages=n_ctx // 16 + spare % (n_slots * 6))
    core = core_on(engine)
    plan = [
        (asked(f"{i}", n, limit, tenant, qos), at, leave) for i, (n, limit, tenant, qos, at, leave) in enumerate(drawn)
    ]
    reports: list[StepReport] = []
    for turn in range(5000):
        for request, at, leave in plan:
            if turn == at:
                core.submit(request)
            if leave is not None and turn == at + leave:
                core.cancel(request.id, CancelReason.deadline)
        if core.idle and turn > 16:
            break
        before = core.status
        report = core.turn()
        core.check_integrity()
        reports.append(report)
        if before.queued + before.prefilling + before.decoding:
            after = core.status
            assert report.prefill_rows + report.decode_rows or report.events or after.preemptions > before.preemptions
    assert core.idle
    found = events(reports)
    assert engine.cache.stats().used <= 6 * n_slots
    for request, _, leave in plan:
        got, whole = found[request.id], alone(request, n_slots=1, n_ctx=n_ctx)
        assert sum(isinstance(event, Finished | Failed) for event in got) == 1
        assert sum(isinstance(event, Admitted) for event in got) <= 1
        assert not isinstance(got[-1], Failed)
        last = got[-1]
        assert isinstance(last, Finished)
        if leave is not None and last.reason is FinishReason.cancelled:
            assert tokens(got) == tokens(whole)[: len(tokens(got))]
            assert last.cancelled is CancelReason.deadline
        else:
            same(got, whole)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 50), st.integers(0, 39), st.integers(0, 2**32))
def test_a_resumed_request_goes_on_with_the_tokens_that_would_have_come(n: int, cut: int, seed: int) -> None:
    request = replace(asked("r", n, 40), seed=seed, params=replace(ENDLESS, max_tokens=40, frequency_penalty=0.3))
    whole = tokens(alone(request))
    again = alone(replace(request, resume=tuple(whole[:cut])))
    assert tokens(again) == whole[cut:]
    last = again[-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.usage.completion_tokens) == (FinishReason.length, 40)


def test_a_request_that_was_at_its_end_when_it_is_resumed_ends() -> None:
    (only,) = alone(replace(asked("r", 5, 3), resume=(1, 2, 3)))
    assert isinstance(only, Finished)
    assert only.reason is FinishReason.length


def test_few_pages_mean_preemptions_and_the_same_tokens() -> None:
    requests = [asked(f"{i}", 3 + i, None, "ab"[i % 2]) for i in range(8)]
    engine = FakeEngine(n_slots=6, n_batch=32, n_ctx=112, n_pages=8)
    core = core_on(engine)
    for request in requests:
        core.submit(request)
    found = events(turned(core))
    assert core.status.preemptions > 5
    counted = 0
    for request in requests:
        same(found[request.id], alone(request, n_slots=1, n_ctx=112))
        last = found[request.id][-1]
        assert isinstance(last, Finished)
        counted += last.usage.preemptions
    assert counted == core.status.preemptions


def test_the_lowest_class_is_preempted() -> None:
    core = core_on(FakeEngine(n_slots=3, n_batch=32, n_ctx=112, n_pages=10))
    for qos in QoS:
        core.submit(asked(qos.value, 20, None, qos=qos))
    found = events(turned(core))
    counts = {name: got[-1].usage.preemptions for name, got in found.items() if isinstance(got[-1], Finished)}
    assert counts["interactive"] == 0
    assert counts["batch"] > 0


def test_a_request_that_was_preempted_twice_generates_a_page_before_the_next_time() -> None:
    """Others of a higher class come all the time, and need the pages that it has."""
    core = core_on(FakeEngine(n_slots=4, n_batch=32, n_ctx=320, n_pages=20))
    core.submit(asked("low", 18, None, qos=QoS.batch))
    (low,) = core.scheduler.requests.values()
    at, n, made = [], 0, 0
    while "low" in core.scheduler.requests and made < 30:
        while core.status.queued < 4:
            made += 1
            core.submit(replace(asked(f"i{made}", 5, 90), params=replace(ENDLESS, max_tokens=90)))
        before = low.preemptions
        n += sum(isinstance(e, Token) and e.id == "low" for e in core.turn().events)
        at += [n] * (low.preemptions - before)
    assert len(at) > 2
    assert min(b - a for a, b in pairwise(at[1:])) >= 16


@pytest.mark.parametrize(("weight", "part"), [pytest.param(1.0, 0.5, marks=pytest.mark.slow), (3.0, 0.75)])
def test_two_tenants_with_work_share_the_engine_by_their_weights(weight: float, part: float) -> None:
    """64 requests in the queue against 8, long ones against short ones."""
    engine = FakeEngine(n_slots=8, n_batch=64, n_ctx=256)
    core = core_on(engine)
    core.share(TenantShare("a", weight=weight))
    made = 0
    while engine.clock.now < 104:
        while queue_depth(core, "a") < 8:
            made += 1
            core.submit(asked(f"a{made}", 40, 12, "a"))
        while queue_depth(core, "b") < 64:
            made += 1
            core.submit(asked(f"b{made}", 90, 40, "b"))
        core.turn()
    had = seconds_of(core)
    assert had["a"] / (had["a"] + had["b"]) == pytest.approx(part, abs=0.03)
    assert had["a"] + had["b"] == pytest.approx(sum_of_steps(engine), rel=1e-9)


def sum_of_steps(engine: FakeEngine) -> float:
    return engine.clock.now - 100.0


def test_a_tenant_that_was_idle_has_no_credit() -> None:
    engine = FakeEngine(n_slots=4, n_batch=64)
    core = core_on(engine)
    for i in range(400):
        core.submit(asked(f"a{i}", 40, 20, "a"))
    while not core.idle and engine.clock.now < 102:
        core.turn()
    before = seconds_of(core)["a"]
    for i in range(400):
        core.submit(asked(f"b{i}", 40, 20, "b"))
    while not core.idle and engine.clock.now < 104:
        core.turn()
    had = seconds_of(core)
    assert had["a"] - before > 0.5  # half of two seconds and what ran already, not nothing


def test_a_tenant_that_comes_back_does_not_wait_for_another_ones_answers() -> None:
    """All sequences generate for one tenant, for long; the other one's part of them is free in the next turn."""
    core = core_on(FakeEngine(n_slots=4, n_batch=32, n_ctx=256))
    sixty = replace(ENDLESS, max_tokens=60)
    flood = [replace(asked(f"a{i}", 20, tenant="a"), params=sixty) for i in range(8)]
    for request in flood:
        core.submit(request)
    reports = [core.turn() for _ in range(10)]
    assert core.status.decoding == 4
    quiet = [replace(asked(f"b{i}", 20, tenant="b"), params=sixty) for i in range(3)]
    for request in quiet:
        core.submit(request)
    later = [core.turn() for _ in range(10)]
    assert [e.id for e in later[0].events if isinstance(e, Admitted)] == ["b0"]
    assert [e.id for report in later for e in report.events if isinstance(e, Admitted)] == ["b0", "b1"]  # half of four
    assert core.status.preemptions == 2
    reports += later
    reports += turned(core)
    assert core.status.preemptions < 20
    found = events(reports)
    for request in flood + quiet:
        same(found[request.id], alone(request))


CLASSES_SOON = ((1, 0), (2, 1), (4, 3), (7, 2), (12, 4))
"""The other numbers of slots and of requests are slow tests."""


@pytest.mark.parametrize(
    ("n_slots", "n_before"),
    [
        pytest.param(n, before, marks=() if (n, before) in CLASSES_SOON else pytest.mark.slow)
        for n in range(1, 13)
        for before in range(5)
    ],
)
def test_a_higher_class_does_not_wait_for_a_lower_ones_answers(n_slots: int, n_before: int) -> None:
    """However many were admitted before, and whoever's turn it is."""
    core = core_on(FakeEngine(n_slots=n_slots, n_batch=32, n_ctx=256))
    for i in range(n_before):
        core.submit(asked(f"before{i}", 5, 1))
        turned(core)
    for i in range(n_slots + 2):
        core.submit(asked(f"low{i}", 20, 100, qos=QoS.batch))
    for _ in range(5):
        core.turn()
    core.submit(asked("first", 20, 5, qos=QoS.interactive))
    assert [e.id for e in core.turn().events if isinstance(e, Admitted)] == ["first"]
    turned(core)


def test_lower_classes_do_not_starve() -> None:
    engine = FakeEngine(n_slots=2, n_batch=16)
    core = core_on(engine)
    core.submit(asked("low", 10, 5, qos=QoS.batch))
    made, done = 0, False
    for _ in range(2000):
        while core.status.queued < 6:
            made += 1
            core.submit(asked(f"i{made}", 10, 5, qos=QoS.interactive))
        done = done or any(isinstance(e, Finished) and e.id == "low" for e in core.turn().events)
    assert done


def test_classes_come_in_order() -> None:
    core = core_on(FakeEngine(n_slots=1))
    core.submit(asked("first", 5, 2))
    core.turn()
    for qos in reversed(QoS):
        core.submit(asked(qos.value, 5, 2, qos=qos))
    order = [e.id for report in turned(core) for e in report.events if isinstance(e, Admitted)]
    assert order == ["interactive", "standard", "batch"]


def test_a_long_prompt_does_not_hold_up_texts() -> None:
    """A step with a prompt's rows takes at most the budget, once the cost of rows is known."""
    engine = FakeEngine(n_slots=4, n_batch=512, n_ctx=4096, prompt_ms=1.0)
    core = core_on(engine, CoreOptions(max_step_ms=60))
    for i in range(3):
        core.submit(asked(f"{i}", 5, None))
    core.submit(replace(asked("warm", 5, 1), prompt=tuple(i % 19 for i in range(300))))
    while core.status.queued or core.status.prefilling:
        core.turn()
    core.submit(replace(asked("long", 5, 1), prompt=tuple(i * i % 23 % 21 for i in range(2000))))
    longest, steps, done = 0.0, 0, False
    while not done:
        report = core.turn()
        assert report.decode_rows == 3
        longest, steps = max(longest, report.seconds), steps + 1
        done = any(isinstance(e, Finished) and e.id == "long" for e in report.events)
    assert longest < 0.066
    assert steps < 60


def test_rows_of_prompts_beside_texts_double_at_the_most() -> None:
    engine = FakeEngine(n_batch=256, prompt_ms=0.001)
    core = core_on(engine)
    core.submit(asked("text", n=None))
    core.turn()
    core.submit(asked("prompt", n_prompt=200, n=1))
    rows = [report.prefill_rows for report in (core.turn() for _ in range(3))]
    assert rows[0] == 2 * PAGE_TOKENS
    assert sum(rows) >= 200 - 2 * PAGE_TOKENS
    assert all(after <= 2 * before for before, after in pairwise(rows))


def test_many_prompts_beside_few_texts_take_longer_steps() -> None:
    """The steps of one prompt beside a text, and those of five, where a row takes 1 ms."""

    def longest(n_prompts: int) -> float:
        core = core_on(FakeEngine(n_slots=6, n_batch=512, n_ctx=1024, prompt_ms=1.0), CoreOptions(max_step_ms=60))
        core.submit(asked("text", 5, None))
        core.submit(replace(asked("warm", 5, 1), prompt=tuple(i % 19 for i in range(300))))
        while core.status.queued or core.status.prefilling:
            core.turn()
        for i in range(n_prompts):
            core.submit(asked(f"long{i}", 200, 1))
        found = [core.turn().seconds]
        while core.status.prefilling > 2:
            found.append(core.turn().seconds)
        return 1000 * max(found)

    assert longest(1) <= 66
    assert 75 < longest(5) <= 2 * 60


def test_texts_that_take_too_long_by_themselves_leave_time_to_prompts() -> None:
    """Three texts take 105 of 60 ms. Prompts get half of that again, not a row a step for as long as texts run."""
    core = core_on(FakeEngine(n_slots=6, n_batch=512, n_ctx=1024, step_ms=15.0, text_ms=30.0, prompt_ms=1.0))
    for i in range(3):
        core.submit(asked(f"{i}", 5, None))
    core.submit(replace(asked("warm", 5, 1), prompt=tuple(i % 19 for i in range(300))))
    while core.status.queued or core.status.prefilling:
        core.turn()
    core.submit(asked("long", 200, 1))
    reports = [core.turn()]
    while core.status.prefilling:
        reports.append(core.turn())
    assert len(reports) <= 6
    assert all(1000 * report.seconds < 1.6 * 105 for report in reports)


def steps_of_a_prompt(tenant: str, row_ms: float) -> list[int]:
    """Rows of each step of a prompt of 30 tokens that comes while three texts of tenant a are generated."""
    core = core_on(FakeEngine(n_slots=4, n_batch=512, n_ctx=1024, prompt_ms=row_ms), CoreOptions(max_step_ms=60))
    for i in range(3):
        core.submit(asked(f"{i}", 5, None))
    core.submit(replace(asked("warm", 5, 1, tenant), prompt=tuple(i % 19 for i in range(300))))
    while core.status.queued or core.status.prefilling:
        core.turn()
    core.submit(replace(asked("asked", 5, 1, tenant), prompt=tuple((i * i + 7) % 23 % 21 for i in range(30))))
    rows = [core.turn().prefill_rows]
    while core.status.prefilling:
        rows.append(core.turn().prefill_rows)
    return rows


def test_a_short_prompt_of_a_tenant_with_nothing_else_in_the_step_is_done_in_one() -> None:
    """Three texts take 8 of 60 ms: 26 rows of 2 ms fit. All 30 take 68 ms, which is within the excess; of 3 ms not."""
    assert len(steps_of_a_prompt("a", 2.0)) == 2
    assert steps_of_a_prompt("b", 2.0) == [30]
    assert len(steps_of_a_prompt("b", 3.0)) == 2


def test_a_page_of_rows_that_takes_far_too_long_is_cut() -> None:
    engine = FakeEngine(n_slots=2, n_batch=64, n_ctx=512, prompt_ms=10.0)
    core = core_on(engine, CoreOptions(max_step_ms=60))
    core.submit(asked("text", 5, None))
    core.submit(replace(asked("warm", 5, 1), prompt=tuple(i % 19 for i in range(100))))
    while core.status.queued or core.status.prefilling:
        core.turn()
    core.submit(replace(asked("long", 5, 1), prompt=tuple(i * i % 23 % 21 for i in range(100))))
    reports = [core.turn()]
    while core.status.prefilling:
        reports.append(core.turn())
    assert all(1000 * report.seconds < 1.3 * 60 for report in reports)
    assert len(reports) <= 20


def test_an_idle_core_gets_its_memory_part_by_part() -> None:
    engine = FakeEngine()
    core = core_on(engine)
    assert [core.rest() for _ in range(5)] == [True, True, True, False, False]
    assert engine.untouched == 0


def test_prompts_alone_take_larger_steps() -> None:
    engine = FakeEngine(n_slots=1, n_batch=512, n_ctx=4096)
    core = core_on(engine)
    core.submit(replace(asked("long", 5, 1), prompt=tuple(i * i % 23 % 21 for i in range(3000))))
    turned(core)
    assert max(engine.rows) == 512


def test_compiling_is_no_time_of_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that the first step lacks keep it waiting; the speed of the prompt is that of the next one like it."""
    engine = FakeEngine(step_ms=5.0, prompt_ms=0.0)
    compiled = [7.0]
    monkeypatch.setattr("zinc_rt.scheduler.request.seconds_compiled", lambda: compiled[0])
    step = engine.step

    def first_step(*args: object, **more: object) -> object:
        if engine.n_steps == 0:
            compiled[0] += 3.0
            engine.clock.now += 3.0
        return step(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "step", first_step)
    core = core_on(engine)
    core.submit(asked("x", n=3))
    found = events(turned(core))["x"]
    usage = found[-1].usage  # type: ignore[union-attr]
    assert engine.clock.now > 103
    assert 0.004 < usage.prefill_seconds < 0.1


def test_the_first_step_of_all_is_short() -> None:
    """Nothing is known of the cost of rows then."""
    engine = FakeEngine(n_slots=1, n_batch=512, n_ctx=4096)
    core = core_on(engine, CoreOptions(max_prefill_ms=1e6))
    core.submit(replace(asked("long", 5, 1), prompt=tuple(i * i % 23 % 21 for i in range(1024))))
    turned(core)
    assert engine.rows[:3] == [4 * PAGE_TOKENS, 512, 1024 - 512 - 4 * PAGE_TOKENS]


def test_a_deadline_ends_a_request_wherever_it_is() -> None:
    core = core_on(engine := FakeEngine(n_slots=1))
    core.submit(replace(asked("running", 5, None), seconds=0.2))
    core.submit(replace(asked("waiting", 5, None), seconds=0.1))
    found = events(turned(core))
    for name in ("running", "waiting"):
        last = found[name][-1]
        assert isinstance(last, Finished)
        assert (last.reason, last.cancelled) == (FinishReason.cancelled, CancelReason.deadline)
    assert tokens(found["running"])
    assert not tokens(found["waiting"])
    assert engine.clock.now - 100.0 < 0.22


def test_a_cancelled_request_is_gone_within_a_turn() -> None:
    core = core_on(FakeEngine(n_slots=1))
    core.submit(asked("one", 5, None))
    core.submit(asked("two", 5, None))
    core.turn()
    core.cancel("one")
    core.cancel("unknown")
    report = core.turn()
    assert [type(e) for e in report.events if e.id == "one"] == [Finished]
    assert [e.id for e in report.events if isinstance(e, Admitted)] == ["two"]


def test_a_row_without_a_token_fails_its_request_alone() -> None:
    core = core_on(FakeEngine(n_slots=4))
    requests = [asked("good", 9, 20), replace(asked("bad", 9, 20), prompt=(1, 2, NAN)), asked("other", 9, 20)]
    for request in requests:
        core.submit(request)
    found = events(turned(core))
    bad = found["bad"][-1]
    assert isinstance(bad, Failed)
    assert bad.error is Fault.degenerate_logits
    same(found["good"], alone(requests[0]))
    same(found["other"], alone(requests[2]))


def test_a_device_that_is_lost_is_the_callers_to_hear_of() -> None:
    core = core_on(engine := FakeEngine(n_slots=2))
    core.submit(asked("one", 5, 10))
    core.turn()
    engine.lose()
    with pytest.raises(BackendError, match="the device is lost"):
        core.turn()


def test_closing_a_core_closes_what_is_behind_it() -> None:
    closed: list[bool] = []
    EngineCore(FakeEngine(), VOCABULARY, close=lambda: closed.append(True)).close()  # type: ignore[arg-type]
    assert closed == [True]
    core_on(FakeEngine()).close()


def test_a_sequence_that_cannot_be_prepared_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a text's beginning is to be copied, as of recurrent layers, and the device fails."""
    engine = FakeEngine(n_slots=1)
    core = core_on(engine)
    core.submit(asked("one"))
    with monkeypatch.context() as patched:

        def fails(*_: object) -> int:
            raise BackendError("hiccup")

        patched.setattr(engine.cache, "attach_prefix", fails)
        with pytest.raises(BackendError):
            core.turn()
    core.check_integrity()
    found = events(turned(core))
    same(found["one"], alone(asked("one"), n_slots=1))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BackendError("hiccup")])
def test_a_step_that_breaks_off_changes_no_token(error: BaseException) -> None:
    requests = [asked(f"{i}", 30 * i + 1, 20) for i in range(3)]
    core = core_on(engine := FakeEngine(n_slots=3, n_batch=32))
    for request in requests:
        core.submit(request)
    reports, n = [], 0
    while not core.idle:
        n += 1
        if n % 3 == 0:
            engine.fails = error
        try:
            reports.append(core.turn())
        except (KeyboardInterrupt, BackendError):
            continue
        core.check_integrity()
    found = events(reports)
    for request in requests:
        same(found[request.id], alone(request))


def test_what_cannot_be_served_fails_with_numbers() -> None:
    core = core_on(FakeEngine(n_slots=2, n_ctx=96, n_pages=6))
    core.share(TenantShare("small", kv_share=0.5))
    core.submit(replace(asked("empty"), prompt=()))
    core.submit(replace(asked("long"), prompt=(1,) * 96))
    core.submit(replace(asked("unknown"), prompt=(1, N_VOCAB)))
    core.submit(replace(asked("never", tenant="small"), prompt=(1,) * 60))
    core.submit(replace(asked("bias"), params=SamplingParams(logit_bias={N_VOCAB: 1.0})))
    core.submit(asked("twice", 5, 3))
    core.submit(asked("twice", 5, 3))
    failed = {e.id: e for e in core.turn().events if isinstance(e, Failed)}
    assert {name: event.error for name, event in failed.items()} == {
        "empty": Fault.empty_prompt,
        "long": Fault.prompt_too_long,
        "unknown": Fault.token_out_of_range,
        "never": Fault.prompt_never_fits,
        "bias": Fault.invalid_sampling_param,
        "twice": Fault.duplicate_request,
    }
    assert "60 tokens needs 4 KV pages" in failed["never"].message
    assert "3 of 6" in failed["never"].message


def test_a_tenant_gets_no_more_than_its_share_of_pages_and_requests() -> None:
    core = core_on(FakeEngine(n_slots=8, n_ctx=96, n_pages=24))
    core.share(TenantShare("few", kv_share=0.5))
    core.share(TenantShare("two", max_active=2))
    for i in range(6):
        core.submit(asked(f"few{i}", 20, 30, "few"))
        core.submit(asked(f"two{i}", 20, 30, "two"))
    report = core.turn()
    admitted = [e.id[:3] for e in report.events if isinstance(e, Admitted)]
    assert (admitted.count("few"), admitted.count("two")) == (4, 2)
    assert all(isinstance(got[-1], Finished) for got in events(turned(core)).values())


def test_texts_of_other_salts_are_not_reused() -> None:
    core = core_on(FakeEngine(n_slots=2))
    cached = {}
    for name, salt in (("first", b"x"), ("other", b"y"), ("again", b"x")):
        core.submit(replace(asked(name), prompt=(5,) * 50, salt=salt))
        (admitted,) = [e for e in events(turned(core))[name] if isinstance(e, Admitted)]
        cached[name] = admitted.cached_tokens
    assert cached == {"first": 0, "other": 0, "again": 49}


def test_a_model_that_generates_nothing_is_refused() -> None:
    engine = FakeEngine()
    engine.generates = False
    with pytest.raises(UsageError, match="generates no text"):
        core_on(engine)


def test_usage_adds_up() -> None:
    core = core_on(engine := FakeEngine(n_slots=3, n_batch=64))
    for i in range(9):
        core.submit(asked(f"{i}", 30, 10))
    last = [got[-1] for got in events(turned(core)).values()]
    spent = sum(event.usage.engine_seconds for event in last if isinstance(event, Finished))
    assert spent == pytest.approx(engine.clock.now - 100.0)
    assert all(event.usage.completion_tokens <= 10 for event in last if isinstance(event, Finished))


class Slow:
    """A grammar that allows all tokens and whose masks take a quarter of a second each."""

    is_free = is_done = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def fill_mask(self, out: npt.NDArray[np.uint32]) -> None:
        self._clock.now += 0.25
        out.fill(0xFFFFFFFF)

    def consume(self, token_id: int) -> bool:
        return True

    def copy(self) -> Slow:
        return self


def test_times_of_grammars_and_of_choosing_tokens() -> None:
    engine = FakeEngine()

    def compiled(grammar: Grammar) -> Slow:
        engine.clock.now += 2.0
        if grammar.text == "bad":
            raise UsageError("no grammar")
        return Slow(engine.clock)

    vocabulary = CoreVocabulary(N_VOCAB, grammar=compiled)
    core = EngineCore(engine, vocabulary, clock=engine.clock)  # type: ignore[arg-type]
    for i, grammar in enumerate([None, Grammar("a"), Grammar("b"), Grammar("bad")]):
        core.submit(replace(asked(f"{i}", 3, 2), grammar=grammar))
    first, second, *rest = turned(core)
    assert first.times == StepTimes(0.5, first.times.sampling, (2.0, 2.0, 2.0))
    assert second.times == StepTimes(0.5, second.times.sampling)
    assert first.times.sampling > 0.0
    assert not rest


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 3), st.sampled_from([None, 0, 2])), min_size=1, max_size=4),
    st.sampled_from([6, 32]),
    st.integers(5, 12),
    st.booleans(),
)
def test_prompts_are_told_of_whatever_else_runs(
    texts: list[tuple[int, int, int | None]], n_batch: int, n_pages: int, recurrent: bool
) -> None:
    """The log-probabilities of a prompt are those of its text alone: beside others, after preemption, cached or not."""

    def submits() -> list[Submit]:
        made = []
        for at, (length, n, top) in enumerate(texts):
            made.append(replace(asked(f"r{at}", length, n), echo=top))
        return made

    def told(core: EngineCore, requests: Sequence[Submit]) -> dict[str, list[Event]]:
        for request in requests:
            core.submit(request)
        found: dict[str, list[Event]] = defaultdict(list)
        for report in turned(core):
            for event in report.events:
                found[event.id].append(event)
        return found

    together = told(core_on(FakeEngine(4, n_batch, 64, n_pages, recurrent=recurrent)), submits())
    for request, (_, _, top) in zip(submits(), texts, strict=True):
        events = together[request.id]
        alone = told(core_on(FakeEngine(1, 64, 64)), [request])[request.id]
        parts = [event for event in events if isinstance(event, PromptLogprobs)]
        (whole,) = [e for e in alone if isinstance(e, PromptLogprobs)] or [None]
        tokens = [event.token_id for event in events if isinstance(event, Token)]
        assert tokens == [event.token_id for event in alone if isinstance(event, Token)]
        if top is None or len(request.prompt) < 2:
            assert not parts
            continue
        assert whole is not None
        assert [part.start for part in parts] == [
            1 + sum(len(before.logprobs) for before in parts[:i]) for i in range(len(parts))
        ]
        assert [value for part in parts for value in part.logprobs] == list(whole.logprobs)
        assert [one for part in parts for one in part.top_logprobs] == list(whole.top_logprobs)
        assert len(whole.logprobs) == len(request.prompt) - 1
        assert all(len(one) == top for one in whole.top_logprobs)

"""The batch scheduler: every error and transition, turns, and random histories against a plain model of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zinc_rt import engine
from zinc_rt.errors import IntegrityError, ZincError
from zinc_rt.scheduler.batch import Batch, BatchEntry, BatchKind, RequestConfig, RequestState, TenantId, TenantLimits
from zinc_rt.scheduler.batching import BatchScheduler
from zinc_rt.scheduler.errors import (
    AllSlotsBusy,
    InvalidCapacity,
    InvalidRequest,
    InvalidSlot,
    InvalidState,
    InvalidTenantId,
    InvalidTenantLimits,
    InvalidTokenCount,
    LimitBelowActiveRequests,
    SchedulerError,
    TenantRequestQuotaExceeded,
    TooManyTenants,
    UnknownTenant,
)

A, B, C = TenantId(7), TenantId(3), TenantId(0)
BIG = 1 << 32


def make(n_slots: int = 4, max_tenants: int = 3, **tenants: TenantLimits) -> BatchScheduler:
    """A scheduler with tenants a, b, c registered in the order given."""
    scheduler = BatchScheduler(n_slots, max_tenants)
    for name, limits in tenants.items():
        scheduler.register_tenant({"a": A, "b": B, "c": C}[name], limits)
    return scheduler


def wide(**limits: int) -> TenantLimits:
    return replace(TenantLimits(100, 1000, 100), **limits)


def submit(scheduler: BatchScheduler, tenant: TenantId, prompt: int = 10, new: int = 2) -> int:
    return scheduler.submit(RequestConfig(tenant, prompt, new))


def decoding(scheduler: BatchScheduler, tenant: TenantId, new: int = 2) -> int:
    slot = submit(scheduler, tenant, prompt=1, new=new)
    scheduler.advance_prefill(slot, 1)
    return slot


def shares(batch: Batch) -> list[tuple[int, int]]:
    return [(entry.slot_id, entry.tokens) for entry in batch]


def test_defaults() -> None:
    assert TenantLimits() == TenantLimits(max_active_requests=1, max_prefill_tokens_per_batch=1024, max_decode_slots=1)
    scheduler = BatchScheduler.init(2, 1)
    scheduler.register_tenant(A)
    submit(scheduler, A, prompt=5000)
    assert scheduler.select_prefill_batch(4096).n_tokens == 1024
    with pytest.raises(TenantRequestQuotaExceeded):
        submit(scheduler, A)


def test_engine_says_what_there_is() -> None:
    assert engine.SUPPORTS_MULTITENANT_BATCH_PLANNING is True
    assert engine.SUPPORTS_MULTITENANT_BATCHED_EXECUTION is True
    assert engine.Capabilities() == engine.Capabilities(
        multitenant_batch_planning=True,
        requires_explicit_tenant_registration=True,
        multitenant_batched_execution=True,
        server_entrypoint=True,
    )


# -- the life of a request


def test_a_request_from_queue_to_release() -> None:
    scheduler = make(a=wide())
    slot = submit(scheduler, A, prompt=10, new=2)
    first = scheduler.slot(slot)
    assert (first.state, first.tenant_id, first.prompt_remaining(), first.decode_done()) == (
        RequestState.queued_prefill, A, 10, False,
    )  # fmt: skip
    assert not scheduler.select_decode_batch().entries

    batch = scheduler.select_prefill_batch(6)
    assert batch.kind is BatchKind.prefill
    assert batch.entries == (BatchEntry(slot, first.request_id, A, 6),)
    assert scheduler.slot(slot).state is RequestState.prefilling
    assert shares(scheduler.select_prefill_batch(6)) == [(slot, 6)]  # nothing was reported, so the same again

    assert scheduler.advance_prefill(slot, 6) is RequestState.prefilling
    assert shares(scheduler.select_prefill_batch(6)) == [(slot, 4)]
    assert scheduler.advance_prefill(slot, 4) is RequestState.decoding
    assert len(scheduler.select_prefill_batch(6)) == 0

    batch = scheduler.select_decode_batch()
    assert batch.kind is BatchKind.decode
    assert batch.entries == (BatchEntry(slot, first.request_id, A, 1),)
    assert scheduler.record_decode_token(slot) is RequestState.decoding
    assert scheduler.active_count() == scheduler.tenant_active_count(A) == 1
    assert scheduler.record_decode_token(slot) is RequestState.completed
    assert scheduler.active_count() == scheduler.tenant_active_count(A) == 0
    assert scheduler.slot(slot).decode_done()
    assert first.prompt_remaining() == 10  # a snapshot

    last = scheduler.release(slot)
    assert (last.state, last.generated_tokens) == (RequestState.completed, 2)
    again = submit(scheduler, A)
    assert again == slot
    assert scheduler.slot(again).request_id != first.request_id
    scheduler.check_integrity()


def test_a_stop_token_completes_early() -> None:
    scheduler = make(a=wide())
    slot = decoding(scheduler, A, new=50)
    assert scheduler.record_decode_token(slot, finished=True) is RequestState.completed
    assert not scheduler.slot(slot).decode_done()
    scheduler.check_integrity()


def test_a_cached_prefix_may_be_reported_before_selection() -> None:
    scheduler = make(a=wide())
    slot = submit(scheduler, A, prompt=10)
    assert scheduler.advance_prefill(slot, 7) is RequestState.prefilling
    assert shares(scheduler.select_prefill_batch(100)) == [(slot, 3)]


@pytest.mark.parametrize("state", list(RequestState))
def test_every_state_allows_exactly_its_calls(state: RequestState) -> None:
    calls: dict[str, Callable[[BatchScheduler], Any]] = {
        "advance": lambda s: s.advance_prefill(0, 1),
        "record": lambda s: s.record_decode_token(0),
        "cancel": lambda s: s.cancel(0),
        "release": lambda s: s.release(0),
    }
    allowed = {
        "queued_prefill": {"advance", "cancel"},
        "prefilling": {"advance", "cancel"},
        "decoding": {"record", "cancel"},
        "completed": {"release"},
        "cancelled": {"release"},
    }[state]
    for name, call in calls.items():
        scheduler = make(n_slots=1, a=wide())
        submit(scheduler, A, prompt=2, new=2)
        if state is not RequestState.queued_prefill:
            scheduler.select_prefill_batch(1)
        if state in ("decoding", "completed"):
            scheduler.advance_prefill(0, 2)
        if state == "completed":
            scheduler.record_decode_token(0, finished=True)
        if state == "cancelled":
            scheduler.cancel(0)
        before = scheduler.slot(0)
        assert before.state is state
        assert scheduler.active_count() == (state not in ("completed", "cancelled"))
        if name in allowed:
            call(scheduler)
        else:
            with pytest.raises(InvalidState, match=rf"slot 0: request 1 is {state}, not "):
                call(scheduler)
            assert scheduler.slot(0) == before
        scheduler.check_integrity()


def test_cancelling_frees_the_quota_at_once_and_the_slot_on_release() -> None:
    scheduler = make(n_slots=1, a=wide(max_active_requests=1))
    slot = submit(scheduler, A)
    scheduler.cancel(slot)
    assert scheduler.slot(slot).state is RequestState.cancelled
    assert scheduler.active_count() == 0
    assert len(scheduler.select_prefill_batch(10)) == 0
    with pytest.raises(AllSlotsBusy):
        submit(scheduler, A)
    scheduler.release(slot)
    assert submit(scheduler, A) == slot


def test_deinit_forgets_all_but_request_ids() -> None:
    scheduler = make(n_slots=1, a=wide())
    first = scheduler.slot(submit(scheduler, A)).request_id
    scheduler.deinit()
    assert scheduler.active_count() == 0
    with pytest.raises(UnknownTenant):
        scheduler.tenant_active_count(A)
    scheduler.register_tenant(A)
    assert scheduler.slot(submit(scheduler, A)).request_id > first
    scheduler.check_integrity()


# -- errors


def full() -> BatchScheduler:
    """Two slots, both taken by tenant a, which may have three requests; b has its only place unused; c is unknown."""
    scheduler = make(n_slots=2, max_tenants=2, a=wide(max_active_requests=3), b=TenantLimits())
    submit(scheduler, A)
    submit(scheduler, A)
    return scheduler


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: BatchScheduler(0, 1), InvalidCapacity, "n_slots = 0; it must be between 1 and 65536"),
        (lambda s: BatchScheduler(1, -1), InvalidCapacity, "max_tenants = -1"),
        (lambda s: BatchScheduler(65537, 1), InvalidCapacity, "n_slots = 65537"),
        (lambda s: s.register_tenant(-1), InvalidTenantId, "tenant id -1 "),
        (lambda s: s.register_tenant(BIG), InvalidTenantId, f"tenant id {BIG} "),
        (
            lambda s: s.register_tenant(A, wide(max_active_requests=0)),
            InvalidTenantLimits,
            "requests of tenant 7",
        ),
        (
            lambda s: s.register_tenant(C, wide(max_decode_slots=-2)),
            InvalidTenantLimits,
            "max_decode_slots .* -2,",
        ),
        (lambda s: s.register_tenant(A, wide(max_prefill_tokens_per_batch=BIG)), InvalidTenantLimits, str(BIG)),
        (lambda s: s.register_tenant(A, TenantLimits()), LimitBelowActiveRequests, "become 1 while 2 of"),
        (lambda s: s.register_tenant(C), TooManyTenants, "tenant 0 .* all 2 places"),
        (lambda s: submit(s, A, prompt=0), InvalidRequest, "prompt_tokens of a request is 0"),
        (lambda s: submit(s, A, new=BIG), InvalidRequest, "max_new_tokens"),
        (lambda s: submit(s, C, new=0), InvalidRequest, "max_new_tokens of a request is 0"),
        (lambda s: submit(s, C), UnknownTenant, "tenant 0 is not registered"),
        (lambda s: s.tenant_active_count(C), UnknownTenant, "tenant 0"),
        (lambda s: submit(s, B), AllSlotsBusy, "all 2 slots"),
        (lambda s: s.slot(-1), InvalidSlot, "slot -1 is not between 0 and 1"),
        (lambda s: s.advance_prefill(2, 1), InvalidSlot, "slot 2"),
        (lambda s: s.record_decode_token(2), InvalidSlot, "slot 2"),
        (lambda s: s.cancel(-1), InvalidSlot, "slot -1"),
        (lambda s: s.release(99), InvalidSlot, "slot 99"),
        (lambda s: s.advance_prefill(0, 0), InvalidTokenCount, "by 0 tokens; 10 remain"),
        (lambda s: s.advance_prefill(0, 11), InvalidTokenCount, "by 11 tokens; 10 remain"),
        (lambda s: s.select_prefill_batch(-1), InvalidTokenCount, "prefill batch is -1"),
        (lambda s: s.select_decode_batch(-1), InvalidTokenCount, "decode batch is -1"),
    ],
)
def test_an_error_says_what_was_wrong_and_changes_nothing(
    call: Callable[[Any], object], error: type[ZincError], message: str
) -> None:
    scheduler = full()
    before = [scheduler.slot(i) for i in range(2)]
    with pytest.raises(error, match=message) as caught:
        call(scheduler)
    assert isinstance(caught.value, SchedulerError)
    assert isinstance(caught.value, ZincError)
    assert "\n" not in str(caught.value)
    assert [scheduler.slot(i) for i in range(2)] == before
    scheduler.check_integrity()


def test_the_quota_is_checked_before_the_slots() -> None:
    scheduler = full()
    scheduler.register_tenant(A, wide(max_active_requests=2))
    with pytest.raises(TenantRequestQuotaExceeded, match="tenant 7 has 2 active requests, its limit is 2"):
        submit(scheduler, A)


def test_an_empty_slot_is_no_slot() -> None:
    with pytest.raises(InvalidSlot, match="slot 1 holds no request"):
        make(a=wide()).cancel(1)


def test_limits_can_be_changed_for_the_batches_to_come() -> None:
    scheduler = make(n_slots=2, a=TenantLimits())
    submit(scheduler, A, prompt=5000)
    scheduler.register_tenant(A, wide(max_active_requests=2, max_prefill_tokens_per_batch=3))
    submit(scheduler, A)
    assert scheduler.select_prefill_batch(100).n_tokens == 3


# -- turns


def test_prefill_stays_within_each_tenants_limit_and_the_budget() -> None:
    scheduler = make(n_slots=6, a=wide(max_prefill_tokens_per_batch=15), b=wide(max_prefill_tokens_per_batch=100))
    for tenant in (A, A, A, B, B, B):
        submit(scheduler, tenant, prompt=10)
    assert shares(scheduler.select_prefill_batch(100)) == [(0, 10), (3, 10), (1, 5), (4, 10), (5, 10)]
    # a's last turn was slot 1, b's was slot 5, and b had the last of all
    assert shares(scheduler.select_prefill_batch(22)) == [(2, 10), (3, 10), (0, 2)]
    assert shares(scheduler.select_prefill_batch(4)) == [(4, 4)]


def test_decode_stays_within_each_tenants_slots_and_the_budget() -> None:
    scheduler = make(n_slots=6, a=wide(max_decode_slots=2), b=wide(max_decode_slots=1), c=wide())
    for tenant in (A, A, A, B, B, C):
        decoding(scheduler, tenant)
    picks = [[entry.slot_id for entry in scheduler.select_decode_batch()] for _ in range(3)]
    assert picks == [[0, 3, 5, 1], [4, 5, 2, 0], [3, 5, 1, 2]]
    assert [entry.slot_id for entry in scheduler.select_decode_batch(2)] == [4, 5]


def test_a_flood_does_not_delay_another_tenant() -> None:
    scheduler = make(n_slots=50, a=wide(), b=wide())
    for _ in range(49):
        decoding(scheduler, A)
    late = decoding(scheduler, B)
    assert late in [entry.slot_id for entry in scheduler.select_decode_batch(2)]
    served = Counter(e.tenant_id for _ in range(20) for e in scheduler.select_decode_batch(1))
    assert served == {A: 10, B: 10}


def test_prefill_and_decode_take_turns_apart() -> None:
    scheduler = make(n_slots=4, a=wide(), b=wide())
    for tenant in (A, B):
        submit(scheduler, tenant)
        decoding(scheduler, tenant)
    for expected in (A, B, A):
        assert [e.tenant_id for e in scheduler.select_prefill_batch(1)] == [expected]
        assert [e.tenant_id for e in scheduler.select_decode_batch(1)] == [expected]


def test_an_empty_budget_uses_up_no_turn() -> None:
    scheduler = make(a=wide(), b=wide())
    submit(scheduler, A)
    submit(scheduler, B)
    assert len(scheduler.select_prefill_batch(0)) == len(scheduler.select_decode_batch(0)) == 0
    assert scheduler.slot(0).state is RequestState.queued_prefill
    assert shares(scheduler.select_prefill_batch(1)) == [(0, 1)]


def test_the_largest_numbers_are_taken() -> None:
    scheduler = BatchScheduler(1 << 16, 1 << 16)
    scheduler.register_tenant(TenantId(BIG - 1), TenantLimits(BIG - 1, BIG - 1, BIG - 1))
    slot = scheduler.submit(RequestConfig(TenantId(BIG - 1), BIG - 1, BIG - 1))
    (entry,) = scheduler.select_prefill_batch(BIG - 2)
    assert (entry.slot_id, entry.tenant_id, entry.tokens) == (slot, BIG - 1, BIG - 2)
    assert scheduler.advance_prefill(slot, BIG - 2) is RequestState.prefilling
    assert scheduler.advance_prefill(slot, 1) is RequestState.decoding
    scheduler.check_integrity()


# -- the books


def break_count(s: BatchScheduler) -> None:
    s._tenants[A].active += 1


def break_quota(s: BatchScheduler) -> None:
    s._tenants[A].limits = wide(max_active_requests=1)


def break_owner(s: BatchScheduler) -> None:
    s._slots[0] = replace(s.slot(0), config=RequestConfig(C, 10, 2))


def break_place(s: BatchScheduler) -> None:
    s._slots[0], s._slots[1] = s._slots[1], s._slots[0]


def break_request_id(s: BatchScheduler) -> None:
    s._slots[1] = replace(s.slot(1), request_id=s.slot(0).request_id)


def break_state(s: BatchScheduler) -> None:
    s._slots[0] = replace(s.slot(0), state=RequestState.decoding)


def break_completion(s: BatchScheduler) -> None:
    s._slots[0] = replace(s.slot(0), state=RequestState.completed, prefilled_tokens=10)


def break_length(s: BatchScheduler) -> None:
    s._slots[0] = replace(s.slot(0), state=RequestState.completed, prefilled_tokens=10, generated_tokens=3)


def break_progress(s: BatchScheduler) -> None:
    s._slots[0] = replace(s.slot(0), state=RequestState.prefilling, generated_tokens=1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_count, "said to have 3 active requests, its slots 2"),
        (break_quota, "2 active requests, its limit is 1"),
        (break_owner, "tenant 0, which is unknown"),
        (break_place, "slot 0 holds .* slot 1"),
        (break_request_id, "request id 1, given twice"),
        (break_state, "slot 0 is impossible"),
        (break_completion, "slot 0 is impossible"),
        (break_length, "slot 0 is impossible"),
        (break_progress, "slot 0 is impossible"),
    ],
)
def test_the_integrity_check_sees_damage(damage: Callable[[BatchScheduler], None], message: str) -> None:
    scheduler = full()
    scheduler.check_integrity()
    damage(scheduler)
    with pytest.raises(IntegrityError, match=message):
        scheduler.check_integrity()


# -- random histories


@dataclass
class Expected:
    """What the machine below knows of one request, kept apart from the scheduler."""

    tenant: TenantId
    prompt: int
    new: int
    phase: str = "prefill"  # then decode, then over
    queued: bool = True
    passed_over: int = 0  # batches of its phase since it last had a turn


N_SLOTS, MAX_TENANTS = 5, 3
LIMITS = st.builds(TenantLimits, st.integers(1, 4), st.integers(1, 12), st.integers(1, 3))
TENANTS = st.integers(0, 3).map(TenantId)  # one more than there is room for
SLOTS = st.integers(0, N_SLOTS - 1)


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scheduler = BatchScheduler(N_SLOTS, MAX_TENANTS)
        self.limits: dict[TenantId, TenantLimits] = {}
        self.requests: dict[int, Expected] = {}

    def active(self, tenant: TenantId) -> int:
        return sum(r.tenant == tenant and r.phase != "over" for r in self.requests.values())

    def expect(self, error: type[ZincError] | None, call: Callable[[], Any]) -> Any:
        if error is None:
            return call()
        with pytest.raises(error):
            call()
        return None

    @rule(tenant=TENANTS, limits=LIMITS)
    def register(self, tenant: TenantId, limits: TenantLimits) -> None:
        error: type[ZincError] | None = None
        if tenant not in self.limits and len(self.limits) == MAX_TENANTS:
            error = TooManyTenants
        elif limits.max_active_requests < self.active(tenant):
            error = LimitBelowActiveRequests
        self.expect(error, lambda: self.scheduler.register_tenant(tenant, limits))
        if error is None:
            self.limits[tenant] = limits

    @precondition(lambda self: self.limits)
    @rule(tenant=TENANTS, prompt=st.integers(1, 20), new=st.integers(1, 3))
    def submit(self, tenant: TenantId, prompt: int, new: int) -> None:
        error: type[ZincError] | None = None
        if tenant not in self.limits:
            error = UnknownTenant
        elif self.active(tenant) == self.limits[tenant].max_active_requests:
            error = TenantRequestQuotaExceeded
        elif len(self.requests) == N_SLOTS:
            error = AllSlotsBusy
        slot = self.expect(error, lambda: submit(self.scheduler, tenant, prompt, new))
        if error is None:
            assert slot not in self.requests
            self.requests[slot] = Expected(tenant, prompt, new)

    def check_batch(self, batch: Batch, phase: str, budget: int, limit: str) -> None:
        """Within every limit, nothing left unused that someone could have had, and nobody passed over for ever."""
        ready = {i: r for i, r in self.requests.items() if r.phase == phase}
        taken = dict(shares(batch))
        assert len(taken) == len(batch)
        assert taken.keys() <= ready.keys()
        assert sum(taken.values()) <= budget
        room: Counter[TenantId] = Counter({t: getattr(limits, limit) for t, limits in self.limits.items()})
        for entry in batch:
            request = ready[entry.slot_id]
            assert entry.tenant_id == request.tenant
            assert entry.request_id == self.scheduler.slot(entry.slot_id).request_id
            assert 1 <= entry.tokens <= (request.prompt if phase == "prefill" else 1)
            room[entry.tenant_id] -= entry.tokens
        assert min(room.values(), default=0) >= 0
        for i, request in ready.items():
            if i in taken:
                request.passed_over, request.queued = 0, False
            elif budget:
                request.passed_over += 1
                assert request.passed_over < N_SLOTS * MAX_TENANTS
                assert sum(taken.values()) == budget or room[request.tenant] == 0

    @precondition(lambda self: self.requests)
    @rule(budget=st.integers(0, 25), run=st.booleans())
    def prefill(self, budget: int, run: bool) -> None:
        batch = self.scheduler.select_prefill_batch(budget)
        self.check_batch(batch, "prefill", budget, "max_prefill_tokens_per_batch")
        for entry in batch if run else ():
            self.advance(entry.slot_id, entry.tokens)

    @precondition(lambda self: self.requests)
    @rule(budget=st.none() | st.integers(0, 4), run=st.booleans(), finished=st.booleans())
    def decode(self, budget: int | None, run: bool, finished: bool) -> None:
        batch = self.scheduler.select_decode_batch(budget)
        self.check_batch(batch, "decode", N_SLOTS if budget is None else budget, "max_decode_slots")
        for entry in batch if run else ():
            self.record(entry.slot_id, finished)

    @precondition(lambda self: self.requests)
    @rule(slot=SLOTS, tokens=st.integers(0, 21))
    def advance(self, slot: int, tokens: int) -> None:
        request = self.requests.get(slot)
        error: type[ZincError] | None = None
        if request is None:
            error = InvalidSlot
        elif request.phase != "prefill":
            error = InvalidState
        elif not 1 <= tokens <= request.prompt:
            error = InvalidTokenCount
        self.expect(error, lambda: self.scheduler.advance_prefill(slot, tokens))
        if request and error is None:
            request.prompt -= tokens
            request.queued = False
            if not request.prompt:
                request.phase, request.passed_over = "decode", 0

    @precondition(lambda self: self.requests)
    @rule(slot=SLOTS, finished=st.booleans())
    def record(self, slot: int, finished: bool) -> None:
        request = self.requests.get(slot)
        error: type[ZincError] | None = None
        if request is None:
            error = InvalidSlot
        elif request.phase != "decode":
            error = InvalidState
        self.expect(error, lambda: self.scheduler.record_decode_token(slot, finished=finished))
        if request and error is None:
            request.new -= 1
            if finished or not request.new:
                request.phase = "over"

    @precondition(lambda self: self.requests)
    @rule(slot=SLOTS)
    def cancel(self, slot: int) -> None:
        request = self.requests.get(slot)
        error = InvalidSlot if request is None else InvalidState if request.phase == "over" else None
        self.expect(error, lambda: self.scheduler.cancel(slot))
        if request and error is None:
            request.phase = "over"

    @precondition(lambda self: self.requests)
    @rule(slot=SLOTS)
    def release(self, slot: int) -> None:
        request = self.requests.get(slot)
        error = InvalidSlot if request is None else InvalidState if request.phase != "over" else None
        self.expect(error, lambda: self.scheduler.release(slot))
        if error is None:
            del self.requests[slot]

    @invariant()
    def books(self) -> None:
        self.scheduler.check_integrity()
        assert self.scheduler.active_count() == sum(self.active(tenant) for tenant in self.limits)
        for tenant, limits in self.limits.items():
            assert self.scheduler.tenant_active_count(tenant) == self.active(tenant) <= limits.max_active_requests
        for i, request in self.requests.items():
            slot = self.scheduler.slot(i)
            assert slot.prompt_remaining() == request.prompt
            assert (
                slot.state
                in {
                    "prefill": ("queued_prefill",) if request.queued else ("prefilling",),
                    "decode": ("decoding",),
                    "over": ("completed", "cancelled"),
                }[request.phase]
            )

    def teardown(self) -> None:
        """From wherever the history ended: batches of one token reach all that is ready, and then all that is left."""
        for phase, select in (
            ("prefill", self.scheduler.select_prefill_batch),
            ("decode", self.scheduler.select_decode_batch),
        ):
            ready = {i for i, request in self.requests.items() if request.phase == phase}
            assert {e.slot_id for _ in range(N_SLOTS * MAX_TENANTS) for e in select(1)} == ready
        for _ in range(sum(r.prompt + r.new for r in self.requests.values() if r.phase != "over")):
            for entry in self.scheduler.select_prefill_batch(1):
                self.scheduler.advance_prefill(entry.slot_id, 1)
            for entry in self.scheduler.select_decode_batch(1):
                self.scheduler.record_decode_token(entry.slot_id)
        assert self.scheduler.active_count() == 0
        self.scheduler.check_integrity()


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=30, stateful_step_count=25, deadline=None, report_multiple_bugs=False)

"""Batches over tenants: a scheduler that plans which prompt tokens and next tokens a step computes.

    scheduler = BatchScheduler(n_slots=8, max_tenants=4)
    scheduler.register_tenant(tenant, TenantLimits(max_active_requests=2))
    slot_id = scheduler.submit(RequestConfig(tenant, prompt_tokens=300, max_new_tokens=64))
    decode = scheduler.select_decode_batch(n_batch)
    prefill = scheduler.select_prefill_batch(n_batch - decode.n_tokens)
    # ... run the step, then report: advance_prefill, record_decode_token; release what is finished

A request's states; `cancel` leads from the first three to cancelled, and `release` frees a finished request's slot:

    queued_prefill -> prefilling -> decoding -> completed

The scheduler only plans and counts: it holds no tokens and no memory. Selecting reserves nothing, so after a failed
step the caller selects again. It is not safe for several threads.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, fields, replace

from zinc_rt.errors import IntegrityError
from zinc_rt.scheduler.batch import (
    MAX_U32,
    READY,
    Batch,
    BatchEntry,
    BatchKind,
    RequestConfig,
    RequestId,
    RequestState,
    Slot,
    TenantId,
    TenantLimits,
    consistent,
)
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
    TenantRequestQuotaExceeded,
    TooManyTenants,
    UnknownTenant,
)

MAX_CAPACITY = 1 << 16  # slots, and tenants: a selection looks at each of them


@dataclass
class _Tenant:
    place: int  # in the order of registration, which is the order of turns
    limits: TenantLimits
    active: int = 0
    next_slot: dict[BatchKind, int] = field(default_factory=lambda: dict.fromkeys(BatchKind, 0))

    def allowance(self, kind: BatchKind) -> int:
        """Tokens that the tenant may have in one batch; a slot of a decode batch is one token."""
        limits = self.limits
        return limits.max_prefill_tokens_per_batch if kind is BatchKind.prefill else limits.max_decode_slots


@dataclass
class _Turns:
    tenant: _Tenant
    slots: deque[Slot]
    allowance: int


class BatchScheduler:
    """Requests of up to `max_tenants` tenants in `n_slots` slots, served in turns.

    Turns: tenants in the order of their registration, each tenant's slots in the order of their numbers, both
    beginning after the one that had the last turn in a batch of that kind. No tenant gets a second turn in a batch
    before every tenant with work has had one. So ready work is served after at most max_tenants * n_slots batches
    with a budget, for any load of other tenants.

    After `release` a slot id may come to mean another request; request ids tell them apart.
    """

    def __init__(self, n_slots: int, max_tenants: int) -> None:
        """Make a scheduler without tenants. Raises `InvalidCapacity` unless both numbers are from 1 to 65536."""
        for name, value in (("n_slots", n_slots), ("max_tenants", max_tenants)):
            if not 1 <= value <= MAX_CAPACITY:
                raise InvalidCapacity(
                    f"a scheduler cannot have {name} = {value}; it must be between 1 and {MAX_CAPACITY}"
                )
        self.n_slots = n_slots
        self.max_tenants = max_tenants
        self._next_request = 1
        self.deinit()

    @classmethod
    def init(cls, n_slots: int, max_tenants: int) -> BatchScheduler:
        """Make a scheduler, as the constructor does."""
        return cls(n_slots, max_tenants)

    def deinit(self) -> None:
        """Drop every tenant and request. The scheduler is then as new, except that request ids count on."""
        self._tenants: dict[TenantId, _Tenant] = {}
        self._slots: list[Slot | None] = [None] * self.n_slots
        self._next_place = dict.fromkeys(BatchKind, 0)

    # -- tenants

    def register_tenant(self, tenant_id: TenantId, limits: TenantLimits | None = None) -> None:
        """Admit a tenant, or change the limits of one already admitted; None: the default limits.

        Raises `InvalidTenantId`, `InvalidTenantLimits`, `LimitBelowActiveRequests`, `TooManyTenants`.
        """
        limits = limits or TenantLimits()
        if not 0 <= tenant_id <= MAX_U32:
            raise InvalidTenantId(f"tenant id {tenant_id} is not between 0 and {MAX_U32}")
        for limit in fields(limits):
            value = getattr(limits, limit.name)
            if not 1 <= value <= MAX_U32:
                raise InvalidTenantLimits(
                    f"{limit.name} of tenant {tenant_id} is {value}, it must be between 1 and {MAX_U32}"
                )
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            if len(self._tenants) >= self.max_tenants:
                raise TooManyTenants(
                    f"tenant {tenant_id} cannot be registered: all {self.max_tenants} places are taken"
                )
            self._tenants[tenant_id] = _Tenant(len(self._tenants), limits)
            return
        if limits.max_active_requests < tenant.active:
            raise LimitBelowActiveRequests(
                f"max_active_requests of tenant {tenant_id} cannot become {limits.max_active_requests} while"
                f" {tenant.active} of its requests are active; cancel some or wait for them"
            )
        tenant.limits = limits

    def active_count(self) -> int:
        """Number of requests that are neither completed nor cancelled."""
        return sum(tenant.active for tenant in self._tenants.values())

    def tenant_active_count(self, tenant_id: TenantId) -> int:
        """Number of active requests of one tenant. Raises `UnknownTenant`."""
        return self._tenant(tenant_id).active

    def _tenant(self, tenant_id: TenantId) -> _Tenant:
        if tenant_id not in self._tenants:
            raise UnknownTenant(f"tenant {tenant_id} is not registered; register_tenant admits it")
        return self._tenants[tenant_id]

    # -- requests

    def submit(self, config: RequestConfig) -> int:
        """Queue a request in the lowest free slot; returns the slot id.

        Raises `InvalidRequest`, `UnknownTenant`, `TenantRequestQuotaExceeded`, `AllSlotsBusy`, checked in this order.
        """
        for name, value in (("prompt_tokens", config.prompt_tokens), ("max_new_tokens", config.max_new_tokens)):
            if not 1 <= value <= MAX_U32:
                raise InvalidRequest(f"{name} of a request is {value}, it must be between 1 and {MAX_U32}")
        tenant = self._tenant(config.tenant_id)
        if tenant.active >= tenant.limits.max_active_requests:
            raise TenantRequestQuotaExceeded(
                f"tenant {config.tenant_id} has {tenant.active} active requests, its limit is"
                f" {tenant.limits.max_active_requests}; submit again when one is finished"
            )
        slot_id = next((i for i, slot in enumerate(self._slots) if slot is None), None)
        if slot_id is None:
            raise AllSlotsBusy(f"all {self.n_slots} slots hold requests; release finished ones or submit again later")
        self._slots[slot_id] = Slot(slot_id, RequestId(self._next_request), config)
        self._next_request += 1
        tenant.active += 1
        return slot_id

    def slot(self, slot_id: int) -> Slot:
        """The current state of the slot's request. Raises `InvalidSlot`, as every method that takes a slot id."""
        if not 0 <= slot_id < self.n_slots:
            raise InvalidSlot(f"slot {slot_id} is not between 0 and {self.n_slots - 1}")
        slot = self._slots[slot_id]
        if slot is None:
            raise InvalidSlot(f"slot {slot_id} holds no request")
        return slot

    def _in_state(self, slot_id: int, what: str, states: tuple[RequestState, ...]) -> Slot:
        slot = self.slot(slot_id)
        if slot.state not in states:
            raise InvalidState(
                f"cannot {what} slot {slot_id}: request {slot.request_id} is {slot.state}, not {' or '.join(states)}"
            )
        return slot

    def _put(self, slot: Slot) -> RequestState:
        before = self.slot(slot.slot_id)
        self._slots[slot.slot_id] = slot
        if before.state.active and not slot.state.active:
            self._tenants[slot.tenant_id].active -= 1
        return slot.state

    def advance_prefill(self, slot_id: int, tokens: int) -> RequestState:
        """Report that the next `tokens` prompt tokens are computed; returns the new state.

        May be fewer or more than were selected, up to all that remain. A prefix found in a cache may be reported
        before the request was ever selected. Raises `InvalidSlot`, `InvalidState`, `InvalidTokenCount`.
        """
        slot = self._in_state(slot_id, "advance the prompt of", READY[BatchKind.prefill])
        if not 1 <= tokens <= slot.prompt_remaining():
            raise InvalidTokenCount(
                f"cannot advance the prompt of slot {slot_id} by {tokens} tokens; {slot.prompt_remaining()} remain"
            )
        state = RequestState.decoding if tokens == slot.prompt_remaining() else RequestState.prefilling
        return self._put(replace(slot, state=state, prefilled_tokens=slot.prefilled_tokens + tokens))

    def record_decode_token(self, slot_id: int, *, finished: bool = False) -> RequestState:
        """Report one generated token; returns the new state.

        Every token counts, also the one drawn from the logits of the prompt's end. The request is completed by the
        last of `max_new_tokens`, or earlier by `finished` (a stop token). Raises `InvalidSlot`, `InvalidState`.
        """
        slot = self._in_state(slot_id, "record a token of", READY[BatchKind.decode])
        n = slot.generated_tokens + 1
        over = finished or n >= slot.config.max_new_tokens
        state = RequestState.completed if over else slot.state
        return self._put(Slot(slot_id, slot.request_id, slot.config, state, slot.prefilled_tokens, n))

    def cancel(self, slot_id: int) -> None:
        """Stop an active request. Its slot stays taken until `release`, as a running step may still write there.

        Raises `InvalidSlot`, and `InvalidState` where the request is finished already.
        """
        slot = self._in_state(slot_id, "cancel", tuple(state for state in RequestState if state.active))
        self._put(replace(slot, state=RequestState.cancelled))

    def release(self, slot_id: int) -> Slot:
        """Free the slot of a completed or cancelled request; returns how the request ended.

        Raises `InvalidSlot`, and `InvalidState` while the request is active.
        """
        slot = self._in_state(slot_id, "release", (RequestState.completed, RequestState.cancelled))
        self._slots[slot_id] = None
        return slot

    # -- batches

    def select_prefill_batch(self, token_budget: int) -> Batch:
        """Plan at most `token_budget` prompt tokens; queued requests that are picked become prefilling.

        A turn is as much of one prompt as the budget and the tenant's `max_prefill_tokens_per_batch` leave room for.
        Raises `InvalidTokenCount` for a negative budget; with 0 the batch is empty and the turns stay as they are.
        """
        batch = self._select(BatchKind.prefill, token_budget)
        for entry in batch:
            self._put(replace(self.slot(entry.slot_id), state=RequestState.prefilling))
        return batch

    def select_decode_batch(self, token_budget: int | None = None) -> Batch:
        """Plan the next token of decoding requests, at most `max_decode_slots` of a tenant and `token_budget` in all.

        None: no bound on the whole. Raises `InvalidTokenCount` for a negative budget.
        """
        return self._select(BatchKind.decode, self.n_slots if token_budget is None else token_budget)

    def _select(self, kind: BatchKind, budget: int) -> Batch:
        if budget < 0:
            raise InvalidTokenCount(f"the token budget of a {kind} batch is {budget}, it must be 0 or more")
        waiting, entries = self._turns(kind), []
        while waiting and budget:
            turns = waiting.popleft()
            slot = turns.slots.popleft()
            wish = slot.prompt_remaining() if kind is BatchKind.prefill else 1
            tokens = min(wish, turns.allowance, budget)
            entries.append(BatchEntry(slot.slot_id, slot.request_id, slot.tenant_id, tokens))
            budget -= tokens
            turns.allowance -= tokens
            turns.tenant.next_slot[kind] = slot.slot_id + 1
            self._next_place[kind] = turns.tenant.place + 1
            if turns.slots and turns.allowance:
                waiting.append(turns)
        return Batch(kind, tuple(entries))

    def _turns(self, kind: BatchKind) -> deque[_Turns]:
        """The tenants that have work of this kind and their slots with it, those whose turn is next first."""
        ready: dict[TenantId, list[Slot]] = {}
        for slot in self._slots:
            if slot is not None and slot.state in READY[kind]:
                ready.setdefault(slot.tenant_id, []).append(slot)
        turns = []
        for tenant_id, slots in ready.items():
            tenant = self._tenants[tenant_id]
            first = tenant.next_slot[kind]
            slots.sort(key=lambda slot: (slot.slot_id < first, slot.slot_id))
            turns.append(_Turns(tenant, deque(slots), tenant.allowance(kind)))
        first_place = self._next_place[kind]
        return deque(sorted(turns, key=lambda turn: (turn.tenant.place < first_place, turn.tenant.place)))

    # -- integrity

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless slots, states, counts and quotas agree with each other."""
        active: Counter[TenantId] = Counter()
        owners: dict[RequestId, int] = {}
        for slot_id, slot in enumerate(self._slots):
            if slot is None:
                continue
            if slot.slot_id != slot_id:
                raise IntegrityError(f"slot {slot_id} holds a request that takes itself for slot {slot.slot_id}")
            if slot.request_id in owners or not 1 <= slot.request_id < self._next_request:
                raise IntegrityError(f"slot {slot_id} has request id {slot.request_id}, given twice or never")
            if slot.tenant_id not in self._tenants:
                raise IntegrityError(f"slot {slot_id} belongs to tenant {slot.tenant_id}, which is unknown")
            if not consistent(slot):
                raise IntegrityError(f"slot {slot_id} is impossible: {slot}")
            owners[slot.request_id] = slot_id
            active[slot.tenant_id] += slot.state.active
        for tenant_id, tenant in self._tenants.items():
            if tenant.active != active[tenant_id]:
                raise IntegrityError(
                    f"tenant {tenant_id} is said to have {tenant.active} active requests, its slots {active[tenant_id]}"
                )
            if tenant.active > tenant.limits.max_active_requests:
                raise IntegrityError(
                    f"tenant {tenant_id} has {tenant.active} active requests, its limit is"
                    f" {tenant.limits.max_active_requests}"
                )

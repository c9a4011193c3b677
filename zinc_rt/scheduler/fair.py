"""The scheduler of an engine that serves: classes of service, and inside a class the tenant that had least is next."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from zinc_rt.scheduler.accounts import Accounts
from zinc_rt.scheduler.batch import (
    READY,
    Batch,
    BatchEntry,
    BatchKind,
    RequestConfig,
    RequestState,
    Slot,
    TenantId,
)
from zinc_rt.scheduler.batching import BatchScheduler
from zinc_rt.scheduler.cost import CostModel, CostPart
from zinc_rt.scheduler.errors import InvalidTokenCount

_PART = 5
"""Of five rows or turns one is for lower classes that have work; the others go to the highest one."""


class FairScheduler(BatchScheduler):
    """A `BatchScheduler` whose turns follow classes and measured cost, and whose requests can be preempted.

    accounts: what tenants have had. cost: what rows take. Level 0 is the first class. While a lower class has work, a
    class gets four fifths of the tokens that are left, so none starves; what a class leaves goes to the others.
    """

    def __init__(self, n_slots: int, max_tenants: int) -> None:
        """Make a scheduler without tenants. Raises `InvalidCapacity`."""
        self.accounts, self.cost = Accounts(), CostModel()
        self._levels: dict[int, int] = {}
        self._selections = dict.fromkeys(BatchKind, 0)
        super().__init__(n_slots, max_tenants)

    def place(self, config: RequestConfig, level: int) -> int:
        """`submit` a request of a class; returns its slot."""
        slot_id = self.submit(config)
        self._levels[slot_id] = level
        return slot_id

    def preempt(self, slot_id: int) -> Slot:
        """Take an active request out of its slot; returns how far it was. It comes back by `place`, with the tokens
        that it has generated in its prompt.

        Raises `InvalidSlot`, and `InvalidState` where it is finished.
        """
        slot = self._in_state(slot_id, "preempt", tuple(state for state in RequestState if state.active))
        self.cancel(slot_id)
        self.release(slot_id)
        return slot

    def charge(self, parts: Sequence[CostPart], tenants: Sequence[TenantId], ms: float) -> list[float]:
        """A step took `ms`; tenants: whose each part was. Returns the milliseconds of each part, which were charged."""
        costs = [share * ms for share in self.cost.shares(parts)]
        self.cost.learn(parts, ms)
        for tenant, cost in zip(tenants, costs, strict=True):
            self.accounts.charge(tenant, cost)
        return costs

    def _select(self, kind: BatchKind, budget: int) -> Batch:
        if budget < 0:
            raise InvalidTokenCount(f"the token budget of a {kind} batch is {budget}, it must be 0 or more")
        ready = [slot for slot in self._slots if slot is not None and slot.state in READY[kind]]
        if not ready or not budget:
            return Batch(kind, ())
        if kind is BatchKind.decode and len(ready) <= budget and self._unlimited(ready):
            return Batch(kind, tuple(BatchEntry(s.slot_id, s.request_id, s.tenant_id, 1) for s in ready))
        self._selections[kind] += 1
        by_level: dict[int, list[Slot]] = {}
        for slot in ready:
            by_level.setdefault(self._levels.get(slot.slot_id, 0), []).append(slot)
        levels = sorted(by_level)
        turn, due = divmod(self._selections[kind], _PART)
        if budget < _PART and not due and len(levels) > 1:  # too few tokens to split: lower classes have turns
            first = 1 + turn % (len(levels) - 1)
            levels = levels[first:] + levels[:first]
        left = {slot.tenant_id: self._tenants[slot.tenant_id].allowance(kind) for slot in ready}
        classes = [_Class(self, kind, by_level[level], left) for level in levels]
        entries: dict[int, BatchEntry] = {}
        rest = budget
        for i, one in enumerate(classes):
            lower = budget >= _PART and i + 1 < len(classes)
            rest -= one.select(min(rest, max(1, rest * (_PART - 1) // _PART)) if lower else rest, entries)
        for one in classes:  # what lower classes have left
            rest -= one.select(rest, entries)
        return Batch(kind, tuple(entries.values()))

    def _unlimited(self, slots: list[Slot]) -> bool:
        """Whether all slots may have a token in one step."""
        return all(self._tenants[slot.tenant_id].limits.max_decode_slots >= len(slots) for slot in slots)


class _Class:
    """The slots of one class that have work of a kind, and the order in which they get it.

    left: tokens that each tenant may still have in the batch, in all classes together.
    """

    def __init__(self, scheduler: FairScheduler, kind: BatchKind, slots: list[Slot], left: dict[TenantId, int]) -> None:
        self._scheduler, self._kind, self._left = scheduler, kind, left
        self._slots: dict[TenantId, deque[Slot]] = {}
        for slot in slots:
            self._slots.setdefault(slot.tenant_id, deque()).append(slot)
        for tenant_id, own in self._slots.items():
            tenant = scheduler._tenants[tenant_id]
            if kind is BatchKind.prefill:
                own = deque(sorted(own, key=lambda slot: slot.request_id))
            else:
                first = tenant.next_slot[kind]
                own = deque(sorted(own, key=lambda slot: (slot.slot_id < first, slot.slot_id)))
            self._slots[tenant_id] = own
        self._heap = [(scheduler.accounts.service(tenant), tenant) for tenant in self._slots]
        heapq.heapify(self._heap)

    def select(self, budget: int, entries: dict[int, BatchEntry]) -> int:
        """Give out at most `budget` tokens, to the tenant that had least first; entries: what each slot has, which a
        second call adds to. Returns how many.
        """
        scheduler, rest = self._scheduler, budget
        while rest > 0 and self._heap:
            service, tenant_id = heapq.heappop(self._heap)
            slots, left = self._slots[tenant_id], self._left[tenant_id]
            if not left:
                continue
            slot = slots[0]
            before = entries[slot.slot_id].tokens if slot.slot_id in entries else 0
            wish = (slot.prompt_remaining() if self._kind is BatchKind.prefill else 1) - before
            tokens = min(wish, left, rest)
            entries[slot.slot_id] = BatchEntry(slot.slot_id, slot.request_id, tenant_id, before + tokens)
            if tokens == wish:
                slots.popleft()
            rest -= tokens
            self._left[tenant_id] = left - tokens
            scheduler._tenants[tenant_id].next_slot[self._kind] = slot.slot_id + 1
            if slots and self._left[tenant_id]:
                cost = scheduler.cost.row_ms(self._kind, slot.prefilled_tokens) * tokens
                heapq.heappush(self._heap, (service + cost / scheduler.accounts.share(tenant_id).weight, tenant_id))
        return budget - rest

"""`FairShare`: which requests get a step's rows where there are too few for all of them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from zinc_rt.scheduler.cost import CostModel
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.tenants import TenantAccount

_PART = 5
"""Of five rows or turns one is for lower classes that have work; the others go to the highest one."""


class FairShare:
    """Splits rows by classes of service, and inside a class by what tenants have had.

    While a lower class has work, a class gets four fifths of the rows that are left, so none starves. Rows that a class
    does not need go to the others. Inside a class the tenant with the least service is next. Of a tenant, prompts are
    computed in the order of their admission, and texts decode in turns.

    Example: of 10 rows for prompts of 100 and 50 tokens, the first of a higher class, the first gets 8 and the
    second 2.
    """

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._splits = {True: 0, False: 0}  # how often rows were split, for prompts and for texts

    def rows(self, requests: Sequence[Request], budget: int, *, prefill: bool) -> dict[Request, int]:
        """How many rows each request gets, in the order of their turns; those that get none are left out.

        requests: those with work of one kind, in the order of their admission. budget: rows for all of them.
        prefill: whether they want rows of prompts, as many as are left; else each wants one row.
        """
        if not requests or budget <= 0:
            return {}
        if not prefill and len(requests) <= budget:
            return dict.fromkeys(requests, 1)
        self._splits[prefill] += 1
        by_level: dict[int, list[Request]] = {}
        for request in requests:
            by_level.setdefault(request.level, []).append(request)
        levels = sorted(by_level)
        turn, due = divmod(self._splits[prefill], _PART)
        if budget < _PART and not due and len(levels) > 1:  # too few rows to split: lower classes have turns
            first = 1 + turn % (len(levels) - 1)
            levels = levels[first:] + levels[:first]
        elif budget >= _PART and -(-budget // _PART) < len(levels) - 1:  # the fifth is too small for all lower classes
            first = 1 + self._splits[prefill] % (len(levels) - 1)
            levels = [levels[0], *levels[first:], *levels[1:first]]
        classes = [_Class(self._cost, by_level[level], prefill=prefill) for level in levels]
        given: dict[Request, int] = {}
        rest = budget
        for i, one in enumerate(classes):
            lower = budget >= _PART and i + 1 < len(classes)
            rest -= one.give(min(rest, max(1, rest * (_PART - 1) // _PART)) if lower else rest, given)
        for one in classes:  # what lower classes have left
            rest -= one.give(rest, given)
        return given


class _Class:
    """The requests of one class of service, and the order in which they get rows."""

    def __init__(self, cost: CostModel, requests: Sequence[Request], *, prefill: bool) -> None:
        self._cost, self._prefill = cost, prefill
        self._requests: dict[TenantAccount, deque[Request]] = {}
        for request in requests:
            self._requests.setdefault(request.tenant, deque()).append(request)
        if not prefill:
            for tenant, own in self._requests.items():
                first = tenant.next_decode
                turns = sorted(own, key=lambda request: (request.number < first, request.number))
                self._requests[tenant] = deque(turns)
        self._heap = [(tenant.service, tenant.number, tenant) for tenant in self._requests]
        heapq.heapify(self._heap)

    def give(self, budget: int, given: dict[Request, int]) -> int:
        """Give out at most `budget` rows, to the tenant that had least first; returns how many.

        given: rows of each request, which a second call adds to.
        """
        rest = budget
        while rest > 0 and self._heap:
            service, number, tenant = heapq.heappop(self._heap)
            requests = self._requests[tenant]
            request = requests[0]
            before = given.get(request, 0)
            wish = (request.admitted_tokens - request.computed if self._prefill else 1) - before
            n = min(wish, rest)
            given[request] = before + n
            rest -= n
            if n == wish:
                requests.popleft()
            if not self._prefill:
                tenant.next_decode = request.number + 1
            if requests:
                cost = self._cost.row_ms(request.computed, prefill=self._prefill) * n
                heapq.heappush(self._heap, (service + cost / tenant.weight, number, tenant))
        return budget - rest

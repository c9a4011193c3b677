"""Chooses the weights that the workgroups of a resident program load before they wait, and the meeting at which they
do.

Weights do not depend on earlier phases. Memory has nothing to do while workgroups meet, and little in a phase without
weights, such as attention. So workgroups that would only wait load the first weights of the next phase, which then lie
in the L2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from zinc_rt.kernels.amd.resident import LANES, LINE, RANGES, WAVE

MEETING_BYTES: Final = 768 << 10
"""Asked for at a meeting: what 640 GB/s bring in the 1.2 us in which the last waves end and all meet. More comes no
sooner than if it were read in its phase."""
IDLE_BYTES: Final = 3 << 20
"""The same behind a phase without weights, whose workgroups are few or wait for memory's latency."""
MOST_BYTES: Final = 4 << 20
"""Of one phase at the most: half of an L2 of 8 MiB."""


class Reads(Protocol):
    """The reads of one dispatch."""

    @property
    def weights(self) -> Sequence[tuple[int, int]]:
        """Addresses and bytes of matrices that it reads wholly."""
        ...


@dataclass(frozen=True)
class PrefetchRange:
    """Bytes from an address on: loaded after phase `meeting`, and needed in phase `phase`."""

    meeting: int
    phase: int
    start: int
    size: int


def prefetch_ranges(phases: Sequence[Sequence[Reads]], n: int) -> list[PrefetchRange]:
    """What n workgroups ask for, meeting by meeting; `RANGES` ranges at each at the most.

    Nothing is asked for before a phase without weights: who has no work there asks for more at its end, and meanwhile.
    """
    plan = _Plan(phases, LINE * n * (LANES - WAVE))  # a line each of those that do not wait
    for meeting in range(len(phases) - 1):
        if not weight_bytes(phases[meeting]):
            plan.ask(meeting, IDLE_BYTES)
        elif weight_bytes(phases[meeting + 1]):
            plan.ask(meeting, MEETING_BYTES)
    return plan.found


def weight_bytes(works: Sequence[Reads]) -> int:
    """Bytes of the matrices that a phase reads wholly."""
    return sum(size for work in works for _, size in work.weights)


class _Plan:
    """range_bytes: bytes of a range."""

    def __init__(self, phases: Sequence[Sequence[Reads]], range_bytes: int) -> None:
        self.found: list[PrefetchRange] = []
        self._phases, self._range_bytes = phases, range_bytes
        self._done: dict[int, int] = {}  # bytes of each matrix, by its address

    def ask(self, meeting: int, budget: int) -> None:
        """Ask for the next bytes, in the order in which workgroups read them: of phases, of dispatches, and of the
        matrices that a dispatch reads side by side as much each.
        """
        ranges = RANGES
        for phase in range(meeting + 1, len(self._phases)):
            works = self._phases[phase]
            budget = min(budget, MOST_BYTES - self._asked(works))
            for work in works:
                rest = [(start, size) for start, size in work.weights if size - self._done.get(start, 0) >= LINE]
                share = budget // max(len(rest), 1)
                for start, size in rest:
                    first = self._done.get(start, 0)
                    take = min(share, size - first, self._range_bytes) // LINE * LINE
                    if take <= 0 or not ranges:
                        return
                    self.found.append(PrefetchRange(meeting, phase, start + first, take))
                    self._done[start] = first + take
                    budget, ranges = budget - take, ranges - 1
            if weight_bytes(works) - self._asked(works) >= LINE * len(works):
                return  # the rest of it comes first

    def _asked(self, works: Sequence[Reads]) -> int:
        return sum(self._done.get(start, 0) for work in works for start, _ in work.weights)

"""Which weights the workgroups of a resident program ask for before they wait, and at which meeting.

Weights do not depend on earlier phases. Memory has nothing to do while workgroups meet, and little in a phase without
weights, such as attention; so what the next phase reads first is asked for by who has nothing else to do. It lies in
the L2 until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from zinc_rt.kernels.rdna.resident import LANES, LINE, RANGES, WAVE

if TYPE_CHECKING:
    from zinc_rt.backends.amdgpu.resident import Work

MEETING_BYTES: Final = 1 << 20
"""Asked for at a meeting: what 640 GB/s bring in the 1.6 us of what the last workgroup does alone and of the meeting."""
IDLE_BYTES: Final = 3 << 20
"""The same behind a phase without weights, whose workgroups are few or wait for memory's latency."""
MOST_BYTES: Final = 4 << 20
"""Of one phase at the most: half of an L2 of 8 MiB."""


@dataclass(frozen=True)
class Asked:
    """Bytes from an address on, which are asked for behind phase `meeting` and read in phase `phase`."""

    meeting: int
    phase: int
    start: int
    size: int


def asked(phases: Sequence[Sequence[Work]], n: int) -> list[Asked]:
    """What n workgroups ask for, meeting by meeting; `RANGES` ranges at each at the most."""
    found: list[Asked] = []
    done: dict[int, int] = {}  # bytes of each matrix, by address
    most = LINE * n * (LANES - WAVE)  # a line each of those that do not wait
    for meeting in range(len(phases) - 1):
        phase = next((i for i in range(meeting + 1, len(phases)) if weight_bytes(phases[i])), None)
        if phase is None:
            break
        budget = MEETING_BYTES if weight_bytes(phases[meeting]) else IDLE_BYTES
        room = MOST_BYTES - sum(done.get(start, 0) for work in phases[phase] for start, _ in work.weights)
        found += _ranges(phases[phase], done, min(budget, room), most, meeting, phase)
    return found


def weight_bytes(works: Sequence[Work]) -> int:
    """Bytes of the matrices that a phase reads wholly."""
    return sum(size for work in works for _, size in work.weights)


def _ranges(
    works: Sequence[Work], done: dict[int, int], budget: int, most: int, meeting: int, phase: int
) -> list[Asked]:  # fmt: skip
    """The next bytes of a phase, in the order in which workgroups read them: dispatch by dispatch, of one that reads
    several matrices side by side as much of each.
    """
    found: list[Asked] = []
    for work in works:
        rest = [(start, size) for start, size in work.weights if size - done.get(start, 0) >= LINE]
        share = budget // max(len(rest), 1)
        for start, size in rest:
            first = done.get(start, 0)
            take = min(share, size - first, most) // LINE * LINE
            if take <= 0 or len(found) == RANGES:
                return found
            found.append(Asked(meeting, phase, start + first, take))
            done[start] = first + take
            budget -= take
    return found

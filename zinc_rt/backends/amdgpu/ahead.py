"""Which weights are brought into the L2 beside phases that read none.

Attention over a short text, and whatever a step begins with, waits for one load after the other: memory has little to do
meanwhile. The weights of the next product depend on nothing, so a dispatch of its own loads what it reads first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from zinc_rt.kernels.rdna.ahead import BYTES

if TYPE_CHECKING:
    from zinc_rt.backends.amdgpu.resident import Work

MOST_BYTES: Final = 4 << 20
"""Of one phase: half of an L2 of 8 MiB. Memory brings that in 7 us, which is what attention to 128 positions takes."""


def ahead(phases: Sequence[Sequence[Work]]) -> list[list[tuple[int, int]]]:
    """For each phase, addresses and bytes of what is loaded beside it: something where it reads no weights and the next
    one does, in the order in which workgroups will read it, of a dispatch that reads several matrices side by side as
    much of each.
    """
    reads = [any(work.weights for work in part) for part in phases]
    after = [*reads[1:], False]
    return [_first_bytes(phases[i + 1]) if after[i] and not reads[i] else [] for i in range(len(phases))]


def _first_bytes(works: Sequence[Work]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    room = MOST_BYTES
    for work in works:
        share = room // max(len(work.weights), 1)
        taken = [(start, min(share, size) // BYTES * BYTES) for start, size in work.weights]
        found += [(start, size) for start, size in taken if size]
        room -= sum(size for _, size in taken)
    return found

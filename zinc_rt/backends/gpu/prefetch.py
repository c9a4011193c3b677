"""Chooses the weights that a phase brings into the L2 for the next phases, by dispatches of their own beside its work.

Weights depend on no earlier phase. Memory has little to do in two cases: while attention over a short text waits for
one load after the other, and at the end of each phase, when its last waves end and one workgroup norms a row alone.
Workgroups of a queue start in the order of its dispatches. So the last dispatch of a phase runs where other workgroups
have ended; or, if all loads of the phase are under way from its beginning, its loads come behind them in memory. In
other phases it would take bandwidth from the phase's own loads, so there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from zinc_rt.backends.gpu.work import StepDispatch
from zinc_rt.kernels.gpu.ahead import BYTES
from zinc_rt.lang.gpu import GpuKernel

IDLE_BYTES: Final = 4 << 20
"""Beside a phase that reads no weights. Memory brings that in 7 us, which is what attention to 128 positions takes."""
END_BYTES: Final = 2 << 20
"""At the end of a phase with weights: what memory brings in 3.6 us."""
MOST_BYTES: Final = 6 << 20
"""That are there and not read yet: they shall lie in an L2 of 8 MiB, or in the cache behind a smaller one."""
FURTHEST: Final = 2
"""Phases with weights that are looked ahead to: a small one is there as a whole before the next one is long."""
_WAVE_BYTES: Final = 4608
"""Of weights that a wave has under way at once, about: four rows of 1024 as Q8_0."""


def prefetched(
    phases: Sequence[Sequence[StepDispatch]], at_once: Callable[[GpuKernel], int]
) -> list[list[tuple[int, int]]]:
    """For each phase, addresses and bytes of what is brought: of the next `FURTHEST` phases with weights, in the order
    in which workgroups will read it, of a dispatch that reads several matrices side by side as much of each.
    """
    found: list[list[tuple[int, int]]] = []
    done: dict[int, int] = {}  # bytes of each matrix, by address
    readers = [i for i, part in enumerate(phases) if any(work.weights for work in part)]
    for i, part in enumerate(phases):
        works = [work for at in [at for at in readers if at > i][:FURTHEST] for work in phases[at]]
        there = sum(done.get(start, 0) for work in works for start, _ in work.weights)
        found.append(_next_bytes(works, done, min(_room(part, at_once), MOST_BYTES - there)))
    return found


def _room(works: Sequence[StepDispatch], at_once: Callable[[GpuKernel], int]) -> int:
    """Bytes that may be brought beside a phase."""
    weights = sum(size for work in works for _, size in work.weights)
    if not weights:
        return IDLE_BYTES
    waves = sum(prod(work.groups) * -(-work.kernel.function.workgroup // 32) for work in works)
    full = sum(prod(work.groups) / at_once(_compiled(work)) for work in works) >= 1
    return END_BYTES if full or weights <= _WAVE_BYTES * waves else 0


def _compiled(work: StepDispatch) -> GpuKernel:
    assert work.program.kernel is not None, "kernels of steps were compiled here"
    return work.program.kernel


def _next_bytes(works: Sequence[StepDispatch], done: dict[int, int], room: int) -> list[tuple[int, int]]:
    """Of the matrices that a phase reads, `room` bytes behind those that are done, which these are then, too."""
    found: list[tuple[int, int]] = []
    for work in works:
        share = room // max(len(work.weights), 1)
        for start, size in work.weights:
            first = done.get(start, 0)
            taken = max(min(share, size - first), 0) // BYTES * BYTES
            if taken:
                found.append((start + first, taken))
                done[start] = first + taken
                room -= taken
    return found

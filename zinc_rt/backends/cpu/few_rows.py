"""Memory of their own for what late units of a step of few rows touch, so that hardly anything waits for them.

Units of products may be done twice, by a late thread and by another one (`kernels/cpu/flights.py`). What they read and
write must then stay for as long as a thread may be late. In the arena of a step buffers make room for others after a
few phases; here none does, so that a late thread is in nobody's way before the next step. For few rows that is little.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from zinc_rt.kernels.cpu.program import FEW_ROWS
from zinc_rt.mem.arena import align_up

if TYPE_CHECKING:
    from zinc_rt.backends.base import Capacity
    from zinc_rt.backends.cpu.lowering import CpuLowered, QuantisedActs
    from zinc_rt.backends.cpu.program import CpuOperation

MAX_BYTES: Final = 32 << 20
"""What all of it may take; a model that needs more has it for fewer rows."""
NEVER: Final = 1 << 30
"""Phases, where no late thread is in the way."""


@dataclass(frozen=True)
class FewRows:
    """Memory for steps of up to `rows` rows: offsets of buffers by key, packed ones as they lie there."""

    rows: int
    places: dict[Hashable, int]
    packs: dict[Hashable, QuantisedActs]
    n_bytes: int


def few_rows(lowered: CpuLowered, sizes: Capacity, threads: int) -> FewRows | None:
    """What operations that may be done again touch, placed; None where nobody could do them, or it takes too much."""
    keys = dict.fromkeys(key for op in lowered.operations if op.again for key in (*op.reads, *op.writes))
    rows = min(FEW_ROWS, sizes.n_rows)
    while keys and threads > 1 and rows:
        found = _placed(lowered, sizes, list(keys), rows)
        if found.n_bytes <= MAX_BYTES:
            return found
        rows //= 2
    return None


def _placed(lowered: CpuLowered, sizes: Capacity, keys: Sequence[Hashable], rows: int) -> FewRows:
    at, places, packs = 0, {}, {}
    for key in keys:
        if key in lowered.packs:
            packs[key] = lowered.packs[key].of_rows(rows)
            size = packs[key].size
        else:
            size = lowered.sizes[key] // sizes.n_rows * rows
        places[key] = at
        at += align_up(size + 64)  # whole vectors may reach over
    return FewRows(rows, places, packs, at)


def safe_distances(operations: Sequence[CpuOperation]) -> list[int]:
    """For each phase, how many phases back a thread may be late when it opens: short of one whose memory it writes.

    Takes for granted that what such operations touch shares memory with nothing.
    """
    last: dict[Hashable, int] = {}
    out: list[int] = []
    for op in operations:
        if op.phase == len(out):
            out.append(NEVER)
        for key in op.writes:
            if key in last and last[key] < op.phase:
                out[op.phase] = min(out[op.phase], op.phase - last[key] - 1)
        if op.again:
            last |= dict.fromkeys((*op.reads, *op.writes), op.phase)
    return out


def first_writers(operations: Sequence[CpuOperation]) -> list[int]:
    """For each phase of operations that may be done again, the first phase that writes what they touch; else 0."""
    first: dict[Hashable, int] = {}
    for op in operations:
        for key in op.writes:
            first.setdefault(key, op.phase)
    out = [0] * (max((op.phase for op in operations), default=-1) + 1)
    for op in (op for op in operations if op.again):
        found = min(first.get(key, op.phase) for key in (*op.reads, *op.writes))
        out[op.phase] = min(out[op.phase] or found, found)
    return out

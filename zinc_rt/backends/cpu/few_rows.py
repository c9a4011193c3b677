"""Memory of their own for units that may be late, in steps of few rows, so that hardly any phase waits for a late
thread.

Two threads may do the units of a product: a late one and one that does them again (`kernels/cpu/flights.py`). So the
inputs and outputs of these units must stay for as long as a thread may be late. In a step's arena other buffers reuse
memory after a few phases. Here no buffer reuses it within a step. For few rows that takes little memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from zinc_rt.kernels.cpu.program import FEW_ROWS
from zinc_rt.mem.arena import REACH, align_up

if TYPE_CHECKING:
    from zinc_rt.backends.base import Capacity
    from zinc_rt.backends.cpu.lowering import CpuLowered, QuantisedActs
    from zinc_rt.ir.graph import Graph

MAX_BYTES: Final = 32 << 20
"""What all of it may take; a model that needs more has it for fewer rows."""


@dataclass(frozen=True)
class FewRows:
    """Memory for steps of `sizes` and smaller ones: offsets of buffers by key, packed ones as they lie there."""

    sizes: Capacity
    places: dict[Hashable, int]
    packs: dict[Hashable, QuantisedActs]
    n_bytes: int


def few_rows(lowered: CpuLowered, graph: Graph, sizes: Capacity, threads: int) -> FewRows | None:
    """What operations that may be done again touch, placed; None where nobody could do them, or it takes too much."""
    keys = dict.fromkeys(key for op in lowered.operations if op.again for key in (*op.reads, *op.writes))
    rows = min(FEW_ROWS, sizes.n_rows)
    while keys and threads > 1 and rows:
        few = replace(sizes, n_rows=rows, n_logits=min(rows, sizes.n_logits))
        found = _placed(lowered, graph, few, list(keys))
        if found.n_bytes <= MAX_BYTES:
            return found
        rows //= 2
    return None


def _placed(lowered: CpuLowered, graph: Graph, sizes: Capacity, keys: Sequence[Hashable]) -> FewRows:
    packs = {key: lowered.packs[key].of_rows(sizes.n_rows) for key in keys if key in lowered.packs}
    needs, at, places = lowered.needs(graph, sizes, packs), 0, {}
    for key in keys:
        places[key] = at
        at += align_up(needs[key] + REACH)
    return FewRows(sizes, places, packs, at)

"""Places a step's temporaries, and finds the barriers that this needs.

If a kernel overwrites data that an earlier kernel of the same submission had loaded, it needs the full barrier, which
also drops the L2 (`docs/how/pm4.md`). So temporaries share memory only in steps that are too large for each to have its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.gpu.lowering import GpuLowered
from zinc_rt.backends.gpu.operations import GpuOperation, StepShape
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.mem.arena import Lifetime, align_up, place

ALIGNMENT = 256
AddressSpan = tuple[int, int]
"""First byte and the one after the last."""


@dataclass(frozen=True)
class Span:
    """Where buffers of one block lie: offsets by name, and bytes in all."""

    offsets: dict[Hashable, int]
    size: int


def one_after_another(sizes: Mapping[Hashable, int]) -> Span:
    """Each at a multiple of 256."""
    at, offsets = 0, {}
    for key, size in sizes.items():
        offsets[key] = at
        at += align_up(size, ALIGNMENT)
    return Span(offsets, max(at, ALIGNMENT))


def arena_bytes(graph: Graph, lowered: GpuLowered, sizes: Capacity) -> int:
    """What the largest step takes, where temporaries share memory, or a step of one row, where they lie apart."""
    one = StepShape(min(1, sizes.n_rows), min(1, sizes.n_logits), 1)
    return max(_apart(lowered, one).size, *(_sharing(graph, way, sizes)[1] for way in lowered.ways))


def placed(graph: Graph, lowered: GpuLowered, shape: StepShape, capacity: int) -> dict[Hashable, int]:
    """Offsets of a step's temporaries in an arena of `capacity` bytes, apart if that fits."""
    apart = _apart(lowered, shape)
    return apart.offsets if apart.size <= capacity else _sharing(graph, lowered, shape)[0]


def _apart(lowered: GpuLowered, shape: StepShape) -> Span:
    """Temporaries that share no memory."""
    return one_after_another({key: room.size(shape) for key, room in lowered.rooms.items()})


def scheduled(operations: list[GpuOperation]) -> int:
    """Give each operation the first phase in which all that it depends on is over, and sort them by phase, otherwise
    in their order. How many phases there are.
    """
    written: dict[Hashable, int] = {}
    touched: dict[Hashable, int] = {}
    for op in operations:
        after = (written.get(key, -1) for key in op.reads)
        op.phase = 1 + max((*after, *(touched.get(key, -1) for key in op.writes)), default=-1)
        for key in (*op.reads, *op.writes):
            touched[key] = max(touched.get(key, -1), op.phase)
        written.update(dict.fromkeys(op.writes, op.phase))
    operations.sort(key=lambda op: op.phase)
    return operations[-1].phase + 1 if operations else 0


def _sharing(graph: Graph, lowered: GpuLowered, shape: StepShape | Capacity) -> tuple[dict[Hashable, int], int]:
    """Temporaries that are not alive in the same phase may share memory; outputs live to the end."""
    outputs = {b.id for b in graph.of_kind(BufferKind.OUTPUT)}
    last = max((op.phase for op in lowered.operations), default=0)
    spans: dict[Hashable, tuple[int, int]] = {}
    for op in lowered.operations:
        for key in (*op.reads, *op.writes):
            if key in lowered.rooms:
                first = spans.get(key, (op.phase, 0))[0]
                spans[key] = (first, last if key in outputs else op.phase)
    keys = list(spans)
    sizes = (align_up(lowered.rooms[key].size(shape), ALIGNMENT) for key in keys)
    offsets, size = place([Lifetime(i, n, *spans[keys[i]]) for i, n in enumerate(sizes)])
    return {keys[i]: at for i, at in offsets.items()}, size


def phases(
    operations: Sequence[GpuOperation], stretch_of: Callable[[Hashable], AddressSpan | None]
) -> Iterator[tuple[list[GpuOperation], bool]]:
    """Operations by phase, and whether the barrier before it must be the full one. stretch_of: a name's memory; None:
    memory that nothing rewrites.
    """
    loaded: list[AddressSpan] = []
    start = 0
    while start < len(operations):
        end = start
        while end < len(operations) and operations[end].phase == operations[start].phase:
            end += 1
        part = list(operations[start:end])
        stores = [s for op in part for key in op.writes if (s := stretch_of(key)) is not None]
        full = any(a < d and c < b for a, b in stores for c, d in loaded)
        if full:
            loaded.clear()
        loaded += [s for op in part for key in op.reads if (s := stretch_of(key)) is not None]
        yield part, full
        start = end

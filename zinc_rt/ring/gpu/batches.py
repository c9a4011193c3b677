"""Batches of a lowered graph, one for each shape of a step that comes along; the last ones are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.kernels.rdna.catalogue import DECODE
from zinc_rt.ring.door.batch import Batch
from zinc_rt.ring.door.gpu_ring import GpuRing
from zinc_rt.ring.door.pool import GpuMemory
from zinc_rt.ring.door.program import Program
from zinc_rt.ring.gpu.lower import Lowered
from zinc_rt.ring.gpu.memory import GraphMemory
from zinc_rt.ring.gpu.operations import Block, Operation, Place, Shape
from zinc_rt.ring.gpu.placement import phases, placed
from zinc_rt.ring.records import Records

KEPT = 16
"""Shapes whose batches are kept: decode steps come back to theirs for 256 tokens."""


@dataclass
class _Recorded:
    batch: Batch
    arguments: GpuMemory


class Batches:
    """lowered: with its phases; programs: by symbol of a kernel."""

    def __init__(
        self, ring: GpuRing, graph: Graph, lowered: Lowered, memory: GraphMemory, programs: Mapping[str, Program]
    ) -> None:
        self._ring, self._graph, self._lowered = ring, graph, lowered
        self._memory, self._programs = memory, programs
        self._kept: OrderedDict[Shape, _Recorded] = OrderedDict()

    def of(self, shape: Shape) -> Batch:
        """The batch for a step of this shape."""
        if shape in self._kept:
            self._kept.move_to_end(shape)
            return self._kept[shape].batch
        while len(self._kept) >= KEPT:
            self._ring.free(self._kept.popitem(last=False)[1].arguments)
        self._kept[shape] = made = self._record(shape)
        return made.batch

    def _record(self, shape: Shape) -> _Recorded:
        operations = [op for op in self._lowered.operations if getattr(shape, op.counted)]
        where = placed(self._graph, self._lowered, shape, self._memory.arena_bytes)
        va = {**self._memory.va, **{key: self._memory.arena + at for key, at in where.items()}}

        def stretch(key: Hashable) -> tuple[int, int] | None:
            if key in where:
                return va[key], va[key] + self._lowered.rooms[key].size(shape)
            return (va[key], va[key] + 1) if key in va else None

        held, blocks = self._arguments(operations, va, shape)
        batch = Batch(f"step of {shape.n_rows} rows")
        self._move(batch, *self._memory.input_block)
        for part, full in phases(operations, stretch):
            batch.barrier(light=not full)
            for op in part:
                arguments = (blocks[id(a)] if isinstance(a, Block) else _value(a, va, shape) for a in op.arguments)
                batch.dispatch(self._programs[op.kernel(shape).spec.symbol], op.groups(shape), *arguments)
        batch.barrier(light=True)
        for b in self._graph.of_kind(BufferKind.OUTPUT):
            rows = int(getattr(shape, str(b.shape[0])))
            if rows:
                self._move(batch, va[b.id], self._memory.outside[b.id], rows * self._lowered.rooms[b.id].row_bytes)
        batch.memory += [held, *self._memory.held]
        return _Recorded(batch, held)

    def _move(self, batch: Batch, source: int, target: int, n_bytes: int) -> None:
        words = n_bytes // 4
        batch.dispatch(self._programs[DECODE["move"].spec.symbol], -(-words // 1024), source, target, words)

    def _arguments(
        self, operations: list[Operation], va: Mapping[Hashable, int], shape: Shape
    ) -> tuple[GpuMemory, dict[int, int]]:
        """Memory with the structs of arguments, and the address of each by its block's id."""
        blocks = {id(a): a for op in operations for a in op.arguments if isinstance(a, Block)}
        records = Records(block.struct for block in blocks.values())
        for i, block in enumerate(blocks.values()):
            records.write(i, {name: _value(value, va, shape) for name, value in block.values.items()})
        held = self._ring.alloc(max(records.memory.size, 1), label="arguments")
        self._ring.map(held)[: records.memory.size] = records.memory
        return held, {key: held.va + at for key, at in zip(blocks, records.offsets, strict=True)}


def _value(value: Any, va: Mapping[Hashable, int], shape: Shape) -> Any:
    if isinstance(value, Place):
        return va[value.key] + value.offset
    return value(shape) if callable(value) else value

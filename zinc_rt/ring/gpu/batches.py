"""Batches of a lowered graph, one for each shape of a step that comes along; the last ones are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.kernels.rdna.catalogue import DECODE
from zinc_rt.ring.door.batch import Batch
from zinc_rt.ring.door.gpu_ring import GpuRing
from zinc_rt.ring.door.pool import GpuMemory
from zinc_rt.ring.door.program import Program
from zinc_rt.ring.gpu.memory import GraphMemory
from zinc_rt.ring.gpu.operations import Block, Operation, Place, Shape

KEPT = 16
"""Shapes whose batches are kept: decode steps come back to theirs for 256 tokens."""
_ALIGNMENT = 64


@dataclass
class _Recorded:
    batch: Batch
    arguments: GpuMemory


class Batches:
    """programs: by symbol of a kernel."""

    def __init__(
        self, ring: GpuRing, graph: Graph, operations: list[Operation], memory: GraphMemory,
        programs: Mapping[str, Program],
    ) -> None:  # fmt: skip
        self._ring, self._graph, self._operations = ring, graph, operations
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

    def close(self) -> None:
        """Free all of them."""
        while self._kept:
            self._ring.free(self._kept.popitem()[1].arguments)

    def _record(self, shape: Shape) -> _Recorded:
        operations = [op for op in self._operations if getattr(shape, op.counted)]
        blocks = [a for op in operations for a in op.arguments if isinstance(a, Block)]
        offsets, size = self._layout(blocks)
        held = self._ring.alloc(max(size, _ALIGNMENT), heap="gtt", label="arguments")
        there = self._ring.map(held)
        for block, at in offsets:
            raw = self._struct(block, shape)
            there[at : at + raw.size] = raw
        places = {id(block): held.va + at for block, at in offsets}
        batch = Batch(f"step of {shape.n_rows} rows")
        self._move(batch, self._memory.outside["inputs"], self._memory.va[self._first_input()], self._memory.input_bytes)
        phase = -1
        for op in operations:
            if op.phase != phase:
                batch.barrier(light=True)
                phase = op.phase
            groups = (*op.groups(shape), 1, 1)[:3]
            arguments = (places[id(a)] if isinstance(a, Block) else self._value(a, shape) for a in op.arguments)
            batch.dispatch(self._programs[op.kernel(shape).spec.symbol], groups, *arguments)
        batch.barrier(light=True)
        for b in self._graph.of_kind(BufferKind.OUTPUT):
            rows = getattr(shape, b.shape[0]) if isinstance(b.shape[0], str) else b.shape[0]
            width = int(np.prod(b.shape[1:], dtype=np.int64))
            if rows:
                self._move(batch, self._memory.va[b.id], self._memory.outside[b.id], rows * width * 4)
        batch.memory += [held, *self._memory.held]
        return _Recorded(batch, held)

    def _first_input(self) -> int:
        return min((b.id for b in self._graph.of_kind(BufferKind.INPUT)), key=lambda i: self._memory.va[i])

    def _move(self, batch: Batch, source: int, target: int, n_bytes: int) -> None:
        words = n_bytes // 4
        batch.dispatch(self._programs[DECODE["move"].spec.symbol], -(-words // 1024), source, target, words)

    @staticmethod
    def _layout(blocks: list[Block]) -> tuple[list[tuple[Block, int]], int]:
        at, offsets, seen = 0, [], set[int]()
        for block in blocks:
            if id(block) not in seen:
                seen.add(id(block))
                offsets.append((block, at))
                at += -(-block.struct.size // _ALIGNMENT) * _ALIGNMENT
        return offsets, at

    def _struct(self, block: Block, shape: Shape) -> np.ndarray[Any, np.dtype[np.uint8]]:
        row = np.zeros(1, np.dtype(dict(block.struct.numpy)))
        for name, value in block.values.items():
            row[name] = self._value(value, shape)
        return row.view(np.uint8)

    def _value(self, value: Any, shape: Shape) -> Any:
        if isinstance(value, Place):
            return self._memory.va[value.key] + value.offset
        return value(shape) if callable(value) else value

"""A graph's memory on the GPU: weights, tables, caches, inputs and outputs of a step, and an arena of temporaries."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arrays import bound, n_bytes, sequence_states, state_bytes, typed
from zinc_rt.backends.base import Bytes, Capacity
from zinc_rt.backends.gpu.device import DeviceKernel, DeviceMemory, GpuDevice, HostUse
from zinc_rt.backends.gpu.lowering import GpuLowered
from zinc_rt.backends.gpu.operations import ArgumentBlock, GpuOperation, TempSpec, padded_rows
from zinc_rt.backends.gpu.placement import ALIGNMENT, Span, arena_bytes, one_after_another
from zinc_rt.ir.graph import Buffer, BufferKind, Graph
from zinc_rt.mem.arena import align_up

_STAGING = 16 << 20
"""Bytes that go at once to memory which only the GPU reaches."""


def inputs_span(graph: Graph, sizes: Capacity) -> Span:
    """The step's inputs, in one block; with room for whole blocks of rows."""
    return one_after_another({b.id: _padded_bytes(b, sizes) for b in graph.of_kind(BufferKind.INPUT)})


def _padded_bytes(b: Buffer, sizes: Capacity) -> int:
    whole, rows = n_bytes(b, sizes), sizes.shape(b.shape)[0]
    return whole // rows * padded_rows(rows) if b.shape[0] in ("n_rows", "n_logits") and rows else whole


def outputs_span(graph: Graph, sizes: Capacity) -> Span:
    """The step's outputs where the processor reads them, in one block."""
    return one_after_another({b.id: n_bytes(b, sizes) for b in graph.of_kind(BufferKind.OUTPUT)})


def planned(graph: Graph, sizes: Capacity, lowered: GpuLowered, borrowed: Container[int]) -> dict[str, int]:
    """Bytes by purpose; see `Backend.plan`. borrowed: buffers that another graph has."""

    def total(*kinds: BufferKind) -> int:
        return sum(align_up(n_bytes(b, sizes), ALIGNMENT) for b in graph.of_kind(*kinds))

    io = 2 * inputs_span(graph, sizes).size + outputs_span(graph, sizes).size
    weights = [b for b in graph.of_kind(BufferKind.WEIGHT) if b.id not in lowered.gathered and b.id not in borrowed]
    return {
        "weights": sum(align_up(n_bytes(b, sizes), ALIGNMENT) for b in weights),
        "unpacked": 0,
        **state_bytes(graph, sizes, ALIGNMENT, borrowed),
        "scratch": arena_bytes(graph, lowered, sizes) + io + one_after_another(lowered.counters).size,
        "constants": total(BufferKind.CONSTANT),
    }


@dataclass(frozen=True)
class GatheredRows:
    """Rows of a table that stays with the host, for a step: u8[n_rows, row_bytes] where the GPU reads them.

    table: the file's rows, mapped. ids: the step's input that says which.
    """

    table: Bytes
    ids: npt.NDArray[np.int32]
    rows: Bytes

    def bring(self, n_rows: int) -> None:
        """Copy the step's rows. Its ids have been checked, and no step is running."""
        self.rows[:n_rows] = self.table[self.ids[:n_rows]]


@dataclass
class GraphMemory:
    """A lowered graph's memory. va: GPU addresses by name, of all but temporaries, which lie in `arena`, different for
    each shape; inputs, outputs: arrays by buffer name, in memory that the processor reads and writes; outside: where
    the GPU finds the outputs' arrays; held: what to free; borrowed: what another graph holds; pieces: the memory of
    buffers; gathered: what the processor brings before a step.
    """

    va: dict[Hashable, int] = field(default_factory=dict)
    inputs: dict[str, npt.NDArray[np.int32]] = field(default_factory=dict)
    outputs: dict[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    outside: dict[Hashable, int] = field(default_factory=dict)
    held: list[DeviceMemory] = field(default_factory=list)
    borrowed: list[DeviceMemory] = field(default_factory=list)
    pieces: dict[Hashable, DeviceMemory] = field(default_factory=dict)
    gathered: list[GatheredRows] = field(default_factory=list)
    arena: int = 0
    arena_bytes: int = 0
    input_block: tuple[int, int, int] = (0, 0, 0)  # from, to, bytes: what a step begins with
    states: list[tuple[int, int]] = field(default_factory=list)  # address, bytes of a slot: of each recurrent state


class Uploader:
    """Puts arrays into GPU memory: by the processor where it reaches all of it, else by a kernel from system memory.

    move: the program of `elementwise.move`.
    """

    def __init__(self, backend: GpuDevice, move: DeviceKernel) -> None:
        self.backend, self._move = backend, move
        self._direct = backend.host_reaches_all
        self._staging: DeviceMemory | None = None

    def room(self, n_bytes: int, label: str) -> DeviceMemory:
        """Memory of the GPU, undefined."""
        if self._direct:
            return self.backend.alloc(max(n_bytes, ALIGNMENT), label=label)
        return self.backend.alloc(max(n_bytes, ALIGNMENT), heap="vram", visible=False, label=label)

    def put(self, memory: DeviceMemory, data: npt.NDArray[Any], offset: int = 0) -> None:
        """Store it at a byte offset; returns when the data is there."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if self._direct:
            self.backend.write(memory, raw, offset)
            return
        if self._staging is None:
            self._staging = self.backend.alloc(_STAGING, heap="gtt", label="staging")
        for at in range(0, raw.size, _STAGING):
            part = raw[at : at + _STAGING]
            self.backend.write(self._staging, part)
            words = -(-part.size // 4)
            target = memory.va + offset + at
            batch = self.backend.commands("upload")
            batch.dispatch(self._move, -(-words // 1024), self._staging, target, words)
            self.backend.wait(self.backend.submit(batch))

    def clear(self, memory: DeviceMemory) -> None:
        """Make it all zero."""
        zeros = np.zeros(min(memory.size, _STAGING), np.uint8)
        for at in range(0, memory.size, _STAGING):
            self.put(memory, zeros[: memory.size - at], at)

    def close(self) -> None:
        """Give the staging memory back."""
        if self._staging is not None:
            self.backend.free(self._staging)
            self._staging = None


def fill(
    memory: GraphMemory, up: Uploader, graph: Graph, sizes: Capacity, lowered: GpuLowered, weights: Mapping[str, Bytes],
    constants: Mapping[str, npt.NDArray[np.float32]], released: Callable[[str], None] | None,
    progress: Callable[[int, int], None] | None, borrowed: Mapping[int, DeviceMemory],
) -> None:  # fmt: skip
    """Allocate everything and bring weights and constants over. borrowed: what another graph has, by buffer.

    Raises `BackendError`, `InterfaceError`.
    """
    memory.va.update({key: piece.va for key, piece in borrowed.items()})
    memory.pieces.update(borrowed.items())
    memory.borrowed += borrowed.values()
    _constants(memory, up, graph, lowered, constants)
    for b in graph.of_kind(BufferKind.STATE):
        if b.id not in borrowed:
            state = _held(memory, up, b.id, n_bytes(b, sizes), b.name)
            up.clear(state)
    span = one_after_another(lowered.counters)
    counters = _held(memory, up, "counters", span.size, "counters")
    up.clear(counters)
    memory.va.update({key: counters.va + at for key, at in span.offsets.items()})
    for b in sequence_states(graph):
        memory.states.append((memory.va[b.id], n_bytes(b, sizes) // sizes.n_slots))
    memory.arena_bytes = arena_bytes(graph, lowered, sizes)
    memory.arena = _held(memory, up, "scratch", memory.arena_bytes, "scratch").va
    _step_io(memory, up, graph, sizes)
    _gathered(memory, up, graph, sizes, lowered, weights)
    absent = [b for b in graph.of_kind(BufferKind.WEIGHT) if b.id not in borrowed]
    matrices = [b for b in absent if b.id not in lowered.gathered]
    given = {b.name: bound(weights, b) for b in matrices}
    total, done = sum(raw.nbytes for raw in given.values()), 0
    if progress is not None:
        progress(0, total)
    for b in matrices:
        raw = given[b.name]
        up.put(_held(memory, up, b.id, raw.nbytes, b.name), raw)
        done += raw.nbytes
        if released is not None:
            released(b.name)
        if progress is not None:
            progress(done, total)


def _held(memory: GraphMemory, up: Uploader, key: Hashable, size: int, label: str) -> DeviceMemory:
    made = up.room(size, label)
    memory.held.append(made)
    memory.va[key], memory.pieces[key] = made.va, made
    return made


def _constants(
    memory: GraphMemory,
    up: Uploader,
    graph: Graph,
    lowered: GpuLowered,
    constants: Mapping[str, npt.NDArray[np.float32]],
) -> None:
    for b in graph.of_kind(BufferKind.CONSTANT):
        array = bound(constants, b)
        if b.id in lowered.rotations:  # f32[positions, pairs, 2] in the graph, [positions, 2, pairs] for the kernels
            up.put(_held(memory, up, ("rotation", b.id), array.nbytes, b.name), array.transpose(0, 2, 1))
        if any(_read_as_is(b, way.operations) for way in lowered.ways):
            up.put(_held(memory, up, b.id, array.nbytes, b.name), array)


def _read_as_is(b: Buffer, operations: Iterable[GpuOperation]) -> bool:
    arguments = (a for op in operations for a in op.arguments)
    values = (v for a in arguments for v in (a.values.values() if isinstance(a, ArgumentBlock) else (a,)))
    return any(isinstance(v, TempSpec) and v.key == b.id for v in values)


def _gathered(
    memory: GraphMemory, up: Uploader, graph: Graph, sizes: Capacity, lowered: GpuLowered, weights: Mapping[str, Bytes]
) -> None:
    """Room in system memory for the rows that a step looks up in tables which stay with the host."""
    if not lowered.gathered:
        return
    numbers = np.arange(padded_rows(sizes.n_rows), dtype=np.int32)
    up.put(_held(memory, up, "row numbers", numbers.nbytes, "row numbers"), numbers)
    for table, ids in lowered.gathered.items():
        raw = bound(weights, graph.buffer(table))
        made = up.backend.alloc(sizes.n_rows * raw.shape[1], heap="gtt", label=graph.buffer(table).name)
        memory.held.append(made)
        memory.va["gathered", table] = made.va
        rows = up.backend.map(made)[: sizes.n_rows * raw.shape[1]].reshape(sizes.n_rows, raw.shape[1])
        memory.gathered.append(GatheredRows(raw, memory.inputs[graph.buffer(ids).name], rows))


def _step_io(memory: GraphMemory, up: Uploader, graph: Graph, sizes: Capacity) -> None:
    """Inputs and outputs lie in system memory, the outputs in what the processor caches; kernels use copies in the
    GPU's own.
    """
    inputs = inputs_span(graph, sizes)
    copied = _held(memory, up, "inputs", inputs.size, "inputs")
    memory.va.update({key: copied.va + at for key, at in inputs.offsets.items()})
    for span, kind in ((inputs, BufferKind.INPUT), (outputs_span(graph, sizes), BufferKind.OUTPUT)):
        use: HostUse = "writes" if kind is BufferKind.INPUT else "reads"
        made = up.backend.alloc(span.size, heap="gtt", use=use, label=f"{kind.value}s")
        memory.held.append(made)
        there = up.backend.map(made)
        there[:] = 0
        for b in graph.of_kind(kind):
            at = span.offsets[b.id]
            array = typed(there[at : at + n_bytes(b, sizes)], b, sizes)
            if kind is BufferKind.INPUT:
                memory.inputs[b.name] = array.view(np.int32)
            else:
                memory.outputs[b.name] = array
                memory.outside[b.id] = made.va + at
        if kind is BufferKind.INPUT:
            memory.input_block = made.va, copied.va, inputs.size

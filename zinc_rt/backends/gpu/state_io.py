"""Reads and writes the data that a graph keeps on a GPU between steps: states of sequences, pages of KV caches."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arrays import sequence_states
from zinc_rt.backends.base import Backend, Bytes, CachePages, LoweredGraph, SequenceState, cache_of, check_copy
from zinc_rt.backends.cache_pages import PageLayout, flat, halves, joined, parted
from zinc_rt.backends.gpu.device import DeviceKernel, DeviceMemory, GpuDevice, HostUse
from zinc_rt.backends.gpu.memory import Uploader
from zinc_rt.backends.gpu.placement import ALIGNMENT
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Graph
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.mem.arena import align_up
from zinc_rt.numerics import GROUP, PAGE_TOKENS

_STAGING: Final = 16 << 20
"""Bytes that are moved at once by way of system memory that host and GPU reach; at least one piece."""
MOVE = DECODE["move"]
"""The kernel that copies memory; a backend that keeps anything has loaded it."""


def _declared_pages(pages: Bytes, cache: CachePages) -> Bytes:
    if not cache.quantized:
        return pages
    n, elements = len(pages), PAGE_TOKENS * cache.n_heads * cache.width
    groups = (n, PAGE_TOKENS, cache.n_heads, cache.width // GROUP)
    return joined(
        np.ascontiguousarray(pages[:, :elements]).reshape(*groups, GROUP), halves(pages[:, elements:], *groups[1:])
    )


def _own_pages(pages: Bytes, cache: CachePages) -> Bytes:
    if not cache.quantized:
        return pages
    return np.concatenate([flat(part) for part in parted(pages, cache)], axis=-1)


GPU_LAYOUT = PageLayout(_declared_pages, _own_pages)
"""How kernels keep pages of a KV cache: float16 as declared, of blocks all integers of a page, then all scales. See
`kernels.gpu.kv_quant`.
"""
SlotStates = Sequence[tuple[int, int]]
"""Of each state buffer its address and the bytes of a slot, a multiple of 4."""


@dataclass(eq=False)
class GpuState(SequenceState):
    """A copy of a sequence's states in the GPU's memory: the entries of a slot in a row. owner: their graph."""

    owner: LoweredGraph
    gpu: GpuDevice
    memory: DeviceMemory
    size: int
    closed: bool = field(default=False)

    @property
    def n_bytes(self) -> int:
        """See `SequenceState.n_bytes`."""
        return self.size

    def close(self) -> None:
        """See `SequenceState.close`."""
        if not self.closed:
            self.closed = True
            self.gpu.free(self.memory)


def _entries(states: SlotStates) -> Iterator[int]:
    """Where in a copy each state's entry begins."""
    at = 0
    for _, size in states:
        yield at
        at += align_up(size, ALIGNMENT)


def _copy_bytes(states: SlotStates) -> int:
    """Bytes of a copy."""
    return max(ALIGNMENT, sum(align_up(size, ALIGNMENT) for _, size in states))


def _move_slot(
    gpu: GpuDevice, program: DeviceKernel, states: SlotStates, slot: int, copy: DeviceMemory, *, out: bool
) -> None:
    """Copy a slot's entries out, or back in, and wait. program: of `elementwise.move`."""
    commands = gpu.commands("save state" if out else "load state")
    for (address, size), at in zip(states, _entries(states), strict=True):
        inside, outside = address + slot * size, copy.va + at
        source, target = (inside, outside) if out else (outside, inside)
        commands.dispatch(program, -(-size // 4 // 1024), source, target, size // 4)
    gpu.wait(gpu.submit(commands))


@dataclass(frozen=True, eq=False)
class StatefulGraph(LoweredGraph):
    """slots: where states of sequences are; cache_places: addresses of KV caches by buffer name."""

    graph: Graph = field(kw_only=True)
    slots: SlotStates = ()
    cache_places: Mapping[str, int] = field(default_factory=dict)


class StateIO(Backend):
    """The part of a GPU backend that deals with them. Each call raises `InterfaceError` and `DeviceLost`, too."""

    gpu: GpuDevice

    @abstractmethod
    def _own(self, lowered: LoweredGraph) -> StatefulGraph:
        """The graph, if it is this backend's. Raises `BackendError`."""

    @property
    @abstractmethod
    def _mover(self) -> DeviceKernel:
        """The program of `MOVE`."""

    def _uploader(self) -> Uploader:
        return Uploader(self.gpu, self._mover)

    def save_state(self, lowered: LoweredGraph, slot: int, into: SequenceState | None = None) -> GpuState:
        """See `Backend.save_state`; the copy stays in the GPU's memory."""
        ours = self._own(lowered)
        if isinstance(into, GpuState) and into.owner is ours and not into.closed:
            self._move(ours, slot, into, out=True)
            return into
        state = self._room(ours)
        try:
            self._move(ours, slot, state, out=True)
        except BaseException:
            state.close()
            raise
        return state

    def load_state(self, lowered: LoweredGraph, slot: int, state: SequenceState) -> None:
        """See `Backend.load_state`."""
        ours = self._own(lowered)
        if not isinstance(state, GpuState) or state.owner is not ours or state.closed:
            raise BackendError("the state was saved from another graph, or was closed")
        self._move(ours, slot, state, out=False)

    def _room(self, graph: StatefulGraph) -> GpuState:
        size, uploader = _copy_bytes(graph.slots), self._uploader()
        memory = uploader.room(size, "sequence state")
        uploader.close()
        return GpuState(graph, self.gpu, memory, size)

    def _move(self, graph: StatefulGraph, slot: int, copy: GpuState, *, out: bool) -> None:
        if graph.slots:
            _move_slot(self.gpu, self._mover, graph.slots, slot, copy.memory, out=out)

    def read_copy(self, state: SequenceState) -> dict[str, npt.NDArray[np.float32]]:
        """See `Backend.read_copy`."""
        if not isinstance(state, GpuState) or state.closed or state.gpu is not self.gpu:
            raise BackendError("the state was saved by another backend, or was closed")
        ours = self._own(state.owner)
        whole = _fetch(self.gpu, self._mover, [state.memory.va], state.size)[0]
        return {
            name: whole[at : at + 4 * math.prod(shape)].view(np.float32).reshape(shape)
            for (name, shape), at in zip(_shapes(ours.graph).items(), _entries(ours.slots), strict=True)
        }

    def make_copy(self, lowered: LoweredGraph, arrays: Mapping[str, npt.NDArray[np.float32]]) -> GpuState:
        """See `Backend.make_copy`."""
        ours = self._own(lowered)
        shapes = _shapes(ours.graph)
        check_copy(arrays, shapes)
        state = self._room(ours)
        whole = np.zeros((1, state.size), np.uint8)
        for name, at in zip(shapes, _entries(ours.slots), strict=True):
            whole[0, at : at + arrays[name].nbytes] = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        try:
            _store(self.gpu, self._mover, [state.memory.va], whole)
        except BaseException:
            state.close()
            raise
        return state

    def read_pages(self, lowered: LoweredGraph, cache: str, pages: Sequence[int]) -> Bytes:
        """See `Backend.read_pages`."""
        ours, about = self._own(lowered), cache_of(lowered, cache)
        places = [ours.cache_places[cache] + page * about.page_bytes for page in pages]
        return GPU_LAYOUT.declared(_fetch(self.gpu, self._mover, places, about.page_bytes), about)

    def write_pages(self, lowered: LoweredGraph, cache: str, pages: Sequence[int], contents: Bytes) -> None:
        """See `Backend.write_pages`."""
        ours, about = self._own(lowered), cache_of(lowered, cache, contents)
        places = [ours.cache_places[cache] + page * about.page_bytes for page in pages]
        _store(self.gpu, self._mover, places, GPU_LAYOUT.own(contents, about))


def _shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Of a slot's entry in each state buffer."""
    return {b.name: tuple(int(dim) for dim in b.shape[1:]) for b in sequence_states(graph)}


def _fetch(gpu: GpuDevice, move: DeviceKernel, places: Sequence[int], size: int) -> Bytes:
    """The bytes at addresses, u8[len(places), size]. size: a multiple of 4; move: the program of `elementwise.move`.

    Raises what `GpuDevice.submit` and `wait` raise.
    """
    out = np.empty((len(places), size), np.uint8)
    for first, some, staging in _parts(gpu, places, size, "reads"):
        commands = gpu.commands("fetch")
        for at, place in enumerate(some):
            commands.dispatch(move, -(-size // 4 // 1024), place, staging.va + at * size, size // 4)
        gpu.wait(gpu.submit(commands))
        got = np.frombuffer(gpu.read(staging, size * len(some)), np.uint8)
        out[first : first + len(some)] = got.reshape(len(some), size)
    return out


def _store(gpu: GpuDevice, move: DeviceKernel, places: Sequence[int], contents: Bytes) -> None:
    """Put u8[len(places), size] to addresses. Raises what `_fetch` raises."""
    size = contents.shape[1]
    for first, some, staging in _parts(gpu, places, size, "writes"):
        gpu.write(staging, np.ascontiguousarray(contents[first : first + len(some)]).reshape(-1))
        commands = gpu.commands("store")
        for at, place in enumerate(some):
            commands.dispatch(move, -(-size // 4 // 1024), staging.va + at * size, place, size // 4)
        gpu.wait(gpu.submit(commands))


def _parts(
    gpu: GpuDevice, places: Sequence[int], size: int, use: HostUse
) -> Iterator[tuple[int, Sequence[int], DeviceMemory]]:
    """Places in lots that fit the staging memory: the index of the first, the places, the memory."""
    lot = max(1, _STAGING // size)
    staging = gpu.alloc(size * min(lot, max(1, len(places))), heap="gtt", use=use, label="staging")
    try:
        for first in range(0, len(places), lot):
            yield first, places[first : first + lot], staging
    finally:
        gpu.free(staging)

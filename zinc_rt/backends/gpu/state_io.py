"""What a graph keeps on a GPU between steps, brought out and back: states of sequences, pages of KV caches."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arrays import sequence_states
from zinc_rt.backends.base import Backend, Bytes, LoweredGraph, SequenceState, cache_of, check_copy
from zinc_rt.backends.gpu.cache_layout import GPU_LAYOUT
from zinc_rt.backends.gpu.device import DeviceKernel, GpuDevice
from zinc_rt.backends.gpu.memory import Uploader
from zinc_rt.backends.gpu.states import GpuState, SlotStates, entries, move, room
from zinc_rt.backends.gpu.transfers import fetch, store
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Graph
from zinc_rt.kernels.gpu.catalogue import DECODE

MOVE = DECODE["move"]
"""The kernel that copies memory; a backend that keeps anything has loaded it."""


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
        size, uploader = room(graph.slots), self._uploader()
        memory = uploader.room(size, "sequence state")
        uploader.close()
        return GpuState(graph, self.gpu, memory, size)

    def _move(self, graph: StatefulGraph, slot: int, copy: GpuState, *, out: bool) -> None:
        if graph.slots:
            move(self.gpu, self._mover, graph.slots, slot, copy.memory, out=out)

    def read_copy(self, state: SequenceState) -> dict[str, npt.NDArray[np.float32]]:
        """See `Backend.read_copy`."""
        if not isinstance(state, GpuState) or state.closed or state.gpu is not self.gpu:
            raise BackendError("the state was saved by another backend, or was closed")
        ours = self._own(state.owner)
        whole = fetch(self.gpu, self._mover, [state.memory.va], state.size)[0]
        return {
            name: whole[at : at + 4 * math.prod(shape)].view(np.float32).reshape(shape)
            for (name, shape), at in zip(_shapes(ours.graph).items(), entries(ours.slots), strict=True)
        }

    def make_copy(self, lowered: LoweredGraph, arrays: Mapping[str, npt.NDArray[np.float32]]) -> GpuState:
        """See `Backend.make_copy`."""
        ours = self._own(lowered)
        shapes = _shapes(ours.graph)
        check_copy(arrays, shapes)
        state = self._room(ours)
        whole = np.zeros((1, state.size), np.uint8)
        for name, at in zip(shapes, entries(ours.slots), strict=True):
            whole[0, at : at + arrays[name].nbytes] = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        try:
            store(self.gpu, self._mover, [state.memory.va], whole)
        except BaseException:
            state.close()
            raise
        return state

    def read_pages(self, lowered: LoweredGraph, cache: str, pages: Sequence[int]) -> Bytes:
        """See `Backend.read_pages`."""
        ours, about = self._own(lowered), cache_of(lowered, cache)
        places = [ours.cache_places[cache] + page * about.page_bytes for page in pages]
        return GPU_LAYOUT.declared(fetch(self.gpu, self._mover, places, about.page_bytes), about)

    def write_pages(self, lowered: LoweredGraph, cache: str, pages: Sequence[int], contents: Bytes) -> None:
        """See `Backend.write_pages`."""
        ours, about = self._own(lowered), cache_of(lowered, cache, contents)
        places = [ours.cache_places[cache] + page * about.page_bytes for page in pages]
        store(self.gpu, self._mover, places, GPU_LAYOUT.own(contents, about))


def _shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Of a slot's entry in each state buffer."""
    return {b.name: tuple(int(dim) for dim in b.shape[1:]) for b in sequence_states(graph)}

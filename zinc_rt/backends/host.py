"""The common part of backends whose steps run on the calling thread and are over when `submit` returns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import (
    Backend,
    Bytes,
    CheckedStep,
    LoweredGraph,
    SequenceState,
    StepFence,
    cache_of,
    check_copy,
)
from zinc_rt.backends.cache_pages import PageLayout
from zinc_rt.errors import BackendError
from zinc_rt.mem.plan import available_memory
from zinc_rt.sampling.request import DeviceSampling
from zinc_rt.utils.checks import whole_between

MAX_THREADS = 1024


@dataclass(eq=False)
class HostState(SequenceState):
    """Copies in plain memory. owner: the graph that they are of."""

    owner: LoweredGraph
    copies: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)

    @property
    def n_bytes(self) -> int:
        """See `SequenceState.n_bytes`."""
        return sum(copy.nbytes for copy in self.copies.values())

    def close(self) -> None:
        """See `SequenceState.close`."""
        self.copies = {}


@dataclass(frozen=True, eq=False)
class HostGraph(LoweredGraph):
    """A graph in plain memory. cache_arrays: by buffer name the pages of caches, u8[n_pages, page_bytes]; layout: how
    they lie there.
    """

    cache_arrays: Mapping[str, Bytes] = field(kw_only=True)
    layout: PageLayout = field(kw_only=True)


class HostBackend(Backend):
    """Fences, closing and memory of a backend that computes on the processor."""

    graphs: type[HostGraph]
    """What `lower` returns and `submit` takes, also of another backend of the same class."""

    def __init__(self) -> None:
        self._sequence = 0
        self._closed = False
        # A thread that closes the backend waits for the step that runs, unless it runs that step itself.
        self._step = RLock()

    @property
    def description(self) -> str:
        """Kernels, what they are compiled for, and threads."""
        f = self.features
        level = f" for {f.isa}" if f.isa else ""
        count = f"{f.threads} thread" if f.threads == 1 else f"{f.threads} threads"
        return f"{f.kernels} kernels{level}, {count}"

    @property
    def memory_available(self) -> int | None:
        """What the machine and the control group leave."""
        return available_memory()

    def _check_open(self) -> None:
        if self._closed:
            raise BackendError("the CPU backend is closed")

    @abstractmethod
    def _run(self, lowered: LoweredGraph, n_rows: int, n_logits: int, sampling: DeviceSampling | None) -> None:
        """Compute a step that was checked, as its sampling was."""

    def _check_sampling(self, lowered: LoweredGraph, sampling: DeviceSampling) -> None:
        """Raise `BackendError` unless this backend's `sampling_for` gave it for the step that is to run."""
        raise BackendError(f"the tokens of this step are chosen by something else; this is {self.description}")

    def submit(self, step: CheckedStep, sampling: DeviceSampling | None = None) -> StepFence:
        """Run the step; the fence has retired on return. Kernel errors propagate. See `Backend.submit`."""
        with self._step:
            self._check_own(step.lowered)
            if sampling is not None:
                self._check_sampling(step.lowered, sampling)
            self._run(*step, sampling)
            self._sequence += 1
            return StepFence(self._sequence, retired=True)

    def wait(self, fence: StepFence, timeout: float | None = None) -> None:
        """Return at once: what `submit` returned has retired. Raises `BackendError` for a foreign fence."""
        self._check_open()
        if not fence.retired or not 1 <= fence.sequence <= self._sequence:
            raise BackendError(
                f"fence {fence.sequence} was not submitted to this backend; its last is {self._sequence}"
            )

    def save_state(self, lowered: LoweredGraph, slot: int, into: SequenceState | None = None) -> HostState:
        """See `Backend.save_state`."""
        with self._step:
            self._check_own(lowered)
            if isinstance(into, HostState) and into.owner is lowered and into.copies:
                for name, copy in into.copies.items():  # fresh memory costs more than the copy
                    copy[...] = lowered.states[name][slot]
                return into
            return HostState(lowered, {name: array[slot].copy() for name, array in lowered.states.items()})

    def load_state(self, lowered: LoweredGraph, slot: int, state: SequenceState) -> None:
        """See `Backend.load_state`."""
        with self._step:
            self._check_own(lowered)
            if not isinstance(state, HostState) or state.owner is not lowered or not state.copies:
                raise BackendError("the state was saved from another graph, or was closed")
            for name, copy in state.copies.items():
                lowered.states[name][slot] = copy

    def read_copy(self, state: SequenceState) -> dict[str, npt.NDArray[np.float32]]:
        """See `Backend.read_copy`."""
        if not isinstance(state, HostState) or (state.owner.states and not state.copies):
            raise BackendError("the state was saved by another backend, or was closed")
        return {name: copy.view(np.float32) for name, copy in state.copies.items()}

    def make_copy(self, lowered: LoweredGraph, arrays: Mapping[str, npt.NDArray[np.float32]]) -> HostState:
        """See `Backend.make_copy`."""
        self._check_own(lowered)
        check_copy(arrays, {name: array.shape[1:] for name, array in lowered.states.items()})
        return HostState(lowered, {name: array.copy() for name, array in arrays.items()})

    def read_pages(self, lowered: LoweredGraph, cache: str, pages: Sequence[int]) -> Bytes:
        """See `Backend.read_pages`."""
        with self._step:
            own, about = self._own(lowered), cache_of(lowered, cache)
            return own.layout.declared(own.cache_arrays[cache][list(pages)], about)

    def write_pages(self, lowered: LoweredGraph, cache: str, pages: Sequence[int], contents: Bytes) -> None:
        """See `Backend.write_pages`."""
        with self._step:
            own, about = self._own(lowered), cache_of(lowered, cache, contents)
            own.cache_arrays[cache][list(pages)] = own.layout.own(contents, about)

    def write_constant(
        self, lowered: LoweredGraph, name: str, values: npt.NDArray[np.generic], entry: int | None = None
    ) -> None:
        """See `Backend.write_constant`. Kernels read the array itself."""
        self._check_own(lowered)

    def _own(self, lowered: LoweredGraph) -> HostGraph:
        self._check_own(lowered)
        assert isinstance(lowered, HostGraph)
        return lowered

    def _check_own(self, lowered: LoweredGraph) -> None:
        self._check_open()
        if not isinstance(lowered, self.graphs):
            raise BackendError(f"the graph was lowered by another kind of backend; this is {self.description}")

    def _end(self) -> None:
        """Give back what the backend itself holds, once."""

    def close(self) -> None:
        """End the threads; graphs lowered here cannot be submitted again.

        Any thread may call it: a step that runs is waited for.
        """
        with self._step:
            if not self._closed:
                self._end()
            self._closed = True


def checked_threads(threads: int | None) -> int | None:
    """A number of threads as an int. Raises `UsageError` unless it is a whole number from 1 to 1024."""
    return None if threads is None else whole_between("threads", threads, 1, MAX_THREADS)

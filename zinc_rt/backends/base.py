"""The contract of backends.

A backend plans a graph (`plan`, `tune`), lowers it once (`lower`) and then runs it step after step (`submit`, `wait`).
A step changes data, never the lowered graph: the caller writes its input arrays and counts, has them checked
(`check_step`), submits, waits for the fence and reads the outputs. Between `check_step` and the fence retiring the
caller touches no counts and no token ids; from `submit` on it touches none of the arrays. A backend belongs to one
thread.

A **slot** is an index of the first dimension of what each sequence keeps: of buffers f32[n_slots, ...] and of the page
table. The step's input `slots` has that of each row. A sequence has the slot of its number, `seq_id`, which is its only
name above the backends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import DType, Graph
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.numerics import GROUP, PAGE_TOKENS, pages_for
from zinc_rt.utils.closing import Closing

if TYPE_CHECKING:
    from zinc_rt.sampling.request import DeviceSampling, SamplingRequest

Bytes = npt.NDArray[np.uint8]
BLOCK_BYTES: Final = GROUP + 2
"""Of a block of a KV cache: a float16 scale, then the integers of a group."""
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class BackendFeatures:
    """The kernels and threads of a backend, and its abilities beyond steps.

    kernels: "native" or "reference" on the CPU, "rdna", "cuda" or "opencl" on a GPU. isa: what they are compiled for,
    empty for the reference ones. threads: of the processor, which take part in a step. samples: steps can end with
    tokens in place of logits. measures_bandwidth: of the memory that holds the weights.
    """

    kernels: str
    isa: str = ""
    threads: int = 1
    samples: bool = False
    measures_bandwidth: bool = False


@dataclass
class StepFence:
    """A point in a backend's steps. `sequence` counts from 1; `retired` turns True once, by the backend."""

    sequence: int
    retired: bool = False


@dataclass(frozen=True)
class Capacity:
    """The sizes that a graph is lowered for; a step may use less of `n_rows` and `n_logits`.

    n_ctx: positions of a sequence; n_slots: sequences; n_pages: KV pages shared by all of them.
    """

    n_rows: int
    n_logits: int
    n_ctx: int
    n_slots: int
    n_pages: int

    @property
    def max_pages(self) -> int:
        """Pages of the longest sequence."""
        return pages_for(self.n_ctx)

    def shape(self, dims: tuple[int | str, ...]) -> tuple[int, ...]:
        """A graph shape with its symbols replaced."""
        return tuple(d if isinstance(d, int) else int(getattr(self, d)) for d in dims)


@dataclass(frozen=True)
class CachePages:
    """The pages of one cache. values: whether it holds values, which backends may keep otherwise than keys; quantized:
    whether it holds Q8_0 blocks. entries: of a page, fewer than its positions where blocks of these have one each.
    """

    name: str
    buffer: int
    values: bool
    quantized: bool
    n_heads: int
    width: int
    entries: int = PAGE_TOKENS

    @property
    def page_bytes(self) -> int:
        """Bytes of a page, in any layout."""
        row = self.width // GROUP * BLOCK_BYTES if self.quantized else 2 * self.width
        return self.entries * self.n_heads * row


@dataclass(frozen=True)
class TokenLookup:
    """Token ids that a step looks up: the node, its input i32[n_rows], and the rows of the table that it reads."""

    node: str
    ids: Ints
    n_rows: int


@dataclass(frozen=True)
class Shareable:
    """A weight or a state of a lowered graph: its element type, its shape in numbers, and what the backend binds."""

    dtype: DType
    shape: tuple[int, ...]
    bound: Any


@dataclass(frozen=True, eq=False)
class LoweredGraph:
    """A graph on a backend, and the host's view of its step data.

    limits: the most that counts may be.
    inputs: by buffer name, arrays that the caller fills before `submit`; outputs: arrays valid after `wait`, until the
    next `submit`. lookups: what `check_step` compares token ids with.
    states: by buffer name, what each sequence keeps whatever its length, f32[n_slots, ...], where the host reaches it.
    caches: by buffer name, the KV caches.
    counts: i32[2], the step's n_rows and n_logits: rows past them are neither read nor written.
    memory: by buffer name, weights and states as the backend has them, for graphs that share them (see `lower`).
    """

    limits: tuple[int, int]
    inputs: Mapping[str, Ints]
    outputs: Mapping[str, npt.NDArray[np.generic]]
    lookups: tuple[TokenLookup, ...] = ()
    states: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    caches: Mapping[str, CachePages] = field(default_factory=dict)
    counts: Ints = field(default_factory=lambda: np.zeros(2, np.int32))
    memory: Mapping[str, Shareable] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamedWeights:
    """Weights of which a part is in memory. folder: where their file is, of `file_bytes`; token_bytes: that a step of
    one row reads of it, about.
    """

    folder: Path
    file_bytes: int
    token_bytes: int


@dataclass(frozen=True, eq=False)
class GraphPlan:
    """How a backend will lower a graph, and what that takes; `Backend.plan` makes it. Backends add what they need.

    shares: a graph that the backend has lowered before. Weights and states of the same name are its own, not copies:
    the caller sees to it that a name means the same rows.
    n_bytes: that `lower` will take, by purpose: weights, unpacked, kv_cache, recurrent, scratch, constants.
    streamed: where weights are read from a disk while steps run; see `Backend.within`.
    """

    graph: Graph
    sizes: Capacity
    shares: LoweredGraph | None
    n_bytes: Mapping[str, int]
    streamed: StreamedWeights | None = field(default=None, kw_only=True)


class CheckedStep(NamedTuple):
    """A step that may be submitted: only `check_step` makes one. It is good until its counts or inputs change."""

    lowered: LoweredGraph
    n_rows: int
    n_logits: int


class SequenceState(ABC):
    """A copy of what one sequence keeps by `StateKind.SEQUENCE`: the state of recurrent layers at one position.

    Made by `Backend.save_state`, and good for any slot of the same lowered graph.
    """

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Bytes of the copy."""

    @abstractmethod
    def close(self) -> None:
        """Give the memory back; calling it again does nothing."""


class StepProfile(Protocol):
    """A recorded profile. n_events: spans of the trace."""

    @property
    def n_events(self) -> int: ...

    def lines(self) -> Iterator[str]:
        """Tables for a screen."""
        ...

    def chrome_trace(self) -> str:
        """JSON that chrome://tracing and Perfetto read."""
        ...


_NO_PROFILE = "profiles are recorded by the native kernels, CUDA and the emulated GPU"


class Backend(Closing):
    """Runs graphs on one device. Every method raises `BackendError` after `close`, except `close` itself."""

    features: BackendFeatures

    @property
    @abstractmethod
    def description(self) -> str:
        """Kernels and device, for a line on the screen."""

    @property
    @abstractmethod
    def memory_available(self) -> int | None:
        """Bytes that `lower` may still take; None when unknown."""

    @property
    def memory_kept_free(self) -> int:
        """Bytes of the device that stay free for others; `memory_available` is without them."""
        return 0

    @abstractmethod
    def plan(self, graph: Graph, sizes: Capacity, shares: LoweredGraph | None = None) -> GraphPlan:
        """How a verified graph will be lowered, by what is known of this machine. Nothing is measured or allocated, and
        the backend stays as it is.

        Raises:
            BackendError: the backend has no kernel for a node (the reference says so in `lower`), or a weight or state
                of `shares` has the name of one of another shape or type.
        """

    def tune(self, plan: GraphPlan) -> GraphPlan:
        """The plan with what is fastest on this machine, by a measurement where nobody has made it yet. Nothing else
        measures. Results do not depend on it.

        Raises `UsageError` where an environment variable asks for something that there is not.
        """
        self._check_open()
        return plan

    def within(self, plan: GraphPlan, n_bytes: int, identity: bytes) -> GraphPlan:
        """The plan that takes so many bytes in all at the most: its weights are in a file, from which steps read what
        is not in memory. Nothing is read or written yet.

        identity: tells the weights from all others.

        Raises `BackendError` where the backend does not do that, or that is too little memory for a step.
        """
        raise BackendError(f"native kernels of the CPU alone run more than fits in memory; this is {self.description}")

    @abstractmethod
    def lower(
        self,
        plan: GraphPlan,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, npt.NDArray[np.float32]],
        released: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> LoweredGraph:
        """Bind a graph to memory as planned. The plan stays good for another time.

        Args:
            plan: what this backend's `plan` or `tune` returned.
            weights: packed rows by buffer name, u8[n_rows, row_bytes], kept by reference; rows that lie apart in
                equal stretches are u8[stretches, rows of each, row_bytes].
            constants: arrays by buffer name.
            released: called with a weight's name when its bytes have been copied; from then on they matter only for
                rows of an embedding.
            progress: called with bytes copied so far and in all, first with 0.

        Raises:
            BackendError: a weight or constant was not given, or the plan is of another kind of backend.
        """

    @abstractmethod
    def submit(self, step: CheckedStep, sampling: DeviceSampling | None = None) -> StepFence:
        """Start a step.

        Args:
            step: what `check_step` returned for what this backend's `lower` returned.
            sampling: what `sampling_for` returned, to end the step with tokens; the outputs stay what they were.

        Raises:
            BackendError: the graph or `sampling` is of another backend. Errors of the device are subclasses.
        """

    @abstractmethod
    def wait(self, fence: StepFence, timeout: float | None = None) -> None:
        """Return once the fence has retired; timeout in seconds. Raises `FenceTimeout`."""

    def run_parts(self, step: CheckedStep, seconds: float) -> Iterator[None]:
        """Run a step of a graph without caches and states a part at each turn of the iterator; the step is over when
        the iterator is, and given up when the iterator is closed.

        Between two turns other graphs may run on the backend, and nothing touches this one. The bits are those of
        `submit`. seconds: that a part shall take, where the backend can say; infinity for the whole step. Raises what
        `submit` and `wait` raise.
        """
        self.wait(self.submit(step))
        yield

    def drain(self) -> None:
        """Wait for steps that were submitted and never waited for, as a Ctrl-C leaves them: from then on the inputs
        may be written. Raises what `wait` raises.
        """

    def sampling_for(
        self, lowered: LoweredGraph, requests: Sequence[SamplingRequest], n_ctx: int
    ) -> DeviceSampling | None:
        """What chooses the tokens of a step's wanted rows, one for each request, where their logits are; None where the
        host must choose, as always where `features.samples` is false. n_ctx: tokens that a text can have.

        It is good until the next call for the same graph. Raises `BackendError`.
        """
        return None

    def fetch_logits(self, lowered: LoweredGraph, sampling: DeviceSampling) -> None:
        """Bring the logits of the step that ran last, a sampled one, to `lowered.outputs`, unless they are there."""

    def touch_states(self, lowered: LoweredGraph) -> Iterator[None]:
        """Have the system give the memory of caches and states before steps write to it, a part at each turn of the
        iterator. Where memory is there when it is allocated, it has no turn.
        """
        return iter(())

    def start_profile(self, lowered: LoweredGraph) -> None:
        """Record the steps of a graph from now on. Raises `BackendError` where `features.profiles` is false."""
        raise BackendError(f"{_NO_PROFILE}; this is {self.description}")

    def finish_profile(self) -> StepProfile:
        """What was recorded since `start_profile`. Raises `BackendError`."""
        raise BackendError(f"{_NO_PROFILE}; this is {self.description}")

    def read_bandwidth(self, n_bytes: int) -> float:
        """10^9 bytes per second at which the backend's threads read a buffer of this size.

        Raises `BackendError` where `features.measures_bandwidth` is false.
        """
        raise BackendError(f"bandwidth is measured by the native kernels; this is {self.description}")

    def card_constants(self) -> dict[str, float]:
        """What a GPU takes for the things that a step is made of, measured now, in seconds or bytes per second by name;
        empty where there is no GPU.
        """
        return {}

    @abstractmethod
    def save_state(self, lowered: LoweredGraph, slot: int, into: SequenceState | None = None) -> SequenceState:
        """Copy the entries of a slot in all buffers f32[n_slots, ...], to the bit. No step may be running.

        into: an earlier copy of the same graph that is not needed any more: its memory may be used again.

        Raises `BackendError` where `lowered` is of another backend, `InterfaceError` when memory is short.
        """

    @abstractmethod
    def load_state(self, lowered: LoweredGraph, slot: int, state: SequenceState) -> None:
        """Put a copy into a slot, whichever it was made of. No step may be running.

        Raises `BackendError` where `state` is of another graph, or closed.
        """

    @abstractmethod
    def read_copy(self, state: SequenceState) -> dict[str, npt.NDArray[np.float32]]:
        """The arrays of a copy that `save_state` made, by buffer name, each of the buffer's shape without the slots.

        Raises `BackendError` where the copy is of another backend, or closed.
        """

    @abstractmethod
    def make_copy(self, lowered: LoweredGraph, arrays: Mapping[str, npt.NDArray[np.float32]]) -> SequenceState:
        """A copy as `save_state` makes it, of arrays that `read_copy` gave, here or elsewhere.

        Raises `BackendError` where names or shapes are not those of the graph.
        """

    @abstractmethod
    def read_pages(self, lowered: LoweredGraph, cache: str, pages: Sequence[int]) -> Bytes:
        """Pages of a KV cache as the graph declares them (`cache_pages`): u8[len(pages), page_bytes], the same on every
        backend. No step may be running.

        Raises `BackendError` where `lowered` is of another backend or has no such cache.
        """

    @abstractmethod
    def write_pages(self, lowered: LoweredGraph, cache: str, pages: Sequence[int], contents: Bytes) -> None:
        """Fill pages with what `read_pages` gave, here or elsewhere. Raises what that raises."""

    @abstractmethod
    def write_constant(
        self, lowered: LoweredGraph, name: str, values: npt.NDArray[np.generic], entry: int | None = None
    ) -> None:
        """Bring a constant that was changed in place to where kernels read it. No step may be running.

        Args:
            lowered: a graph of this backend.
            name: of the constant; one that kernels read as it was given.
            values: the array that `lower` got for it.
            entry: of its first dimension, which alone was changed; None for all.

        Raises `BackendError` where `lowered` is of another backend or has no such constant.
        """

    def submit_and_wait(self, lowered: LoweredGraph) -> None:
        """Check a step and run it to its end. Raises what `check_step`, `submit` and `wait` raise."""
        self.wait(self.submit(check_step(lowered)))

    @abstractmethod
    def _check_open(self) -> None:
        """Raise `BackendError` once the backend is closed."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Calling it again does nothing."""


def cache_of(lowered: LoweredGraph, cache: str, contents: Bytes | None = None) -> CachePages:
    """The cache of a name. Raises `BackendError` where there is none, or where contents are no pages of it."""
    found = lowered.caches.get(cache)
    if found is None:
        raise BackendError(f"the graph has no KV cache {cache!r}; it has {', '.join(lowered.caches) or 'none'}")
    if contents is not None and contents.shape[1:] != (found.page_bytes,):
        raise BackendError(f"pages of {cache} have {found.page_bytes} bytes each, not {contents.shape[1:]}")
    return found


def check_copy(arrays: Mapping[str, npt.NDArray[np.float32]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `BackendError` unless the arrays are those of a sequence's states. shapes: of a slot, by buffer name."""
    given = {name: array.shape for name, array in arrays.items()}
    if given != dict(shapes):
        raise BackendError(f"states of shapes {given} do not fit the graph, which keeps {dict(shapes)}")


def check_step(lowered: LoweredGraph) -> CheckedStep:
    """The step whose counts and inputs are written, after all checks that protect the memory of a backend.

    Raises `BackendError` where counts exceed what the graph was lowered for, `TokenOutOfRange` where a token id has no
    row in the embedding.
    """
    n_rows, n_logits = lowered.counts.tolist()
    max_rows, max_logits = lowered.limits
    if not 0 <= n_rows <= max_rows:
        raise BackendError(f"the step has {n_rows} rows, the graph was lowered for {max_rows}")
    if not 0 <= n_logits <= max_logits:
        raise BackendError(f"the step has {n_logits} wanted logits, the graph was lowered for {max_logits}")
    for lookup in lowered.lookups:
        _check_tokens(lookup, n_rows)
    return CheckedStep(lowered, n_rows, n_logits)


def _check_tokens(lookup: TokenLookup, n_rows: int) -> None:
    """Kernels read the embedding's rows unchecked."""
    ids, limit = lookup.ids, lookup.n_rows
    if n_rows == 1:  # as in every decode step: an element is looked at sooner than a slice
        if 0 <= int(ids[0]) < limit:
            return
    elif not n_rows or ids[:n_rows].view(np.uint32).max() < limit:  # a negative id is a large one there
        return
    bad = next(int(i) for i in ids[:n_rows] if not 0 <= i < limit)
    raise TokenOutOfRange(f"{lookup.node}: token id {bad} is outside the vocabulary of {limit}")

"""What every tier implements.

A backend takes a graph once (`lower`) and then runs it step after step (`submit`, `wait`). A step changes data, never
the batch: the caller writes the batch's input arrays and counts, submits, waits for the fence and reads the outputs.
Between `submit` and the fence retiring the caller touches none of the batch's arrays. A backend belongs to one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.fence import Fence
from zinc_rt.backends.errors import StepTooLarge
from zinc_rt.backends.packet_list import LoweredGraph
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Graph
from zinc_rt.mem.kv_pages import pages_for

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Capacity:
    """Capacities that a batch is lowered for; a step may use less of `n_rows` and `n_logits`.

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


class StepProfile(Protocol):
    """What a backend recorded. n_events: spans of the trace."""

    @property
    def n_events(self) -> int: ...

    def lines(self) -> Iterator[str]:
        """Tables for a screen."""
        ...

    def chrome_trace(self) -> str:
        """JSON that chrome://tracing and Perfetto read."""
        ...


class Backend(ABC):
    """One tier. Every method raises `BackendClosed` after `close`, except `close` itself."""

    kernels: str
    """What runs: "native" or "reference" on the CPU, "rdna" on a GPU."""
    isa: str
    """What the kernels are compiled for; empty for the reference ones."""
    threads: int
    """Of the processor, which take part in a step."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Kernels and device, for a line on the screen."""

    @property
    @abstractmethod
    def memory_available(self) -> int | None:
        """Bytes that `lower` may still take; None when unknown."""

    @abstractmethod
    def alloc(self, n_bytes: int) -> Bytes:
        """Zeroed memory that the tier can reach, u8[n_bytes], aligned to 64 bytes."""

    @abstractmethod
    def free(self, memory: Bytes) -> None:
        """Give back what `alloc` returned, once. Raises `BackendError` for anything else."""

    @abstractmethod
    def plan(self, graph: Graph, sizes: Capacity) -> dict[str, int]:
        """Bytes that `lower` will take, by purpose: weights, unpacked, kv_cache, scratch, constants."""

    @abstractmethod
    def lower(
        self,
        graph: Graph,
        sizes: Capacity,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, npt.NDArray[np.float32]],
        released: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> LoweredGraph:
        """Turn a verified graph into a batch over planned memory.

        weights: packed rows by buffer name, u8[n_rows, row_bytes], kept by reference. constants: arrays by buffer
        name. released: called with a weight's name when its bytes have been copied and matter only for rows of an
        embedding from then on. progress: called with bytes copied so far and in all, first with 0.
        Raises `UnsupportedOp`, `MissingBinding`.
        """

    @abstractmethod
    def submit(self, batch: LoweredGraph) -> Fence:
        """Start the batch and return its fence. Raises `StepTooLarge`, kernel errors."""

    @abstractmethod
    def wait(self, fence: Fence, timeout: float | None = None) -> None:
        """Return once the fence has retired; timeout in seconds. Raises `FenceTimeout`."""

    def settle(self) -> None:  # noqa: B027  where steps are over when `submit` returns there is nothing to do
        """Wait for batches that were submitted and never waited for, as a Ctrl-C leaves them: from then on the inputs
        may be written. Raises what `wait` raises.
        """

    def start_profile(self, batch: LoweredGraph) -> None:
        """Record the steps of a batch from now on. Raises `BackendError` where that cannot be had."""
        raise BackendError(f"no profile can be had of {self.description}")

    def finish_profile(self) -> StepProfile:
        """What was recorded since `start_profile`. Raises `BackendError`."""
        raise BackendError(f"no profile can be had of {self.description}")

    def submit_and_wait(self, batch: LoweredGraph) -> None:
        """Run a batch to its end. Raises what `submit` and `wait` raise."""
        self.wait(self.submit(batch))

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_step(batch: LoweredGraph) -> None:
    """Raise `StepTooLarge` when a batch's counts exceed what it was lowered for."""
    if batch.limits is None:
        return
    for count, limit, what in zip(batch.counts.tolist(), batch.limits, ("rows", "wanted logits"), strict=True):
        if not 0 <= count <= limit:
            raise StepTooLarge(f"the step has {count} {what}, the batch was lowered for {limit}")

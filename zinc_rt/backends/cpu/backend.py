"""T-CPU: the backend that runs on the host, with native kernels or with the reference ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.fence import Fence
from zinc_rt.backends.base import Backend, Bytes, Capacity, check_step
from zinc_rt.backends.cpu.cores import default_threads
from zinc_rt.backends.cpu.memory import huge_bytes
from zinc_rt.backends.packet_list import LoweredGraph
from zinc_rt.checks import whole_between
from zinc_rt.errors import BackendClosed, BackendError, UsageError
from zinc_rt.ir.graph import Graph
from zinc_rt.mem.plan import available_memory

# Either backend is imported by the backends that use it: each brings a library of its own.
if TYPE_CHECKING:
    from zinc_rt.backends.cpu.native import NativeBackend
    from zinc_rt.backends.cpu.profile import CpuProfile
    from zinc_rt.backends.reference.backend import ReferenceBackend
    from zinc_rt.lang.cache import CompileCache

Kernels = Literal["native", "reference"]
KEEP_BYTES = 4 << 30
"""Unpacked weights are kept when they take no more than this; else each step unpacks them anew."""
MAX_THREADS = 1024
KERNELS: tuple[Kernels, ...] = ("native", "reference")


class CpuBackend(Backend):
    """Runs batches in order. `submit` returns when the work is done.

    kernels: "native", compiled for this machine, or "reference", the NumPy oracle: the same bits, slowly.
    threads: None for the physical cores that this process may use (the reference kernels: 1).
    isa: a level of `zinc_rt.lang.target.TARGETS` instead of the best that this machine has.
    cache: where compiled kernels are kept; None for the user's cache folder.
    keep_bytes: up to how many bytes of unpacked weights the reference kernels keep between steps.
    notify: gets lines worth showing.
    """

    def __init__(
        self,
        *,
        kernels: Kernels = "native",
        threads: int | None = None,
        isa: str | None = None,
        cache: CompileCache | None = None,
        keep_bytes: int = KEEP_BYTES,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        if threads is not None:
            threads = whole_between("threads", threads, 1, MAX_THREADS)
        if kernels not in KERNELS:
            raise UsageError(f"kernels is {kernels!r}, it must be one of {', '.join(KERNELS)}")
        self.kernels: Kernels = kernels
        self.threads = threads or (default_threads() if kernels == "native" else 1)
        self.isa = ""
        self._native: NativeBackend | None = None
        self._keep_bytes = keep_bytes
        if kernels == "native":
            self._native = _native_backend(isa, self.threads, cache, notify)
            self.isa = self._native.library.target.name
        self._memory: dict[int, Bytes] = {}
        self._sequence = 0
        self._closed = False
        # Whoever closes the backend waits for the step that runs, unless it is that thread itself, between two steps.
        self._step = RLock()

    @cached_property
    def _reference(self) -> ReferenceBackend:
        from zinc_rt.backends.reference.backend import ReferenceBackend

        return ReferenceBackend(self._keep_bytes, self.threads if self.kernels == "reference" else 1)

    @classmethod
    def init(cls) -> CpuBackend:
        """The backend with its defaults."""
        return cls()

    def deinit(self) -> None:
        """The same as `close`."""
        self.close()

    def close(self) -> None:
        """End the threads and forget all allocations; batches lowered here must not be submitted again.

        Any thread may call it: a step that runs is waited for.
        """
        with self._step:
            if self._native is not None and not self._closed:
                self._native.close()
            self._memory.clear()
            self._closed = True

    @property
    def description(self) -> str:
        """Kernels, what they are compiled for, and threads."""
        level = f" for {self.isa}" if self.isa else ""
        count = f"{self.threads} thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.kernels} kernels{level}, {count}"

    @property
    def memory_available(self) -> int | None:
        """What the machine and the control group leave."""
        return available_memory()

    def _check_open(self) -> None:
        if self._closed:
            raise BackendClosed("the CPU backend is closed")

    def alloc(self, n_bytes: int) -> Bytes:
        """Zeroed host memory, aligned to 64 bytes."""
        self._check_open()
        memory = huge_bytes(n_bytes)
        self._memory[id(memory)] = memory
        return memory

    def free(self, memory: Bytes) -> None:
        """Give back an allocation. Raises `BackendError` when it is not one, or not any more."""
        self._check_open()
        if self._memory.pop(id(memory), None) is None:
            raise BackendError("free: this memory was not allocated by the backend, or was freed before")

    def plan(self, graph: Graph, sizes: Capacity) -> dict[str, int]:
        """Bytes by purpose, see `Backend.plan`."""
        self._check_open()
        return (self._native or self._reference).plan(graph, sizes)

    def lower(
        self,
        graph: Graph,
        sizes: Capacity,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, npt.NDArray[np.float32]],
        released: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> LoweredGraph:
        """Bind every node to its memory. Raises `UnsupportedOp`, `MissingBinding`."""
        self._check_open()
        if self._native is not None:
            return self._native.lower(graph, sizes, weights, constants, released, progress)
        return self._reference.lower(graph, sizes, weights, constants)

    def submit(self, batch: LoweredGraph) -> Fence:
        """Run the batch; the fence has retired on return. Kernel errors propagate."""
        with self._step:
            self._check_open()
            check_step(batch)
            if batch.native:
                self._native_only("the batch was lowered for").run(batch)
            else:
                self._reference.run(batch)
            self._sequence += 1
            return Fence(self._sequence, retired=True)

    def start_profile(self, batch: LoweredGraph) -> None:
        """Record when which thread runs what of this batch. Raises `BackendError` for the reference kernels."""
        self._native_only("profiles are recorded by").start_profile(batch)

    def finish_profile(self) -> CpuProfile:
        """What was recorded since `start_profile`."""
        return self._native_only("profiles are recorded by").finish_profile()

    def read_bandwidth(self, n_bytes: int) -> float:
        """10^9 bytes per second at which this backend's threads read a buffer of a size. Raises `BackendError`."""
        return self._native_only("bandwidth is measured by").read_bandwidth(n_bytes)

    def _native_only(self, what: str) -> NativeBackend:
        self._check_open()
        if self._native is None:
            raise BackendError(f"{what} the native kernels; this backend has the reference ones (--kernels native)")
        return self._native

    def wait(self, fence: Fence, timeout: float | None = None) -> None:
        """Return at once: what `submit` returned has retired. Raises `BackendError` for a foreign fence."""
        self._check_open()
        if not fence.retired or not 1 <= fence.sequence <= self._sequence:
            raise BackendError(
                f"fence {fence.sequence} was not submitted to this backend; its last is {self._sequence}"
            )


def _native_backend(
    isa: str | None, threads: int, cache: CompileCache | None, notify: Callable[[str], None] | None
) -> NativeBackend:
    from zinc_rt.backends.cpu.native import NativeBackend
    from zinc_rt.lang.cache import CompileCache, default_cache_dir
    from zinc_rt.lang.library import Library
    from zinc_rt.lang.target import host_target

    target = host_target(isa)
    kept = cache if cache is not None else CompileCache(default_cache_dir(), notify=notify)
    return NativeBackend(Library(target, kept, notify=notify), threads, notify)

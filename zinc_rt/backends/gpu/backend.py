"""`GpuBackend`: runs graphs on a GPU, through any driver that offers `GpuDevice`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arrays import shareable, shared
from zinc_rt.backends.base import (
    BackendFeatures,
    Bytes,
    Capacity,
    CheckedStep,
    GraphPlan,
    Ints,
    LoweredGraph,
    StepFence,
)
from zinc_rt.backends.cache_pages import cache_pages
from zinc_rt.backends.gpu.batches import Batches, StepPrograms
from zinc_rt.backends.gpu.device import DeviceKernel, DeviceMemory, GpuDevice
from zinc_rt.backends.gpu.lowering import GpuLowered, GpuLowering
from zinc_rt.backends.gpu.memory import GatheredRows, GraphMemory, fill, planned
from zinc_rt.backends.gpu.operations import MANY_ROWS, StepShape
from zinc_rt.backends.gpu.placement import scheduled
from zinc_rt.backends.gpu.sampling import GpuSampling, make_sampling
from zinc_rt.backends.gpu.state_io import MOVE, StatefulGraph, StateIO
from zinc_rt.backends.graph_check import logits_of, lookups, step_inputs
from zinc_rt.errors import BackendError, DeviceLost, FenceTimeout
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu.catalogue import DECODE, KernelEntry, kernel_label
from zinc_rt.kernels.gpu.sampling_plan import SamplingShape, plan, resident_plan
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.lang.target import TARGETS
from zinc_rt.numerics import SPLIT
from zinc_rt.sampling.gpu import common_shape, exp_table
from zinc_rt.sampling.request import DeviceSampling, SamplingRequest
from zinc_rt.utils.interrupts import Breakable

_ROWS_OF_TIMEOUT = 64
_SAMPLINGS = 16
"""Kept of a graph: texts with other parameters often need a plan of their own."""
_SCRATCH = 256 << 20
"""Bytes of memory that these take; beyond it fewer are kept, but always `_FEWEST`."""
_FEWEST = 4


@dataclass(frozen=True, eq=False)
class GpuPlan(GraphPlan):
    """lowered: the graph's dispatches, without memory."""

    lowered: GpuLowered


@dataclass(frozen=True, eq=False)
class GpuLoweredGraph(StatefulGraph):
    """A graph on a GPU.

    owner: the backend that lowered it, which alone can run it. recorded: its command lists by shape of a step.
    positions: the input of that name, None for a graph without attention. gathered: rows of tables that stay with the
    host. constants: those that kernels read as they were given, by name. samplings: those used last, by tokens to
    choose from, rows and shape.
    """

    owner: GpuBackend = field(kw_only=True)
    recorded: Batches = field(kw_only=True)
    positions: Ints | None = field(kw_only=True)
    gathered: list[GatheredRows] = field(kw_only=True)
    constants: Mapping[str, DeviceMemory] = field(kw_only=True)
    samplings: dict[tuple[int, int, SamplingShape], GpuSampling] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SubmittedStep:
    """A step that was submitted."""

    graph: GpuLoweredGraph
    shape: StepShape
    sampling: GpuSampling | None


class GpuBackend(StateIO):
    """Runs steps in order on a GPU.

    Args:
        gpu: the device; the backend closes it.
        features: what the backend offers.
        cache: where compiled kernels are kept, None for nowhere.
        notify: gets lines worth showing.
        programs_of_steps: what makes one program of a step, None for nothing.
    """

    def __init__(
        self,
        gpu: GpuDevice,
        features: BackendFeatures,
        *,
        cache: CompileCache | None,
        notify: Callable[[str], None] | None,
        programs_of_steps: StepPrograms | None = None,
    ) -> None:
        self.gpu, self.features = gpu, features
        self._cache, self._notify = cache, notify
        self._programs_of_steps = programs_of_steps
        self.on_failure: Callable[[BackendError], None] | None = None
        """Gets the error when a step does not end, or the device is lost."""
        # By sequence number: ours, the device's, seconds that the step may take, and the step.
        self._fences: dict[int, tuple[StepFence, Any, float, SubmittedStep]] = {}
        self._batches: list[GpuLoweredGraph] = []
        self._loaded: dict[str, DeviceKernel] = {}  # by symbol
        self._sequence = 0
        self._closed = False
        self._undrained = False  # whether a step may run that nobody has waited for

    def plan(self, graph: Graph, sizes: Capacity, shares: LoweredGraph | None = None) -> GpuPlan:
        """See `Backend.plan`."""
        self._check_open()
        step_inputs(graph)
        lowered = GpuLowering(graph, sizes).run()
        if sizes.n_rows >= MANY_ROWS and TARGETS[self.gpu.kernel_target].matrix_instructions:
            lowered.take(GpuLowering(graph, sizes, tiles=True).run())
        for way in lowered.ways:
            scheduled(way.operations)
        borrowed = shared(graph, sizes, None if shares is None else self._own(shares))
        return GpuPlan(graph, sizes, shares, planned(graph, sizes, lowered, borrowed), lowered)

    def lower(
        self,
        plan: GraphPlan,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, npt.NDArray[np.float32]],
        released: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> LoweredGraph:
        """Compile what is missing, bring weights over, see `Backend.lower`. Raises `BackendError` when memory
        is short.
        """
        self._check_open()
        if not isinstance(plan, GpuPlan):
            raise BackendError(f"the graph was planned by another kind of backend; this is {self.description}")
        graph, sizes, lowered = plan.graph, plan.sizes, plan.lowered
        borrowed = shared(graph, sizes, None if plan.shares is None else self._own(plan.shares))
        self._load([MOVE, *lowered.kernels])
        uploader = self._uploader()
        memory = GraphMemory()
        try:
            fill(memory, uploader, graph, sizes, lowered, weights, constants, released, progress, borrowed)
        except BaseException:
            for piece in memory.held:
                self.gpu.free(piece)
            raise
        finally:
            uploader.close()
        caches = cache_pages(graph)
        attended = [n for n in graph.nodes if n.op is Op.FLASH_ATTN]
        batch = GpuLoweredGraph(
            owner=self,
            limits=(sizes.n_rows, sizes.n_logits),
            inputs=memory.inputs,
            outputs=memory.outputs,
            lookups=lookups(graph, memory.inputs),
            graph=graph,
            gathered=memory.gathered,
            constants={
                b.name: memory.pieces[b.id] for b in graph.of_kind(BufferKind.CONSTANT) if b.id in memory.pieces
            },
            recorded=Batches(self.gpu, graph, lowered, memory, self._loaded, self._programs_of_steps),
            positions=memory.inputs[graph.buffer(attended[0].inputs[3]).name] if attended else None,
            slots=tuple(memory.states),
            memory=shareable(graph, sizes, memory.pieces),
            caches={cache.name: cache for cache in caches},
            cache_places={cache.name: memory.va[cache.buffer] for cache in caches},
        )
        self._batches.append(batch)
        return batch

    def write_constant(
        self, lowered: LoweredGraph, name: str, values: npt.NDArray[np.generic], entry: int | None = None
    ) -> None:
        """See `Backend.write_constant`."""
        found = self._own(lowered).constants.get(name)
        if found is None:
            raise BackendError(f"the graph has no constant {name!r} that kernels read as it was given")
        uploader = self._uploader()
        try:
            if entry is None:
                uploader.put(found, values)
            else:
                uploader.put(found, values[entry], entry * values[entry].nbytes)
        finally:
            uploader.close()

    @property
    def _mover(self) -> DeviceKernel:
        return self._loaded[MOVE.spec.symbol]

    @property
    def programs(self) -> tuple[DeviceKernel, ...]:
        """The kernels of all batches lowered here."""
        return tuple(self._loaded.values())

    def _load(self, entries: Iterable[KernelEntry]) -> None:
        specs = {kernel_label(entry): entry.spec for entry in entries}
        compiled = gpu_kernels(specs, self.gpu.kernel_target, cache=self._cache, notify=self._notify)
        loaded = self._brought(compiled.values())
        self._loaded.update({specs[name].symbol: one for name, one in zip(compiled, loaded, strict=True)})

    def _brought(self, kernels: Iterable[GpuKernel]) -> Iterable[DeviceKernel]:
        """Load compiled kernels, in order."""
        return map(self.gpu.load_kernel, kernels)

    def _own(self, lowered: LoweredGraph) -> GpuLoweredGraph:
        self._check_open()
        if not isinstance(lowered, GpuLoweredGraph) or lowered.owner is not self:
            raise BackendError("the graph was not lowered by this backend")
        return lowered

    def sampling_for(
        self, lowered: LoweredGraph, requests: Sequence[SamplingRequest], n_ctx: int
    ) -> GpuSampling | None:
        """See `Backend.sampling_for`. Raises what `open_sampling` raises."""
        ours = self._own(lowered)
        found = common_shape(requests, n_ctx, ours.outputs["logits"].shape[1])
        return None if found is None else self.open_sampling(ours, found[0], len(requests), found[1])

    def open_sampling(self, lowered: LoweredGraph, n_vocab: int, rows: int, shape: SamplingShape) -> GpuSampling:
        """Memory for choosing the tokens of `rows` wanted rows among the first `n_vocab` logits of each; the last few
        are kept. With several rows n_vocab must be all logits of a row.

        Raises `BackendError`, also for a graph without one product of logits.
        """
        ours = self._own(lowered)
        key = (n_vocab, rows, shape)
        if (known := ours.samplings.pop(key, None)) is not None:
            ours.samplings[key] = known  # the last one, in the order of use
            return known
        logits = logits_of(ours.graph)
        if len(logits) != 1:
            raise BackendError(f"{len(logits)} products give logits; tokens can be sampled from those of one")
        width = int(ours.graph.buffer(logits[0]).shape[1])
        if not 1 <= n_vocab <= width or (rows > 1 and n_vocab != width):
            raise BackendError(f"tokens of {rows} rows sampled among {n_vocab}; a row has {width} logits")
        made = plan(n_vocab, rows, shape)
        as_one = self._programs_of_steps is not None and self._programs_of_steps.possible
        inside = resident_plan(n_vocab, rows, shape) if as_one else None
        self._load(DECODE[step.kernel] for each in (made, inside) if each is not None for step in each.steps)
        while (kept := list(ours.samplings.values())) and (
            len(kept) >= _SAMPLINGS
            or (len(kept) >= _FEWEST and sum(each.plan.scratch_bytes for each in kept) > _SCRATCH - made.scratch_bytes)
        ):
            self._close_sampling(ours, next(iter(ours.samplings)))
        uploader = self._uploader()
        try:
            ours.samplings[key] = make_sampling(self.gpu, uploader, made, exp_table(), inside)
        finally:
            uploader.close()
        return ours.samplings[key]

    def _close_sampling(self, batch: GpuLoweredGraph, key: tuple[int, int, SamplingShape]) -> None:
        sampling = batch.samplings.pop(key)
        batch.recorded.drop(sampling)
        for piece in sampling.held:
            self.gpu.free(piece)

    def submit(self, step: CheckedStep, sampling: DeviceSampling | None = None) -> StepFence:
        """Start a step on its inputs, see `Backend.submit`. Raises `DeviceLost`, too."""
        graph = self._own(step.lowered)
        opened = None if sampling is None else self._opened(graph, sampling)
        return self._submit(SubmittedStep(graph, _shape(graph, step.n_rows, step.n_logits), opened))

    def _opened(self, lowered: LoweredGraph, sampling: DeviceSampling) -> GpuSampling:
        ours = self._own(lowered)
        found = next((known for known in ours.samplings.values() if known is sampling), None)
        if found is None:
            raise BackendError("the sampling was not opened for this graph, or was dropped since")
        if int(ours.counts[1]) != found.plan.rows:
            raise BackendError(f"{ours.counts[1]} rows of logits, sampled as {found.plan.rows}")
        return found

    def fetch_logits(self, lowered: LoweredGraph, sampling: DeviceSampling) -> None:
        """See `Backend.fetch_logits`. Raises `DeviceLost`."""
        ours, opened = self._own(lowered), self._opened(lowered, sampling)
        n_rows, n_logits = ours.counts.tolist()
        fetch = ours.recorded.fetch(_shape(ours, n_rows, n_logits), opened)
        self.gpu.wait(self.gpu.submit(fetch), self._patience(n_rows))

    def run_parts(self, step: CheckedStep, seconds: float) -> Iterator[None]:
        """See `Backend.run_parts`: its command lists, each as long as a submission may be."""
        graph = self._own(step.lowered)
        parts = graph.recorded.of(_shape(graph, step.n_rows, step.n_logits))
        if len(parts) == 1 or math.isinf(seconds):
            yield from super().run_parts(step, seconds)
            return
        for gathered in graph.gathered:
            gathered.bring(step.n_rows)
        for part in parts:
            self._check_open()
            self._undrained = True
            inner = self.gpu.submit(part)
            with Breakable():
                self._await(inner, self._patience(step.n_rows), True)
            self._undrained = bool(self._fences)
            yield

    def _submit(self, step: SubmittedStep) -> StepFence:
        n_rows = step.shape.n_rows
        for gathered in step.graph.gathered:
            gathered.bring(n_rows)
        inner = self._start(step)
        self._sequence += 1
        fence = StepFence(self._sequence)
        self._fences[fence.sequence] = fence, inner, self._patience(n_rows), step
        return fence

    def _start(self, step: SubmittedStep) -> Any:
        """Submit its batches; the fence of the last one."""
        recorded = step.graph.recorded.of(step.shape, step.sampling)
        self._undrained = True
        for part in recorded:
            inner = self.gpu.submit(part)
        return inner

    def _patience(self, n_rows: int) -> float:
        """Seconds that a step of so many rows may take."""
        return self.gpu.timeout * max(1, -(-n_rows // _ROWS_OF_TIMEOUT))

    def wait(self, fence: StepFence, timeout: float | None = None) -> None:
        """Return once the fence has retired. Raises `FenceTimeout`, `DeviceLost`, `BackendError` for a foreign
        fence.
        """
        self._check_open()
        if fence.retired:
            return
        ours, inner, seconds, _ = self._fences.get(fence.sequence, (None, None, 0.0, None))
        if ours is not fence or inner is None:
            raise BackendError(
                f"fence {fence.sequence} was not submitted to this backend; its last is {self._sequence}"
            )
        with Breakable():  # a step may take long; one that is given up is waited for by `drain`
            self._await(inner, seconds if timeout is None else timeout, timeout is None)
        for sequence in [s for s in self._fences if s <= fence.sequence]:  # submissions retire in order
            done, _, seconds, step = self._fences.pop(sequence)
            self._ended(step, seconds, last=sequence == self._sequence)
            done.retired = True
        self._undrained = bool(self._fences)

    def _ended(self, step: SubmittedStep, seconds: float, *, last: bool) -> None:
        """Called for each step whose fence has retired. last: whether none was submitted behind it."""

    def _await(self, fence: Any, seconds: float, own_limit: bool) -> None:
        """own_limit: whether the limit is the backend's own, so that passing it is a failure of the GPU."""
        try:
            self.gpu.wait(fence, seconds)
        except (FenceTimeout, DeviceLost) as error:
            if self.on_failure is not None and (own_limit or isinstance(error, DeviceLost)):
                self.on_failure(error)
            raise

    def drain(self) -> None:
        """See `Backend.drain`."""
        self._check_open()
        if self._undrained:
            self.gpu.drain(max([self.gpu.timeout, *(seconds for _, _, seconds, _ in self._fences.values())]))
            self._undrained = False

    def close(self) -> None:
        """Wait for what runs and give everything back; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._batches.clear()
            self._fences.clear()
            self.gpu.close()

    def _check_open(self) -> None:
        if self._closed:
            raise BackendError("the GPU backend is closed")


def _shape(batch: GpuLoweredGraph, n_rows: int, n_logits: int) -> StepShape:
    if batch.positions is None or not n_rows:
        return StepShape(n_rows, n_logits, 1)
    longest = batch.positions[0] if n_rows == 1 else batch.positions[:n_rows].max()
    return StepShape(n_rows, n_logits, int(longest) // SPLIT + 1)

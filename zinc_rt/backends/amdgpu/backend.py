"""`AmdBackend`: T1 and T2, the backend that runs graphs on an AMD GPU, through whichever interface it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.fence import Fence
from zinc_rt.amdgpu.gfx import gfx_name
from zinc_rt.amdgpu.interface import Interface
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel
from zinc_rt.amdgpu.pool import GpuMemory
from zinc_rt.amdgpu.queue import TIMEOUT, GpuQueue
from zinc_rt.backends.amdgpu.batches import Batches
from zinc_rt.backends.amdgpu.lowering import GpuLowered, GpuLowering
from zinc_rt.backends.amdgpu.memory import GraphMemory, Uploader, fill, planned
from zinc_rt.backends.amdgpu.operations import StepShape
from zinc_rt.backends.amdgpu.sampling import GpuSampling, make_sampling
from zinc_rt.backends.base import Backend, Bytes, Capacity, check_step
from zinc_rt.backends.errors import UnsupportedOp
from zinc_rt.backends.graph_check import step_inputs
from zinc_rt.backends.packet_list import LoweredGraph, Packet
from zinc_rt.backends.stages import into_phases
from zinc_rt.errors import BackendClosed, BackendError
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.kernels.rdna.catalogue import DECODE, KernelEntry
from zinc_rt.kernels.rdna.sampling_plan import SamplingShape, plan
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.numerics import SPLIT

_DRM = "/sys/class/drm"
_ROWS_OF_TIMEOUT = 64
_SAMPLINGS = 4
"""Kept of a batch: texts with other parameters often need a plan of their own."""


@dataclass(frozen=True)
class GpuLoweredGraph(LoweredGraph):
    """A graph on a GPU. recorded: its batches by shape."""

    graph: Graph = field(kw_only=True)
    recorded: Batches = field(kw_only=True)
    vocabularies: tuple[tuple[str, str, int], ...] = ()  # (node, input of ids, rows of its table)
    longest: str = ""  # the input of positions, where there is attention
    samplings: dict[tuple[int, int, SamplingShape], GpuSampling] = field(default_factory=dict)
    native: ClassVar[bool] = True


class AmdBackend(Backend):
    """Runs batches in order on the GPU behind an interface, which is the backend's from here on, also when this raises.

    cache: where compiled kernels are kept, None for nowhere; timeout: seconds that a step of up to 64 rows may take,
    larger ones as many times as long; notify: gets lines worth showing. Raises `BackendError` for a GPU that the
    kernels
    are not for, `InterfaceError`.
    """

    def __init__(
        self,
        interface: Interface,
        *,
        cache: CompileCache | None = None,
        timeout: float = TIMEOUT,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.gpu = GpuQueue(interface, timeout=timeout)
        self.kernels, self.threads = "rdna", 1
        self.isa = gfx_name(interface.device.gfx_target_version)
        self._cache, self._notify = cache, notify
        self._memory: dict[int, tuple[Bytes, GpuMemory]] = {}
        # By sequence number: ours, the GPU backend's, and seconds that it may take.
        self._fences: dict[int, tuple[Fence, Fence, float]] = {}
        self._batches: list[GpuLoweredGraph] = []
        self._loaded: dict[str, LoadedKernel] = {}  # by symbol
        self._sequence = 0
        self._closed = False
        self._unsettled = False  # whether a batch may run that nobody has waited for
        self._lowered: tuple[Graph, Capacity, GpuLowered] | None = None

    @property
    def description(self) -> str:
        """The kernels, the GPU and the interface."""
        device = self.gpu.device
        return f"GPU kernels for {self.isa} on {device.render_node} through {self.gpu.interface.name}"

    @property
    def memory_available(self) -> int | None:
        """GPU memory that nobody uses, as sysfs says; else all there is."""
        device, linux = self.gpu.device, self.gpu.interface.linux
        if not device.vram:
            return None
        try:
            used = int(linux.read_text(f"{_DRM}/{device.render_node.rsplit('/', 1)[-1]}/device/mem_info_vram_used"))
        except (OSError, ValueError):
            used = 0
        return device.vram - used

    def alloc(self, n_bytes: int) -> Bytes:
        """Zeroed system memory that the GPU reaches, aligned to 256 bytes."""
        self._check_open()
        piece = self.gpu.alloc(max(1, n_bytes), heap="gtt")
        memory = self.gpu.map(piece)[:n_bytes]
        memory[:] = 0
        self._memory[id(memory)] = memory, piece
        return memory

    def free(self, memory: Bytes) -> None:
        """Give back an allocation. Raises `BackendError` when it is not one, or not any more."""
        self._check_open()
        held = self._memory.pop(id(memory), None)
        if held is None:
            raise BackendError("free: this memory was not allocated by the backend, or was freed before")
        self.gpu.free(held[1])

    def _lowering(self, graph: Graph, sizes: Capacity) -> GpuLowered:
        if self._lowered is None or self._lowered[0] is not graph or self._lowered[1] != sizes:
            step_inputs(graph)
            lowered = GpuLowering(graph, sizes).run()
            into_phases(lowered.operations)
            self._lowered = graph, sizes, lowered
        return self._lowered[2]

    def plan(self, graph: Graph, sizes: Capacity) -> dict[str, int]:
        """Bytes of GPU memory by purpose, see `Backend.plan`."""
        self._check_open()
        return planned(graph, sizes, self._lowering(graph, sizes))

    def lower(
        self,
        graph: Graph,
        sizes: Capacity,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, npt.NDArray[np.float32]],
        released: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> LoweredGraph:
        """Compile what is missing, bring weights over, see `Backend.lower`. Raises `InterfaceError` when memory is
        short.
        """
        self._check_open()
        lowered = self._lowering(graph, sizes)
        self._load([DECODE["move"], *lowered.kernels])
        uploader = self._uploader()
        memory = GraphMemory()
        try:
            fill(memory, uploader, graph, sizes, lowered, weights, constants, released, progress)
        except BaseException:
            for piece in memory.held:
                self.gpu.free(piece)
            raise
        finally:
            uploader.close()
        attended = [n for n in graph.nodes if n.op is Op.FLASH_ATTN]
        batch = GpuLoweredGraph(
            packets=tuple(Packet(n.op, None, n.name) for n in graph.nodes),
            inputs=memory.inputs,
            outputs=memory.outputs,
            limits=(sizes.n_rows, sizes.n_logits),
            graph=graph,
            recorded=Batches(self.gpu, graph, lowered, memory, self._loaded),
            vocabularies=tuple(_vocabularies(graph)),
            longest=graph.buffer(attended[0].inputs[3]).name if attended else "",
        )
        self._batches.append(batch)
        return batch

    def _uploader(self) -> Uploader:
        return Uploader(self.gpu, self._loaded[DECODE["move"].spec.symbol])

    @property
    def programs(self) -> tuple[LoadedKernel, ...]:
        """The kernels of all batches lowered here."""
        return tuple(self._loaded.values())

    def _load(self, entries: Iterable[KernelEntry]) -> None:
        specs = {_label(entry): entry.spec for entry in entries}
        compiled = gpu_kernels(specs, self.gpu.gfx.kernel_target, cache=self._cache, notify=self._notify)
        self._loaded.update({specs[name].symbol: self.gpu.load_kernel(kernel) for name, kernel in compiled.items()})

    def _own(self, batch: LoweredGraph) -> GpuLoweredGraph:
        self._check_open()
        if not isinstance(batch, GpuLoweredGraph) or not any(batch is ours for ours in self._batches):
            raise BackendError("the batch was not lowered by this backend")
        return batch

    def open_sampling(
        self, batch: LoweredGraph, n_vocab: int, rows: int, shape: SamplingShape, table: npt.NDArray[np.uint64]
    ) -> GpuSampling:
        """Memory with which `submit_sampled` chooses the tokens of `rows` wanted rows; the last few are kept.

        n_vocab: tokens to choose from, with several rows as many as there are logits. Raises `UnsupportedOp` for a
        graph without one product of logits, `BackendError`, `InterfaceError`.
        """
        ours = self._own(batch)
        heads = [n for n in ours.graph.nodes if n.op is Op.LM_HEAD]
        if len(heads) != 1:
            raise UnsupportedOp(f"{len(heads)} products give logits; tokens can be sampled from those of one")
        width = int(ours.graph.buffer(heads[0].outputs[0]).shape[1])
        if not 1 <= n_vocab <= width or (rows > 1 and n_vocab != width):
            raise BackendError(f"tokens of {rows} rows sampled among {n_vocab}; a row has {width} logits")
        key = (n_vocab, rows, shape)
        if key not in ours.samplings:
            made = plan(n_vocab, rows, shape)
            self._load(DECODE[step.kernel] for step in made.steps)
            while len(ours.samplings) >= _SAMPLINGS:
                self._close_sampling(ours, next(iter(ours.samplings)))
            uploader = self._uploader()
            try:
                ours.samplings[key] = make_sampling(self.gpu, uploader, made, table)
            finally:
                uploader.close()
        return ours.samplings[key]

    def _close_sampling(self, batch: GpuLoweredGraph, key: tuple[int, int, SamplingShape]) -> None:
        sampling = batch.samplings.pop(key)
        batch.recorded.drop(sampling)
        for piece in sampling.held:
            self.gpu.free(piece)

    def submit(self, batch: LoweredGraph) -> Fence:
        """Start the batch on its inputs. Raises `StepTooLarge`, `TokenOutOfRange`, `InterfaceError`, `DeviceLost`."""
        return self._submit(self._own(batch), None)

    def submit_sampled(self, batch: LoweredGraph, sampling: GpuSampling) -> Fence:
        """The same, ending with tokens chosen as `sampling` says; the outputs stay what they were, see `fetch`."""
        ours = self._own(batch)
        if not any(sampling is known for known in ours.samplings.values()):
            raise BackendError("the sampling was not opened for this batch, or was dropped since")
        if int(ours.counts[1]) != sampling.plan.rows:
            raise BackendError(f"{ours.counts[1]} rows of logits, sampled as {sampling.plan.rows}")
        return self._submit(ours, sampling)

    def fetch(self, batch: LoweredGraph, sampling: GpuSampling) -> None:
        """Bring the outputs of the step that ran last, a sampled one, to the host. Raises `DeviceLost`."""
        ours = self._own(batch)
        self.gpu.wait(self.gpu.submit(ours.recorded.fetch(self._shape(ours), sampling)), self._patience(ours))

    def _submit(self, batch: GpuLoweredGraph, sampling: GpuSampling | None) -> Fence:
        check_step(batch)
        for node, ids, n_vocab in batch.vocabularies:
            _check_ids(node, batch.inputs[ids][: batch.counts[0]], n_vocab)
        recorded = batch.recorded.of(self._shape(batch), sampling)
        self._unsettled = True
        for part in recorded:
            inner = self.gpu.submit(part)
        self._sequence += 1
        fence = Fence(self._sequence)
        self._fences[fence.sequence] = fence, inner, self._patience(batch)
        return fence

    def _patience(self, batch: GpuLoweredGraph) -> float:
        return self.gpu.timeout * max(1, -(-int(batch.counts[0]) // _ROWS_OF_TIMEOUT))

    @staticmethod
    def _shape(batch: GpuLoweredGraph) -> StepShape:
        n_rows, n_logits = batch.counts.tolist()
        return StepShape(n_rows, n_logits, _splits(batch, n_rows))

    def wait(self, fence: Fence, timeout: float | None = None) -> None:
        """Return once the fence has retired. Raises `FenceTimeout`, `DeviceLost`, `BackendError` for a foreign
        fence.
        """
        self._check_open()
        if fence.retired:
            return
        ours, inner, seconds = self._fences.get(fence.sequence, (None, None, 0.0))
        if ours is not fence or inner is None:
            raise BackendError(
                f"fence {fence.sequence} was not submitted to this backend; its last is {self._sequence}"
            )
        self.gpu.wait(inner, seconds if timeout is None else timeout)
        for sequence in [s for s in self._fences if s <= fence.sequence]:  # submissions retire in order
            self._fences.pop(sequence)[0].retired = True
        self._unsettled = bool(self._fences)

    def settle(self) -> None:
        """See `Backend.settle`."""
        self._check_open()
        if self._unsettled:
            self.gpu.drain(max([self.gpu.timeout, *(seconds for _, _, seconds in self._fences.values())]))
            self._unsettled = False

    def close(self) -> None:
        """Wait for what runs and give everything back; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._memory.clear()  # arrays keep their maps
            self._batches.clear()
            self.gpu.close()

    def _check_open(self) -> None:
        if self._closed:
            raise BackendClosed("the GPU backend is closed")


def _label(entry: KernelEntry) -> str:
    """What a kernel is called in messages and profiles: its name and constants, as `matvec Q8_0 M=8`."""
    shown = (
        name.lower() if value is True else str(value) if isinstance(value, str) else f"{name}={value}"
        for name, value in entry.spec.constants.items()
        if value is not False
    )
    return " ".join((entry.spec.function.name, *shown))


def _vocabularies(graph: Graph) -> list[tuple[str, str, int]]:
    found = []
    for n in graph.nodes:
        if n.op is Op.EMBED and graph.buffer(n.inputs[0]).kind is BufferKind.INPUT:
            found.append((n.name, graph.buffer(n.inputs[0]).name, int(graph.buffer(n.inputs[1]).shape[0])))
    return found


def _check_ids(node: str, ids: npt.NDArray[np.int32], n_vocab: int) -> None:
    # Before the step: a kernel would read past the table.
    if ids.size and not (ids.min() >= 0 and ids.max() < n_vocab):
        bad = next(int(i) for i in ids if not 0 <= i < n_vocab)
        raise TokenOutOfRange(f"{node}: token id {bad} is outside the vocabulary of {n_vocab}")


def _splits(batch: GpuLoweredGraph, n_rows: int) -> int:
    if not batch.longest or not n_rows:
        return 1
    return int(batch.inputs[batch.longest][:n_rows].max()) // SPLIT + 1

"""`CpuBackend`: plans, lowers and runs graphs with kernels compiled for the processor."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import address_of, record
from zinc_rt.backends.arrays import bound, n_bytes, sequence_states, shareable, shared, state_bytes, typed
from zinc_rt.backends.base import (
    BackendFeatures,
    Bytes,
    Capacity,
    CheckedStep,
    GraphPlan,
    Ints,
    LoweredGraph,
    StreamedWeights,
)
from zinc_rt.backends.cache_pages import cache_pages, page_arrays
from zinc_rt.backends.cpu.binding import BoundArrays, CpuLayout, bind_program, placed_temporaries
from zinc_rt.backends.cpu.cache_layout import cpu_layout
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.cores import default_threads
from zinc_rt.backends.cpu.few_rows import few_rows
from zinc_rt.backends.cpu.lowering import CpuLowered, CpuLowering, External, matrices_of
from zinc_rt.backends.cpu.program import CpuProgram, Runner
from zinc_rt.backends.cpu.stream_plan import StreamPlan
from zinc_rt.backends.cpu.streaming import TileMemory, WeightStream
from zinc_rt.backends.cpu.tile_file import TileFolder, tile_key
from zinc_rt.backends.cpu.ways import WaysOfProducts
from zinc_rt.backends.cpu.weights import PART, Matrix, in_tiles, repack
from zinc_rt.backends.graph_check import lookups, step_inputs
from zinc_rt.backends.host import HostBackend, HostGraph, checked_threads
from zinc_rt.backends.host_memory import HUGE, huge_bytes
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cpu import structs
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.mem.disk import DirectFile, page_above, page_below
from zinc_rt.mem.plan import format_bytes
from zinc_rt.numerics import SPLIT
from zinc_rt.utils.aside import Aside
from zinc_rt.utils.notices import Waiting

if TYPE_CHECKING:
    from zinc_rt.backends.cpu.profile import CpuProfile, ProfileRecorder
    from zinc_rt.backends.cpu.sampling import CpuSampling
    from zinc_rt.sampling.request import DeviceSampling, SamplingRequest

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class CpuPlan(GraphPlan):
    """tuning: the kernels' constants; layout: the graph's operations, and where their temporaries lie; stream: what of
    the matrices is in memory, where not all are, within `limit` bytes for the whole plan; identity: of the weights.
    """

    tuning: TargetTuning
    layout: CpuLayout
    stream: StreamPlan | None = None
    limit: int = 0
    identity: bytes = b""


@dataclass(frozen=True, eq=False)
class CpuLoweredGraph(HostGraph):
    """A graph as one program. indices: the step's inputs by what they are for; samplings: by the number of tokens;
    kept: what outlives a step, the KV cache as a rule. stream: reads matrices that are not in memory.
    """

    program: CpuProgram = field(kw_only=True)
    lowered: CpuLowered = field(kw_only=True)
    indices: Mapping[str, Ints] = field(kw_only=True)
    kept: tuple[npt.NDArray[np.generic], ...] = field(kw_only=True)
    samplings: dict[int, CpuSampling] = field(default_factory=dict)
    stream: WeightStream | None = None


class CpuBackend(HostBackend):
    """Kernels compiled for one instruction-set level, on several threads; a step is one call of native code.

    Args:
        threads: None for the physical cores that this process may use.
        isa: a level of `zinc_rt.lang.target.TARGETS`; None for the best that this machine has.
        cache: where compiled kernels are kept; None for the user's cache folder.
        notify: gets lines worth showing.

    Raises:
        UsageError: threads is not from 1 to 1024.
        UnsupportedTarget: this machine cannot run the level.
    """

    graphs = CpuLoweredGraph

    def __init__(
        self,
        *,
        threads: int | None = None,
        isa: str | None = None,
        cache: CompileCache | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        threads = checked_threads(threads)
        target = host_target(isa)
        kept = cache if cache is not None else CompileCache(default_cache_dir(), notify=notify)
        self.library, self.threads, self._notify = (
            Library(target, kept, notify=notify),
            threads or default_threads(),
            notify,
        )
        self.features = BackendFeatures("native", target.name, self.threads, samples=True, measures_bandwidth=True)
        self.choice = TargetTuning.of(target)
        self.ways = WaysOfProducts(self.library, notify)
        self.runner = Runner(self.library, self.threads)
        self._recorder: ProfileRecorder | None = None
        self._streams: WeakSet[WeightStream] = WeakSet()

    def _end(self) -> None:
        for stream in self._streams:
            stream.close()
        self.runner.close()

    def plan(self, graph: Graph, sizes: Capacity, shares: LoweredGraph | None = None) -> CpuPlan:
        """See `Backend.plan`. What an earlier measurement found is taken; see `ways`."""
        self._check_open()
        return self._plan(graph, sizes, shares, self.ways.kept(self.choice, _kinds(graph), sizes.n_rows))

    def tune(self, plan: GraphPlan) -> CpuPlan:
        """Measure the ways of products that this machine has for the formats of a graph; see `Backend.tune`."""
        own = self._own_plan(plan)
        tuning = self.ways.chosen(self.choice, _kinds(own.graph), own.sizes.n_rows)
        if tuning == own.tuning:
            return own
        made = self._plan(own.graph, own.sizes, own.shares, tuning)
        return made if own.stream is None else self.within(made, own.limit, own.identity)

    def within(self, plan: GraphPlan, n_bytes: int, identity: bytes) -> CpuPlan:
        """See `Backend.within`. No units are done twice: pages may go only when no thread is late at them."""
        own = self._own_plan(plan)
        folder = self._tile_folder()
        borrowed = shared(own.graph, own.sizes, own.shares)
        matrices = [m for i, m in matrices_of(own.graph).items() if i not in borrowed]
        layout_ = replace(own.layout, few_rows=None)
        parts = dict(own.n_bytes)
        parts["weights"] -= sum(m.n_bytes for m in matrices)
        parts["scratch"] -= own.layout.n_bytes - layout_.n_bytes
        stream = StreamPlan.of(layout_.lowered, matrices, own.sizes.n_rows).within(n_bytes - sum(parts.values()))
        parts["weights"] += stream.resident
        return replace(
            own,
            n_bytes=parts,
            layout=layout_,
            stream=stream,
            limit=n_bytes,
            identity=identity,
            streamed=StreamedWeights(folder.path, stream.n_bytes, stream.token_bytes),
        )

    def _tile_folder(self) -> TileFolder:
        if self.library.cache.path is None:
            raise BackendError("there is no home folder to keep the weights' file in; name a folder with --cache-dir")
        return TileFolder.beside(self.library.cache.path)

    def _own_plan(self, plan: GraphPlan) -> CpuPlan:
        self._check_open()
        if not isinstance(plan, CpuPlan):
            raise BackendError(f"the graph was planned by another kind of backend; this is {self.description}")
        return plan

    def _plan(self, graph: Graph, sizes: Capacity, shares: LoweredGraph | None, tuning: TargetTuning) -> CpuPlan:
        matrices, borrowed = matrices_of(graph), shared(graph, sizes, shares)
        lowered = CpuLowering(graph, sizes, tuning, self.threads).run()
        few = few_rows(lowered, graph, sizes, self.threads)
        layout_ = CpuLayout(graph, sizes, lowered, *placed_temporaries(lowered), few)
        vectors = [b for b in graph.of_kind(BufferKind.WEIGHT) if b.id not in matrices]
        io = sum(n_bytes(b, sizes) for b in graph.of_kind(BufferKind.INPUT, BufferKind.OUTPUT))
        arguments = (a for op in lowered.operations for a in op.arguments.values())
        arranged = {a.key for a in arguments if isinstance(a, External) and a.kind == "rotation"}
        constants = sum(n_bytes(b, sizes) * (1 + (b.id in arranged)) for b in graph.of_kind(BufferKind.CONSTANT))
        parts = {
            "weights": sum(m.n_bytes for i, m in matrices.items() if i not in borrowed)
            + sum(min(n_bytes(b, sizes), 1 << 24) for b in vectors),
            "unpacked": 0,
            **state_bytes(graph, sizes, without=borrowed),
            "scratch": layout_.n_bytes + io,
            "constants": constants,  # as given, and some also as kernels want them
        }
        return CpuPlan(graph, sizes, shares, parts, tuning, layout_)

    def lower(
        self,
        plan: GraphPlan,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, F32],
        released: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CpuLoweredGraph:
        """Load the kernels, repack the weights, lay out the program; see `Backend.lower`."""
        own, graph = self._own_plan(plan), plan.graph
        matrices = matrices_of(graph)
        raw = {b.name: bound(weights, b) for b in graph.of_kind(BufferKind.WEIGHT)}
        self._load(own, matrices)
        borrowed = shared(graph, own.sizes, own.shares)
        missing = [m for i, m in matrices.items() if i not in borrowed]
        stream = own.stream
        memory = None if stream is None else TileMemory(stream.n_bytes, stream.huge)
        tiles = in_tiles(missing, memory.bytes, stream.places) if stream and memory else in_tiles(missing)
        in_place = {matrices[i].name: made for i, made in borrowed.items() if i in matrices}
        # Repacking needs no interpreter, so that the rest is done meanwhile.
        binding = Aside("zinc-binding", partial(self._bind, own, raw, constants, {**tiles, **in_place}, borrowed))
        binding.start()
        file: DirectFile | None = None
        try:
            if stream is not None and memory is not None:
                file = self._tile_file(own, missing, raw, tiles, memory, released, progress)
            else:
                repack(missing, raw, tiles, own.tuning, self.library, self.runner, released, progress)
        finally:
            binding.join()
        made = binding.result()
        if stream is None or memory is None or file is None:
            return made
        reader = WeightStream(stream, made.program, file, memory)
        self._streams.add(reader)
        reader.read_pinned(progress)
        return replace(made, stream=reader)

    def _tile_file(
        self,
        plan: CpuPlan,
        matrices: list[Matrix],
        raw: Mapping[str, Bytes],
        tiles: Mapping[str, Bytes],
        memory: TileMemory,
        released: Callable[[str], None] | None,
        progress: Callable[[int, int], None] | None,
    ) -> DirectFile:
        """The file of the matrices in tiles, made where it is not there. tiles: in `memory`, which is empty again
        afterwards.
        """
        assert plan.stream is not None
        folder, n_bytes = self._tile_folder(), plan.stream.n_bytes
        kernels = {m.kind: self.library.key(*plan.tuning.repack(m.kind)) for m in matrices}
        key = tile_key(plan.identity, matrices, raw, plan.stream.places, kernels)
        found = folder.find(key, n_bytes)
        if found is not None:
            if released is not None:
                for m in matrices:
                    released(m.name)
            return found
        if self._notify is not None:
            size, free = format_bytes(n_bytes), format_bytes(folder.free_bytes())
            self._notify(Waiting(f"writing the weights to {folder.path}, once: {size}, {free} are free there"))

        def fill(file: DirectFile) -> None:
            def write(ready: Sequence[Bytes]) -> None:
                first = address_of(ready[0]) - address_of(memory.bytes)
                last = address_of(ready[-1]) - address_of(memory.bytes) + ready[-1].size
                place = page_below(first), page_above(last)
                file.write(memory.view[slice(*place)], place[0])
                memory.drop([(place[0], page_below(last))])  # the next part may begin on the last page

            assert plan.stream is not None
            some = min(PART, max(1 << 20, plan.stream.resident // 2))
            repack(
                matrices, raw, tiles, plan.tuning, self.library, self.runner, released, progress, write, some
            )  # fmt: skip
            memory.drop([(0, n_bytes)])

        return folder.make(key, n_bytes, fill)

    def _bind(
        self,
        plan: CpuPlan,
        raw: Mapping[str, Bytes],
        constants: Mapping[str, F32],
        tiles: Mapping[str, Bytes],
        borrowed: Mapping[int, Any],
    ) -> CpuLoweredGraph:
        """Memory for everything but matrices, and the program on all of it; the tiles may be empty yet. borrowed:
        what another graph has, by buffer.
        """
        graph, sizes = plan.graph, plan.sizes
        roles, caches, matrices = step_inputs(graph), cache_pages(graph), matrices_of(graph)
        arrays = self._arrays(graph, sizes, raw, constants, matrices, borrowed)
        indices = {role: arrays[buffer] for role, buffer in roles.items()}
        memory = BoundArrays(arrays, raw, tiles)
        program = bind_program(plan.layout, self._step_record(sizes, indices), memory, self.library, self.threads)
        inputs = {b.name: arrays[b.id].view(np.int32) for b in graph.of_kind(BufferKind.INPUT)}
        return CpuLoweredGraph(
            limits=(sizes.n_rows, sizes.n_logits),
            inputs=inputs,
            outputs={b.name: arrays[b.id] for b in graph.of_kind(BufferKind.OUTPUT)},
            lookups=lookups(graph, inputs),
            states={b.name: arrays[b.id] for b in sequence_states(graph)},
            caches={cache.name: cache for cache in caches},
            cache_arrays=page_arrays(caches, arrays),
            layout=cpu_layout(plan.tuning.flip & 0xFF),
            kept=tuple(arrays[b.id] for b in graph.of_kind(BufferKind.STATE)),
            # Steps of another graph would find tiles that are not in memory.
            memory=shareable(
                graph, sizes, arrays | ({} if plan.stream else {i: tiles[m.name] for i, m in matrices.items()})
            ),
            indices={role: array.view(np.int32) for role, array in indices.items()},
            program=program,
            lowered=plan.layout.lowered,
        )

    def _arrays(
        self,
        graph: Graph,
        sizes: Capacity,
        raw: Mapping[str, Bytes],
        constants: Mapping[str, F32],
        matrices: Mapping[int, Matrix],
        borrowed: Mapping[int, Any],
    ) -> dict[int, Any]:
        """Memory of every buffer that is no temporary, no matrix and no embedding table, by id."""
        tables = {n.inputs[1] for n in graph.nodes if n.op is Op.EMBED}
        arrays: dict[int, Any] = {}
        for b in graph.buffers:
            if b.id in borrowed:
                arrays |= {b.id: borrowed[b.id]} if b.id not in matrices else {}
            elif b.kind is BufferKind.WEIGHT:
                if b.id not in matrices and b.id not in tables:
                    flat = np.ascontiguousarray(raw[b.name].reshape(-1).view(np.float32))
                    arrays[b.id] = flat.reshape([int(d) for d in b.shape])
            elif b.kind is BufferKind.CONSTANT:
                arrays[b.id] = bound(constants, b)
            elif b.kind is not BufferKind.TEMP:
                # A cache grows from its first page on. With huge pages there, the first token of all would clear
                # two of them in every layer.
                plain = HUGE if b.kind is BufferKind.STATE and b.shape[0] == "n_pages" else 0
                arrays[b.id] = typed(huge_bytes(n_bytes(b, sizes), plain=plain), b, sizes)
        return arrays

    def touch_states(self, lowered: LoweredGraph) -> Iterator[None]:
        """See `Backend.touch_states`: huge pages, the first of all layers first. Clearing one takes up to some
        milliseconds, and a step would touch two in every layer at once.
        """
        assert isinstance(lowered, CpuLoweredGraph)
        kept = [array.reshape(-1).view(np.uint8) for array in lowered.kept]
        for start in range(0, max((array.size for array in kept), default=0), HUGE):
            for array in kept:
                part = array[start : start + HUGE : mmap.PAGESIZE]
                np.bitwise_or(part, 0, out=part)
                yield

    def _load(self, plan: CpuPlan, matrices: Mapping[int, Matrix]) -> None:
        """All kernels at once: missing kernels are compiled in parallel, and one line says so."""
        kinds = {m.kind for m in matrices.values()}
        self.library.load(
            [
                *(op.kernel for op in plan.layout.lowered.operations),
                *(plan.tuning.repack(kind) for kind in kinds),
                *self.runner.kernels(),
            ]
        )

    def _step_record(self, sizes: Capacity, inputs: Mapping[str, Any]) -> npt.NDArray[np.void]:
        return record(structs.StepRecord, {"max_pages": sizes.max_pages, **inputs})

    def _run(self, lowered: LoweredGraph, n_rows: int, n_logits: int, sampling: DeviceSampling | None) -> None:
        assert isinstance(lowered, CpuLoweredGraph)
        splits = 0
        if 0 < n_rows <= lowered.lowered.split_rows:
            longest = _largest(lowered.indices["positions"], n_rows) + 1
            splits = -(-longest // SPLIT) if longest > SPLIT else 0
        program = lowered.program
        sampled = 0
        if sampling is not None:
            program.end_with(cast("CpuSampling", sampling).operation, self.library)  # checked before
            sampled = n_logits
        self._prepare(lowered, n_rows, n_logits, splits, sampled)
        if lowered.stream is not None:
            lowered.stream.run(partial(self.runner.run, program), n_rows, n_logits)
        elif self._recorder is None or not self._recorder.records(program):
            self.runner.run(program)
        else:
            self._recorder.run(n_rows, _cached_positions(lowered, n_rows))

    @staticmethod
    def _prepare(lowered: CpuLoweredGraph, n_rows: int, n_logits: int, splits: int, sampled: int) -> None:
        lowered.program.prepare(
            n_rows=n_rows,
            n_logits=n_logits,
            splits=splits,
            attention=n_rows * splits if splits else -(-n_rows // lowered.lowered.attention_rows),
            jobs=[choice.jobs(n_rows) for choice in lowered.lowered.choices],
            sampled=sampled,
        )

    def run_parts(self, step: CheckedStep, seconds: float) -> Iterator[None]:
        """See `Backend.run_parts`. Steps of few rows are one part."""
        lowered, n_rows, n_logits = step
        self._check_own(lowered)
        assert isinstance(lowered, CpuLoweredGraph)
        recorded = self._recorder is not None and self._recorder.records(lowered.program)
        whole = recorded or lowered.stream is not None or math.isinf(seconds)
        if n_rows <= lowered.program.n_few_rows or lowered.indices or whole:
            yield from super().run_parts(step, seconds)
            return
        self._prepare(lowered, n_rows, n_logits, 0, 0)
        yield from lowered.program.parts(partial(self._run_part, lowered.program), seconds)

    def _run_part(self, program: CpuProgram) -> None:
        with self._step:
            self._check_open()
            self.runner.run(program)

    def sampling_for(
        self, lowered: LoweredGraph, requests: Sequence[SamplingRequest], n_ctx: int
    ) -> CpuSampling | None:
        """See `Backend.sampling_for`. Where the likeliest tokens are all that is wanted, the step has them already."""
        if all(r.sampler.plain and r.mask is None for r in requests):
            return None
        from zinc_rt.backends.cpu.sampling import CpuSampling, wants_native

        n_vocab = requests[0].sampler.n_vocab
        if not any(map(wants_native, requests)) or any(r.sampler.n_vocab != n_vocab for r in requests):
            return None
        with self._step:
            self._check_own(lowered)
            assert isinstance(lowered, CpuLoweredGraph)
            if n_vocab not in lowered.samplings:
                outputs = {name: lowered.outputs[name] for name in ("logits", "tokens")}
                lowered.samplings[n_vocab] = CpuSampling(self.threads, self.choice.sample(), n_vocab, **outputs)
            return lowered.samplings[n_vocab]

    def _check_sampling(self, lowered: LoweredGraph, sampling: DeviceSampling) -> None:
        assert isinstance(lowered, CpuLoweredGraph)
        known = next((made for made in lowered.samplings.values() if made is sampling), None)
        if known is None:
            super()._check_sampling(lowered, sampling)
        elif known.n_rows != lowered.counts[1]:
            raise BackendError(f"{lowered.counts[1]} rows of logits, sampled as {known.n_rows}")

    def start_profile(self, lowered: LoweredGraph) -> None:
        """Record the units of this graph that each thread runs, with their times, from now on."""
        self._check_open()
        from zinc_rt.backends.cpu.profile import ProfileRecorder

        assert isinstance(lowered, CpuLoweredGraph)
        if lowered.stream is not None:
            raise BackendError("steps whose weights are read from the disk cannot be profiled; allow more memory")
        self._recorder = ProfileRecorder(lowered.program, self.runner, self.library)

    def finish_profile(self) -> CpuProfile:
        """What was recorded since `start_profile`, which must have been called."""
        self._check_open()
        assert self._recorder is not None
        recorder, self._recorder = self._recorder, None
        return recorder.finish()

    def read_bandwidth(self, n_bytes: int) -> float:
        """See `bandwidth.read_bandwidth`."""
        self._check_open()
        from zinc_rt.backends.cpu.bandwidth import read_bandwidth

        return read_bandwidth(n_bytes, self.library, self.runner)


def _kinds(graph: Graph) -> set[GGMLType]:
    """The formats of a graph's matrices."""
    return {m.kind for m in matrices_of(graph).values()}


def _largest(values: npt.NDArray[np.int32], n: int) -> int:
    """Of the first n, at least one."""
    return int(values[0]) if n == 1 else int(values[:n].max())


def _cached_positions(lowered: CpuLoweredGraph, n_rows: int) -> int:
    """Positions of the sequences that have rows in a step, up to each one's last row."""
    if "slots" not in lowered.inputs:
        return 0
    slots, positions = (lowered.inputs[name][:n_rows] for name in ("slots", "positions"))
    return sum(int(positions[slots == slot].max()) + 1 for slot in np.unique(slots))

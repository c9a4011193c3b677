"""Batches of a lowered graph: one for each shape of a step that occurs; the last ones are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import Records
from zinc_rt.backends.gpu.device import DeviceKernel, DeviceMemory, DispatchList, GpuDevice
from zinc_rt.backends.gpu.lowering import UNUSED, GpuLowered
from zinc_rt.backends.gpu.memory import GraphMemory
from zinc_rt.backends.gpu.operations import BLOCKS, ArgumentBlock, GpuOperation, StepShape, TempSpec
from zinc_rt.backends.gpu.placement import AddressSpan, phases, placed
from zinc_rt.backends.gpu.prefetch import prefetched
from zinc_rt.backends.gpu.sampling import GpuSampling
from zinc_rt.backends.gpu.work import CommandLists, StepDispatch, dispatch_work, work_of
from zinc_rt.backends.graph_check import logits_of
from zinc_rt.ir.graph import Buffer, BufferKind, Graph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu.ahead import BYTES
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.kernels.gpu.sampling_plan import SamplingPlan

_SPARE = 0.75
"""Of what a submission may have: the pace changes a little all the time, which shall not mean another recording."""
KEPT = 16
"""Shapes whose batches are kept: decode steps come back to theirs for 256 tokens."""


@dataclass
class _Recorded:
    """A step's command lists, recorded.

    batches: the lists, one after the other; fetch: copies the logits of a step that sampled, where the host needs them
    after all; uncut: work of the largest list that could be cut further, 0 if there is none; phases: of dispatches,
    including those of sampling if they may be in a program; early: of a resident program, see `StepPrograms.record`.
    """

    batches: list[DispatchList]
    fetch: DispatchList | None
    arguments: list[DeviceMemory]
    uncut: int
    phases: list[list[StepDispatch]]
    early: npt.NDArray[np.uint32] | None

    def suits(self, most_work: int) -> bool:
        """Whether it would be cut much the same now."""
        total = sum(batch.work for batch in self.batches)
        return self.uncut <= most_work and len(self.batches) <= 2 * -(-total // most_work) + 1


class StepPrograms(Protocol):
    """Makes one program of a step, on devices that support it. possible: whether there may be any."""

    @property
    def possible(self) -> bool: ...

    def record(
        self, batch: Any, phases: Sequence[Sequence[StepDispatch]], allocated: list[Any]
    ) -> npt.NDArray[np.uint32] | None:
        """Add a step to a list; None where it stays a list of dispatches. allocated: gets what it needs of memory.

        Gives u32[1]: not 0 once the program has ended before its time.
        """


class Batches:
    """lowered: with its phases; programs: by symbol of a kernel, those of sampling as soon as one is asked for;
    programs_of_steps: makes one dispatch of small steps where that is faster.
    """

    def __init__(
        self,
        backend: GpuDevice,
        graph: Graph,
        lowered: GpuLowered,
        memory: GraphMemory,
        programs: Mapping[str, DeviceKernel],
        programs_of_steps: StepPrograms | None = None,
    ) -> None:
        self._resident = programs_of_steps
        self._backend, self._graph, self._lowered = backend, graph, lowered
        self._memory, self._programs = memory, programs
        self._kept: OrderedDict[tuple[StepShape, GpuSampling | None], _Recorded] = OrderedDict()
        self._choices = {n.name for n in graph.nodes if n.op is Op.ARGMAX}
        self._matrices = {b.id: matrix_bytes(b) for b in graph.of_kind(BufferKind.WEIGHT) if len(b.shape) == 2}

    @property
    def memory(self) -> GraphMemory:
        """Where the graph's memory lies."""
        return self._memory

    def of(self, shape: StepShape, sampling: GpuSampling | None = None) -> list[DispatchList]:
        """The batches for a step of this shape, in order; they end with sampled tokens if so wished."""
        return self._of(shape, sampling).batches

    def phases(self, shape: StepShape, sampling: GpuSampling | None = None) -> list[list[StepDispatch]]:
        """The dispatches of a step of this shape by phase, but for those of sampling that are not in its program."""
        return self._of(shape, sampling).phases

    def ended_early(self, shape: StepShape, sampling: GpuSampling | None) -> int:
        """The meeting, from 1 on, at which the resident program of the last step of this shape ended; 0: it came to its
        end, or there is none.
        """
        found = self._kept.get((shape, sampling))
        return 0 if found is None or found.early is None else int(found.early[0])

    def forget_programs(self) -> None:
        """Forget the batches with a resident program."""
        for key in [key for key, found in self._kept.items() if found.early is not None]:
            self._free(key)

    def fetch(self, shape: StepShape, sampling: GpuSampling) -> DispatchList:
        """The list that copies the logits of the last step of this shape to the host."""
        found = self._of(shape, sampling).fetch
        assert found is not None, "a sampled step has one"
        return found

    def _of(self, shape: StepShape, sampling: GpuSampling | None) -> _Recorded:
        key = (shape, sampling)
        if key in self._kept and self._kept[key].suits(self._backend.most_work):
            self._kept.move_to_end(key)
            return self._kept[key]
        if key in self._kept:
            self._free(key)
        while len(self._kept) >= KEPT:
            self._free(next(iter(self._kept)))
        self._kept[key] = made = self._record(shape, sampling)
        return made

    def drop(self, sampling: GpuSampling) -> None:
        """Forget the batches that end with it."""
        for key in [key for key in self._kept if key[1] is sampling]:
            self._free(key)

    def _free(self, key: tuple[StepShape, GpuSampling | None]) -> None:
        for piece in self._kept.pop(key).arguments:
            self._backend.free(piece)

    def _record(self, shape: StepShape, sampling: GpuSampling | None) -> _Recorded:
        lowered = self._lowered.of(shape.n_rows)
        operations = [op for op in lowered.operations if getattr(shape, op.counted) and op.when(shape)]
        if sampling is not None:
            operations = [op for op in operations if op.name not in self._choices]
        where = placed(self._graph, lowered, shape, self._memory.arena_bytes)
        va = {**self._memory.va, **{key: self._memory.arena + at for key, at in where.items()}}

        def stretch(key: Hashable) -> tuple[int, int] | None:
            if key in where:
                return va[key], va[key] + lowered.rooms[key].size(shape)
            return (va[key], va[key] + 1) if key in va else None

        made: list[DeviceMemory] = []
        try:
            return self._recorded(operations, va, shape, sampling, made, stretch)
        except BaseException:
            for piece in made:
                self._backend.free(piece)
            raise

    def _recorded(
        self,
        operations: list[GpuOperation],
        va: Mapping[Hashable, int],
        shape: StepShape,
        sampling: GpuSampling | None,
        allocated: list[DeviceMemory],
        stretch: Callable[[Hashable], AddressSpan | None],
    ) -> _Recorded:
        """allocated: gets the memory of arguments, also when this raises."""
        blocks = self._arguments(operations, va, shape, allocated)
        moves = [self._move(*self._memory.input_block)]
        moves += [self._move(*move) for move in (sampling.moves if sampling is not None else ())]
        cut = list(phases(operations, stretch))
        works = [[self._work(op, blocks, va, shape) for op in part] for part, _ in cut]
        outputs, logits = self._outputs(shape, va, "n_rows"), self._outputs(shape, va, "n_logits")
        parts = CommandLists(lambda: self._begun(shape, allocated), _SPARE * self._backend.most_work)
        ends = [part for part in ([*outputs, *logits] if sampling is None else outputs,) if part]
        inside = self._sampled_inside(sampling, va, allocated)
        whole = [part for part in (moves, *works, *ends, *inside) if part]
        early = None if any(full for _, full in cut) else self._as_one(parts, whole, allocated)
        if early is None:
            beside = self._ahead([moves, *works]) if shape.n_rows <= BLOCKS[-1] else [[] for _ in (moves, *works)]
            _dispatch(parts, moves)
            for part, more, (_, full) in zip(works, beside[1:], cut, strict=True):
                parts.last.barrier(light=not full)
                _dispatch(parts, [*part, *more])
            for part in ends:
                parts.last.barrier(light=True)
                _dispatch(parts, part)
        if sampling is None:
            return _Recorded(parts.batches, None, allocated, parts.uncut, whole, early)
        if early is not None and inside:
            parts.last.memory += [*allocated, *sampling.held]
        else:
            self._sample(parts, sampling, va, allocated)
        fetch = CommandLists(lambda: self._backend.commands("logits"), inf)
        fetch.last.memory += [*self._memory.held, *self._memory.borrowed]
        fetch.last.barrier(light=True)
        _dispatch(fetch, logits)
        return _Recorded(parts.batches, fetch.last, allocated, parts.uncut, whole, early)

    def _ahead(self, works: list[list[StepDispatch]]) -> list[list[StepDispatch]]:
        """What is loaded beside each phase for the next one."""
        at_once = self._backend.at_once
        if at_once is None:
            return [[] for _ in works]
        spec, unused = DECODE["ahead"].spec, self._memory.va[UNUSED]
        return [
            [
                StepDispatch(spec, self._programs[spec.symbol], (n, 1, 1), (start, unused), dispatch_work(n))
                for start, n in ((start, size // BYTES) for start, size in ranges)
            ]
            for ranges in prefetched(works, at_once)
        ]

    def _as_one(
        self, parts: CommandLists, whole: list[list[StepDispatch]], allocated: list[DeviceMemory]
    ) -> npt.NDArray[np.uint32] | None:
        """Record a step as one resident program, whose work one submission may have; None where it stays dispatched.
        Its work counts as what can be cut, since dispatches can.
        """
        work, n = sum(one.work for part in whole for one in part), sum(map(len, whole))
        if self._resident is None or not parts.holds(work):
            return None
        early = self._resident.record(parts.last, whole, allocated)
        if early is not None:
            parts.make_room(work, n)
        return early

    def _work(
        self, op: GpuOperation, blocks: Mapping[int, int], va: Mapping[Hashable, int], shape: StepShape
    ) -> StepDispatch:
        kernel = op.kernel(shape).spec
        arguments = tuple(blocks[id(a)] if isinstance(a, ArgumentBlock) else _value(a, va, shape) for a in op.arguments)
        work = work_of(op, shape)
        products = op.work(shape)
        weights = tuple(self._weights(op, va)) if products else ()
        return StepDispatch(kernel, self._programs[kernel.symbol], op.groups(shape), arguments, work, products, weights)

    def _weights(self, op: GpuOperation, va: Mapping[Hashable, int]) -> Iterator[tuple[int, int]]:
        """Addresses and bytes of matrices that products read wholly: of routed experts nobody knows which."""
        for argument in op.arguments:
            given = argument.values.values() if isinstance(argument, ArgumentBlock) else (argument,)
            for value in given:
                if isinstance(value, TempSpec) and value.key in self._matrices:
                    yield va[value.key], self._matrices[value.key]

    def _begun(self, shape: StepShape, allocated: list[DeviceMemory]) -> DispatchList:
        batch = self._backend.commands(f"step of {shape.n_rows} rows")
        batch.memory += [*allocated, *self._memory.held, *self._memory.borrowed]
        return batch

    def _outputs(self, shape: StepShape, va: Mapping[Hashable, int], counted: str) -> list[StepDispatch]:
        """Dispatches that copy the outputs with a row for each of `counted` to memory that the processor reads."""
        rows = int(getattr(shape, counted))
        return [
            self._move(va[b.id], self._memory.outside[b.id], rows * self._lowered.rooms[b.id].row_bytes)
            for b in self._graph.of_kind(BufferKind.OUTPUT)
            if rows and b.shape[0] == counted
        ]

    def _sample(
        self, parts: CommandLists, sampling: GpuSampling, va: Mapping[Hashable, int], allocated: list[DeviceMemory]
    ) -> None:
        """Let the step end with tokens."""
        args, addresses = self._sampling_arguments(sampling, sampling.plan, va, allocated)
        programs = {step.kernel: self._programs[DECODE[step.kernel].spec.symbol] for step in sampling.plan.steps}
        n = len(sampling.plan.steps)
        batch = parts.make_room(n * dispatch_work(1), n)
        sampling.plan.record(batch, programs, addresses)
        batch.memory += [args, *sampling.held]

    def _sampled_inside(
        self, sampling: GpuSampling | None, va: Mapping[Hashable, int], allocated: list[DeviceMemory]
    ) -> list[list[StepDispatch]]:
        """The phases of a resident program in which it chooses tokens; none where they are chosen behind it."""
        if sampling is None or sampling.inside is None:
            return []
        _, addresses = self._sampling_arguments(sampling, sampling.inside, va, allocated)
        found = []
        for step in sampling.inside.steps:
            kernel = DECODE[step.kernel].spec
            arguments = tuple(addresses[a] if isinstance(a, str) else a for a in step.arguments)
            work = dispatch_work(step.groups)
            found.append([StepDispatch(kernel, self._programs[kernel.symbol], step.groups, arguments, work)])
        return found

    def _sampling_arguments(
        self, sampling: GpuSampling, plan: SamplingPlan, va: Mapping[Hashable, int], allocated: list[DeviceMemory]
    ) -> tuple[DeviceMemory, dict[str, int]]:
        """The struct that a plan's kernels take, and the addresses of all their memory."""
        addresses = {**sampling.addresses, "logits": va[logits_of(self._graph)[0]]}
        raw = plan.arguments(addresses).view(np.uint8)
        args = self._backend.alloc(raw.size, label="arguments of sampling")
        allocated.append(args)
        self._backend.write(args, raw)
        return args, {**addresses, "args": args.va}

    def _move(self, source: int, target: int, n_bytes: int) -> StepDispatch:
        words, kernel = n_bytes // 4, DECODE["move"].spec
        groups = (-(-words // 1024), 1, 1)
        return StepDispatch(
            kernel, self._programs[kernel.symbol], groups, (source, target, words), dispatch_work(groups)
        )

    def _arguments(
        self,
        operations: list[GpuOperation],
        va: Mapping[Hashable, int],
        shape: StepShape,
        allocated: list[DeviceMemory],
    ) -> dict[int, int]:
        """Fill memory with the structs of arguments; the address of each by its block's id."""
        blocks = {id(a): a for op in operations for a in op.arguments if isinstance(a, ArgumentBlock)}
        records = Records(block.struct for block in blocks.values())
        for i, block in enumerate(blocks.values()):
            records.write(i, {name: _value(value, va, shape) for name, value in block.values.items()})
        held = self._backend.alloc(max(records.memory.size, 1), label="arguments")
        allocated.append(held)
        self._backend.write(held, records.memory)
        return {key: held.va + at for key, at in zip(blocks, records.offsets, strict=True)}


def _dispatch(parts: CommandLists, works: Iterable[StepDispatch]) -> None:
    for one in works:
        parts.dispatch(one.program, one.groups, *one.arguments, work=one.work)


def matrix_bytes(b: Buffer) -> int:
    """Bytes of a matrix of weights."""
    n_out, n_in = (int(d) for d in b.shape)
    return n_out * b.dtype.row_bytes(n_in)


def _value(value: Any, va: Mapping[Hashable, int], shape: StepShape) -> Any:
    if isinstance(value, TempSpec):
        return va[value.key]
    return value(shape) if callable(value) else value

"""Plans, lowers and runs graphs with native kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import address_of, record
from zinc_rt.backends.arrays import bound, n_bytes, typed
from zinc_rt.backends.base import Bytes, Capacity
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.lowering import CpuLowered, CpuLowering, External, QuantisedActs, TempRef, matrices_of
from zinc_rt.backends.cpu.memory import HUGE, huge_bytes
from zinc_rt.backends.cpu.program import CpuProgram, Runner
from zinc_rt.backends.cpu.selftest import matrix_products_agree
from zinc_rt.backends.cpu.weights import Matrix, in_tiles, repack
from zinc_rt.backends.graph_check import step_inputs
from zinc_rt.backends.packet_list import LoweredGraph, Packet
from zinc_rt.backends.stages import into_phases
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cpu import layout, structs
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.lang.library import Library
from zinc_rt.mem.arena import Lifetime, align_up, place
from zinc_rt.numerics import SPLIT

if TYPE_CHECKING:
    from zinc_rt.backends.cpu.profile import CpuProfile, ProfileRecorder

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class NativeBatch(LoweredGraph):
    """A batch whose packets are one program. indices: the step's inputs by what they are for; n_vocab: of the
    embedding table, 0 where there is none.
    """

    native: ClassVar[bool] = True
    program: CpuProgram = field(kw_only=True)
    lowered: CpuLowered = field(kw_only=True)
    indices: Mapping[str, npt.NDArray[np.int32]] = field(kw_only=True)
    n_vocab: int = field(kw_only=True)


@dataclass(frozen=True)
class Layout:
    """A lowered graph with its temporaries placed: offsets by key in an arena of so many bytes."""

    key: Hashable
    graph: Graph  # keeps the identity that the key names
    lowered: CpuLowered
    places: dict[Hashable, int]
    arena_bytes: int


class _Memory:
    """What `External` stands for."""

    def __init__(self, arrays: Mapping[int, Any], raw: Mapping[str, Bytes], tiles: Mapping[str, Bytes]) -> None:
        self._known: dict[External, Any] = {
            **{External("buffer", key): array for key, array in arrays.items()},
            **{External("rows", key): array for key, array in raw.items()},
            **{External("tiles", key): array for key, array in tiles.items()},
        }

    def find(self, given: External) -> Any:
        """The array."""
        if given not in self._known and given.what == "rotation":
            table = self._known[External("buffer", given.key)]
            # Cosines and sines apart: a kernel loads each as a vector.
            self._known[given] = np.ascontiguousarray(table.transpose(0, 2, 1))
        return self._known[given]


class NativeBackend:
    """Native kernels for one target on `threads` threads."""

    def __init__(self, library: Library, threads: int, notify: Callable[[str], None] | None = None) -> None:
        self.library, self.threads, self._notify = library, threads, notify
        self.choice = TargetTuning.of(library.target)
        self.runner = Runner(library, threads)
        self._planned: Layout | None = None
        self._recorder: ProfileRecorder | None = None

    def check_matrix_registers(self, kinds: Iterable[GGMLType]) -> None:
        """Do without matrix registers where their products of these formats are not those of vectors."""
        if not self.choice.tiles:
            return
        wrong = [
            k.name
            for k in kinds
            if FORMATS[k.name].quantized and not matrix_products_agree(self.library, self.choice, k)
        ]
        if wrong:
            self.choice = replace(self.choice, tiles="")
            if self._notify is not None:
                self._notify(f"matrix registers gave wrong products of {', '.join(wrong)} and are not used")

    def close(self) -> None:
        """End the threads."""
        self.runner.close()

    def plan(self, graph: Graph, sizes: Capacity) -> dict[str, int]:
        """Bytes by purpose; see `Backend.plan`."""
        matrices = matrices_of(graph)
        vectors = [b for b in graph.of_kind(BufferKind.WEIGHT) if b.id not in matrices]
        io = sum(n_bytes(b, sizes) for b in graph.of_kind(BufferKind.INPUT, BufferKind.OUTPUT))
        constants = sum(n_bytes(b, sizes) for b in graph.of_kind(BufferKind.CONSTANT))
        return {
            "weights": sum(m.n_bytes for m in matrices.values())
            + sum(min(n_bytes(b, sizes), 1 << 24) for b in vectors),
            "unpacked": 0,
            "kv_cache": sum(n_bytes(b, sizes) for b in graph.of_kind(BufferKind.STATE)),
            "scratch": self._layout(graph, sizes).arena_bytes + io,
            "constants": 2 * constants,  # as given, and arranged for the kernels
        }

    def _layout(self, graph: Graph, sizes: Capacity) -> Layout:
        """Operations and where their temporaries lie; that of the plan when the same is lowered."""
        key = (id(graph), sizes, self.choice)
        if self._planned is None or self._planned.key != key:
            lowered = CpuLowering(graph, sizes, self.choice, self.threads).run()
            self._planned = Layout(key, graph, lowered, *_placed(lowered))
        return self._planned

    def lower(
        self,
        graph: Graph,
        sizes: Capacity,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, F32],
        released: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> NativeBatch:
        """Load the kernels, repack the weights, lay out the program; see `Backend.lower`."""
        roles = step_inputs(graph)
        matrices = matrices_of(graph)
        raw = {b.name: bound(weights, b) for b in graph.of_kind(BufferKind.WEIGHT)}
        arrays = self._arrays(graph, sizes, raw, constants, matrices)
        self._load(self._layout(graph, sizes), matrices)
        self.check_matrix_registers({m.kind for m in matrices.values()})
        layout_ = self._layout(graph, sizes)
        tiles = in_tiles(matrices.values())
        repack(list(matrices.values()), raw, tiles, self.choice, self.library, self.runner, released, progress)
        self._planned = None  # its operations get their arguments now
        indices = {role: arrays[buffer] for role, buffer in roles.items()}
        program = self._program(layout_, self._step(sizes, indices), _Memory(arrays, raw, tiles))
        embeds = [graph.buffer(n.inputs[1]) for n in graph.nodes if n.op is Op.EMBED]
        return NativeBatch(
            packets=tuple(Packet(n.op, None, n.name) for n in graph.nodes),
            inputs={b.name: arrays[b.id].view(np.int32) for b in graph.of_kind(BufferKind.INPUT)},
            outputs={b.name: arrays[b.id] for b in graph.of_kind(BufferKind.OUTPUT)},
            counts=np.zeros(2, np.int32),
            limits=(sizes.n_rows, sizes.n_logits),
            indices={role: array.view(np.int32) for role, array in indices.items()},
            program=program,
            lowered=layout_.lowered,
            n_vocab=min((int(b.shape[0]) for b in embeds), default=0),
        )

    def _arrays(
        self, graph: Graph, sizes: Capacity, raw: Mapping[str, Bytes], constants: Mapping[str, F32],
        matrices: Mapping[int, Matrix],
    ) -> dict[int, Any]:  # fmt: skip
        """Memory of every buffer that is no temporary, no matrix and no embedding table, by id."""
        tables = {n.inputs[1] for n in graph.nodes if n.op is Op.EMBED}
        arrays: dict[int, Any] = {}
        for b in graph.buffers:
            if b.kind is BufferKind.WEIGHT:
                if b.id not in matrices and b.id not in tables:
                    arrays[b.id] = np.ascontiguousarray(raw[b.name].reshape(-1).view(np.float32))
            elif b.kind is BufferKind.CONSTANT:
                arrays[b.id] = bound(constants, b)
            elif b.kind is not BufferKind.TEMP:
                # A cache grows from its first page on. With huge pages there, the first token of all would clear
                # two of them in every layer.
                plain = HUGE if b.kind is BufferKind.STATE else 0
                arrays[b.id] = typed(huge_bytes(n_bytes(b, sizes), plain=plain), b, sizes)
        return arrays

    def _load(self, layout_: Layout, matrices: Mapping[int, Matrix]) -> None:
        """All kernels at once: what has to be compiled is compiled side by side, and said in one line."""
        kinds = {m.kind for m in matrices.values()}
        self.library.load(
            [
                *(op.kernel for op in layout_.lowered.operations),
                *(self.choice.repack(kind) for kind in kinds),
                *self.runner.kernels(alone=bool(self.choice.tiles)),
            ]
        )

    def _step(self, sizes: Capacity, inputs: Mapping[str, Any]) -> npt.NDArray[np.void]:
        return record(structs.StepRecord, {"max_pages": sizes.max_pages, **inputs})

    def _program(self, layout_: Layout, step: npt.NDArray[np.void], memory: _Memory) -> CpuProgram:
        lowered, places = layout_.lowered, layout_.places
        arena = huge_bytes(layout_.arena_bytes)
        base = address_of(arena)
        packs: dict[Hashable, npt.NDArray[np.void]] = {}
        visits: dict[int, npt.NDArray[np.int32]] = {}
        for key, p in lowered.packs.items():
            groups = layout.n_groups(p.n)
            if groups not in visits:
                visits[groups] = layout.visiting_order(groups)
            at = base + places[key]
            packs[key] = record(
                structs.Pack,
                {
                    "q": 0 if p.q is None else at + p.q, "f": 0 if p.f is None else at + p.f,
                    "d": at + p.d, "s": at + p.s, "s_stride": p.rows * groups, "visit": visits[groups], "n": p.n,
                    "n_groups": groups,
                },
            )  # fmt: skip
        for op in lowered.operations:
            for field_name, value in op.arguments.items():
                if isinstance(value, External):
                    op.arguments[field_name] = memory.find(value)
                elif isinstance(value, TempRef):
                    op.arguments[field_name] = base + places[value.key] + value.offset
                elif isinstance(value, QuantisedActs):
                    op.arguments[field_name] = packs[value.key]
        program = CpuProgram.build(lowered.operations, step, self.library, self.threads)
        program.keep += [arena, packs, visits, memory]
        return program

    def run(self, batch: LoweredGraph) -> None:
        """One step. Raises `TokenOutOfRange`."""
        assert isinstance(batch, NativeBatch)
        n_rows, n_logits = batch.counts.tolist()
        splits = 0
        if n_rows > 0:
            if batch.n_vocab:
                _check_tokens(batch.indices["token_ids"], n_rows, batch.n_vocab)
            if n_rows <= batch.lowered.split_rows:
                longest = _largest(batch.indices["positions"], n_rows) + 1
                splits = -(-longest // SPLIT) if longest > SPLIT else 0
        program = batch.program
        program.prepare(
            n_rows=n_rows, n_logits=n_logits, splits=splits,
            attention=n_rows * splits if splits else -(-n_rows // batch.lowered.attention_rows),
        )  # fmt: skip
        if self._recorder is None:
            self.runner.run(program)
        else:
            self._recorder.run(n_rows, _cached_positions(batch, n_rows))

    def start_profile(self, batch: LoweredGraph) -> None:
        """Record the steps of this batch from now on."""
        from zinc_rt.backends.cpu.profile import ProfileRecorder

        assert isinstance(batch, NativeBatch)
        self._recorder = ProfileRecorder(batch.program, self.runner, self.library)

    def finish_profile(self) -> CpuProfile:
        """What was recorded since `start_profile`, which must have been called."""
        assert self._recorder is not None
        recorder, self._recorder = self._recorder, None
        return recorder.finish()

    def read_bandwidth(self, n_bytes: int) -> float:
        """See `bandwidth.read_bandwidth`."""
        from zinc_rt.backends.cpu.bandwidth import read_bandwidth

        return read_bandwidth(n_bytes, self.library, self.runner)


def _largest(values: npt.NDArray[np.int32], n: int) -> int:
    """Of the first n, at least one."""
    return int(values[0]) if n == 1 else int(values[:n].max())


def _cached_positions(batch: NativeBatch, n_rows: int) -> int:
    """Positions of the sequences that have rows in a step, up to each one's last row."""
    if "slots" not in batch.inputs:
        return 0
    slots, positions = (batch.inputs[name][:n_rows] for name in ("slots", "positions"))
    return sum(int(positions[slots == slot].max()) + 1 for slot in np.unique(slots))


def _check_tokens(ids: npt.NDArray[np.int32], n: int, n_vocab: int) -> None:
    if n == 1:
        if 0 <= int(ids[0]) < n_vocab:
            return
    elif ids[:n].min() >= 0 and ids[:n].max() < n_vocab:
        return
    bad = next(int(i) for i in ids[:n] if not 0 <= i < n_vocab)
    raise TokenOutOfRange(f"embed: token id {bad} is outside the vocabulary of {n_vocab}")


def _placed(lowered: CpuLowered) -> tuple[dict[Hashable, int], int]:
    """Offsets of temporaries by key, and the arena's size; gives operations their phases."""
    into_phases(lowered.operations)
    keys = list(lowered.sizes)
    numbers = {key: i for i, key in enumerate(keys)}
    spans: dict[int, tuple[int, int]] = {}
    for op in lowered.operations:
        for key in (*op.reads, *op.writes):
            if key in numbers:
                i = numbers[key]
                spans[i] = (spans.get(i, (op.phase, 0))[0], op.phase)
    offsets, size = place([Lifetime(i, align_up(lowered.sizes[keys[i]] + 64), *span) for i, span in spans.items()])
    return {keys[i]: at for i, at in offsets.items()}, size

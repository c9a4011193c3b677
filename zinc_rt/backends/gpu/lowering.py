"""The GPU's lowering: one or two dispatches for the work of a fused node.

Arguments name memory by `TempSpec`: a buffer by its id, other memory by a tuple whose first item says its purpose. The
functions that lower operations stand in the folder `lower`, by family.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.gpu.fusion import STANDS_FOR, GpuFusion
from zinc_rt.backends.gpu.operations import (
    BLOCKS,
    MANY_ROWS,
    GpuOperation,
    Room,
    StepShape,
    TempSpec,
    blocks_of,
)
from zinc_rt.backends.lowering import Counted, Lowering, LoweringTable
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import BufferKind, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu.catalogue import DECODE, FLOATS, QUANTIZED, KernelEntry
from zinc_rt.kernels.gpu.tile_layout import SLAB_BYTES, SLAB_ROWS, slabs_of
from zinc_rt.numerics import GROUP

FOUR = 1024
"""Elements of a workgroup that does four a lane."""
MATRICES = {Op.MATMUL: (1,), Op.LM_HEAD: (1,), Op.MOE_GATE_UP: (2, 3), Op.MOE_DOWN_ACC: (3,)}
"""Operations that multiply their first input, and where their matrices stand among the inputs."""
ELSEWHERE = "the CPU runs it: use --device cpu"
UNUSED = "unused"
"""The name of memory that nothing reads."""


@dataclass
class GpuLowered:
    """Operations in order.

    rooms: the temporaries and outputs that they name; kernels: all kernels that any shape may need; counters: bytes by
    name; such memory is 0 before and after each operation that names it. many_rows: the graph lowered for steps of
    `MANY_ROWS` rows and more, if that differs.
    """

    operations: list[GpuOperation] = field(default_factory=list)
    rooms: dict[Hashable, Room] = field(default_factory=dict)
    kernels: list[KernelEntry] = field(default_factory=list)
    counters: dict[Hashable, int] = field(default_factory=dict)
    rotations: list[int] = field(default_factory=list)  # buffers of cosines and sines, which kernels want apart
    gathered: dict[int, int] = field(default_factory=dict)  # tables that stay with the host, and the ids of their rows
    many_rows: GpuLowered | None = None

    def of(self, n_rows: int) -> GpuLowered:
        """What runs a step of so many rows."""
        return self.many_rows if self.many_rows is not None and n_rows >= MANY_ROWS else self

    @property
    def ways(self) -> tuple[GpuLowered, ...]:
        """This one, and the one for many rows."""
        return (self,) if self.many_rows is None else (self, self.many_rows)

    def take(self, other: GpuLowered) -> None:
        """Run steps of many rows in another way, and know what of kernels and memory both ways need."""
        self.many_rows = other
        self.kernels += other.kernels
        self.counters |= other.counters
        self.gathered |= other.gathered
        self.rotations += [b for b in other.rotations if b not in self.rotations]


class GpuLowering(Lowering):
    """Makes operations of a graph.

    tiles: for steps of `MANY_ROWS` rows and more, on targets with matrix instructions; else for all steps.
    there: rows that were gathered, made int8 or laid out already, by key.
    """

    def __init__(self, graph: Graph, sizes: Capacity, *, tiles: bool = False) -> None:
        super().__init__(graph, sizes)
        self.tiles = tiles
        self.out = GpuLowered()
        self.there: set[Hashable] = set()

    def run(self) -> GpuLowered:
        """All operations. Raises `BackendError`."""
        self.walk()
        self.out.kernels.append(DECODE["ahead"])
        self.out.counters[UNUSED] = 4
        return self.out

    def nodes(self) -> Iterable[Any]:
        """The fused nodes, some of them joined further."""
        return GpuFusion(self.graph, self.fused, products=not self.tiles).nodes()

    def at(self, buffer: int) -> TempSpec:
        """A buffer as an argument."""
        b = self.graph.buffer(buffer)
        if b.kind in (BufferKind.TEMP, BufferKind.OUTPUT):
            self.room(buffer, self.counted(buffer), self.width(buffer) * 4)
        return TempSpec(buffer)

    def room(self, key: Hashable, counted: Counted, row_bytes: int, block: int = BLOCKS[-1]) -> TempSpec:
        """A temporary with this many bytes a row, and room for whole blocks of rows."""
        self.out.rooms[key] = Room(counted, row_bytes, block)
        return TempSpec(key)

    def counters(self, node: Node, each: int = 1, purpose: str = "counters") -> TempSpec:
        """Counters for each row, or block of rows, of a node's operation. purpose: tells several of a node apart."""
        key = (purpose, node.id)
        self.out.counters[key] = 4 * int(self.sizes.n_rows) * each
        return TempSpec(key)

    def emit(
        self,
        node: Node,
        kernel: KernelEntry | Callable[[StepShape], KernelEntry],
        groups: Callable[[StepShape], tuple[int, ...]],
        arguments: tuple[Any, ...],
        counted: Counted,
        reads: tuple[Hashable, ...],
        writes: tuple[Hashable, ...],
        work: Callable[[StepShape], int] = lambda s: 0,
    ) -> None:
        """Add an operation."""
        if isinstance(kernel, KernelEntry):
            fixed = kernel
            self.out.kernels.append(fixed)
            kernel = lambda shape: fixed  # noqa: E731
        self.out.operations.append(
            GpuOperation(node.name, kernel, lambda s: _three(groups(s)), arguments, counted, reads, writes, work=work)
        )

    @contextmanager
    def only(self, when: Callable[[StepShape], bool]) -> Iterator[None]:
        """What is emitted meanwhile is done in steps of some shapes alone."""
        first = len(self.out.operations)
        yield
        for operation in self.out.operations[first:]:
            operation.when = when

    def rows(
        self,
        n: Node,
        kernel: str,
        counted: Counted,
        arguments: tuple[Any, ...],
        reads: tuple[Hashable, ...],
        writes: tuple[Hashable, ...],
    ) -> None:
        """A dispatch with a workgroup for each row."""
        self.emit(n, DECODE[kernel], lambda s: (getattr(s, counted),), arguments, counted, reads, writes)

    def elements(
        self,
        n: Node,
        kernel: str,
        counted: Counted,
        width: int,
        arguments: tuple[Any, ...],
        reads: tuple[Hashable, ...],
        writes: tuple[Hashable, ...],
    ) -> None:
        """A dispatch of four elements a lane over rows of `width`; the number of elements is its last argument."""
        self.emit(
            n,
            DECODE[kernel],
            lambda s: (-(-getattr(s, counted) * width // FOUR),),
            (*arguments, lambda s: getattr(s, counted) * width),
            counted,
            reads,
            writes,
        )

    def format_of(self, n: Node, buffer: int) -> str:
        """A matrix's format. Raises `BackendError`."""
        kind = self.graph.buffer(buffer).dtype.ggml.name
        if kind not in QUANTIZED and kind not in FLOATS:
            known = ", ".join((*QUANTIZED, *FLOATS))
            raise BackendError(
                f"node {n.name}: the GPU kernels read no weights of type {kind}; they read {known}; {ELSEWHERE}"
            )
        return kind

    def only_packed(self, buffer: int, *, by_logit: bool = False) -> bool:
        """Whether a buffer, or its wanted rows, is read by products alone that want it as int8."""
        return not self.fused.kept(buffer) and all(
            (n.op is Op.LM_HEAD) == by_logit and self._as_int8(n, buffer) for n in self.fused.readers(buffer)
        )

    def also_packed(self, buffer: int) -> bool:
        """Whether products among others want all rows of a buffer as int8."""
        return any(n.op is not Op.LM_HEAD and self._as_int8(n, buffer) for n in self.fused.readers(buffer))

    def _as_int8(self, n: Node, buffer: int) -> bool:
        """Whether a node wants an input as int8."""
        weights = MATRICES.get(n.op, ())
        return bool(weights) and n.inputs[0] == buffer and all(self.quantized(n, n.inputs[w]) for w in weights)

    def quantized(self, n: Node, weight: int) -> bool:
        """Whether rows that are multiplied by a matrix are int8 before. Raises `BackendError`."""
        return self.format_of(n, weight) in QUANTIZED

    def packed(self, x: Hashable, width: int, counted: Counted = "n_rows") -> tuple[TempSpec, ...]:
        """Room for rows as int8, which the caller fills: quants, scales and sums."""
        self.there.add(pack_keys(x))
        sizes = (width, width // 8, width // 8)
        return tuple(self.room(key, counted, size) for key, size in zip(pack_keys(x), sizes, strict=True))

    def pack(self, n: Node, x: Hashable, width: int, counted: Counted) -> tuple[Hashable, ...]:
        """Activations as int8, once for all products that read them: the names of quants, scales and sums."""
        keys = pack_keys(x)
        if keys not in self.there:
            places = self.packed(x, width, counted)
            self.elements(n, "quantize", counted, width, (TempSpec(x), *places), (x,), keys)
        return keys

    def slabs(self, n: Node, x: Hashable, width: int) -> Hashable:
        """Activations as matrix instructions read them, once for all products that do: their name."""
        key = ("slabs", x)
        if key not in self.there:
            self.there.add(key)
            keys, groups = self.pack(n, x, width, "n_rows"), width // GROUP
            place = self.room(key, "n_rows", slabs_of(groups) * SLAB_BYTES // SLAB_ROWS, SLAB_ROWS)
            self.emit(
                n,
                DECODE["arrange"],
                lambda s: (slabs_of(groups), -(-s.n_rows // SLAB_ROWS)),
                (*map(TempSpec, keys), place, groups, lambda s: s.n_rows),
                "n_rows",
                keys,
                (key,),
            )
        return key

    def blocks(self, counted: Counted) -> tuple[int, ...]:
        """Rows that a product's dispatch may have to take at once."""
        if self.tiles and counted == "n_rows":
            return BLOCKS[-1:]
        return blocks_of(int(getattr(self.sizes, counted)))

    def wanted(self, n: Node, x: int, logit_rows: int) -> Hashable:
        """The rows of a buffer whose logits are wanted, gathered once: their name."""
        key = wanted_key(x)
        if key not in self.there:
            self.there.add(key)
            width = self.width(x)
            arguments = (self.at(x), self.at(logit_rows), self.room(key, "n_logits", width * 4), width)
            self.emit(
                n,
                DECODE["embed_f32"],
                lambda s: (-(-width // 256), s.n_logits),
                arguments,
                "n_logits",
                (x, logit_rows),
                (key,),
            )
        return key


def pack_keys(x: Hashable) -> tuple[tuple[str, Hashable], ...]:
    """Names of the quants, scales and sums of a buffer's rows."""
    return ("q", x), ("d", x), ("s", x)


def wanted_key(x: int) -> tuple[str, int]:
    """The name of a buffer's wanted rows."""
    return ("wanted", x)


def _three(groups: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*groups, 1, 1)[:3]
    return x, y, z


GPU: LoweringTable[GpuLowering] = LoweringTable("zinc_rt.backends.gpu.lower", "GPU", ELSEWHERE)
"""The functions that lower operations to the GPU's kernels."""
GPU.stands_for.update(STANDS_FOR)
GpuLowering.table = GPU

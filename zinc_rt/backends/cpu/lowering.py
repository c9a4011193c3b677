"""The CPU's lowering: stand-ins for memory that is not allocated yet, and the parts that all operations share.

The functions that lower operations stand in the folder `lower`, by family.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.program import CpuOperation, UnitsPer
from zinc_rt.backends.cpu.weights import Matrix
from zinc_rt.backends.fusion import Attend
from zinc_rt.backends.lowering import Lowering, LoweringTable
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.graph import Buffer, BufferKind, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import product_weights
from zinc_rt.kernels.cpu import layout
from zinc_rt.kernels.cpu.lookups import TABLE_BYTES
from zinc_rt.kernels.cpu.rows import BLOCK
from zinc_rt.numerics import GROUP, SPLIT


@dataclass(frozen=True)
class External:
    """Memory that exists before the program does; offset in bytes. kind, and its key:

    - buffer: a buffer of the graph, by its id;
    - rotation: cosines and sines of a table, apart from each other, by the table's id;
    - taps: the taps of a convolution by place, by the weight's id;
    - rows: a weight's rows as in the file, by its name;
    - tiles: a matrix in tiles, by its name.
    """

    kind: Literal["buffer", "rotation", "taps", "rows", "tiles"]
    key: int | str
    offset: int = 0


@dataclass(frozen=True)
class TempRef:
    """Memory of a temporary; it gets its place when all lifetimes are known. offset: in bytes."""

    key: Hashable
    offset: int = 0


@dataclass(frozen=True)
class QuantisedActs:
    """A packed buffer: parts of `structs.Pack` by name, as offsets in one stretch of memory of `size` bytes.

    sums: the numbers of the sums that the pack has.
    """

    key: Hashable
    n: int
    rows: int
    parts: Mapping[str, int]
    sums: frozenset[int]
    size: int

    @classmethod
    def placed(cls, key: Hashable, n: int, rows: int, wanted: Collection[str], sums: frozenset[int]) -> QuantisedActs:
        """So many rows of n elements. wanted: the parts beside scales and sums; "tables" are those of a single row."""
        groups = layout.n_groups(n)
        sizes = {
            "q": rows * groups * GROUP,
            "words": rows * groups * 2 * GROUP,
            "d": rows * groups * 4,
            "s": rows * groups * 4 * max((number + 1 for number in sums), default=0),
            "f": rows * groups * 4 * GROUP,
            "tables": groups * TABLE_BYTES,
        }
        at, parts = 0, {}
        for part, size in sizes.items():
            if part in wanted or part in ("d", "s"):
                parts[part] = at
                at += -(-size // 64) * 64
        return cls(key, n, rows, parts, sums, at)

    def of_rows(self, rows: int) -> QuantisedActs:
        """The same for another number of rows."""
        return self.placed(self.key, self.n, rows, self.parts, self.sums)


@dataclass(frozen=True)
class RouteRef:
    """The rows of a step by their experts, a `structs.Route`: the offsets of its parts in the memory of `key`."""

    key: Hashable
    parts: Mapping[str, int]


@dataclass(frozen=True)
class ExpertChoice:
    """A row chooses `k` of `n_experts` experts."""

    n_experts: int
    k: int

    def jobs(self, n_rows: int) -> int:
        """Panels of experts' rows at the most: each used expert has one that is not full."""
        pairs = n_rows * self.k
        return min(self.n_experts, pairs) + pairs // layout.PANEL_ROWS


@dataclass
class CpuLowered:
    """Operations in order; sizes of the memory that they refer to by `TempRef`; pack descriptions by key.

    routes: by the buffer of ids. choices: choices of experts by which operations count their units; their multipliers
    follow those of `UnitsPer`.
    """

    operations: list[CpuOperation] = field(default_factory=list)
    sizes: dict[Hashable, int] = field(default_factory=dict)
    packs: dict[Hashable, QuantisedActs] = field(default_factory=dict)
    routes: dict[int, RouteRef] = field(default_factory=dict)
    choices: list[ExpertChoice] = field(default_factory=list)
    max_splits: int = 1
    split_rows: int = 0  # rows of a step whose attention may be split up
    attention_rows: int = 1  # rows of a unit of attention

    def needs(self, graph: Graph, sizes: Capacity, packs: Mapping[Hashable, QuantisedActs]) -> dict[Hashable, int]:
        """Bytes of each temporary that the largest step of these sizes touches. Buffers of the graph need what their
        declared shapes take; packs: as they lie in such a step; the rest is as large in every step.
        """
        needs = dict(self.sizes)
        needs.update((b.id, _bytes_of(b, sizes)) for b in graph.of_kind(BufferKind.TEMP) if b.id in needs)
        needs.update((key, pack.size) for key, pack in packs.items())
        return needs


def _bytes_of(b: Buffer, sizes: Capacity) -> int:
    """Of a temporary, whose elements take four bytes."""
    return math.prod(sizes.shape(b.shape)) * 4


def matrices_of(graph: Graph) -> dict[int, Matrix]:
    """The matrices that products read, by buffer id."""
    used = product_weights(graph)
    out = {}
    for b in graph.of_kind(BufferKind.WEIGHT):
        if b.id in used:
            *count, n_out, n_in = (int(d) for d in b.shape)
            out[b.id] = Matrix(b.name, b.dtype.ggml, n_out, n_in, math.prod(count))
    return out


class CpuLowering(Lowering):
    """Makes operations of a graph. Arguments stand for memory as `External`, `TempRef` and `QuantisedActs`.

    choice: kernels and constants of the target; threads: that run a step.
    """

    def __init__(self, graph: Graph, sizes: Capacity, choice: TargetTuning, threads: int) -> None:
        super().__init__(graph, sizes)
        self.choice, self.threads = choice, threads
        self.out = CpuLowered()
        self.joined: set[int] = set()  # nodes that the lowering of an earlier one took along
        self.matrices = matrices_of(graph)
        self._shape_attention()

    def _shape_attention(self) -> None:
        """What all attention of a step has in common, whatever its heads."""
        attended = [n for n in self.fused.nodes if isinstance(n, Attend)]
        out = self.out
        out.max_splits = -(-self.sizes.n_ctx // SPLIT)
        cached = [self.choice.attention_rows(n.group) for n in attended]
        among = [BLOCK for node in self.graph.nodes if node.op is Op.ROW_ATTN]
        if cached and among:
            raise BackendError("a graph has attention over a cache, or among the rows of a step, not both")
        out.attention_rows = min(cached or among, default=1)
        # Splitting up pays where there are fewer heads than threads can share.
        if self.threads > 1 and attended:
            out.split_rows = min(self.sizes.n_rows, 4 * self.threads // max(n.n_kv_heads for n in attended))

    def run(self) -> CpuLowered:
        """All operations. Raises `BackendError`."""
        self.walk()
        return self.out

    def scale(self, buffer: int) -> UnitsPer:
        """The size that units are counted by, where a unit does a row of a buffer."""
        return UnitsPer.LOGITS if self.counted(buffer) == "n_logits" else UnitsPer.ROWS

    def at(self, buffer: int, start: int = 0) -> Any:
        """A buffer as an argument, from an element of its rows on."""
        b = self.graph.buffer(buffer)
        if b.kind is not BufferKind.TEMP:
            return External("buffer", buffer, 4 * start)
        self.out.sizes[buffer] = _bytes_of(b, self.sizes)
        return TempRef(buffer, 4 * start)

    def pack_place(self, buffer: int, by_logit: bool) -> QuantisedActs:
        """The packed form of a buffer's rows (or of the wanted ones) that its products need."""
        key = ("pack", buffer, by_logit)
        if key in self.out.packs:
            return self.out.packs[key]
        wanted = [p for p in self.fused.products(buffer) if p.by_logit == by_logit]
        kinds = [self.matrices[w].kind for p in wanted for w in p.weights]
        rows = self.sizes.n_logits if by_logit else self.sizes.n_rows
        rows = -(-rows // layout.BLOCK_ROWS) * layout.BLOCK_ROWS if rows > layout.BLOCK_ROWS else rows
        return self.add_pack(key, self.width(buffer), rows, kinds)

    def add_pack(self, key: Hashable, n: int, rows: int, kinds: Sequence[GGMLType]) -> QuantisedActs:
        """Room for so many packed rows of n elements. kinds: the formats of the matrices that read them."""
        wanted = {part for kind in kinds for part in self.choice.parts(kind)}
        sums = frozenset(number for kind in kinds for number in self.choice.sums(kind))
        place = QuantisedActs.placed(key, n, rows, wanted, sums)
        self.out.packs[key], self.out.sizes[key] = place, place.size
        return place

    def emit(
        self, node: Node, kind: str, kernel: Any, struct: Any, arguments: dict[str, Any], units: int, scale: int,
        reads: tuple[Hashable, ...], writes: tuple[Hashable, ...], n_bytes: int = 0, again: bool = False,
    ) -> None:  # fmt: skip
        """Add an operation."""
        self.out.operations.append(
            CpuOperation(node.name, kind, kernel, struct, arguments, units, scale, reads, writes, n_bytes, again)
        )


CPU: LoweringTable[CpuLowering] = LoweringTable("zinc_rt.backends.cpu.lower", "native")
"""The functions that lower operations to the CPU's kernels."""
CpuLowering.table = CPU

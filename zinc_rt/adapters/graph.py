"""A model's graph with products of low rank behind its own: for a number of adapters, which each row of a step chooses.

`LORA_A` goes before the first product that reads some rows, and does the pairs of all products that read them;
`LORA_B` goes behind each product and its bias, as late as its result allows, so that products stay side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.adapters.targets import AdapterTarget, Part
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import Attr, BufferId, BufferKind, Dim, DType, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.adapters import TILE
from zinc_rt.models.definition import ModelDefinition

ADAPTERS: Final = "adapters"
"""The step input: i32[n_rows, depth], the adapters of each row in rising order, then -1."""
SCALES: Final = "adapter_scales"
"""The step input: f32[n_rows, depth], what each of them is multiplied by."""
PAIRS: Final = "lora.pairs"
"""The constant f32[pairs, adapters, 2]: rank and factor of each pair in each adapter."""


@dataclass(frozen=True)
class MatrixPair:
    """A pair of matrices of each adapter: for one matrix of the graph. number: in `PAIRS`. start: of its elements in
    those of its group. b: the constant.
    """

    target: AdapterTarget
    part: Part
    number: int
    start: int
    b: str


@dataclass(frozen=True)
class PairGroup:
    """The pairs of products that read the same rows. room: for the rank of each. a: the constant."""

    pairs: tuple[MatrixPair, ...]
    room: int
    a: str

    @property
    def width(self) -> int:
        """Elements that `LORA_A` gives for an adapter."""
        return self.room * len(self.pairs)


@dataclass(frozen=True)
class AdapterShape:
    """n_adapters: that there is room for. depth: that a row may have. dtype: of their matrices, F32 or F16."""

    n_adapters: int
    depth: int
    dtype: DType = DType.F32

    @property
    def numpy(self) -> npt.DTypeLike:
        """The element type of arrays."""
        return np.float16 if self.dtype is DType.F16 else np.float32


def grouped(found: Sequence[tuple[AdapterTarget, Part]], rooms: Mapping[str, int]) -> list[PairGroup]:
    """Pairs by the rows that their products read. rooms: of ranks, by tensor."""
    by_rows: dict[tuple[object, ...], list[tuple[AdapterTarget, Part]]] = {}
    for target, part in found:
        node = target.node
        alike = None if node.op is Op.MATMUL else node.id  # other operations read rows in ways of their own
        by_rows.setdefault((node.inputs[0], alike), []).append((target, part))
    groups, number = list[PairGroup](), 0
    for members in by_rows.values():
        room = max(rooms[part.tensor] for _, part in members)
        pairs = list[MatrixPair]()
        for target, part in members:
            pairs.append(MatrixPair(target, part, number, len(pairs) * room, f"lora.{number}.b"))
            number += 1
        groups.append(PairGroup(tuple(pairs), room, f"lora.{len(groups)}.a"))
    return groups


def arrays_of(groups: Sequence[PairGroup], graph: Graph, shape: AdapterShape) -> dict[str, tuple[int, ...]]:
    """The shapes of all constants of adapters."""
    n = shape.n_adapters
    out: dict[str, tuple[int, ...]] = {PAIRS: (sum(len(group.pairs) for group in groups), n, 2)}
    for group in groups:
        for pair in group.pairs:
            *experts, n_out, n_in = (int(d) for d in graph.buffer(pair.target.weight).shape)
            if pair.target.node.op is Op.EMBED:
                n_out, n_in = n_in, n_out
            out[group.a] = (n, *experts, group.width // TILE, n_in, TILE)
            out[pair.b] = (n, *experts, -(-n_out // TILE), group.room, TILE)
    return out


def with_adapters(
    definition: ModelDefinition,
    groups: Sequence[PairGroup],
    shape: AdapterShape,
    arrays: Mapping[str, npt.NDArray[np.generic]],
) -> ModelDefinition:
    """The definition with the products of adapters in its graph. arrays: the constants, shaped as `arrays_of` says."""
    graph = _Rewriting(definition.graph, groups, shape, arrays).run()
    constants = {name: partial(_array, array) for name, array in arrays.items()}
    return replace(definition, graph=graph, constants={**definition.constants, **constants})


def _array(array: npt.NDArray[np.generic], n_ctx: int) -> npt.NDArray[np.float32]:
    return array  # type: ignore[return-value]  # backends take the buffer's element type


class _Rewriting:
    """The pass over one graph."""

    def __init__(
        self,
        graph: Graph,
        groups: Sequence[PairGroup],
        shape: AdapterShape,
        arrays: Mapping[str, npt.NDArray[np.generic]],
    ) -> None:
        self._graph, self._shape = graph, shape
        self.g = GraphBuilder(graph.name, graph.meta)
        self._ids = [self.g.buffer(b.name, b.kind, b.dtype, b.shape) for b in graph.buffers]
        self._base: dict[BufferId, BufferId] = {}  # what producers of adapted values write
        self._pending: dict[BufferId, Callable[[], None]] = {}  # by value, the node that makes it
        self._given = {
            name: self.g.buffer(name, BufferKind.INPUT, dtype, ("n_rows", shape.depth))
            for name, dtype in ((ADAPTERS, DType.I32), (SCALES, DType.F32))
        }
        self._constants = {
            name: self.g.buffer(name, BufferKind.CONSTANT, DType.F32 if name == PAIRS else shape.dtype, array.shape)
            for name, array in arrays.items()
        }
        self._groups: dict[int, list[PairGroup]] = {}  # by the first node
        self._values: dict[int, list[tuple[BufferId, PairGroup, MatrixPair]]] = {}  # by the node that makes the value
        self._t: dict[str, BufferId] = {}
        for group in groups:
            self._groups.setdefault(group.pairs[0].target.node.id, []).append(group)
            for pair in group.pairs:
                maker, value = self._value(pair.target)
                self._values.setdefault(maker.id, []).append((value, group, pair))
                b = graph.buffer(value)
                self._base[value] = self.g.buffer(f"{b.name}.base", BufferKind.TEMP, DType.F32, b.shape)

    def _value(self, target: AdapterTarget) -> tuple[Node, BufferId]:
        """What an adapter adds to: a product, or with its bias where nothing else reads it without."""
        value = target.node.outputs[target.output]
        readers = [node for node in self._graph.nodes if value in node.inputs]
        if len(readers) == 1 and readers[0].op is Op.BIAS_ADD and readers[0].inputs[0] == value:
            return readers[0], readers[0].outputs[0]
        return target.node, value

    def run(self) -> Graph:
        """The verified graph."""
        for node in self._graph.nodes:
            if any(b in self._pending for b in node.inputs):
                self._flush()
            for group in self._groups.get(node.id, ()):
                self._down(node, group)
            outputs = [self._base.get(b, self._ids[b]) for b in node.outputs]
            self.g.node(node.op, [self._ids[b] for b in node.inputs], outputs, node.name, **node.attrs)
            for value, group, pair in self._values.get(node.id, ()):
                self._pending[value] = partial(self._up, value, group, pair)
        self._flush()
        return self.g.build()

    def _flush(self) -> None:
        for make in self._pending.values():
            make()
        self._pending.clear()

    def _down(self, node: Node, group: PairGroup) -> None:
        """t = A x."""
        target, attrs, more = group.pairs[0].target, dict[str, Attr](), list[BufferId]()
        shape: tuple[Dim, ...] = ("n_rows",)
        if node.op is Op.LM_HEAD:
            attrs, more, shape = {"wanted": True}, [self._ids[node.inputs[2]]], ("n_logits",)
        elif node.op is Op.EMBED:
            attrs = {"lookup": True}
        elif n_used := target.n_used(self._graph):
            attrs, shape = {"n_used": n_used}, ("n_rows", n_used)
            more = [self._ids[node.inputs[1]]] if target.routed else []
        whole = (*shape, self._shape.depth, group.width)
        self._t[group.a] = t = self.g.buffer(f"{group.a}.x", BufferKind.TEMP, DType.F32, whole)
        inputs = [self._ids[node.inputs[0]], self._constants[group.a], self._constants[PAIRS], self._given[ADAPTERS]]
        n_pairs, first = len(group.pairs), group.pairs[0].number
        self.g.node(Op.LORA_A, [*inputs, *more], [t], f"{node.name}.lora_a", pair=first, n_pairs=n_pairs, **attrs)

    def _up(self, value: BufferId, group: PairGroup, pair: MatrixPair) -> None:
        """y = base + scale * (B t)."""
        node, attrs, more = pair.target.node, dict[str, Attr](), list[BufferId]()
        if node.op is Op.LM_HEAD:
            attrs, more = {"wanted": True}, [node.inputs[2]]
        elif n_used := pair.target.n_used(self._graph):
            attrs = {"n_used": n_used}
            if pair.target.routed:
                more = list(node.inputs[1:3] if node.op is Op.MOE_DOWN_ACC else node.inputs[1:2])
        inputs = [self._base[value], self._t[group.a], self._constants[pair.b], self._constants[PAIRS]]
        inputs += [self._given[ADAPTERS], self._given[SCALES], *(self._ids[b] for b in more)]
        name = f"{self._graph.buffer(value).name}.lora_b"
        self.g.node(Op.LORA_B, inputs, [self._ids[value]], name, pair=pair.number, start=pair.start, **attrs)

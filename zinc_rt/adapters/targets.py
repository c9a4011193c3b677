"""The products of a graph that adapters can add to, and the part of a pair of matrices that belongs to each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.adapters.errors import AdapterError
from zinc_rt.adapters.file import AdapterFile, AdapterPair
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.models.definition import ModelDefinition, WeightRows

_PLACES: Final[Mapping[Op, tuple[tuple[int, int], ...]]] = {
    Op.MATMUL: ((1, 0),),
    Op.GROUP_MATMUL: ((1, 0),),
    Op.LM_HEAD: ((1, 0),),
    Op.EMBED: ((1, 0),),
    Op.MOE_GATE_UP: ((2, 0), (3, 1)),
    Op.MOE_DOWN_ACC: ((3, 0),),
}
"""Of each operation that adapters add to: where its matrices stand among its inputs, and the output of each."""


@dataclass(frozen=True)
class AdapterTarget:
    """A product: the node, its matrix, and which of the node's outputs it is."""

    node: Node
    weight: int
    output: int

    def n_used(self, graph: Graph) -> int:
        """Matrices that each row uses, of experts or of its parts; 0 for the one matrix of a plain product."""
        if self.routed:
            return int(graph.buffer(self.node.inputs[1]).shape[1])
        return int(graph.buffer(self.weight).shape[0]) if self.node.op is Op.GROUP_MATMUL else 0

    @property
    def routed(self) -> bool:
        """Whether its matrices are those of experts."""
        return self.node.op in (Op.MOE_GATE_UP, Op.MOE_DOWN_ACC)


@dataclass(frozen=True)
class Part:
    """The rows of a tensor that one matrix of the graph has, and the columns: part `column` of `columns` equal ones.

    rows: i64[n_out], of one expert; i64[groups, n_out] where groups of a product's columns have each their own rows.
    """

    tensor: str
    rows: npt.NDArray[np.int64]
    column: int = 0
    columns: int = 1

    def a(self, adapter: AdapterFile, pair: AdapterPair) -> npt.NDArray[np.float32]:
        """A as kernels read it: f32[..., n_in, rank]."""
        values = adapter.values(pair.a)
        width = values.shape[-1] // self.columns
        return values[..., self.column * width : (self.column + 1) * width].swapaxes(-1, -2)

    def b(self, adapter: AdapterFile, pair: AdapterPair) -> npt.NDArray[np.float32]:
        """B as kernels read it: f32[..., rank, n_out]."""
        return adapter.values(pair.b)[..., self.rows, :].swapaxes(-1, -2)


def targets(graph: Graph) -> Iterator[AdapterTarget]:
    """All products of a graph, in order. Tables of which a token reads several rows are none."""
    for node in graph.nodes:
        if "per_row" in node.attrs:
            continue
        for place, output in _PLACES.get(node.op, ()):
            yield AdapterTarget(node, node.inputs[place], output)


def part_of(definition: ModelDefinition, file: GGUFFile, weight: int) -> Part | None:
    """The part of a tensor that a matrix of the graph is; None where adapters cannot be cut for it."""
    buffer = definition.graph.buffer(weight)
    records = definition.weights[buffer.name]
    every = records if isinstance(records, tuple) else (records,)
    first = every[0]
    if any((r.tensor, r.cut, r.joined, r.turned) != (first.tensor, first.cut, 1, False) for r in every):
        return None
    n_experts = math.prod(int(d) for d in buffer.shape[:-2])
    rows = np.concatenate([_numbers(r, file.tensors[r.tensor].n_rows) for r in every])
    column = set((rows % first.cut).tolist())
    if len(column) != 1:
        return None
    rows = rows // first.cut
    if n_experts > 1:
        rows = rows.reshape(n_experts, -1)
        if len(file.tensors[first.tensor].shape) > 2:  # rows count through all experts; each has the same ones
            rows = rows[0]
    return Part(first.tensor, rows, column.pop(), first.cut)


def _numbers(rows: WeightRows, n_rows: int) -> npt.NDArray[np.int64]:
    """The numbers of a record's rows, as `ModelDefinition.raw` picks them."""
    every = np.arange(n_rows * rows.cut)
    if rows.period is None:
        return every[rows.start : rows.stop]
    return every[: rows.end].reshape(-1, rows.period)[:, rows.start : rows.stop].reshape(-1)


def check_targets(adapter: AdapterFile, known: set[str]) -> None:
    """Raise `AdapterError` where an adapter names a tensor that is no matrix of a product. known: those that are."""
    for name in adapter.pairs:
        if name not in known:
            raise AdapterError(
                f"{adapter.file.path} adapts {name}, which is not supported: no rows are multiplied by it alone in this"
                " model"
            )

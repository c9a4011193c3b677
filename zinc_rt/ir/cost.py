"""The cost of a step on paper: bytes read and written, and arithmetic operations, per node.

The formulas stand with the operations in `zinc_rt.ir.ops`.

Bytes count each element of a buffer that an operation must touch, once: a projection reads its whole weight,
an embedding only the rows it looks up, attention the cached positions it attends to. Processor caches are not
modelled.

An arithmetic operation is one addition, multiplication, division, square root, exponential or comparison; a
fused multiply-add counts as two. Work that the format of a weight adds (scales, offsets, quantising the
activations) is not counted, so the numbers compare across formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zinc_rt.ir.graph import BufferKind, Graph, Node
from zinc_rt.ir.ops import DEFINITIONS, attributes
from zinc_rt.ir.sizes import CostSizes, CostView


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes and arithmetic operations. `operations` is None for an operation that has no formula yet."""

    bytes_read: int
    bytes_written: int
    operations: int | None


@dataclass(frozen=True)
class GraphCost:
    """The cost of one step. `nodes` is in node order; `bytes_by_kind` are whole buffers, as allocated.

    `uncounted` names the nodes whose operations have no formula; the total leaves them out.
    """

    sizes: CostSizes
    nodes: tuple[Cost, ...]
    total: Cost
    bytes_by_kind: Mapping[BufferKind, int]
    uncounted: tuple[str, ...] = field(default=())


def graph_cost(graph: Graph, sizes: CostSizes | None = None) -> GraphCost:
    """The cost of a verified graph for these sizes (one row, one logit row, context 512)."""
    sizes = sizes or CostSizes()
    nodes = tuple(node_cost(graph, node, sizes) for node in graph.nodes)
    total = Cost(
        sum(cost.bytes_read for cost in nodes),
        sum(cost.bytes_written for cost in nodes),
        sum(cost.operations or 0 for cost in nodes),
    )
    by_kind = dict.fromkeys(BufferKind, 0)
    for buffer in graph.buffers:
        by_kind[buffer.kind] += sizes.nbytes(buffer)
    uncounted = tuple(node.name for node, cost in zip(graph.nodes, nodes, strict=True) if cost.operations is None)
    return GraphCost(sizes, nodes, total, by_kind, uncounted)


def node_cost(graph: Graph, node: Node, sizes: CostSizes | None = None) -> Cost:
    """The cost of one node of a verified graph. Operations without a rule of their own use whole buffers."""
    sizes = sizes or CostSizes()
    inputs = [graph.buffer(i) for i in node.inputs]
    outputs = [graph.buffer(i) for i in node.outputs]
    view = CostView(attributes(node), inputs, outputs, sizes)
    definition = DEFINITIONS.get(node.op)
    if definition is None:
        return Cost(*view.whole(), None)
    reads, writes = view.whole() if definition.touched is None else definition.touched(view)
    return Cost(reads, writes, definition.operations(view))

"""Graphs as JSON for programs, with bytes and operations per node."""

from __future__ import annotations

import json
from typing import Any

from zinc_rt.ir import op as opcodes
from zinc_rt.ir.cost import Cost, graph_cost
from zinc_rt.ir.graph import Buffer, Graph, Node
from zinc_rt.ir.sizes import CostSizes


def to_json(graph: Graph, sizes: CostSizes | None = None) -> str:
    """The graph as indented JSON.

    Top level: name, meta, sizes, totals, buffers and nodes. Bytes of a node are what it touches in one step
    with these sizes; bytes of a buffer are all of it. `operations` is null where an operation has no formula.
    """
    cost = graph_cost(graph, sizes)
    tree = {
        "name": graph.name,
        "meta": dict(graph.meta),
        "sizes": {**cost.sizes.symbols, "context": cost.sizes.context},
        "totals": {
            **_cost_fields(cost.total),
            "uncounted_nodes": list(cost.uncounted),
            "buffer_bytes": {kind.value: nbytes for kind, nbytes in cost.bytes_by_kind.items()},
        },
        "buffers": [_buffer_fields(buffer, cost.sizes) for buffer in graph.buffers],
        "nodes": [
            _node_fields(graph, node, node_cost) for node, node_cost in zip(graph.nodes, cost.nodes, strict=True)
        ],
    }
    return json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _cost_fields(cost: Cost) -> dict[str, int | None]:
    return {
        "bytes_read": cost.bytes_read,
        "bytes_written": cost.bytes_written,
        "operations": cost.operations,
    }


def _buffer_fields(buffer: Buffer, sizes: CostSizes) -> dict[str, Any]:
    return {
        "id": buffer.id,
        "name": buffer.name,
        "kind": buffer.kind.value,
        "dtype": buffer.dtype.value,
        "shape": list(buffer.shape),
        "bytes": sizes.nbytes(buffer),
    }


def _node_fields(graph: Graph, node: Node, cost: Cost) -> dict[str, Any]:
    return {
        "id": node.id,
        "name": node.name,
        "op": opcodes.name(node.op),
        "inputs": [graph.buffer(i).name for i in node.inputs],
        "outputs": [graph.buffer(i).name for i in node.outputs],
        "attrs": dict(node.attrs),
        **_cost_fields(cost),
    }

"""Graphs as text: DOT for Graphviz and JSON for programs, both with bytes and operations per node."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from zinc_rt.ir import op as opcodes
from zinc_rt.ir.cost import Cost, GraphCost, graph_cost
from zinc_rt.ir.graph import Buffer, BufferKind, Graph, Node
from zinc_rt.ir.sizes import CostSizes

_LAYER = re.compile(r"blk\.(\d+)\.")
_SHAPES = {
    BufferKind.INPUT: "shape=ellipse",
    BufferKind.STATE: "shape=cylinder",
    BufferKind.OUTPUT: "shape=ellipse, peripheries=2",
}


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


def to_dot(graph: Graph, sizes: CostSizes | None = None) -> str:
    """The graph in the DOT language: one box a node, one cluster a layer (names that start with `blk.N.`).

    Weights, constants and step inputs that several nodes share stand in the labels of the nodes that read
    them, as arrows from them to everywhere would bury the rest.
    """
    drawing = _Drawing(graph, graph_cost(graph, sizes))
    return "\n".join(drawing.lines()) + "\n"


def quantity(value: int, unit: str) -> str:
    """A count for a label, in powers of 1000: `17.8 kB`, `2.1 Mop`."""
    scaled, prefix = float(value), ""
    for prefix in ("", "k", "M", "G", "T"):
        if scaled < 999.5 or prefix == "T":
            break
        scaled /= 1000
    digits = 0 if prefix == "" or scaled >= 100 else 1
    return f"{scaled:.{digits}f} {prefix}{unit}"


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


class _Drawing:
    """One DOT document in the making."""

    def __init__(self, graph: Graph, cost: GraphCost) -> None:
        self._graph = graph
        self._cost = cost
        self._writer: dict[int, Node] = {}
        readers: dict[int, int] = {}
        for node in graph.nodes:
            for buffer_id in node.outputs:
                self._writer[buffer_id] = node
            for buffer_id in dict.fromkeys(node.inputs):
                readers[buffer_id] = readers.get(buffer_id, 0) + 1
        self._folded = {
            buffer.id
            for buffer in graph.buffers
            if buffer.kind in (BufferKind.WEIGHT, BufferKind.CONSTANT)
            or (buffer.kind is BufferKind.INPUT and readers.get(buffer.id, 0) > 1)
        }

    def lines(self) -> Iterator[str]:
        total = self._cost.total
        title = f"{self._graph.name}: {_cost_text(total)}"
        yield f"digraph {_quoted(self._graph.name)} {{"
        yield f"  label={_quoted(title)}; labelloc=t; fontname=Helvetica;"
        yield "  node [shape=box, fontname=Helvetica, fontsize=10];"
        yield "  edge [fontname=Helvetica, fontsize=8];"
        clusters: dict[str, list[str]] = {}
        for name, line in self._boxes():
            layer = _LAYER.match(name)
            clusters.setdefault(layer[1] if layer else "", []).append(line)
        for layer_number, boxes in clusters.items():
            if layer_number:
                yield f"  subgraph cluster_blk_{layer_number} {{"
                yield f'    label="layer {layer_number}";'
                yield from (f"    {box}" for box in boxes)
                yield "  }"
            else:
                yield from (f"  {box}" for box in boxes)
        for node in self._graph.nodes:
            yield from (f"  {edge}" for edge in self._edges(node))
        yield "}"

    def _boxes(self) -> Iterator[tuple[str, str]]:
        """The name that decides on the cluster, and the statement."""
        for buffer in self._graph.buffers:
            if buffer.kind in _SHAPES and buffer.id not in self._folded:
                label = _quoted(buffer.name, buffer.type_text)
                yield buffer.name, f"b{buffer.id} [label={label}, {_SHAPES[buffer.kind]}];"
        for node, cost in zip(self._graph.nodes, self._cost.nodes, strict=True):
            folded = [self._graph.buffer(i) for i in node.inputs if i in self._folded]
            weights = [f"{b.name} {b.type_text}" for b in folded if b.kind is not BufferKind.INPUT]
            shared = ", ".join(b.name for b in folded if b.kind is BufferKind.INPUT)
            rows = [node.name, opcodes.name(node.op), *weights, shared, _cost_text(cost)]
            yield node.name, f"n{node.id} [label={_quoted(*filter(None, rows))}];"

    def _edges(self, node: Node) -> Iterator[str]:
        for buffer in (self._graph.buffer(i) for i in dict.fromkeys(node.inputs)):
            if buffer.id in self._folded:
                continue
            writer = self._writer.get(buffer.id)
            if buffer.kind in (BufferKind.INPUT, BufferKind.STATE) or writer is None:
                yield f"b{buffer.id} -> n{node.id};"
            else:
                yield f"n{writer.id} -> n{node.id} [label={_quoted(buffer.type_text)}];"
        for buffer in (self._graph.buffer(i) for i in node.outputs):
            if buffer.kind in (BufferKind.STATE, BufferKind.OUTPUT):
                yield f"n{node.id} -> b{buffer.id};"


def _cost_text(cost: Cost) -> str:
    operations = "operations unknown" if cost.operations is None else quantity(cost.operations, "op")
    return f"reads {quantity(cost.bytes_read, 'B')}, writes {quantity(cost.bytes_written, 'B')}, {operations}"


def _quoted(*rows: str) -> str:
    """A DOT string of its rows; Graphviz reads backslashes and HTML entities in labels: hence escapes."""
    escaped = (row.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for row in rows)
    return '"' + "\\n".join(escaped) + '"'

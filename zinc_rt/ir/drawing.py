"""Graphs as drawings: DOT for Graphviz, with bytes and operations per node, and equal layers drawn once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zinc_rt.ir import op as opcodes
from zinc_rt.ir.cost import Cost, GraphCost, graph_cost
from zinc_rt.ir.folding import LAYER, Run, equal_layers, layer_of, representatives
from zinc_rt.ir.graph import Buffer, BufferKind, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.sizes import CostSizes

_SHAPES: Final = {
    BufferKind.INPUT: "shape=ellipse",
    BufferKind.STATE: "shape=cylinder",
    BufferKind.OUTPUT: "shape=ellipse, peripheries=2",
}


def to_dot(graph: Graph, sizes: CostSizes | None = None, *, fold: bool = True) -> str:
    """The graph in the DOT language: a box for each node, in it what it reads of weights and what it costs.

    Layers (names that start with `blk.N.`) are clusters, with their parts in them. Weights, constants and step inputs
    that several nodes share stand in the labels of the nodes that read them, as arrows from them to everywhere would
    bury the rest.

    Args:
        graph: the graph.
        sizes: sizes that the costs are given for (None: those of one row).
        fold: draw equal layers that follow each other once, with the costs of all of them; a dashed arrow leads from
            the end of one to the beginning of the next.
    """
    cost = graph_cost(graph, sizes)
    runs = equal_layers(graph)
    if not fold:
        runs = [Run(layer, 1, 1) for run in runs for layer in run.layers]
    return "\n".join(_Drawing(graph, cost, runs).lines()) + "\n"


def quantity(value: int, unit: str) -> str:
    """A count for a label, in powers of 1000: `17.8 kB`, `2.1 Mop`."""
    scaled, prefix = float(value), ""
    for prefix in ("", "k", "M", "G", "T"):
        if scaled < 999.5 or prefix == "T":
            break
        scaled /= 1000
    digits = 0 if prefix == "" or scaled >= 100 else 1
    return f"{scaled:.{digits}f} {prefix}{unit}"


class _Drawing:
    """One DOT document in the making."""

    def __init__(self, graph: Graph, cost: GraphCost, runs: list[Run]) -> None:
        self._graph, self._cost = graph, cost
        self._run_of = {layer: run for run in runs for layer in run.layers}
        self._nodes, self._buffers = representatives(graph, runs)
        self._writer = {out: node for node in graph.nodes for out in node.outputs}
        readers: dict[int, int] = {}
        for node in graph.nodes:
            for buffer_id in dict.fromkeys(node.inputs):
                readers[buffer_id] = readers.get(buffer_id, 0) + 1
        self._in_labels = {
            buffer.id
            for buffer in graph.buffers
            if buffer.kind in (BufferKind.WEIGHT, BufferKind.CONSTANT)
            or (buffer.kind is BufferKind.INPUT and readers.get(buffer.id, 0) > 1)
        }
        self._equal: dict[int, list[Node]] = {}  # by the node that is drawn: all that it stands for
        for node in graph.nodes:
            self._equal.setdefault(self._nodes[node.id], []).append(node)

    def lines(self) -> Iterator[str]:
        title = f"{self._graph.name}: {_cost_text(self._cost.total)}"
        yield f"digraph {_quoted(self._graph.name)} {{"
        yield f"  label={_quoted(title)}; labelloc=t; fontname=Helvetica;"
        yield "  node [shape=box, fontname=Helvetica, fontsize=10];"
        yield "  edge [fontname=Helvetica, fontsize=8];"
        layers: dict[int | None, dict[str, list[str]]] = {}
        for layer, part, box in self._boxes():
            layers.setdefault(layer, {}).setdefault(part, []).append(box)
        for boxes in layers.pop(None, {}).values():
            yield from (f"  {box}" for box in boxes)
        for layer, parts in layers.items():
            assert layer is not None
            yield from (f"  {line}" for line in self._cluster(layer, parts))
        for edge in dict.fromkeys(edge for node in self._graph.nodes for edge in self._edges(node)):
            yield f"  {edge}"
        yield "}"

    def _cluster(self, layer: int, parts: dict[str, list[str]]) -> Iterator[str]:
        run = self._run_of[layer]
        title = f"layer {layer}"
        if run.times > 1:
            last = layer + run.period * (run.times - 1)
            between = "to" if run.period == 1 else f"and each {run.period}. to"
            title = f"layers {layer} {between} {last}: {run.times} times"
        yield f"subgraph cluster_blk_{layer} {{"
        yield f"  label={_quoted(title)};"
        for part, boxes in parts.items():
            if not part:
                yield from (f"  {box}" for box in boxes)
                continue
            yield f"  subgraph cluster_blk_{layer}_{part.replace('-', '_')} {{"
            yield f"    label={_quoted(part)}; style=dotted;"
            yield from (f"    {box}" for box in boxes)
            yield "  }"
        yield "}"

    def _boxes(self) -> Iterator[tuple[int | None, str, str]]:
        """Layer, part of the layer, statement."""
        for buffer in self._graph.buffers:
            shown = self._buffers[buffer.id] == buffer.id
            if shown and buffer.kind in _SHAPES and buffer.id not in self._in_labels:
                label = _quoted(self._name(buffer.name), buffer.type_text)
                yield layer_of(buffer.name), "", f"b{buffer.id} [label={label}, {_SHAPES[buffer.kind]}];"
        attends = {layer_of(node.name) for node in self._graph.nodes if node.op is Op.FLASH_ATTN}
        behind: set[int] = set()  # layers whose feed-forward part has begun
        for node in self._graph.nodes:
            if self._nodes[node.id] != node.id:
                continue
            layer = layer_of(node.name)
            if layer is None:
                yield None, "", self._box(node)
                continue
            if LAYER.sub("", node.name).startswith("ffn"):
                behind.add(layer)
            first = "attention" if layer in attends else "recurrent"
            yield layer, "feed-forward" if layer in behind else first, self._box(node)

    def _box(self, node: Node) -> str:
        equal = self._equal[node.id]
        inputs = [[self._graph.buffer(e.inputs[i]) for e in equal] for i in range(len(node.inputs))]
        inside = [same for same in inputs if same[0].id in self._in_labels]
        weights = [self._weight(same) for same in inside if same[0].kind is not BufferKind.INPUT]
        shared = ", ".join(same[0].name for same in inside if same[0].kind is BufferKind.INPUT)
        costs = [self._cost.nodes[e.id] for e in equal]
        text = _cost_text(_added(costs))
        if len(equal) > 1:
            text = f"{len(equal)} times, in all: {text}"
        rows = [self._name(node.name), opcodes.name(node.op), *weights, shared, text]
        return f"n{node.id} [label={_quoted(*filter(None, rows))}];"

    def _weight(self, same: list[Buffer]) -> str:
        """A weight's name and type; of layers with several types, all of them."""
        types = "|".join(dict.fromkeys(str(buffer.dtype) for buffer in same))
        dims = same[0].type_text.removeprefix(str(same[0].dtype))
        return f"{self._name(same[0].name)} {types}{dims}"

    def _name(self, name: str) -> str:
        """The name in a label: of a layer that stands for several, with a star for its number."""
        layer = layer_of(name)
        folded = layer is not None and self._run_of[layer].times > 1
        return LAYER.sub("blk.*.", name, count=1) if folded else name

    def _edges(self, node: Node) -> Iterator[str]:
        here = self._nodes[node.id]
        for buffer in (self._graph.buffer(i) for i in dict.fromkeys(node.inputs)):
            if buffer.id in self._in_labels:
                continue
            writer = self._writer.get(buffer.id)
            if buffer.kind in (BufferKind.INPUT, BufferKind.STATE) or writer is None:
                yield f"b{self._buffers[buffer.id]} -> n{here};"
            else:
                label = f"label={_quoted(buffer.type_text)}"
                if self._next_turn(writer, node):
                    label += ", style=dashed, constraint=false"
                yield f"n{self._nodes[writer.id]} -> n{here} [{label}];"
        for buffer in (self._graph.buffer(i) for i in node.outputs):
            if buffer.kind in (BufferKind.STATE, BufferKind.OUTPUT):
                yield f"n{here} -> b{self._buffers[buffer.id]};"

    def _next_turn(self, writer: Node, reader: Node) -> bool:
        """Whether an arrow leads from one repetition of a run to a later one."""
        before, behind = layer_of(writer.name), layer_of(reader.name)
        if before is None or behind is None:
            return False
        run = self._run_of[behind]
        return before in run.layers and (before - run.first) // run.period != (behind - run.first) // run.period


def _added(costs: list[Cost]) -> Cost:
    """Of several nodes; operations are unknown where those of one are."""
    operations = [cost.operations for cost in costs if cost.operations is not None]
    return Cost(
        sum(cost.bytes_read for cost in costs),
        sum(cost.bytes_written for cost in costs),
        sum(operations) if len(operations) == len(costs) else None,
    )


def _cost_text(cost: Cost) -> str:
    operations = "operations unknown" if cost.operations is None else quantity(cost.operations, "op")
    return f"reads {quantity(cost.bytes_read, 'B')}, writes {quantity(cost.bytes_written, 'B')}, {operations}"


def _quoted(*rows: str) -> str:
    """A DOT string of its rows; Graphviz reads backslashes and HTML entities in labels: hence escapes."""
    escaped = (row.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for row in rows)
    return '"' + "\\n".join(escaped) + '"'

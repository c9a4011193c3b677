"""Building graphs: buffers and nodes one after the other, then the verified graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex, TypeVar

from zinc_rt.ir.dtype import DType
from zinc_rt.ir.errors import GraphError
from zinc_rt.ir.graph import Attr, BindingList, Buffer, BufferId, BufferKind, Dim, Graph, Node, NodeId
from zinc_rt.ir.op import Op
from zinc_rt.ir.verify import verify


class GraphBuilder:
    """Collects buffers and nodes; `build()` gives the verified, immutable graph.

    Ids count up from 0 in the order of the calls. `meta` becomes the graph's.
    """

    def __init__(self, name: str, meta: Mapping[str, Attr] | None = None) -> None:
        self.name = name
        self.meta: dict[str, Attr] = dict(meta or {})
        self._buffers: list[Buffer] = []
        self._nodes: list[Node] = []

    def buffer(
        self, name: str, kind: BufferKind | str, dtype: DType | str, shape: Iterable[SupportsIndex | str]
    ) -> BufferId:
        """Declare a buffer and return its id. Raises GraphError for an unknown kind or dtype."""
        dims = tuple(dim if isinstance(dim, str) else operator.index(dim) for dim in shape)
        made = Buffer(len(self._buffers), name, _member(BufferKind, kind, name), _member(DType, dtype, name), dims)
        self._buffers.append(made)
        return made.id

    def shape(self, buffer: BufferId) -> tuple[Dim, ...]:
        """The shape of a buffer that was declared."""
        return self._buffers[buffer].shape

    def node(
        self,
        op: Op,
        inputs: Iterable[SupportsIndex],
        outputs: Iterable[SupportsIndex],
        name: str | None = None,
        **attrs: Any,
    ) -> NodeId:
        """Append a node and return its id. Without a name it is called after its opcode and id.

        NumPy scalars among the attributes become plain ones. Raises TooManyBindings, and GraphError for a
        value that is no finite int, float, str or bool.
        """
        op = Op(op)
        node_id = len(self._nodes)
        label = f"{op.name.lower()}.{node_id}" if name is None else name
        self._nodes.append(Node(node_id, op, label, BindingList(inputs), BindingList(outputs), attrs))
        return node_id

    def build(self) -> Graph:
        """The graph, verified. Raises GraphError, with all findings."""
        graph = Graph(self.name, tuple(self._buffers), tuple(self._nodes), self.meta)
        verify(graph)
        return graph


def rewritten(graph: Graph, nodes: Iterable[Node], change: Callable[[Buffer], Buffer]) -> Graph:
    """The verified graph of some of a graph's nodes, and of the buffers that these use.

    Args:
        graph: whose name and meta are kept.
        nodes: of it, in its order.
        change: what stands for a buffer. Its id does not count: ids are given anew.

    Raises:
        GraphError: with all findings.
    """
    kept = tuple(nodes)
    used = {b for node in kept for b in (*node.inputs, *node.outputs)}
    g = GraphBuilder(graph.name, graph.meta)
    ids: dict[BufferId, BufferId] = {}
    for old in graph.buffers:
        if old.id in used:
            b = change(old)
            ids[old.id] = g.buffer(b.name, b.kind, b.dtype, b.shape)
    for node in kept:
        inputs, outputs = ([ids[b] for b in side] for side in (node.inputs, node.outputs))
        g.node(node.op, inputs, outputs, node.name, **node.attrs)
    return g.build()


_E = TypeVar("_E", BufferKind, DType)


def _member(kind: type[_E], value: _E | str, buffer: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise GraphError(f"buffer {buffer!r}: {value!r} is no {kind.__name__}; there are {known}") from None

"""The page `ir_graph`: the graph's containers with the constructors and methods that the page names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Self, SupportsIndex

from zinc_rt.ir import builder as _builder
from zinc_rt.ir import graph as _graph
from zinc_rt.ir.errors import GraphError, Reason, TooManyBindings
from zinc_rt.ir.graph import MAX_BINDINGS, Attr, Buffer, BufferId, BufferKind, Dim, DType, Node, NodeId
from zinc_rt.ir.verify import verify as _verify

__all__ = [
    "MAX_BINDINGS",
    "Attr",
    "BindingList",
    "Buffer",
    "BufferId",
    "BufferKind",
    "DType",
    "Dim",
    "EmptyGraph",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "Node",
    "NodeId",
    "NodeWithoutOutput",
    "PageBindingList",
    "PageGraph",
    "TooManyBindings",
    "UnknownInputBuffer",
    "UnknownOutputBuffer",
    "verify",
]


class EmptyGraph(GraphError):
    """There is no node."""


class UnknownInputBuffer(GraphError):
    """A node reads a buffer id that the graph does not have."""


class UnknownOutputBuffer(GraphError):
    """A node writes a buffer id that the graph does not have."""


class NodeWithoutOutput(GraphError):
    """A node writes nothing; only barrier and stream_out may."""


_ERRORS: Final[dict[Reason | None, type[GraphError]]] = {
    Reason.EMPTY_GRAPH: EmptyGraph,
    Reason.UNKNOWN_INPUT_BUFFER: UnknownInputBuffer,
    Reason.UNKNOWN_OUTPUT_BUFFER: UnknownOutputBuffer,
    Reason.NODE_WITHOUT_OUTPUT: NodeWithoutOutput,
}


@contextmanager
def _named() -> Iterator[None]:
    """What the verifier raises inside has the class that the page names for its first finding."""
    try:
        yield
    except GraphError as error:
        kind = _ERRORS.get(error.reason)
        if kind is None:
            raise
        raise kind(str(error), error.findings) from None


class PageBindingList(_graph.BindingList):
    """The buffers of one side of a node, at most `MAX_BINDINGS`."""

    __slots__ = ()

    @classmethod
    def init(cls, ids: Iterable[SupportsIndex] = ()) -> Self:
        """A list of these ids. Raises `TooManyBindings`."""
        return cls(ids)

    def slice(self) -> tuple[BufferId, ...]:
        """The ids as a plain tuple."""
        return tuple(self)


BindingList = PageBindingList


class PageGraph(_builder.GraphBuilder):
    """A graph that grows, under the page's names; `build` gives the runtime's, which does not."""

    @classmethod
    def init(cls, name: str = "graph") -> Self:
        """An empty graph."""
        return cls(name)

    def deinit(self) -> None:
        """Forget every buffer and node. Graphs already built stay as they are."""
        self._buffers.clear()
        self._nodes.clear()

    add_buffer = _builder.GraphBuilder.buffer
    add_node = _builder.GraphBuilder.node

    def verify(self) -> None:
        """Check the graph as it stands. Raises `GraphError`."""
        with _named():
            self.build()


Graph = GraphBuilder = PageGraph


def verify(g: PageGraph | _graph.Graph) -> None:
    """Check a graph, of the page or of the runtime. Raises `GraphError`, with all findings."""
    if isinstance(g, PageGraph):
        g.verify()
    else:
        with _named():
            _verify(g)

"""The page `ir_graph`: the graph's containers with the constructors and methods that the page names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self, SupportsIndex

from zinc_rt.ir import builder as _builder
from zinc_rt.ir import graph as _graph
from zinc_rt.ir.errors import (
    EmptyGraph,
    NodeWithoutOutput,
    TooManyBindings,
    UnknownInputBuffer,
    UnknownOutputBuffer,
    VerifyError,
)
from zinc_rt.ir.graph import MAX_BINDINGS, Attr, Buffer, BufferId, BufferKind, Dim, DType, Node, NodeId
from zinc_rt.ir.verify import verify as _verify

__all__ = [
    "MAX_BINDINGS", "Attr", "BindingList", "Buffer", "BufferId", "BufferKind", "DType", "Dim", "EmptyGraph", "Graph",
    "GraphBuilder", "Node", "NodeId", "NodeWithoutOutput", "PageBindingList", "PageGraph", "TooManyBindings",
    "UnknownInputBuffer", "UnknownOutputBuffer", "VerifyError", "verify",
]  # fmt: skip


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
        """Check the graph as it stands. Raises `VerifyError`."""
        self.build()


Graph = GraphBuilder = PageGraph


def verify(g: PageGraph | _graph.Graph) -> None:
    """Check a graph, of the page or of the runtime. Raises `VerifyError`, with all findings."""
    if isinstance(g, PageGraph):
        g.verify()
    else:
        _verify(g)

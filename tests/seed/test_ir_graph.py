"""The page's names for building and verifying graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zinc_rt.ir.errors import TooManyBindings
from zinc_rt.ir.graph import Graph as RuntimeGraph
from zinc_rt.seed.ir_graph import (
    MAX_BINDINGS,
    BindingList,
    BufferKind,
    DType,
    EmptyGraph,
    Graph,
    GraphBuilder,
    GraphError,
    Node,
    NodeWithoutOutput,
    UnknownInputBuffer,
    UnknownOutputBuffer,
    verify,
)
from zinc_rt.seed.ir_op import Op


def add_one(builder: GraphBuilder) -> GraphBuilder:
    a = builder.buffer("a", BufferKind.INPUT, DType.F32, ["n_rows", 4])
    y = builder.buffer("y", BufferKind.OUTPUT, DType.F32, ["n_rows", 4])
    builder.node(Op.RESIDUAL_ADD, [a, a], [y])
    return builder


def test_bindings() -> None:
    full = BindingList(range(MAX_BINDINGS))
    assert MAX_BINDINGS == 8
    assert full.slice() == tuple(range(8)) == full
    assert BindingList.init([3]) == (3,)
    with pytest.raises(TooManyBindings, match="9"):
        BindingList.init(range(9))


def test_building_and_verifying() -> None:
    builder = add_one(Graph.init())
    builder.verify()
    verify(builder)
    verify(builder.build())
    extra = builder.add_buffer("z", BufferKind.OUTPUT, DType.F32, ["n_rows", 4])
    assert builder.add_node(Op.RESIDUAL_ADD, [0, 1], [extra]) == 1
    builder.deinit()
    with pytest.raises(EmptyGraph):
        builder.verify()
    with pytest.raises(EmptyGraph):
        verify(builder)
    with pytest.raises(EmptyGraph, match="graph 'empty': there is no node"):
        verify(RuntimeGraph("empty", (), ()))


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "error"),
    [
        (Op.RESIDUAL_ADD, (0, 7), (1,), UnknownInputBuffer),
        (Op.RESIDUAL_ADD, (0, 0), (7,), UnknownOutputBuffer),
        (Op.RESIDUAL_ADD, (0, 0), (), NodeWithoutOutput),
        (Op.RMS_NORM, (0, 0), (1,), GraphError),
    ],
)
def test_errors_have_the_page_s_names(
    op: Op, inputs: tuple[int, ...], outputs: tuple[int, ...], error: type[GraphError]
) -> None:
    graph = add_one(Graph.init()).build()
    wrong = replace(graph, nodes=(Node(0, op, "n", inputs, outputs),))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="node 'n'") as caught:
        verify(wrong)
    assert type(caught.value) is error
    assert caught.value.findings

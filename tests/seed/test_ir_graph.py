"""The page's names for building and verifying graphs."""

from __future__ import annotations

import pytest

from zinc_rt.ir.errors import EmptyGraph, TooManyBindings
from zinc_rt.ir.graph import Graph as RuntimeGraph
from zinc_rt.seed.ir_graph import MAX_BINDINGS, BindingList, BufferKind, DType, Graph, GraphBuilder, verify
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
    with pytest.raises(EmptyGraph):
        verify(RuntimeGraph("empty", (), ()))

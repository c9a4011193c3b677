"""Building graphs: ids, immutability, equality, the errors that come before verification."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
import pytest

from tests.gguf.judge import SIZES
from tests.ir.dense import Dims, dense, named
from zinc_rt.errors import ZincError
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.errors import GraphError, TooManyBindings
from zinc_rt.ir.graph import MAX_BINDINGS, BindingList, Buffer, BufferKind, DType, Graph, Node
from zinc_rt.ir.op import Op


def add_one(builder: GraphBuilder) -> GraphBuilder:
    a = builder.buffer("a", BufferKind.INPUT, DType.F32, ["n_rows", 4])
    y = builder.buffer("y", BufferKind.OUTPUT, DType.F32, ["n_rows", 4])
    builder.node(Op.RESIDUAL_ADD, [a, a], [y])
    return builder


def test_ids_count_up_and_lookups_find() -> None:
    graph = dense()
    assert [b.id for b in graph.buffers] == list(range(len(graph.buffers)))
    assert [n.id for n in graph.nodes] == list(range(len(graph.nodes)))
    rope = named(graph, "rope_table")
    assert graph.buffer(rope.id) is rope
    assert rope.type_text == "f32[n_ctx, 16, 2]"
    assert {b.name for b in graph.of_kind(BufferKind.STATE)} == {
        "blk.0.k_cache",
        "blk.0.v_cache",
        "blk.1.k_cache",
        "blk.1.v_cache",
    }
    assert graph.meta["architecture"] == "test"


@pytest.mark.parametrize("missing", [-1, 10_000])
def test_unknown_buffer_ids_are_refused(missing: int) -> None:
    with pytest.raises(GraphError, match=str(missing)):
        dense().buffer(missing)


def test_a_built_graph_cannot_change() -> None:
    graph = dense()
    node: Any = graph.nodes[0]
    buffer: Any = graph.buffers[0]
    frozen: Any = graph
    for target, attribute in ((node, "name"), (buffer, "shape"), (frozen, "nodes")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(target, attribute, ())
    for mapping in (node.attrs, frozen.meta):
        with pytest.raises(TypeError):
            mapping["new"] = 1
    assert isinstance(graph.buffers, tuple)
    assert isinstance(node.inputs, tuple)


def test_the_builder_goes_on_without_touching_what_it_built() -> None:
    builder = add_one(GraphBuilder("g"))
    first = builder.build()
    builder.meta["later"] = 1
    z = builder.buffer("z", "output", "f32", ["n_rows", 4])
    builder.node(Op.RESIDUAL_ADD, [0, 1], [z])
    second = builder.build()
    assert len(first.nodes) == 1
    assert "later" not in first.meta
    assert len(second.nodes) == 2
    assert first != second


def test_equal_graphs_are_equal_and_hash_alike() -> None:
    assert dense() == dense()
    assert hash(dense()) == hash(dense())
    assert dense() != dense(Dims(layers=1))
    assert dense() != "dense"


def test_attributes_compare_with_their_type() -> None:
    def node(value: Any) -> Node:
        return Node(0, Op.SAMPLE, "n", (0,), (1,), {"k": value})

    different = [node(1), node(1.0), node(True), node("1"), node(-0.0), node(0.0), node(0), node(False)]
    assert len(set(different)) == len(different)
    assert node(1) == node(1)


def test_bindings() -> None:
    full = BindingList(range(MAX_BINDINGS))
    assert MAX_BINDINGS == 8
    assert tuple(range(8)) == full
    with pytest.raises(TooManyBindings, match="9"):
        BindingList(range(9))


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_too_many_bindings_name_the_node(side: str) -> None:
    arguments: dict[str, Any] = {"inputs": [0], "outputs": [0], side: range(9)}
    with pytest.raises(TooManyBindings, match=r"'wide'.*9"):
        Node(0, Op.SAMPLE, "wide", arguments["inputs"], arguments["outputs"])


def test_numpy_scalars_become_plain() -> None:
    builder = GraphBuilder("g", {"n": cast("int", np.int64(3))})
    a = builder.buffer("a", "input", "f32", [np.int64(2), 4])
    y = builder.buffer("y", "output", "f32", [2, 4])
    w = builder.buffer("w", "weight", "f32", [4])
    builder.node(Op.RMS_NORM, np.array([a, w]), [y], eps=np.float64(1e-5))
    graph = builder.build()
    assert type(graph.buffers[0].shape[0]) is int
    assert type(graph.nodes[0].attrs["eps"]) is float
    assert type(graph.nodes[0].inputs[0]) is int
    assert type(graph.meta["n"]) is int


@pytest.mark.parametrize("value", [None, [1], float("nan"), float("inf"), 1 << 63, 10**5000, np.zeros(2)], ids=range(7))
def test_attributes_are_finite_plain_values(value: Any) -> None:
    with pytest.raises(GraphError, match="'odd'"):
        GraphBuilder("g").node(Op.SAMPLE, [], [], "n", odd=value)
    with pytest.raises(GraphError, match="'odd'"):
        Graph("g", (), (), {"odd": value})


def test_dimensions_are_64_bit() -> None:
    with pytest.raises(GraphError, match="'huge'"):
        Buffer(0, "huge", BufferKind.TEMP, DType.F32, (10**5000,))


def test_unknown_kinds_and_dtypes_list_the_known() -> None:
    builder = GraphBuilder("g")
    with pytest.raises(GraphError, match=r"'scratch'.*temp"):
        builder.buffer("x", "scratch", "f32", [1])
    with pytest.raises(GraphError, match=r"'f64'.*q6_k"):
        builder.buffer("x", "temp", "f64", [1])


def test_errors_are_for_users() -> None:
    for error in (GraphError, TooManyBindings):
        assert issubclass(error, ZincError)


@pytest.mark.parametrize("dtype", list(DType))
def test_block_sizes_are_those_of_gguf(dtype: DType) -> None:
    block, nbytes = SIZES[dtype.ggml]
    assert (dtype.block_size, dtype.block_bytes) == (block, nbytes)
    assert dtype.row_bytes(4 * block) == 4 * nbytes
    assert DType.of(dtype.ggml) is dtype

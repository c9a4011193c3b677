"""Random damage to a valid graph is found, or it left a graph that is valid in its own right.

What cannot be found is written down here by hand, from what operations mean, not from their signatures.
"""

from __future__ import annotations

import dataclasses
import math

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from tests.ir.dense import F32, I32, STATE, TEMP, WEIGHT, Dims, dense
from zinc_rt.ir import verify
from zinc_rt.ir.dtype import BLOCKS
from zinc_rt.ir.graph import Attr, Buffer, BufferKind, Dim, DType, Graph, Node
from zinc_rt.ir.op import Op

DIMS = st.builds(
    Dims,
    layers=st.integers(1, 2),
    biases=st.booleans(),
    qk_norm=st.booleans(),
    tied=st.booleans(),
    weights=st.sampled_from([DType.Q8_0, DType.F16, F32]),
)
CACHE: dict[Dims, Graph] = {}
SIZES: list[Dim] = [1, 2, 3, 16, 32, 64, 96, 128, "n_rows", "n_logits", "n_pages"]
VALUES: list[Attr] = [1, 3, 64, 0.5, True, "x"]
EXAMPLES = settings(max_examples=20, deadline=None)


def graph_of(dims: Dims) -> Graph:
    if dims not in CACHE:
        CACHE[dims] = dense(dims)
    return CACHE[dims]


def with_nodes(graph: Graph, nodes: list[Node]) -> Graph:
    return dataclasses.replace(graph, nodes=tuple(dataclasses.replace(n, id=i) for i, n in enumerate(nodes)))


def with_buffer(graph: Graph, buffer: Buffer) -> Graph:
    buffers = (*graph.buffers[: buffer.id], buffer, *graph.buffers[buffer.id + 1 :])
    return dataclasses.replace(graph, buffers=buffers)


def check(mutated: Graph, may_pass: bool) -> None:
    """Found, unless `may_pass`, and then not found."""
    found = verify.findings(mutated)
    event("valid in its own right" if may_pass else "has to be found")
    assert bool(found) is not may_pass, [f.message for f in found]


@EXAMPLES
@given(DIMS, st.data())
def test_a_dropped_node(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    nodes = list(graph.nodes)
    del nodes[data.draw(st.integers(0, len(nodes) - 1))]
    check(with_nodes(graph, nodes), may_pass=False)


@EXAMPLES
@given(DIMS, st.data())
def test_a_doubled_node(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    node = data.draw(st.sampled_from(graph.nodes))
    again = dataclasses.replace(node, name="again")
    check(with_nodes(graph, [*graph.nodes, again]), may_pass=False)


@EXAMPLES
@given(DIMS, st.data())
def test_swapped_inputs(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    node = data.draw(st.sampled_from([n for n in graph.nodes if len(n.inputs) > 1]))
    i, j = sorted(data.draw(st.sets(st.integers(0, len(node.inputs) - 1), min_size=2, max_size=2)))
    inputs = list(node.inputs)
    inputs[i], inputs[j] = inputs[j], inputs[i]
    one, two = graph.buffer(inputs[i]), graph.buffer(inputs[j])
    # Two activations of one type are told apart by nothing but their names.
    alike = one.kind is two.kind is TEMP and one.shape == two.shape
    assert not alike or node.op in (Op.SWIGLU, Op.RESIDUAL_ADD, Op.RESIDUAL_RMS_NORM, Op.KV_WRITE)
    nodes = list(graph.nodes)
    nodes[node.id] = dataclasses.replace(node, inputs=tuple(inputs))
    check(with_nodes(graph, nodes), may_pass=alike)


@EXAMPLES
@given(DIMS, st.data())
def test_a_changed_dtype(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    buffer = data.draw(st.sampled_from(graph.buffers))
    dtype = data.draw(st.sampled_from([d for d in DType if d is not buffer.dtype]))
    is_matrix = buffer.kind is WEIGHT and len(buffer.shape) == 2
    fits = is_matrix and dtype is not I32 and int(buffer.shape[1]) % dtype.block_size == 0
    if buffer.kind is STATE:  # keys and values may be blocks
        fits = dtype is BLOCKS and int(buffer.shape[-1]) % dtype.block_size == 0
    check(with_buffer(graph, dataclasses.replace(buffer, dtype=dtype)), may_pass=fits)


def size_is_free(dims: Dims, graph: Graph, buffer: Buffer, axis: int, new: Dim) -> bool:
    """Sizes that nothing else in the graph depends on."""
    if buffer.name == "token_embd.weight" and axis == 0:
        return not dims.tied
    if buffer.name == "page_table":
        return True
    if buffer.name == "rope_table":
        # Fewer rotated pairs are a partial rotation.
        return axis == 0 or (axis == 1 and isinstance(new, int) and new <= dims.head_dim // 2)
    return False


@EXAMPLES
@given(DIMS, st.data())
def test_a_changed_dimension(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    buffer = data.draw(st.sampled_from(graph.buffers))
    axis = data.draw(st.integers(0, len(buffer.shape) - 1))
    new = data.draw(st.sampled_from(SIZES))
    assume(new != buffer.shape[axis])
    shape = (*buffer.shape[:axis], new, *buffer.shape[axis + 1 :])
    free = size_is_free(dims, graph, buffer, axis, new)
    # A symbol as the number of rotated pairs cannot be compared with the head before sizes are known.
    assume(not (buffer.name == "rope_table" and axis == 1 and isinstance(new, str)))
    check(with_buffer(graph, dataclasses.replace(buffer, shape=shape)), may_pass=free)


@EXAMPLES
@given(DIMS, st.data())
def test_an_added_or_removed_axis(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    buffer = data.draw(st.sampled_from([b for b in graph.buffers if b.kind is not TEMP]))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(buffer.shape)))
        shape: tuple[Dim, ...] = (*buffer.shape[:at], 1, *buffer.shape[at:])
    else:
        shape = buffer.shape[1:]
    check(with_buffer(graph, dataclasses.replace(buffer, shape=shape)), may_pass=False)


@EXAMPLES
@given(DIMS, st.data())
def test_a_split_row_is_only_another_view(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    buffer = data.draw(st.sampled_from([b for b in graph.buffers if b.kind is TEMP]))
    width = int(buffer.shape[1])
    part = data.draw(st.sampled_from([d for d in (1, 2, 4, 8, 32) if width % d == 0]))
    split = dataclasses.replace(buffer, shape=("n_rows", width // part, part))
    users = [n for n in graph.nodes if buffer.id in (*n.inputs, *n.outputs)]
    # Operations over heads want theirs where heads are written out; the rest takes any split.
    by_heads = [(n.attrs.get("n_heads"), n.attrs["head_dim"]) for n in users if "head_dim" in n.attrs]
    key_heads = [n for n in users if n.op is Op.KV_WRITE]
    wanted = {(heads if heads is not None else dims.kv_heads, head_dim) for heads, head_dim in by_heads}
    assert not key_heads or (dims.kv_heads, dims.head_dim) in wanted
    assert math.prod(split.shape[1:]) == width
    check(with_buffer(graph, split), may_pass=wanted <= {(width // part, part)})


@EXAMPLES
@given(DIMS, st.data())
def test_a_retargeted_output(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    node = data.draw(st.sampled_from(graph.nodes))
    at = data.draw(st.integers(0, len(node.outputs) - 1))
    target = data.draw(st.sampled_from(graph.buffers))
    assume(target.id != node.outputs[at])
    outputs = (*node.outputs[:at], target.id, *node.outputs[at + 1 :])
    nodes = list(graph.nodes)
    nodes[node.id] = dataclasses.replace(node, outputs=outputs)
    check(with_nodes(graph, nodes), may_pass=False)


@EXAMPLES
@given(DIMS, st.data())
def test_two_nodes_in_the_other_order(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    at = data.draw(st.integers(0, len(graph.nodes) - 2))
    nodes = list(graph.nodes)
    first, second = nodes[at : at + 2]
    nodes[at : at + 2] = second, first
    check(with_nodes(graph, nodes), may_pass=not set(first.outputs) & set(second.inputs))


@EXAMPLES
@given(DIMS, st.data())
def test_a_changed_attribute(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    node = data.draw(st.sampled_from([n for n in graph.nodes if n.attrs]))
    key = data.draw(st.sampled_from(sorted(node.attrs)))
    value = data.draw(st.sampled_from(VALUES))
    assume(repr(value) != repr(node.attrs[key]))
    nodes = list(graph.nodes)
    nodes[node.id] = dataclasses.replace(node, attrs={**node.attrs, key: value})
    # The numbers inside the arithmetic are free; everything that counts heads is tied to a shape.
    free = key in ("eps", "scale", "interleaved") and type(value) is type(node.attrs[key])
    check(with_nodes(graph, nodes), may_pass=free)


@EXAMPLES
@given(DIMS, st.data())
def test_a_changed_kind(dims: Dims, data: st.DataObject) -> None:
    graph = graph_of(dims)
    buffer = data.draw(st.sampled_from(graph.buffers))
    if buffer.kind in (TEMP, STATE):
        kind = data.draw(st.sampled_from(["weight", "constant", "input"]))
    else:
        kind = data.draw(st.sampled_from(["temp", "state"]))
    # The logits have a reader in the graph, so they need not be an output of it.
    free = (buffer.name, kind) == ("logits", "temp")
    check(with_buffer(graph, dataclasses.replace(buffer, kind=BufferKind(kind))), may_pass=free)

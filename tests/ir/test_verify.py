"""Each finding of the verifier: a graph with that one fault, the class, and the names in the message."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from tests.ir.dense import CONSTANT, F16, F32, I32, INPUT, OUTPUT, STATE, TEMP, WEIGHT, Dims, dense, named
from zinc_rt.ir import verify
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.errors import MAX_FINDINGS, GraphError, Reason
from zinc_rt.ir.graph import Buffer, BufferKind, Dim, DType, Graph, Node
from zinc_rt.ir.op import Op

ROW: tuple[Dim, ...] = ("n_rows", 64)


def refused(
    graph: Graph,
    reason: Reason,
    node: str | None,
    buffer: str | None,
    *words: str,
    only: bool = True,
) -> None:
    """The graph has a finding of this class about these names whose message holds all of them and `words`.

    `only`: it is the one finding, and what `verify` raises.
    """
    found = verify.findings(graph)
    wanted = [f for f in found if (f.reason, f.node, f.buffer) == (reason, node, buffer)]
    assert wanted, [f"{f.reason}: {f.message}" for f in found]
    message = wanted[0].message
    assert "\n" not in message
    for word in (*filter(None, (node, buffer)), *words):
        assert word in message
    if only:
        assert len(found) == 1, [f.message for f in found]
        with pytest.raises(GraphError) as caught:
            verify.verify(graph)
        assert caught.value.reason is reason
        assert caught.value.findings == tuple(found)
        assert message in str(caught.value)


def rebuilt(
    graph: Graph,
    *,
    buffers: dict[str, dict[str, Any]] | None = None,
    nodes: dict[str, dict[str, Any]] | None = None,
) -> Graph:
    """`graph` with fields of some buffers and nodes replaced, unverified."""
    return Graph(
        graph.name,
        tuple(dataclasses.replace(b, **(buffers or {}).get(b.name, {})) for b in graph.buffers),
        tuple(dataclasses.replace(n, **(nodes or {}).get(n.name, {})) for n in graph.nodes),
        graph.meta,
    )


def ordered(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """`graph` with these nodes instead, ids renumbered."""
    return dataclasses.replace(graph, nodes=tuple(dataclasses.replace(n, id=i) for i, n in enumerate(nodes)))


def node_named(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.name == name)


def ids(graph: Graph, *names: str) -> tuple[int, ...]:
    return tuple(named(graph, name).id for name in names)


@pytest.mark.parametrize(
    "dims",
    [
        Dims(),
        Dims(layers=1, biases=False, qk_norm=False),
        Dims(tied=True),
        Dims(kv_heads=4, head_dim=16),
        Dims(weights=DType.F16),
        Dims(weights=DType.Q4_0, n_ff=64),
        Dims(n_embd=256, n_ff=512, heads=8, weights=DType.Q6_K),
    ],
)
def test_dense_graphs_have_no_finding(dims: Dims) -> None:
    assert verify.findings(dense(dims)) == []


def test_empty_graph() -> None:
    refused(Graph("g", (Buffer(0, "x", TEMP, F32, ROW),), ()), Reason.EMPTY_GRAPH, None, None)


@pytest.mark.parametrize("unknown", [-1, 85, 1 << 40])
def test_unknown_buffers(unknown: int) -> None:
    graph = dense()
    assert len(graph.buffers) == 85
    embd = named(graph, "token_embd.weight").id
    bad = rebuilt(graph, nodes={"embed": {"inputs": (unknown, embd)}})
    refused(bad, Reason.UNKNOWN_INPUT_BUFFER, "embed", None, str(unknown), "85", only=False)
    bad = rebuilt(graph, nodes={"argmax": {"outputs": (unknown,)}})
    refused(bad, Reason.UNKNOWN_OUTPUT_BUFFER, "argmax", None, str(unknown), only=False)


def test_only_barrier_and_stream_out_write_nothing() -> None:
    for op in Op:
        b = GraphBuilder("g")
        x = b.buffer("x", INPUT, F32, ROW)
        b.node(op, [x], [], "lonely")
        kinds = {f.reason for f in verify.findings(Graph("g", *parts(b)))}
        assert (Reason.NODE_WITHOUT_OUTPUT in kinds) == (op not in (Op.BARRIER, Op.STREAM_OUT)), op


def parts(builder: GraphBuilder) -> tuple[tuple[Buffer, ...], tuple[Node, ...]]:
    """What the builder holds, without building: for graphs that are wrong."""
    return tuple(builder._buffers), tuple(builder._nodes)


def test_barriers_may_stand_anywhere() -> None:
    graph = dense()
    barrier = Node(0, Op.BARRIER, "wait", (), ())
    assert verify.findings(ordered(graph, [*graph.nodes[:5], barrier, *graph.nodes[5:]])) == []


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, "\ud800", "tab\t"])
def test_names_are_printable(name: str) -> None:
    graph = dense()
    assert verify.findings(rebuilt(graph, nodes={"embed": {"name": name}}))[0].reason is Reason.BAD_GRAPH
    assert verify.findings(rebuilt(graph, buffers={"embedded": {"name": name}}))[0].reason is Reason.BAD_GRAPH
    assert verify.findings(dataclasses.replace(graph, name=name))[0].reason is Reason.BAD_GRAPH
    assert verify.findings(dataclasses.replace(graph, meta={name: 1}))[0].reason is Reason.BAD_GRAPH
    odd = rebuilt(graph, nodes={"blk.0.attn_norm": {"attrs": {"eps": 1e-6, name: 1}}})
    assert verify.findings(odd)[0].reason is Reason.BAD_ATTRIBUTE


def test_ids_are_positions() -> None:
    graph = dense()
    refused(rebuilt(graph, nodes={"embed": {"id": 7}}), Reason.BAD_GRAPH, "embed", None, "7", "0")
    bad = rebuilt(graph, buffers={"slots": {"id": 9}})
    refused(bad, Reason.BAD_GRAPH, None, "slots", "9", "2", only=False)


def test_names_are_unique() -> None:
    graph = dense()
    bad = rebuilt(graph, buffers={"blk.1.attn_q.weight": {"name": "blk.0.attn_q.weight"}})
    refused(bad, Reason.DUPLICATE_NAME, None, "blk.0.attn_q.weight")
    refused(rebuilt(graph, nodes={"blk.1.attn_q": {"name": "embed"}}), Reason.DUPLICATE_NAME, "embed", None)


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        (F32, (), ["0 dimensions"]),
        (F32, (1,) * 9, ["9 dimensions", "8"]),
        (F32, ("n_rows", 0), ["dimension 0", "at least 1"]),
        (F32, ("n_rows", -4), ["dimension -4"]),
        (F32, (True,), ["dimension True"]),
        (F32, (2.0,), ["dimension 2.0"]),
        (F32, ("n_row",), ["'n_row'", "n_rows"]),
        (F32, (1 << 30, 1 << 30), [str(1 << 48)]),
        (DType.Q8_0, (4, 48), ["48", "32"]),
        (DType.Q4_K, (4, 128), ["128", "256"]),
        (DType.Q8_0, (4, "n_ctx"), ["n_ctx", "32"]),
    ],
)
def test_impossible_buffers(dtype: DType, shape: tuple[Any, ...], words: list[str]) -> None:
    bad = rebuilt(dense(), buffers={"blk.0.ffn_up.weight": {"dtype": dtype, "shape": shape}})
    refused(bad, Reason.BAD_BUFFER, None, "blk.0.ffn_up.weight", *words)


def test_missing_and_surplus_bindings() -> None:
    graph = dense()
    q = node_named(graph, "blk.0.attn_q")
    bad = rebuilt(graph, nodes={q.name: {"inputs": q.inputs[:1]}})
    refused(bad, Reason.WRONG_BINDING_COUNT, q.name, None, "1 inputs", "2", "x, weight", only=False)
    bad = rebuilt(graph, nodes={q.name: {"inputs": (*q.inputs, q.inputs[0])}})
    refused(bad, Reason.WRONG_BINDING_COUNT, q.name, None, "3 inputs", "2")
    norm = node_named(graph, "blk.0.ffn_norm")
    bad = rebuilt(graph, nodes={norm.name: {"outputs": norm.outputs[:1]}})
    refused(bad, Reason.WRONG_BINDING_COUNT, norm.name, None, "1 outputs", "2", "sum, normed", only=False)


# Of every executable operation, each port once: another shape that is possible in itself.
WRONG_SHAPES: list[tuple[str, str, tuple[Dim, ...], str]] = [
    ("embed", "token_ids", ("n_logits",), "[n_logits, 64]"),
    ("embed", "embedded", ("n_rows", 32), "[n_rows, 64]"),
    ("blk.0.attn_norm", "blk.0.attn_norm.weight", (32,), "[64]"),
    ("blk.0.attn_norm", "blk.0.attn_norm.weight", (64, 1), "[64]"),
    ("blk.0.attn_q_norm", "blk.0.attn_q_norm.weight", (64,), "[32]"),
    ("blk.0.attn_q_norm", "blk.0.attn_q.biased", ("n_rows", 4, 16), "[R, 4, 32]"),
    ("blk.0.attn_q", "blk.0.attn_q.weight", (128, 32), "[n_out, 64]"),
    ("blk.0.attn_q", "blk.0.attn_q.weight", (64, 128), "[n_out, 64]"),
    ("blk.0.attn_q", "blk.0.attn_q.weight", (32, 64), "[n_rows, 32]"),
    ("blk.0.attn_q_bias", "blk.0.attn_q.bias", (64,), "[128]"),
    ("blk.0.attn_q_rope", "rope_table", ("n_ctx", 32), "[C, rope_dim/2, 2]"),
    ("blk.0.attn_q_rope", "rope_table", ("n_ctx", 16, 3), "[C, rope_dim/2, 2]"),
    ("blk.0.kv", "blk.0.k_cache", ("n_pages", 32, 2, 32), "[P, 16, 2, 32]"),
    ("blk.0.kv", "blk.0.v_cache", ("n_pages", 16, 4, 16), "[n_pages, 16, 2, 32]"),
    ("blk.0.kv", "page_table", ("max_pages",), "[S, M]"),
    ("blk.0.kv", "slots", ("n_slots",), "[n_rows]"),
    ("blk.0.attn", "blk.0.attn.out", ("n_rows", 64), "[n_rows, 4, 32]"),
    ("blk.0.ffn_norm", "blk.0.ffn_norm.normed", ("n_logits", 64), "[n_rows, 64]"),
    ("blk.0.ffn_act", "blk.0.ffn_up.out", ("n_rows", 64), "[n_rows, 96]"),
    ("last", "last.sum", ("n_rows",), "[n_rows, 64]"),
    ("lm_head", "logits", ("n_rows", 50), "[n_logits, 50]"),
    ("lm_head", "logits", ("n_logits", 5, 10), "[n_logits, 50]"),
    ("argmax", "tokens", ("n_rows",), "[n_logits]"),
]


@pytest.mark.parametrize(("node", "buffer", "shape", "expected"), WRONG_SHAPES)
def test_shape_mismatches(node: str, buffer: str, shape: tuple[Dim, ...], expected: str) -> None:
    bad = rebuilt(dense(Dims(weights=F32)), buffers={buffer: {"shape": shape}})
    about = {f.node: f for f in verify.findings(bad) if f.reason is Reason.SHAPE_CONFLICT}
    message = about[node].message
    seen = named(bad, about[node].buffer or "").type_text
    assert expected in message
    assert seen in message


def test_a_shape_mismatch_says_who_decided() -> None:
    bad = rebuilt(dense(), buffers={"blk.0.attn_q.weight": {"shape": (128, 96)}})
    refused(
        bad,
        Reason.SHAPE_CONFLICT,
        "blk.0.attn_q",
        "blk.0.attn_q.weight",
        "q8_0[128, 96]",
        "[n_out, 64]",
        "n_in is 64 by input x 'blk.0.attn_norm.out'",
    )


def test_reshapes_cost_no_node() -> None:
    graph = dense()
    split: dict[str, dict[str, Any]] = {
        "blk.0.attn_q_rope.out": {"shape": ("n_rows", 4, 32)},
        "blk.0.attn.out": {"shape": ("n_rows", 4, 32)},
        "blk.0.attn_v.out": {"shape": ("n_rows", 2, 32)},
        "embedded": {"shape": ("n_rows", 2, 4, 8)},
    }
    assert verify.findings(rebuilt(graph, buffers=split)) == []
    # Where the heads are written out, they have to be the right ones.
    bad = rebuilt(graph, buffers={"blk.0.attn_q_rope.out": {"shape": ("n_rows", 8, 16)}})
    refused(bad, Reason.SHAPE_CONFLICT, "blk.0.attn", "blk.0.attn_q_rope.out", "[R, 4, 32]", only=False)


def test_partial_rotation_is_at_most_a_head() -> None:
    graph = dense()
    assert verify.findings(rebuilt(graph, buffers={"rope_table": {"shape": ("n_ctx", 8, 2)}})) == []
    bad = rebuilt(graph, buffers={"rope_table": {"shape": ("n_ctx", 17, 2)}})
    refused(bad, Reason.SHAPE_CONFLICT, "blk.0.attn_q_rope", None, "34", "32", only=False)


def test_query_heads_share_key_heads_evenly() -> None:
    b = GraphBuilder("g")
    q = b.buffer("q", INPUT, F32, ("n_rows", 3, 32))
    caches = [b.buffer(f"{w}_cache", STATE, F16, ("n_pages", 16, 2, 32)) for w in "kv"]
    where = [b.buffer(w, INPUT, I32, ("n_rows",)) for w in ("positions", "slots")]
    where.append(b.buffer("page_table", INPUT, I32, ("n_slots", "max_pages")))
    y = b.buffer("y", OUTPUT, F32, ("n_rows", 96))
    b.node(Op.FLASH_ATTN, [q, *caches, *where], [y], "attn", scale=1.0, n_heads=3, n_kv_heads=2, head_dim=32)
    refused(Graph("g", *parts(b)), Reason.SHAPE_CONFLICT, "attn", None, "3", "2")


@pytest.mark.parametrize(
    ("node", "buffer", "dtype", "expected"),
    [
        ("embed", "token_ids", F32, "i32"),
        ("blk.0.attn_norm", "blk.0.attn_norm.out", F16, "f32"),
        ("blk.0.attn_norm", "blk.0.attn_norm.weight", F16, "f32"),
        ("blk.0.attn_q", "blk.0.attn_q.weight", I32, "q8_0"),
        ("blk.0.attn_q_bias", "blk.0.attn_q.bias", DType.BF16, "f32"),
        ("blk.0.attn_q_rope", "rope_table", F16, "f32"),
        ("blk.0.kv", "blk.0.k_cache", F32, "f16"),
        ("blk.0.attn", "page_table", F32, "i32"),
        ("argmax", "tokens", F32, "i32"),
    ],
)
def test_dtype_mismatches(node: str, buffer: str, dtype: DType, expected: str) -> None:
    bad = rebuilt(dense(), buffers={buffer: {"dtype": dtype}})
    refused(bad, Reason.DTYPE_MISMATCH, node, buffer, f"{dtype.value}[", expected, only=False)
    assert {f.reason for f in verify.findings(bad)} == {Reason.DTYPE_MISMATCH}


@pytest.mark.parametrize(
    ("node", "buffer", "kind", "expected"),
    [
        ("blk.0.attn_q", "blk.0.attn_q.weight", INPUT, "constant or weight"),
        ("blk.0.attn_norm", "blk.0.attn_norm.weight", STATE, "constant or weight"),
        ("blk.0.kv", "blk.0.k_cache", OUTPUT, "state"),
        ("embed", "embedded", STATE, "temp"),
        ("embed", "token_ids", WEIGHT, "input"),
    ],
)
def test_kind_mismatches(node: str, buffer: str, kind: BufferKind, expected: str) -> None:
    bad = rebuilt(dense(), buffers={buffer: {"kind": kind}})
    refused(bad, Reason.KIND_MISMATCH, node, buffer, kind.value, expected, only=False)


def test_one_meaning_for_each_step_input_and_cache() -> None:
    graph = dense()
    k, v, positions, slots, table = node_named(graph, "blk.1.kv").inputs
    bad = rebuilt(graph, nodes={"blk.1.kv": {"inputs": (k, v, slots, positions, table)}})
    refused(bad, Reason.ROLE_CONFLICT, "blk.1.kv", "slots", "input positions", only=False)
    q, k_cache, v_cache, *where = node_named(graph, "blk.0.attn").inputs
    bad = rebuilt(graph, nodes={"blk.0.attn": {"inputs": (q, v_cache, k_cache, *where)}})
    refused(bad, Reason.ROLE_CONFLICT, "blk.0.attn", "blk.0.v_cache", "input k_cache", "'blk.0.kv'", only=False)


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"eps": None}, Reason.MISSING_ATTRIBUTE, ["'eps'", "float"]),
        ({"head_dim": None}, Reason.MISSING_ATTRIBUTE, ["'head_dim'", "int"]),
        ({"epsilon": 1.0}, Reason.UNKNOWN_ATTRIBUTE, ["'epsilon'", "eps, head_dim, n_heads"]),
        ({"eps": 1}, Reason.BAD_ATTRIBUTE, ["'eps'", "1", "float"]),
        ({"eps": -1e-6}, Reason.BAD_ATTRIBUTE, ["-1e-06", "at least 0"]),
        ({"n_heads": 4.0}, Reason.BAD_ATTRIBUTE, ["'n_heads'", "4.0", "int"]),
        ({"n_heads": True}, Reason.BAD_ATTRIBUTE, ["'n_heads'", "True", "int"]),
        ({"eps": "small"}, Reason.BAD_ATTRIBUTE, ["'small'", "float"]),
    ],
)
def test_attributes(change: dict[str, Any], reason: Reason, words: list[str]) -> None:
    graph = dense()
    attrs = {**node_named(graph, "blk.0.attn_q_norm").attrs, **change}
    attrs = {key: value for key, value in attrs.items() if value is not None}
    refused(rebuilt(graph, nodes={"blk.0.attn_q_norm": {"attrs": attrs}}), reason, "blk.0.attn_q_norm", None, *words)


def test_a_head_count_below_one_is_a_bad_attribute() -> None:
    graph = dense()
    attrs = {**node_named(graph, "blk.0.attn_q_norm").attrs, "n_heads": 0}
    bad = rebuilt(graph, nodes={"blk.0.attn_q_norm": {"attrs": attrs}})
    refused(bad, Reason.BAD_ATTRIBUTE, "blk.0.attn_q_norm", None, "'n_heads'", "0", "at least 1", only=False)


@pytest.mark.parametrize("kind", [WEIGHT, CONSTANT, INPUT])
def test_read_only_buffers_are_not_written(kind: BufferKind) -> None:
    graph = rebuilt(dense(), buffers={"tokens": {"kind": kind}})
    refused(graph, Reason.WRITE_TO_READ_ONLY, "argmax", "tokens", kind.value)


def test_one_writer_for_each_buffer() -> None:
    graph = dense()
    bad = rebuilt(graph, nodes={"blk.1.attn_v": {"outputs": ids(graph, "blk.0.attn_v.out")}})
    refused(bad, Reason.DOUBLY_WRITTEN, "blk.1.attn_v", "blk.0.attn_v.out", "'blk.0.attn_v'", only=False)
    twice = ids(graph, "blk.0.k_cache") * 2
    bad = rebuilt(graph, nodes={"blk.0.kv": {"outputs": twice}})
    refused(bad, Reason.DOUBLY_WRITTEN, "blk.0.kv", "blk.0.k_cache", "itself", only=False)


def test_reads_of_what_nobody_writes() -> None:
    b = GraphBuilder("g")
    x, y = b.buffer("x", TEMP, F32, ROW), b.buffer("y", OUTPUT, F32, ROW)
    b.node(Op.RESIDUAL_ADD, [x, x], [y], "add")
    refused(Graph("g", *parts(b)), Reason.READ_BEFORE_WRITE, "add", "x", "temp")


def test_in_place_work_on_a_temporary_reads_before_the_write() -> None:
    b = GraphBuilder("g")
    x, y = b.buffer("x", INPUT, F32, ROW), b.buffer("y", OUTPUT, F32, ROW)
    b.node(Op.RESIDUAL_ADD, [x, y], [y], "add")
    refused(Graph("g", *parts(b)), Reason.READ_BEFORE_WRITE, "add", "y", "output")


def test_nodes_stand_behind_what_they_read() -> None:
    graph = dense()
    first, second, *rest = graph.nodes
    refused(ordered(graph, [second, first, *rest]), Reason.NON_TOPOLOGICAL_ORDER, second.name, "embedded", "'embed'")


def test_caches_are_written_before_they_are_read() -> None:
    graph = dense()
    names = [node.name for node in graph.nodes]
    at = names.index("blk.0.kv")
    assert names[at + 1] == "blk.0.attn"
    nodes = list(graph.nodes)
    nodes[at], nodes[at + 1] = nodes[at + 1], nodes[at]
    bad = ordered(graph, nodes)
    refused(bad, Reason.STATE_READ_BEFORE_WRITE, "blk.0.attn", "blk.0.k_cache", "'blk.0.kv'", only=False)
    assert {f.buffer for f in verify.findings(bad)} == {"blk.0.k_cache", "blk.0.v_cache"}


def test_a_state_may_be_read_only_or_updated_in_place() -> None:
    b = GraphBuilder("g")
    x, y = b.buffer("x", INPUT, F32, ROW), b.buffer("y", OUTPUT, F32, ROW)
    state, fixed = b.buffer("state", STATE, F32, (4, 4)), b.buffer("fixed", STATE, F32, (4, 4))
    b.node(Op.STORE_REQUEST_STATE, [x, state, fixed], [y, state])
    assert b.build().name == "g"


def test_outputs_are_written() -> None:
    graph = dense()
    refused(ordered(graph, graph.nodes[:-1]), Reason.OUTPUT_NEVER_WRITTEN, None, "tokens", "i32[n_logits]")


@pytest.mark.parametrize("kind", [k for k in BufferKind if k is not OUTPUT])
def test_dangling_buffers(kind: BufferKind) -> None:
    graph = dense()
    loose = Buffer(len(graph.buffers), "loose", kind, F32, (4,))
    bad = dataclasses.replace(graph, buffers=(*graph.buffers, loose))
    refused(bad, Reason.DANGLING_BUFFER, None, "loose", kind.value, "f32[4]")


def test_temporaries_are_read() -> None:
    refused(rebuilt(dense(), buffers={"tokens": {"kind": TEMP}}), Reason.UNREAD_TEMPORARY, "argmax", "tokens")


def test_all_findings_come_at_once() -> None:
    graph = dense()
    bad = rebuilt(
        graph,
        buffers={"blk.0.attn_q.bias": {"dtype": F16}, "tokens": {"kind": TEMP}},
        nodes={"blk.0.attn_norm": {"attrs": {}}},
    )
    with pytest.raises(GraphError, match="is missing") as caught:
        verify.verify(bad)
    assert [f.reason for f in caught.value.findings] == ["missing_attribute", "dtype_mismatch", "unread_temporary"]
    assert "(and 2 more)" in str(caught.value)
    assert "'dense'" in str(caught.value)


def test_the_verifier_gives_up_on_graphs_that_are_all_wrong() -> None:
    nodes = tuple(Node(i, Op.BARRIER, f"n{i}", range(8), range(8)) for i in range(1000))  # type: ignore[arg-type]
    found = verify.findings(Graph("g", (), nodes))
    assert len(found) == MAX_FINDINGS
    with pytest.raises(GraphError, match=r"input 0 is buffer .*and at least 999 more"):
        verify.verify(Graph("g", (), nodes))


def test_the_builder_verifies() -> None:
    b = GraphBuilder("g")
    x = b.buffer("x", TEMP, F32, ROW)
    b.node(Op.RESIDUAL_ADD, [x, x], [x], "add")
    with pytest.raises(GraphError, match=r"'add'.*no other node writes"):
        b.build()


def test_opcodes_without_a_signature_get_the_structural_checks() -> None:
    b = GraphBuilder("g")
    x, y = b.buffer("x", INPUT, I32, (3,)), b.buffer("y", TEMP, F16, ROW)
    b.node(Op.RMS_NORM_FUSED_QKV, [x], [y], "route", anything="goes")
    refused(Graph("g", *parts(b)), Reason.UNREAD_TEMPORARY, "route", "y")

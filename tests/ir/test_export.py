"""DOT and JSON: read back with a parser of our own, and compared with the graph."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings

from tests.ir.dense import F32, INPUT, OUTPUT, TEMP, Dims, dense, named
from tests.ir.random_graphs import graphs
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.cost import graph_cost
from zinc_rt.ir.drawing import quantity, to_dot
from zinc_rt.ir.export import to_json
from zinc_rt.ir.folding import Run, equal_layers
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.ir.op import Op
from zinc_rt.ir.sizes import CostSizes

TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|->|[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[{}\[\]=,;])', re.DOTALL)


class Dot:
    """What a DOT document draws: labels of boxes, edges, and the cluster of each box. Refuses other syntax."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            token = TOKEN.match(text, at)
            assert token, text[at : at + 40]
            self.tokens.append(token[1])
            at = token.end()
        self.tokens.reverse()
        self.labels: dict[str, str] = {}
        self.edges: list[tuple[str, str]] = []
        self.clusters: dict[str, str] = {}
        self.expect("digraph")
        self.name = unquoted(self.tokens.pop())
        self.expect("{")
        self.statements("")
        assert not self.tokens

    def expect(self, wanted: str) -> None:
        assert self.tokens.pop() == wanted

    def statements(self, cluster: str) -> None:
        while (first := self.tokens.pop()) != "}":
            if first == "subgraph":
                name = self.tokens.pop()
                self.expect("{")
                self.statements(name)
                continue
            following = self.tokens.pop()
            if following == "=":
                self.tokens.pop()
            elif following == "->":
                self.edges.append((first, self.tokens.pop()))
                self.attributes()
            else:
                self.tokens.append(following)
                label = self.attributes().get("label")
                if label is not None:
                    assert first not in self.labels
                    self.labels[first] = unquoted(label)
                    self.clusters[first] = cluster
            self.expect(";")

    def attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.tokens[-1] == "[":
            self.tokens.pop()
            while True:
                key = self.tokens.pop()
                self.expect("=")
                found[key] = self.tokens.pop()
                if self.tokens.pop() == "]":
                    break
        return found


def unquoted(text: str) -> str:
    assert text[0] == text[-1] == '"'
    swap = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
    plain = re.sub(r'\\[n"\\]', lambda found: swap[found[0]], text[1:-1])
    return plain.replace("&amp;", "&")


def check_drawing(graph: Graph, dot: Dot) -> None:
    """Every node is a box with its name and opcode, and data flows along the edges."""
    for node in graph.nodes:
        rows = dot.labels[f"n{node.id}"].split("\n")
        assert rows[:2] == [node.name, node.op.name]
    assert all(end in dot.labels for edge in dot.edges for end in edge)
    writer = {b: n.id for n in graph.nodes for b in n.outputs}
    for node in graph.nodes:
        for buffer in {graph.buffer(i) for i in node.inputs}:
            if buffer.kind in (BufferKind.WEIGHT, BufferKind.CONSTANT):
                assert f"{buffer.name} {buffer.type_text}" in dot.labels[f"n{node.id}"].split("\n")
            elif buffer.kind in (BufferKind.TEMP, BufferKind.OUTPUT):
                assert (f"n{writer[buffer.id]}", f"n{node.id}") in dot.edges
            elif buffer.kind is BufferKind.STATE:
                assert (f"b{buffer.id}", f"n{node.id}") in dot.edges
            else:
                drawn = (f"b{buffer.id}", f"n{node.id}") in dot.edges
                assert drawn != (buffer.name in dot.labels[f"n{node.id}"].replace("\n", ", ").split(", "))
        for buffer in (graph.buffer(i) for i in node.outputs):
            if buffer.kind in (BufferKind.STATE, BufferKind.OUTPUT):
                assert (f"n{node.id}", f"b{buffer.id}") in dot.edges


def test_the_drawing_of_a_dense_graph() -> None:
    graph = dense()
    dot = Dot(to_dot(graph, CostSizes(n_rows=2), fold=False))
    check_drawing(graph, dot)
    assert dot.name == "dense"
    for node in graph.nodes:
        layer = re.match(r"blk\.(\d+)", node.name)
        cluster = dot.clusters[f"n{node.id}"]
        assert cluster.startswith(f"cluster_blk_{layer[1]}_") if layer else not cluster
        if layer:
            assert cluster.endswith("_feed_forward") == (".ffn" in node.name or ".ffn_" in node.name)
    assert dot.clusters[f"b{named(graph, 'blk.1.k_cache').id}"] == "cluster_blk_1"
    assert len(dot.labels) == len(graph.nodes) + 2 * 2 + 2 + 2


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_drawings_of_random_graphs(graph: Graph) -> None:
    dot = Dot(to_dot(graph, fold=False))
    assert dot.name == graph.name
    check_drawing(graph, dot)


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "\\n", "a&lt;b", "]; } //", "<b>", "größe", "\\"])
def test_names_are_escaped(name: str) -> None:
    b = GraphBuilder(name)
    x, y = b.buffer(f"x{name}", INPUT, F32, ["n_rows", 4]), b.buffer(f"y{name}", OUTPUT, F32, ["n_rows", 4])
    b.node(Op.RESIDUAL_ADD, [x, x], [y], name)
    graph = b.build()
    dot = Dot(to_dot(graph))
    assert dot.name == name
    assert dot.labels["n0"].startswith(f"{name}\nRESIDUAL_ADD\n")
    assert dot.labels["b0"] == f"x{name}\nf32[n_rows, 4]"
    assert json.loads(to_json(graph))["nodes"][0]["name"] == name
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=to_dot(graph).encode(), stdout=subprocess.DEVNULL, check=True)


def test_labels_tell_the_cost() -> None:
    label = Dot(to_dot(dense(), CostSizes())).labels["n0"]
    # One id of 4 bytes and one Q8_0 row of 68.
    assert label.split("\n")[2:] == ["token_embd.weight q8_0[50, 64]", "reads 72 B, writes 256 B, 0 op"]


def test_json_holds_the_graph_and_its_costs() -> None:
    graph = dense(Dims(layers=1))
    sizes = CostSizes(n_rows=3, context=20)
    cost = graph_cost(graph, sizes)
    tree = json.loads(to_json(graph, sizes))
    assert (tree["name"], tree["meta"]) == (graph.name, dict(graph.meta))
    assert tree["sizes"] == {
        "n_rows": 3,
        "n_logits": 1,
        "n_slots": 1,
        "n_pages": 2,
        "max_pages": 2,
        "n_ctx": 20,
        "context": 20,
    }
    assert tree["totals"]["bytes_read"] == cost.total.bytes_read
    assert tree["totals"]["operations"] == cost.total.operations
    assert tree["totals"]["buffer_bytes"]["weight"] == cost.bytes_by_kind[BufferKind.WEIGHT]
    assert tree["totals"]["uncounted_nodes"] == []
    assert sum(b["bytes"] for b in tree["buffers"]) == sum(cost.bytes_by_kind.values())
    b = GraphBuilder(tree["name"], tree["meta"])
    for entry in tree["buffers"]:
        b.buffer(entry["name"], entry["kind"], entry["dtype"], entry["shape"])
    by_name = {entry["name"]: entry["id"] for entry in tree["buffers"]}
    for entry, expected in zip(tree["nodes"], cost.nodes, strict=True):
        reads, writes = ([by_name[name] for name in entry[side]] for side in ("inputs", "outputs"))
        b.node(Op[entry["op"]], reads, writes, entry["name"], **entry["attrs"])
        assert (entry["bytes_read"], entry["bytes_written"], entry["operations"]) == (
            expected.bytes_read,
            expected.bytes_written,
            expected.operations,
        )
    assert b.build() == graph
    assert {n["op"] for n in tree["nodes"]} >= {"EMBED", "MATMUL"}


def test_unknown_operations_are_null_and_said() -> None:
    b = GraphBuilder("g")
    x, y = b.buffer("x", INPUT, F32, ["n_rows", 8]), b.buffer("y", OUTPUT, F32, ["n_rows", 8])
    b.node(Op.STORE_REQUEST_STATE, [x], [y], "conv")
    tree = json.loads(to_json(b.build()))
    assert tree["nodes"][0]["operations"] is None
    assert tree["totals"]["uncounted_nodes"] == ["conv"]
    assert "operations unknown" in Dot(to_dot(b.build())).labels["n0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (123_456, "123 kB"), (999_499, "999 kB"),
     (999_500, "1.0 MB"), (5 * 10**15, "5000 TB")],
)  # fmt: skip
def test_quantities(value: int, text: str) -> None:
    assert quantity(value, "B") == text


def test_equal_layers_are_drawn_once() -> None:
    graph = dense(Dims(layers=7))
    # The first layer's norm has no sum before it.
    assert equal_layers(graph) == [Run(0, 1, 1), Run(1, 1, 6)]
    dot, whole = Dot(to_dot(graph)), Dot(to_dot(graph, fold=False))
    drawn = [n for n in graph.nodes if n.name.startswith("blk.1.")]
    assert len(dot.labels) == len(whole.labels) - 5 * (len(drawn) + 2)  # nodes, and a cache of keys and one of values
    boxes = {f"n{n.id}" for n in drawn}
    assert all("6 times, in all: " in dot.labels[box] and "blk.*." in dot.labels[box] for box in boxes)
    writer = {out: f"n{n.id}" for n in graph.nodes for out in n.outputs}
    for node in graph.nodes:
        layer = int(found[1]) if (found := re.match(r"blk\.(\d+)\.", node.name)) else None
        for source in (writer[i] for i in node.inputs if i in writer):
            before = re.match(r"blk\.(\d+)\.(.*)", graph.nodes[int(source[1:])].name)
            if layer is None and before and before[1] == "6":  # what follows the layers reads the last one
                assert (next(f"n{n.id}" for n in drawn if n.name.endswith(before[2])), f"n{node.id}") in dot.edges
            if layer == 2 and before and before[1] == "1":  # a layer reads the one before: an arrow back to the start
                assert any(a == source and b in boxes and b != a for a, b in dot.edges)
    assert {end for edge in dot.edges for end in edge} <= set(dot.labels)


def test_a_folded_label_has_the_cost_of_all_layers() -> None:
    graph = dense(Dims(layers=5))
    cost = graph_cost(graph)
    labels = Dot(to_dot(graph)).labels
    for first in (n for n in graph.nodes if n.name.startswith("blk.1.")):
        same = [n.id for n in graph.nodes if re.fullmatch(rf"blk\.[1-4]\.{re.escape(first.name[6:])}", n.name)]
        assert len(same) == 4
        read = sum(cost.nodes[i].bytes_read for i in same)
        assert f"4 times, in all: reads {quantity(read, 'B')}, " in labels[f"n{first.id}"]


@pytest.mark.parametrize(
    ("signs", "runs"),
    [
        ("aaaa", [(0, 1, 4)]),
        ("abbbb", [(0, 1, 1), (1, 1, 4)]),
        ("abababc", [(0, 2, 3), (6, 1, 1)]),
        ("aaabaaab", [(0, 4, 2)]),
        ("aaabaaabaa", [(0, 4, 2), (8, 1, 2)]),
        ("abc", [(0, 1, 1), (1, 1, 1), (2, 1, 1)]),
        ("", []),
    ],
)
def test_runs_of_equal_layers(signs: str, runs: list[tuple[int, int, int]]) -> None:
    b = GraphBuilder("layers")
    x = b.buffer("x", INPUT, F32, ["n_rows", 8])
    for name in ["start", *(f"blk.{layer}.{sign}" for layer, sign in enumerate(signs)), "end"]:
        y = b.buffer(f"{name}.out", OUTPUT if name == "end" else TEMP, F32, ["n_rows", 8])
        b.node(Op.RESIDUAL_ADD, [x, x], [y], name)
        x = y
    assert [(run.first, run.period, run.times) for run in equal_layers(b.build())] == runs

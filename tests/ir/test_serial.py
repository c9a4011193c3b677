"""Graphs to bytes and back: equality, one form, and nothing but GraphFormatError for anything else."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.dense import Dims, dense
from tests.ir.random_graphs import graphs
from zinc_rt.ir.errors import GraphFormatError, VerifyError
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.serial import HEADER, from_bytes, to_bytes

SMALL = to_bytes(dense(Dims(layers=1, biases=False, qk_norm=False)))


def packed(payload: bytes) -> bytes:
    """A header that fits `payload`, written from the documented layout."""
    digest = hashlib.blake2b(payload, digest_size=16).digest()
    return b"ZRIR" + struct.pack("<HHQ", 1, 0, len(payload)) + digest + payload


def tree() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SMALL[HEADER.size :])
    return loaded


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_random_graphs_come_back_equal(graph: Graph) -> None:
    data = to_bytes(graph)
    back = from_bytes(data)
    assert back == graph
    assert to_bytes(back) == data
    assert [dict(n.attrs) for n in back.nodes] == [dict(n.attrs) for n in graph.nodes]
    for mine, theirs in zip(graph.nodes, back.nodes, strict=True):
        assert {k: type(v) for k, v in mine.attrs.items()} == {k: type(v) for k, v in theirs.attrs.items()}


def test_equal_graphs_give_equal_bytes_whatever_the_order_of_attributes() -> None:
    def graph(attrs: dict[str, Any], meta: dict[str, Any]) -> Graph:
        return Graph("g", (), (Node(0, Op.BARRIER, "n", (), (), attrs),), meta)

    one = graph({"a": 1, "b": 2.5}, {"x": "é", "y": 0.1})
    two = graph({"b": 2.5, "a": 1}, {"y": 0.1, "x": "é"})
    assert one == two
    assert to_bytes(one) == to_bytes(two)
    assert to_bytes(one) != to_bytes(graph({"a": 1.0, "b": 2.5}, {"x": "é", "y": 0.1}))
    assert from_bytes(to_bytes(one)) == one


def test_the_layout_is_the_documented_one() -> None:
    assert packed(SMALL[32:]) == SMALL
    assert canonical(tree()) == SMALL[32:]
    assert from_bytes(bytearray(SMALL)) == from_bytes(memoryview(SMALL))


def graph_or_none(data: bytes) -> Graph | None:
    """What `data` holds; None when it is refused, with one line. Any other exception fails the test."""
    try:
        return from_bytes(data)
    except GraphFormatError as refused:
        message = str(refused)
    assert message
    assert "\n" not in message
    return None


@pytest.mark.parametrize("length", [0, 1, 4, 31, 32, 33, len(SMALL) // 2, len(SMALL) - 1])
def test_truncated_bytes(length: int) -> None:
    with pytest.raises(GraphFormatError, match="bytes"):
        from_bytes(SMALL[:length])


def test_trailing_bytes() -> None:
    with pytest.raises(GraphFormatError, match=str(len(SMALL) + 1)):
        from_bytes(SMALL + b"\0")


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [(0, b"GGUF", "GGUF"), (4, b"\x02\x00", "format 2"), (6, b"\x01\x00", "1.1"), (8, b"\xff" * 8, "limit")],
)
def test_wrong_headers_say_what_is_wrong(at: int, value: bytes, words: str) -> None:
    with pytest.raises(GraphFormatError, match=words):
        from_bytes(SMALL[:at] + value + SMALL[at + len(value) :])


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 8 * len(SMALL) - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    data = bytearray(SMALL)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(GraphFormatError):
        from_bytes(data)


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=200) | st.binary(max_size=200).map(packed))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(GraphFormatError):
        from_bytes(data)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_changed_payloads_with_a_fitting_checksum_are_refused_or_a_valid_graph(data: st.DataObject) -> None:
    payload = bytearray(SMALL[HEADER.size :])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payload) - 1))
        cut = data.draw(st.integers(0, 3))
        payload[at : at + cut] = data.draw(
            st.sampled_from([b"", b"0", b"-", b'"', b"[]", b"{}", b"1e999", b"\xff", b"n"])
        )
    graph = graph_or_none(packed(bytes(payload)))
    if graph is not None:
        graph.verify()
        assert to_bytes(graph) == packed(bytes(payload))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_json_in_any_place_is_refused_or_a_valid_graph(data: st.DataObject) -> None:
    value: Any = tree()
    top = value
    keys: list[Any] = []
    while isinstance(value, (dict, list)) and value and (not keys or data.draw(st.booleans())):
        container = value
        keys = sorted(value) if isinstance(value, dict) else list(range(len(value)))
        key = data.draw(st.sampled_from(keys))
        value = value[key]
    container[key] = data.draw(JSON)
    graph_or_none(packed(canonical(top)))


BARRIER = b'["BARRIER","n",[],[],{}]'
WITH_META = b'{"buffers":[],"meta":{"a":%s},"name":"g","nodes":[' + BARRIER + b"]}"
WITH_NODE = b'{"buffers":[],"meta":{},"name":"g","nodes":[[%s]]}'
WITH_BUFFER = b'{"buffers":[[%s]],"meta":{},"name":"g","nodes":[' + BARRIER + b"]}"


def test_the_frames_of_the_hostile_payloads_are_valid() -> None:
    assert from_bytes(packed(WITH_META % b"1")).meta["a"] == 1
    assert from_bytes(packed(WITH_NODE % BARRIER[1:-1])).nodes[0].op is Op.BARRIER
    with pytest.raises(GraphFormatError, match="used by no node"):
        from_bytes(packed(WITH_BUFFER % b'"b","temp","f32",[1]'))


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"null", b"[]", b"{}", b'"graph"', b"NaN", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 10_000,
        b"\xff\xfe",
        b'{"buffers":[],"meta":{},"name":"g","nodes":[]}',
        b'{"buffers":[],"meta":{},"name":"g","nodes":[],"extra":0}',
        WITH_META % b"Infinity",
        WITH_META % b"1e999",
        WITH_META % (b"9" * 4000),
        WITH_META % b"[]",
        WITH_NODE % (b'"BARRIER","n",[' + b"0," * 9 + b"0],[],{}"),
        WITH_NODE % b'"BARRIER","n",[true],[],{}',
        WITH_NODE % b'"NONSENSE","n",[],[],{}',
        WITH_NODE % b'"BARRIER","n",[],[],[]',
        WITH_NODE % b'"BARRIER","n",[],[]',
        WITH_BUFFER % (b'"b","temp","f32",[' + b"9" * 4000 + b"]"),
        WITH_BUFFER % b'"b","odd","f32",[1]',
        WITH_BUFFER % b'"b",{},[],[1]',
        WITH_BUFFER % b'"b","temp","f32",[1.5]',
    ],
    ids=range(25),
)  # fmt: skip
def test_hostile_payloads(payload: bytes) -> None:
    with pytest.raises(GraphFormatError) as caught:
        from_bytes(packed(payload))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", [b' "name"', b'"name": '])
def test_only_the_canonical_form_is_read(text: bytes) -> None:
    loose = SMALL[HEADER.size :].replace(b'"name"', text, 1).replace(b": :", b": ")
    assert json.loads(loose) == tree()
    with pytest.raises(GraphFormatError, match="canonical"):
        from_bytes(packed(loose))


def test_a_graph_that_fails_verification_says_why() -> None:
    changed = tree()
    changed["buffers"][0][2] = "f32"
    with pytest.raises(GraphFormatError, match=r"token_ids.*f32\[n_rows\].*i32") as caught:
        from_bytes(packed(canonical(changed)))
    assert isinstance(caught.value.__cause__, VerifyError)

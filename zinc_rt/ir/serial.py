"""Graphs as bytes and back.

Layout, little endian: magic `ZRIR`, u16 version, u16 zero, u64 payload length, 16 bytes of BLAKE2b over the
payload, then the payload: JSON in one canonical form (sorted keys, no blanks, ASCII). Equal graphs give equal
bytes, and only the bytes that `to_bytes` would write are read back.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any, NoReturn, TypeVar

from zinc_rt.ir.errors import GraphError, GraphFormatError
from zinc_rt.ir.graph import Attr, Buffer, BufferKind, Dim, DType, Graph, Node
from zinc_rt.ir.op import from_name

MAGIC = b"ZRIR"
VERSION = 1
HEADER = struct.Struct("<4sHHQ16s")
MAX_PAYLOAD = 4 << 20
"""Bytes; the graph of a 36-layer model takes about 100 KB."""


def to_bytes(graph: Graph) -> bytes:
    """The graph as bytes, the same for equal graphs."""
    payload = json.dumps(
        {
            "name": graph.name,
            "meta": dict(graph.meta),
            "buffers": [[b.name, b.kind.value, b.dtype.value, list(b.shape)] for b in graph.buffers],
            "nodes": [[n.op.name, n.name, list(n.inputs), list(n.outputs), dict(n.attrs)] for n in graph.nodes],
        },
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    ).encode("ascii")
    return HEADER.pack(MAGIC, VERSION, 0, len(payload), _digest(payload)) + payload


def from_bytes(data: bytes | bytearray | memoryview) -> Graph:
    """The graph that `to_bytes` wrote, verified.

    Raises GraphFormatError for anything else: wrong magic or version, cut or changed bytes, bytes that hold
    no graph or one that fails verification.
    """
    payload = _payload(bytes(data))
    try:
        tree = json.loads(payload, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GraphFormatError(f"not a graph: the payload is no JSON ({error})") from None
    try:
        graph = _graph(tree)
        graph.verify()
    except GraphFormatError:
        raise
    except GraphError as error:
        raise GraphFormatError(f"not a valid graph: {error}") from error
    if to_bytes(graph) != bytes(data):
        raise GraphFormatError("not a graph: the payload is not in canonical form")
    return graph


def _payload(data: bytes) -> bytes:
    """What follows the header, once the header is right about it."""
    if len(data) < HEADER.size:
        raise GraphFormatError(f"not a graph: {len(data)} bytes, the header alone has {HEADER.size}")
    magic, version, zero, length, digest = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise GraphFormatError(f"not a graph: starts with {magic!r}, expected {MAGIC!r}")
    if version != VERSION or zero:
        raise GraphFormatError(f"graph format {version}.{zero}: this program reads {VERSION}.0")
    if length > MAX_PAYLOAD:
        raise GraphFormatError(f"payload of {length} bytes: the limit is {MAX_PAYLOAD}")
    if len(data) != HEADER.size + length:
        raise GraphFormatError(f"graph of {len(data)} bytes: the header announces {HEADER.size + length}")
    payload = data[HEADER.size :]
    if _digest(payload) != digest:
        raise GraphFormatError("corrupt graph: the checksum does not fit the payload")
    return payload


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no finite number")


def _graph(tree: object) -> Graph:
    top = _typed(tree, dict, "the payload")
    if top.keys() != {"name", "meta", "buffers", "nodes"}:
        _refuse("the payload", "name, meta, buffers and nodes", sorted(top))
    buffers = _typed(top["buffers"], list, "buffers")
    nodes = _typed(top["nodes"], list, "nodes")
    return Graph(
        _typed(top["name"], str, "name"),
        tuple(_buffer(position, entry) for position, entry in enumerate(buffers)),
        tuple(_node(position, entry) for position, entry in enumerate(nodes)),
        _scalars(top["meta"], "meta"),
    )


def _buffer(position: int, entry: object) -> Buffer:
    where = f"buffer {position}"
    name, kind, dtype, shape = _fields(entry, 4, where)
    dims: list[Dim] = []
    for dim in _typed(shape, list, where):
        dims.append(dim if isinstance(dim, str) else _typed(dim, int, where))
    try:
        return Buffer(position, _typed(name, str, where), BufferKind(kind), DType(dtype), tuple(dims))
    except ValueError as error:
        raise GraphFormatError(f"not a graph: {where}: {error}") from None


def _node(position: int, entry: object) -> Node:
    where = f"node {position}"
    op_name, name, inputs, outputs, attrs = _fields(entry, 5, where)
    op = from_name(_typed(op_name, str, where))
    if op is None:
        _refuse(where, "an opcode", op_name)
    return Node(
        position,
        op,
        _typed(name, str, where),
        _ids(inputs, where),
        _ids(outputs, where),
        _scalars(attrs, where),
    )


def _ids(value: object, where: str) -> tuple[int, ...]:
    return tuple(_typed(item, int, where) for item in _typed(value, list, where))


def _scalars(value: object, where: str) -> dict[str, Attr]:
    mapping = _typed(value, dict, where)
    for item in mapping.values():
        if not isinstance(item, (bool, int, float, str)):
            _refuse(where, "plain values", item)
    return mapping


def _fields(value: object, count: int, where: str) -> list[Any]:
    fields = _typed(value, list, where)
    if len(fields) != count:
        _refuse(where, f"{count} fields", fields)
    return fields


_T = TypeVar("_T", dict[str, Any], list[Any], str, int)


def _typed(value: object, kind: type[_T], where: str) -> _T:
    """`value`, which must be of exactly this type: a JSON true is no number here."""
    if type(value) is not kind:
        _refuse(where, kind.__name__, value)
    return value


def _refuse(where: str, expected: str, value: object) -> NoReturn:
    raise GraphFormatError(f"not a graph: {where}: {_shorten(value)}, expected {expected}")


def _shorten(value: object) -> str:
    if isinstance(value, (dict, list)):
        return f"{type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."

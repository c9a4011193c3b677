"""The verifier: everything that is wrong with a graph, in messages that name node and buffer.

Checks that need no order come first (declarations, wiring, each node against its signature), then what depends on the
order of the nodes: the writer of each buffer, and its readers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from zinc_rt.ir.conform import describe, node_findings
from zinc_rt.ir.dataflow import dataflow_findings
from zinc_rt.ir.errors import MAX_FINDINGS, Finding, Reason, failure
from zinc_rt.ir.graph import SYMBOLS, Buffer, Graph, Node, frozen_items
from zinc_rt.ir.op import Op

MAX_NAME = 256
"""Characters of a name; tensor names of a GGUF file are far below."""
MAX_RANK = 8
MAX_ELEMENTS = 1 << 48
"""Largest product of a buffer's known dimensions: far above any memory, far below overflow."""

WITHOUT_OUTPUT = frozenset({Op.BARRIER, Op.STREAM_OUT})
"""Opcodes that may write nothing."""


def verify(g: Graph) -> None:
    """Check everything that can be known before a step runs. Raises GraphError, with all findings."""
    found = findings(g)
    if found:
        raise failure(g.name, found)


def findings(g: Graph) -> list[Finding]:
    """Everything wrong with `g`, up to `MAX_FINDINGS`; empty when nothing is."""
    return list(itertools.islice(_all(g), MAX_FINDINGS))


def _all(g: Graph) -> Iterator[Finding]:
    if not g.nodes:
        yield Finding(Reason.EMPTY_GRAPH, "there is no node")
        return
    yield from _graph_findings(g)
    impossible: set[int] = set()
    for buffer in g.buffers:
        for finding in _buffer_findings(buffer):
            impossible.add(buffer.id)
            yield finding
    faultless: set[object] = set()  # a model's layers are alike: one node of a kind is looked at
    for node in g.nodes:
        yield from _wiring(g, node)
        key = _kind_of(g, node, impossible)
        if key is None or key not in faultless:
            found = list(node_findings(g, node, impossible))
            yield from found
            if key is not None and not found:
                faultless.add(key)
    yield from dataflow_findings(g)


def _kind_of(g: Graph, node: Node, unusable: set[int]) -> object:
    """All that `node_findings` looks at, names aside; None where a binding is faulty itself."""
    ids = (*node.inputs, *node.outputs)
    if any(not 0 <= i < len(g.buffers) or i in unusable for i in ids):
        return None
    buffers = tuple((b.dtype, b.kind, b.shape) for b in map(g.buffers.__getitem__, ids))
    return node.op, frozen_items(node.attrs), len(node.inputs), buffers


def _wiring(g: Graph, node: Node) -> Iterator[Finding]:
    """Ids that the graph does not have, and nodes that write nothing."""
    yield from _unknown(g, node, Reason.UNKNOWN_INPUT_BUFFER, "input", node.inputs)
    yield from _unknown(g, node, Reason.UNKNOWN_OUTPUT_BUFFER, "output", node.outputs)
    if not node.outputs and node.op not in WITHOUT_OUTPUT:
        yield Finding(Reason.NODE_WITHOUT_OUTPUT, f"{describe(node)} writes nothing, expected an output", node.name)


def _unknown(g: Graph, node: Node, reason: Reason, side: str, ids: Iterable[int]) -> Iterator[Finding]:
    for position, buffer_id in enumerate(ids):
        if not 0 <= buffer_id < len(g.buffers):
            message = f"{describe(node)}: {side} {position} is buffer {buffer_id}, the graph has {len(g.buffers)}"
            yield Finding(reason, message, node.name)


def _graph_findings(g: Graph) -> Iterator[Finding]:
    """Bad names, ids out of step, duplicate names."""
    if not _is_name(g.name):
        yield Finding(Reason.BAD_GRAPH, f"the graph's name {g.name!r} is not 1 to {MAX_NAME} printable characters")
    for key in g.meta:
        if not _is_name(key):
            yield Finding(Reason.BAD_GRAPH, f"meta key {key!r} is not 1 to {MAX_NAME} printable characters")
    yield from _sequence_findings("buffer", g.buffers)
    yield from _sequence_findings("node", g.nodes)
    for node in g.nodes:
        for key in node.attrs:
            if not _is_name(key):
                message = f"node {node.name!r}: attribute {key!r} is not 1 to {MAX_NAME} printable characters"
                yield Finding(Reason.BAD_ATTRIBUTE, message, node.name)


def _buffer_findings(buffer: Buffer) -> Iterator[Finding]:
    """Impossible declarations of one buffer."""

    def bad(fault: str) -> Finding:
        return Finding(Reason.BAD_BUFFER, f"buffer {buffer.name!r} {buffer.type_text}: {fault}", None, buffer.name)

    if not 1 <= len(buffer.shape) <= MAX_RANK:
        yield bad(f"{len(buffer.shape)} dimensions, expected 1 to {MAX_RANK}")
        return
    elements = 1
    for dim in buffer.shape:
        if isinstance(dim, str):
            if dim not in SYMBOLS:
                yield bad(f"unknown size {dim!r}, known are {', '.join(sorted(SYMBOLS))}")
        elif type(dim) is not int or dim < 1:
            yield bad(f"dimension {dim!r}, expected a whole number of at least 1")
        else:
            elements *= dim
    if elements > MAX_ELEMENTS:
        yield bad(f"more than {MAX_ELEMENTS} elements")
    row = buffer.shape[-1]
    block = buffer.dtype.block_size
    if block > 1 and (isinstance(row, str) or row % block):
        yield bad(f"row of {row} elements, {buffer.dtype} needs a multiple of {block}")


def _sequence_findings(kind: str, items: Sequence[Buffer | Node]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for position, item in enumerate(items):
        named = {"node": item.name} if isinstance(item, Node) else {"buffer": item.name}
        if not _is_name(item.name):
            yield Finding(
                Reason.BAD_GRAPH,
                f"{kind} {position} is called {item.name!r}, expected 1 to {MAX_NAME} printable characters",
            )
        elif item.name in first:
            message = f"{kind}s {first[item.name]} and {position} are both called {item.name!r}, names are unique"
            yield Finding(Reason.DUPLICATE_NAME, message, **named)
        if item.id != position:
            yield Finding(Reason.BAD_GRAPH, f"{kind} {item.name!r} has id {item.id} at position {position}", **named)
        first.setdefault(item.name, position)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()

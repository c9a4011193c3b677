"""The verifier: everything that is wrong with a graph, in messages that name node and buffer.

Checks that need no order come first (declarations, wiring, each node against its signature), then what depends on the
order of the nodes: the writer of each buffer, and its readers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from zinc_rt.ir.conform import describe, node_findings
from zinc_rt.ir.dataflow import dataflow_findings
from zinc_rt.ir.declarations import buffer_findings, graph_findings
from zinc_rt.ir.errors import MAX_FINDINGS, Finding, Reason, failure
from zinc_rt.ir.graph import Graph, Node, frozen_items
from zinc_rt.ir.op import Op

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
    yield from graph_findings(g)
    impossible: set[int] = set()
    for buffer in g.buffers:
        for finding in buffer_findings(buffer):
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

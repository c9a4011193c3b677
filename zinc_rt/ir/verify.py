"""The verifier: what is wrong with a graph, all of it, in messages that name node and buffer."""

from __future__ import annotations

from zinc_rt.ir import errors as e
from zinc_rt.ir.errors import Finding
from zinc_rt.ir.graph import Graph
from zinc_rt.ir.op import Op

WITHOUT_OUTPUT = frozenset({Op.BARRIER, Op.STREAM_OUT})
"""Opcodes that may write nothing."""


def graph(g: Graph) -> None:
    """The original's entry point: delegates to `Graph.verify`. Raises VerifyError."""
    g.verify()


def findings(g: Graph) -> list[Finding]:
    """Everything wrong with `g`, in graph order; empty when nothing is."""
    if not g.nodes:
        return [Finding(e.EmptyGraph, "there is no node")]
    found: list[Finding] = []
    for node in g.nodes:
        for kind, side, ids in (
            (e.UnknownInputBuffer, "input", node.inputs),
            (e.UnknownOutputBuffer, "output", node.outputs),
        ):
            for i, buffer_id in enumerate(ids):
                if not 0 <= buffer_id < len(g.buffers):
                    found.append(
                        Finding(
                            kind,
                            f"node {node.name!r}: {side} {i} is buffer {buffer_id}, "
                            f"the graph has buffers 0 to {len(g.buffers) - 1}",
                            node.name,
                        )
                    )
        if not node.outputs and node.op not in WITHOUT_OUTPUT:
            found.append(
                Finding(e.NodeWithoutOutput, f"node {node.name!r} ({node.op.name}) writes nothing", node.name)
            )
    return found

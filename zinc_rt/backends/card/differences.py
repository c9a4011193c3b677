"""Which operation is the first to give other bits than the reference: the small model's graph, node by node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zinc_rt.backends.amdgpu.selftest import run_graph, small_graph
from zinc_rt.backends.base import Backend
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.ir.builder import rewritten
from zinc_rt.ir.graph import Buffer, BufferKind, Graph, Node

_READ = (BufferKind.TEMP, BufferKind.OUTPUT)


def prefixes(graph: Graph) -> list[Graph]:
    """The graph up to each node whose results can be read, which are outputs there."""
    found = []
    for at, node in enumerate(graph.nodes):
        last = set(node.outputs)
        if any(graph.buffer(b).kind not in _READ for b in last):
            continue

        def shown(buffer: Buffer, last: set[int] = last) -> Buffer:
            return replace(buffer, kind=BufferKind.OUTPUT) if buffer.id in last else buffer

        found.append(rewritten(graph, _needed(graph, at), shown))
    return found


def _needed(graph: Graph, last: int) -> list[Node]:
    """The node and those before it whose results it depends on, in order."""
    wanted, kept = set(graph.nodes[last].inputs), [graph.nodes[last]]
    for node in reversed(graph.nodes[:last]):
        if wanted & set(node.outputs):
            kept.append(node)
            wanted |= set(node.inputs)
    return kept[::-1]


def first_difference(backend: Backend) -> str | None:
    """The first operation whose results are not the reference's bits, and how many differ; None where all are equal.

    A result's last bit is lost where the next product turns it into int8, so the logits alone prove less. Raises what
    running a graph raises.
    """
    with ReferenceBackend() as oracle:
        for part in prefixes(small_graph()):
            got, want = (run_graph(each, part) for each in (backend, oracle))
            for name, bits in want.items():
                wrong = np.flatnonzero(got[name] != bits)
                if wrong.size:
                    at, node = int(wrong[0]), part.nodes[-1]
                    return (
                        f"{node.op.name} ({node.name}): {wrong.size} of {bits.size} values differ, first {at}:"
                        f" {got[name][at]:#010x} instead of {bits[at]:#010x}"
                    )
    return None

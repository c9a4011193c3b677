"""Finds the first operation of the small model's graph whose bits are not the reference's, node by node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend, Bytes, Capacity
from zinc_rt.backends.gpu.selftest import small_graph
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.ir.builder import rewritten
from zinc_rt.ir.graph import Buffer, BufferKind, DType, Graph, Node

_READ = (BufferKind.TEMP, BufferKind.OUTPUT)
_ROWS, _CTX, _POSITION = 2, 300, 290  # the position is behind the first split of attention
_GIVEN = {
    "token_ids": [3, 17],
    "positions": [_POSITION - 1, _POSITION],
    "slots": [0, 0],
    "logit_rows": [1],
    "page_table": list(range(-(-_CTX // 16))),
}
Bits = npt.NDArray[np.uint32]


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
            got, want = (_outputs(each, part) for each in (backend, oracle))
            for name, bits in want.items():
                wrong = np.flatnonzero(got[name] != bits)
                if wrong.size:
                    at, node = int(wrong[0]), part.nodes[-1]
                    return (
                        f"{node.op.name} ({node.name}): {wrong.size} of {bits.size} values differ, first {at}:"
                        f" {got[name][at]:#010x} instead of {bits[at]:#010x}"
                    )
    return None


def _outputs(backend: Backend, graph: Graph) -> dict[str, Bits]:
    """One step of a part of the small graph: its outputs as bits, flat."""
    sizes = Capacity(_ROWS, 1, _CTX, 1, -(-_CTX // 16))
    weights = {b.name: _weight(b) for b in graph.of_kind(BufferKind.WEIGHT)}
    constants = {b.name: _angles(b, sizes) for b in graph.of_kind(BufferKind.CONSTANT)}
    batch = backend.lower(backend.plan(graph, sizes), weights, constants)
    for name, array in batch.inputs.items():
        array.reshape(-1)[:] = _GIVEN[name]
    batch.counts[:] = _ROWS, 1
    backend.submit_and_wait(batch)
    return {
        name: np.ascontiguousarray(found).view(np.uint32).reshape(-1).copy() for name, found in batch.outputs.items()
    }


def _weight(buffer: Buffer) -> Bytes:
    """Random rows of a weight, the same in each part of the graph: floats, or blocks behind a small float16 scale."""
    rng = np.random.default_rng(list(buffer.name.encode()))
    *outer, n = (int(d) for d in buffer.shape)
    shape = (outer[0] if outer else 1, n)
    if buffer.dtype is DType.F32:
        return rng.standard_normal(shape).astype(np.float32).view(np.uint8)
    if buffer.dtype is DType.F16:
        return (rng.standard_normal(shape) / 8).astype(np.float16).view(np.uint8)
    raw = rng.integers(0, 256, (shape[0], n // 32, buffer.dtype.row_bytes(n) // (n // 32)), np.uint8)
    raw[:, :, :2] = rng.uniform(0.004, 0.02, (*raw.shape[:2], 1)).astype(np.float16).view(np.uint8)
    return raw.reshape(shape[0], -1)


def _angles(buffer: Buffer, sizes: Capacity) -> npt.NDArray[np.float32]:
    """Cosines and sines of a table by position, f32[n_ctx, pairs, 2]."""
    angles = np.random.default_rng(5).uniform(0, 6, (sizes.n_ctx, int(buffer.shape[1])))
    return np.stack([np.cos(angles), np.sin(angles)], axis=2).astype(np.float32)

"""Plans, lowers and runs graphs with the reference kernels, packet after packet on the calling thread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from zinc_rt.backends.arrays import bound, n_bytes, typed
from zinc_rt.backends.base import Bytes, Capacity
from zinc_rt.backends.cpu.memory import huge_bytes
from zinc_rt.backends.packet_list import Call, LoweredGraph, Packet
from zinc_rt.backends.reference.operations import NodeContext, lower_node
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.kernels.reference.matmul import Weight, unpacked_bytes
from zinc_rt.mem.arena import Lifetime, align_up, place


class ReferenceBackend:
    """The oracle. threads: of the linear-algebra library, whose products here are too small to gain from more."""

    def __init__(self, keep_bytes: int, threads: int) -> None:
        self._keep_bytes, self._threads = keep_bytes, threads
        self._blas = ThreadpoolController().select(user_api="blas")

    def plan(self, graph: Graph, sizes: Capacity) -> dict[str, int]:
        """Bytes by purpose; see `Backend.plan`."""
        state, constants, io, weights = (
            sum(n_bytes(b, sizes) for b in graph.of_kind(*kinds))
            for kinds in (
                (BufferKind.STATE,),
                (BufferKind.CONSTANT,),
                (BufferKind.INPUT, BufferKind.OUTPUT),
                (BufferKind.WEIGHT,),
            )
        )
        arena = place(_lifetimes(graph, sizes))[1]
        return {
            "weights": weights,
            "unpacked": self._kept_bytes(graph, sizes),
            "kv_cache": state,
            "scratch": arena + io,
            "constants": constants,
        }

    def _kept_bytes(self, graph: Graph, sizes: Capacity) -> int:
        """Bytes of unpacked weights that stay between steps: those of all matrices, or none."""
        matrices = (b for b in graph.of_kind(BufferKind.WEIGHT) if len(b.shape) == 2)
        total = sum(unpacked_bytes(b.dtype.ggml, *sizes.shape(b.shape)) for b in matrices)
        return total if total <= self._keep_bytes else 0

    def lower(
        self,
        graph: Graph,
        sizes: Capacity,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, npt.NDArray[np.float32]],
    ) -> LoweredGraph:
        """Bind every node to its memory; see `Backend.lower`."""
        keep = self._kept_bytes(graph, sizes) > 0
        arena_offsets, arena_bytes = place(_lifetimes(graph, sizes))
        arena = huge_bytes(arena_bytes)
        arrays: dict[int, npt.NDArray[np.generic]] = {}
        matrices: dict[int, Weight] = {}
        for buffer in graph.buffers:
            if buffer.kind is BufferKind.WEIGHT:
                raw = bound(weights, buffer)
                if len(buffer.shape) == 2:
                    matrices[buffer.id] = Weight.from_raw(buffer.dtype.ggml, raw, keep=keep)
                else:
                    arrays[buffer.id] = raw.reshape(-1).view(np.float32)
            elif buffer.kind is BufferKind.CONSTANT:
                arrays[buffer.id] = bound(constants, buffer)
            elif buffer.kind is BufferKind.TEMP:
                offset = arena_offsets[buffer.id]
                arrays[buffer.id] = typed(arena[offset : offset + n_bytes(buffer, sizes)], buffer, sizes)
            else:
                arrays[buffer.id] = typed(huge_bytes(n_bytes(buffer, sizes)), buffer, sizes)
        counts = np.zeros(2, np.int32)
        context = NodeContext(graph, arrays, matrices, counts)
        return LoweredGraph(
            packets=tuple(Packet(n.op, Call(lower_node(context, n)), n.name) for n in graph.nodes),
            inputs={b.name: arrays[b.id].view(np.int32) for b in graph.of_kind(BufferKind.INPUT)},
            outputs={b.name: arrays[b.id] for b in graph.of_kind(BufferKind.OUTPUT)},
            counts=counts,
            limits=(sizes.n_rows, sizes.n_logits),
        )

    def run(self, batch: LoweredGraph) -> None:
        """The packets in order; kernel errors propagate."""
        with self._blas.limit(limits=self._threads):
            for packet in batch.packets:
                if packet.params is not None:
                    packet.params.run()


def _lifetimes(graph: Graph, sizes: Capacity) -> list[Lifetime]:
    spans: dict[int, tuple[int, int]] = {}
    for node in graph.nodes:
        for buffer_id in (*node.inputs, *node.outputs):
            if graph.buffer(buffer_id).kind is BufferKind.TEMP:
                spans[buffer_id] = (spans.get(buffer_id, (node.id, 0))[0], node.id)
    return [Lifetime(b, align_up(n_bytes(graph.buffer(b), sizes)), *span) for b, span in spans.items()]

"""`ReferenceBackend`: graphs with the NumPy kernels, node after node on the calling thread; the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from zinc_rt.backends.arrays import bound, n_bytes, sequence_states, shareable, shared, state_bytes, typed
from zinc_rt.backends.base import BackendFeatures, Bytes, Capacity, CheckedStep, GraphPlan, LoweredGraph
from zinc_rt.backends.cache_pages import AS_DECLARED, cache_pages, page_arrays
from zinc_rt.backends.graph_check import lookups
from zinc_rt.backends.host import HostBackend, HostGraph, checked_threads
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.backends.reference.operations import NodeContext, lower_node
from zinc_rt.ir.graph import Buffer, BufferKind, Graph
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import product_weights
from zinc_rt.kernels.reference.matmul import Weight, unpacked_bytes, weights_of
from zinc_rt.mem.arena import Lifetime, align_up, place
from zinc_rt.sampling.request import DeviceSampling

KEEP_BYTES = 4 << 30
"""Unpacked weights are kept when they take no more than this; else each step unpacks them anew."""


@dataclass(frozen=True, eq=False)
class ReferenceGraph(HostGraph):
    """calls: the graph's nodes in order, with their operands bound."""

    calls: tuple[Callable[[], None], ...] = field(kw_only=True)


class ReferenceBackend(HostBackend):
    """The same bits as every other backend, slowly.

    threads: of the linear-algebra library, whose products here are too small to gain from more than one.
    keep_bytes: up to how many bytes of unpacked weights are kept between steps.
    """

    graphs = ReferenceGraph

    def __init__(self, *, threads: int | None = None, keep_bytes: int = KEEP_BYTES) -> None:
        super().__init__()
        self.features = BackendFeatures("reference", threads=checked_threads(threads) or 1)
        self._keep_bytes = keep_bytes
        self._blas = ThreadpoolController().select(user_api="blas")

    def plan(self, graph: Graph, sizes: Capacity, shares: LoweredGraph | None = None) -> GraphPlan:
        """See `Backend.plan`."""
        self._check_open()
        borrowed = shared(graph, sizes, shares)
        constants, io, weights = (
            sum(n_bytes(b, sizes) for b in graph.of_kind(*kinds) if b.id not in borrowed)
            for kinds in (
                (BufferKind.CONSTANT,),
                (BufferKind.INPUT, BufferKind.OUTPUT),
                (BufferKind.WEIGHT,),
            )
        )
        arena = place(_lifetimes(graph, sizes))[1]
        parts = {
            "weights": weights,
            "unpacked": self._kept_bytes(graph, sizes, borrowed),
            **state_bytes(graph, sizes, without=borrowed),
            "scratch": arena + io,
            "constants": constants,
        }
        return GraphPlan(graph, sizes, shares, parts)

    def _kept_bytes(self, graph: Graph, sizes: Capacity, borrowed: Container[int]) -> int:
        """Bytes of unpacked weights that stay between steps: those of all matrices, or none."""
        total = 0
        for b in _matrices(graph):
            if b.id in borrowed:
                continue
            *outer, n_in = sizes.shape(b.shape)
            total += unpacked_bytes(b.dtype.ggml, math.prod(outer), n_in)
        return total if total <= self._keep_bytes else 0

    def lower(
        self,
        plan: GraphPlan,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, npt.NDArray[np.float32]],
        released: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ReferenceGraph:
        """Bind every node to its memory; see `Backend.lower`. Weights stay where they are: nothing is released."""
        self._check_open()
        graph, sizes = plan.graph, plan.sizes
        borrowed = shared(graph, sizes, plan.shares)
        keep = plan.n_bytes["unpacked"] > 0
        arena_offsets, arena_bytes = place(_lifetimes(graph, sizes))
        arena = huge_bytes(arena_bytes)
        arrays: dict[int, npt.NDArray[np.generic]] = {}
        matrices: dict[int, Weight | list[Weight]] = {}
        multiplied = {b.id for b in _matrices(graph)}
        for buffer in graph.buffers:
            if buffer.id in borrowed:
                (matrices if buffer.id in multiplied else arrays)[buffer.id] = borrowed[buffer.id]
            elif buffer.kind is BufferKind.WEIGHT:
                raw = bound(weights, buffer)
                if buffer.id in multiplied:
                    count = math.prod(sizes.shape(buffer.shape[:-2]))
                    made = weights_of(buffer.dtype.ggml, raw, count, keep=keep)
                    matrices[buffer.id] = made if len(buffer.shape) > 2 else made[0]
                else:
                    arrays[buffer.id] = raw.reshape(-1).view(np.float32).reshape(sizes.shape(buffer.shape))
            elif buffer.kind is BufferKind.CONSTANT:
                arrays[buffer.id] = bound(constants, buffer)
            elif buffer.kind is BufferKind.TEMP:
                offset = arena_offsets[buffer.id]
                arrays[buffer.id] = typed(arena[offset : offset + n_bytes(buffer, sizes)], buffer, sizes)
            else:
                arrays[buffer.id] = typed(huge_bytes(n_bytes(buffer, sizes)), buffer, sizes)
        counts, caches = np.zeros(2, np.int32), cache_pages(graph)
        context = NodeContext(graph, arrays, matrices, counts)
        inputs = {b.name: arrays[b.id].view(np.int32) for b in graph.of_kind(BufferKind.INPUT)}
        return ReferenceGraph(
            limits=(sizes.n_rows, sizes.n_logits),
            inputs=inputs,
            outputs={b.name: arrays[b.id] for b in graph.of_kind(BufferKind.OUTPUT)},
            lookups=lookups(graph, inputs),
            states={b.name: arrays[b.id] for b in sequence_states(graph)},
            caches={cache.name: cache for cache in caches},
            cache_arrays=page_arrays(caches, arrays),
            layout=AS_DECLARED,
            counts=counts,
            memory=shareable(graph, sizes, {**arrays, **matrices}),
            calls=tuple(lower_node(context, n) for n in graph.nodes),
        )

    def run_parts(self, step: CheckedStep, seconds: float) -> Iterator[None]:
        """See `Backend.run_parts`: node after node."""
        lowered = self._own(step.lowered)
        assert isinstance(lowered, ReferenceGraph)
        for call in lowered.calls:
            with self._step, self._blas.limit(limits=self.features.threads):
                self._check_open()
                call()
            yield

    def _run(self, lowered: LoweredGraph, n_rows: int, n_logits: int, sampling: DeviceSampling | None) -> None:
        assert isinstance(lowered, ReferenceGraph)
        with self._blas.limit(limits=self.features.threads):
            for call in lowered.calls:
                call()


def _matrices(graph: Graph) -> list[Buffer]:
    """Weights that rows are multiplied by, and tables of embeddings."""
    used = product_weights(graph) | {node.inputs[1] for node in graph.nodes if node.op is Op.EMBED}
    return [b for b in graph.of_kind(BufferKind.WEIGHT) if b.id in used]


def _lifetimes(graph: Graph, sizes: Capacity) -> list[Lifetime]:
    spans: dict[int, tuple[int, int]] = {}
    for node in graph.nodes:
        for buffer_id in (*node.inputs, *node.outputs):
            if graph.buffer(buffer_id).kind is BufferKind.TEMP:
                spans[buffer_id] = (spans.get(buffer_id, (node.id, 0))[0], node.id)
    return [Lifetime(b, align_up(n_bytes(graph.buffer(b), sizes)), *span) for b, span in spans.items()]

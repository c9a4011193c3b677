"""T-CPU: the ring that runs on the host, packet after packet on the calling thread, with the reference kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from zinc_rt.errors import UsageError
from zinc_rt.ir.graph import Buffer, BufferKind, Graph
from zinc_rt.kernels.reference.matmul import Weight, unpacked_bytes
from zinc_rt.mem.arena import ALIGNMENT, Lifetime, align_up, place
from zinc_rt.ring.base import Bytes, Fence, Ring, Sizes
from zinc_rt.ring.cpu_ops import NodeContext, lower_node
from zinc_rt.ring.errors import MissingBinding, RingClosed, RingError, StepTooLarge
from zinc_rt.ring.packet_list import Call, Packet, PacketBatch

_T = TypeVar("_T")

KEEP_BYTES = 4 << 30
"""Unpacked weights are kept when they take no more than this; else each step unpacks them anew."""


class CpuRing(Ring):
    """Runs batches in order on the caller. `submit` returns when the work is done.

    keep_bytes: up to how many bytes of unpacked weights may be kept between steps.
    threads: of the linear-algebra library while a batch runs; its products are too small to gain from more than one.
    """

    def __init__(self, *, keep_bytes: int = KEEP_BYTES, threads: int = 1) -> None:
        if threads < 1:
            raise UsageError(f"threads is {threads}, it must be at least 1")
        self._keep_bytes = keep_bytes
        self._threads = threads
        self._blas = ThreadpoolController().select(user_api="blas")
        self._memory: dict[int, Bytes] = {}
        self._sequence = 0
        self._closed = False

    @classmethod
    def init(cls) -> CpuRing:
        """The ring with its defaults."""
        return cls()

    def deinit(self) -> None:
        """The same as `close`."""
        self.close()

    def close(self) -> None:
        """Forget all allocations; batches lowered here must not be submitted again."""
        self._memory.clear()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise RingClosed("the CPU ring is closed")

    def alloc(self, n_bytes: int) -> Bytes:
        """Zeroed host memory, aligned to 64 bytes."""
        self._check_open()
        raw = np.zeros(n_bytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        memory = raw[start : start + n_bytes]
        self._memory[id(memory)] = memory
        return memory

    def free(self, memory: Bytes) -> None:
        """Give back an allocation. Raises `RingError` when it is not one, or not any more."""
        self._check_open()
        if self._memory.pop(id(memory), None) is None:
            raise RingError("free: this memory was not allocated by the ring, or was freed before")

    def plan(self, graph: Graph, sizes: Sizes) -> dict[str, int]:
        """Bytes by purpose, see `Ring.plan`."""
        self._check_open()
        state, constants, io = (
            sum(_n_bytes(b, sizes) for b in graph.of_kind(*kinds))
            for kinds in ((BufferKind.STATE,), (BufferKind.CONSTANT,), (BufferKind.INPUT, BufferKind.OUTPUT))
        )
        arena = place(_lifetimes(graph, sizes))[1]
        return {
            "unpacked": self._kept_bytes(graph, sizes),
            "kv_cache": state,
            "scratch": arena + io,
            "constants": constants,
        }

    def _kept_bytes(self, graph: Graph, sizes: Sizes) -> int:
        """Bytes of unpacked weights that stay between steps: those of all matrices, or none."""
        matrices = (b for b in graph.of_kind(BufferKind.WEIGHT) if len(b.shape) == 2)
        total = sum(unpacked_bytes(b.dtype.ggml, *sizes.shape(b.shape)) for b in matrices)
        return total if total <= self._keep_bytes else 0

    def lower(
        self,
        graph: Graph,
        sizes: Sizes,
        weights: Mapping[str, Bytes],
        constants: Mapping[str, npt.NDArray[np.float32]],
    ) -> PacketBatch:
        """Bind every node to its memory. Raises `UnsupportedOp`, `MissingBinding`."""
        self._check_open()
        keep = self._kept_bytes(graph, sizes) > 0
        arena_offsets, arena_bytes = place(_lifetimes(graph, sizes))
        arena = self.alloc(arena_bytes)
        arrays: dict[int, npt.NDArray[np.generic]] = {}
        matrices: dict[int, Weight] = {}
        for buffer in graph.buffers:
            if buffer.kind is BufferKind.WEIGHT:
                raw = _bound(weights, buffer)
                if len(buffer.shape) == 2:
                    matrices[buffer.id] = Weight.from_raw(buffer.dtype.ggml, raw, keep=keep)
                else:
                    arrays[buffer.id] = raw.reshape(-1).view(np.float32)
            elif buffer.kind is BufferKind.CONSTANT:
                arrays[buffer.id] = _bound(constants, buffer)
            elif buffer.kind is BufferKind.TEMP:
                offset = arena_offsets[buffer.id]
                arrays[buffer.id] = _typed(arena[offset : offset + _n_bytes(buffer, sizes)], buffer, sizes)
            else:
                arrays[buffer.id] = _typed(self.alloc(_n_bytes(buffer, sizes)), buffer, sizes)
        counts = np.zeros(2, np.int32)
        context = NodeContext(graph, arrays, matrices, counts)
        return PacketBatch(
            packets=tuple(Packet(n.op, Call(lower_node(context, n)), n.name) for n in graph.nodes),
            inputs={b.name: arrays[b.id].view(np.int32) for b in graph.of_kind(BufferKind.INPUT)},
            outputs={b.name: arrays[b.id] for b in graph.of_kind(BufferKind.OUTPUT)},
            counts=counts,
        )

    def submit(self, batch: PacketBatch) -> Fence:
        """Run the packets in order; the fence has retired on return. Kernel errors propagate."""
        self._check_open()
        _check_step(batch)
        with self._blas.limit(limits=self._threads):
            for packet in batch.packets:
                if packet.params is not None:
                    packet.params.run()
        self._sequence += 1
        return Fence(self._sequence, retired=True)

    def wait(self, fence: Fence, timeout: float | None = None) -> None:
        """Return at once: what `submit` returned has retired. Raises `RingError` for a foreign fence."""
        self._check_open()
        if not fence.retired or not 1 <= fence.sequence <= self._sequence:
            raise RingError(f"fence {fence.sequence} was not submitted to this ring; its last is {self._sequence}")

    def submit_and_wait(self, batch: PacketBatch) -> None:
        """Run the packets in order on the caller; a barrier does nothing. Kernel errors propagate."""
        self.wait(self.submit(batch))


def _check_step(batch: PacketBatch) -> None:
    for index, (count, name) in enumerate((("rows", "token_ids"), ("wanted logits", "logit_rows"))):
        if name in batch.inputs and not 0 <= batch.counts[index] <= batch.inputs[name].shape[0]:
            raise StepTooLarge(
                f"the step has {batch.counts[index]} {count}, the batch was lowered for {batch.inputs[name].shape[0]}"
            )


def _bound(given: Mapping[str, _T], buffer: Buffer) -> _T:
    if buffer.name not in given:
        raise MissingBinding(f"{buffer.kind.value} {buffer.name} of the graph was not given to lower()")
    return given[buffer.name]


def _n_bytes(buffer: Buffer, sizes: Sizes) -> int:
    *outer, inner = sizes.shape(buffer.shape)
    return int(np.prod(outer, dtype=np.int64)) * buffer.dtype.row_bytes(inner)


def _typed(memory: Bytes, buffer: Buffer, sizes: Sizes) -> npt.NDArray[np.generic]:
    return memory.view(np.dtype({"f32": "f4", "f16": "f2", "i32": "i4"}[buffer.dtype.value])).reshape(
        sizes.shape(buffer.shape)
    )


def _lifetimes(graph: Graph, sizes: Sizes) -> list[Lifetime]:
    spans: dict[int, tuple[int, int]] = {}
    for node in graph.nodes:
        for buffer_id in (*node.inputs, *node.outputs):
            if graph.buffer(buffer_id).kind is BufferKind.TEMP:
                spans[buffer_id] = (spans.get(buffer_id, (node.id, 0))[0], node.id)
    return [Lifetime(b, align_up(_n_bytes(graph.buffer(b), sizes)), *span) for b, span in spans.items()]

"""Buffers of a graph as arrays."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Bytes, Capacity, LoweredGraph, Shareable
from zinc_rt.backends.errors import MissingBinding
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Buffer, BufferKind, Graph

_T = TypeVar("_T")


def bound(given: Mapping[str, _T], buffer: Buffer) -> _T:
    """What the caller gave for a buffer. Raises `MissingBinding`."""
    if buffer.name not in given:
        raise MissingBinding(f"{buffer.kind.value} {buffer.name} of the graph was not given to lower()")
    return given[buffer.name]


def shared(graph: Graph, sizes: Capacity, shares: LoweredGraph | None) -> dict[int, Any]:
    """The weights and states of a graph that another one has already, as it binds them, by buffer id.

    Raises `BackendError` where a name stands for two shapes or types.
    """
    out = {}
    for b in graph.of_kind(BufferKind.WEIGHT, BufferKind.STATE) if shares is not None else ():
        found = shares.memory.get(b.name) if shares is not None else None
        if found is not None:
            if (found.dtype, found.shape) != (b.dtype, sizes.shape(b.shape)):
                raise BackendError(
                    f"{b.kind.value} {b.name} is {b.dtype}{list(sizes.shape(b.shape))}, but {found.dtype}"
                    f"{list(found.shape)} in the graph that it is shared with"
                )
            out[b.id] = found.bound
    return out


def shareable(graph: Graph, sizes: Capacity, memory: Mapping[Any, Any]) -> dict[str, Shareable]:
    """What `LoweredGraph.memory` is made of: a graph's weights and states among what is bound, by name."""
    return {
        b.name: Shareable(b.dtype, sizes.shape(b.shape), memory[b.id])
        for b in graph.of_kind(BufferKind.WEIGHT, BufferKind.STATE)
        if b.id in memory
    }


def n_bytes(buffer: Buffer, sizes: Capacity) -> int:
    """Bytes of a buffer at these sizes."""
    *outer, inner = sizes.shape(buffer.shape)
    return int(np.prod(outer, dtype=np.int64)) * buffer.dtype.row_bytes(inner)


def sequence_states(graph: Graph) -> tuple[Buffer, ...]:
    """The buffers of what a sequence keeps whatever its length, an entry for each slot."""
    return tuple(b for b in graph.of_kind(BufferKind.STATE) if b.shape[0] == "n_slots")


def state_bytes(
    graph: Graph, sizes: Capacity, alignment: int = 1, without: Container[int] = frozenset()
) -> dict[str, int]:
    """Bytes of caches and of recurrent layers, as plans have them. without: buffers that are there already."""
    own = {b.id for b in sequence_states(graph)}
    out = {"kv_cache": 0, "recurrent": 0}
    for b in graph.of_kind(BufferKind.STATE):
        if b.id in without:
            continue
        out["recurrent" if b.id in own else "kv_cache"] += -(-n_bytes(b, sizes) // alignment) * alignment
    return out


def typed(memory: Bytes, buffer: Buffer, sizes: Capacity) -> npt.NDArray[np.generic]:
    """Memory as the buffer's array; of blocks, as rows of bytes."""
    shape = sizes.shape(buffer.shape)
    if buffer.dtype.block_size > 1:
        return memory.view(np.uint8).reshape(*shape[:-1], buffer.dtype.row_bytes(shape[-1]))
    return memory.view(np.dtype({"f32": "f4", "f16": "f2", "i32": "i4"}[buffer.dtype.value])).reshape(shape)

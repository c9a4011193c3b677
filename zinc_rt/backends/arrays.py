"""Buffers of a graph as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Bytes, Capacity
from zinc_rt.backends.errors import MissingBinding
from zinc_rt.ir.graph import Buffer, BufferKind, Graph

_T = TypeVar("_T")


def bound(given: Mapping[str, _T], buffer: Buffer) -> _T:
    """What the caller gave for a buffer. Raises `MissingBinding`."""
    if buffer.name not in given:
        raise MissingBinding(f"{buffer.kind.value} {buffer.name} of the graph was not given to lower()")
    return given[buffer.name]


def n_bytes(buffer: Buffer, sizes: Capacity) -> int:
    """Bytes of a buffer at these sizes."""
    *outer, inner = sizes.shape(buffer.shape)
    return int(np.prod(outer, dtype=np.int64)) * buffer.dtype.row_bytes(inner)


def sequence_states(graph: Graph) -> tuple[Buffer, ...]:
    """The buffers of what a sequence keeps whatever its length, an entry for each slot."""
    return tuple(b for b in graph.of_kind(BufferKind.STATE) if b.shape[0] == "n_slots")


def state_bytes(graph: Graph, sizes: Capacity, alignment: int = 1) -> dict[str, int]:
    """Bytes of caches and of recurrent layers, as plans have them."""
    own = {b.id for b in sequence_states(graph)}
    out = {"kv_cache": 0, "recurrent": 0}
    for b in graph.of_kind(BufferKind.STATE):
        out["recurrent" if b.id in own else "kv_cache"] += -(-n_bytes(b, sizes) // alignment) * alignment
    return out


def typed(memory: Bytes, buffer: Buffer, sizes: Capacity) -> npt.NDArray[np.generic]:
    """Memory as the buffer's array; of blocks, as rows of bytes."""
    shape = sizes.shape(buffer.shape)
    if buffer.dtype.block_size > 1:
        return memory.view(np.uint8).reshape(*shape[:-1], buffer.dtype.row_bytes(shape[-1]))
    return memory.view(np.dtype({"f32": "f4", "f16": "f2", "i32": "i4"}[buffer.dtype.value])).reshape(shape)

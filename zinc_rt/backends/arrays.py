"""Buffers of a graph as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Bytes, Capacity
from zinc_rt.backends.errors import MissingBinding
from zinc_rt.ir.graph import Buffer

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


def typed(memory: Bytes, buffer: Buffer, sizes: Capacity) -> npt.NDArray[np.generic]:
    """Memory as the buffer's array."""
    return memory.view(np.dtype({"f32": "f4", "f16": "f2", "i32": "i4"}[buffer.dtype.value])).reshape(
        sizes.shape(buffer.shape)
    )

"""What every GPU driver checks of its caller: workgroups of a dispatch, spans of memory, data to be stored."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import BackendError

Groups = int | tuple[int, int, int]
"""Workgroups of a dispatch: in x, or in x, y and z."""


class MemoryPiece(Protocol):
    """Memory of a GPU. label: for messages; size: bytes."""

    @property
    def label(self) -> str: ...
    @property
    def size(self) -> int: ...


def checked_groups(kernel: str, groups: Groups, limits: tuple[int, ...]) -> tuple[int, int, int]:
    """Workgroups in x, y and z. kernel: for messages; limits: of each count. Raises `BackendError`."""
    counts = (groups, 1, 1) if isinstance(groups, int) else groups
    if len(counts) != 3 or not all(1 <= n <= limit for n, limit in zip(counts, limits, strict=True)):
        raise BackendError(f"{kernel}: {counts} workgroups; the three counts must be 1 to {limits}")
    return counts


def bytes_of(source: Any) -> npt.NDArray[np.uint8]:
    """The bytes of a buffer, or of an array in C order, as u8[n]."""
    return np.frombuffer(np.ascontiguousarray(source) if isinstance(source, np.ndarray) else source, np.uint8)


def checked_span(memory: MemoryPiece, n_bytes: int | None, offset: int) -> int:
    """Bytes of a span that begins at a byte offset. n_bytes: None for all from there on. Raises `BackendError` where it
    is not all in the memory.
    """
    n = memory.size - offset if n_bytes is None else n_bytes
    if offset < 0 or n < 0 or offset + n > memory.size:
        raise BackendError(f"{memory.label}: {n} bytes at {offset} are not all in its {memory.size}")
    return n

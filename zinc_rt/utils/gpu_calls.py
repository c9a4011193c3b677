"""What GPU drivers share: checks of workgroups, spans of memory and data to be stored, and how they wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import BackendError

_LONGEST_SLEEP: Final = 1e-3
_SLEEP_SHARE: Final = 1 / 128
"""Seconds between two looks are this share of what has passed, so that a wait ends 1 % late at most; Linux adds some
50 us.
"""
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


def ended_within(seconds: float, ended: Callable[[], bool]) -> bool:
    """Look until something has ended: whether it did in time. Signals are handled meanwhile."""
    start = time.monotonic()
    while not ended():
        passed = time.monotonic() - start
        if passed >= seconds:
            return False
        time.sleep(min(passed * _SLEEP_SHARE, _LONGEST_SLEEP))
    return True

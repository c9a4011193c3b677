"""Memory for weights, caches and scratch: zeroed, aligned, in huge pages where the system gives them."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
import numpy.typing as npt

from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import format_bytes

HUGE = 2 << 20
_SLACK = 256
"""Bytes after the end that may be read: prefetches and whole vectors reach over."""


def huge_bytes(n_bytes: int, *, plain: int = 0) -> npt.NDArray[np.uint8]:
    """Zeroed u8[n_bytes], at a multiple of 64 (of 2 MiB from that size on), touched by nobody yet.

    plain: bytes at the start, a multiple of 2 MiB, that stay in ordinary pages: the first touch of a huge one clears
    all of it. Raises `MemoryPlanError` when the system refuses.
    """
    alignment = HUGE if n_bytes >= HUGE else 64
    try:
        # Private: the system gives huge pages to shared mappings by another switch, which is mostly off.
        area = mmap.mmap(-1, max(1, n_bytes) + alignment + _SLACK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise MemoryPlanError(
            f"the system refused {format_bytes(n_bytes)} of memory: {error}; use a smaller context or model"
        ) from None
    whole = np.frombuffer(area, np.uint8)
    start = -whole.ctypes.data % alignment
    if alignment == HUGE and plain < n_bytes and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without huge pages is slower, nothing else
            area.madvise(mmap.MADV_HUGEPAGE, start + plain)
    return whole[start : start + n_bytes]


def aligned_zeros(n_bytes: int) -> npt.NDArray[np.uint8]:
    """u8[n_bytes] at a multiple of 64."""
    raw = np.zeros(n_bytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + n_bytes]

"""Helpers that bring arrays to one shape."""

from __future__ import annotations

from typing import Any

import numpy as np


def alike(*xs: Any) -> Any:
    """Broadcast arrays to one shape; equal shapes skip `np.broadcast_arrays`, which is slower than an instruction."""
    first = xs[0]
    if isinstance(first, np.ndarray) and all(isinstance(x, np.ndarray) and x.shape == first.shape for x in xs):
        return xs
    return np.broadcast_arrays(*xs)


def chosen(cases: list[tuple[Any, Any]], other: Any) -> Any:
    """Select as `np.select` does: the first (where, what) that holds, else `other`, whose shape and kind the result
    has.
    """
    found = np.array(other)
    for where, what in reversed(cases):
        if np.count_nonzero(where):
            np.copyto(found, what, where=where)
    return found

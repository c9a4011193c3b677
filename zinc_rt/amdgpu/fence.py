"""A point in a queue's submissions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Fence:
    """A point in a backend's submissions. `sequence` counts from 1; `retired` turns True once, by the backend."""

    sequence: int
    retired: bool = False

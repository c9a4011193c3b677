"""A point in a queue's submissions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class QueueFence:
    """A point in a queue's submissions. `sequence` counts from 1; `retired` turns True once, by the queue."""

    sequence: int
    retired: bool = False

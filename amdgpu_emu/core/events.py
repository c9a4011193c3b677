"""Results of an instruction other than the next address."""

from __future__ import annotations

from dataclasses import dataclass

from amdgpu_emu.core.state import Array


@dataclass(frozen=True)
class Split:
    """A branch: waves of bool[n] go on at `target`, the others behind the instruction."""

    taken: Array
    target: int


@dataclass(frozen=True)
class Targets:
    """A jump: every wave goes on at an address of its own, u64[n]."""

    addresses: Array


class Event:
    """An event without data: one of the constants below."""


END = Event()
"""The waves end."""
WAIT = Event()
"""The waves wait for their workgroup's barrier, unless it is complete."""
REST = Event()
"""The waves sleep: other groups run first."""

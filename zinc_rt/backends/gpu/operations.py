"""Operations of a lowered graph: dispatches whose memory and sizes are filled in when a step's shape is known."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.lowering import Counted
from zinc_rt.kernels.gpu.catalogue import KernelEntry

BLOCKS = (1, 2, 4, 8)
"""Rows of activations that one dispatch of a product takes at once; the greatest is repeated for more rows."""
MANY_ROWS = 16
"""Rows of a step from which on they are multiplied in tiles, by matrix instructions, where the GPU has these. 16 rows
cost one reading of the weights then, and two where a dispatch takes 8 rows at once (`docs/how/kernels.md` has numbers).
"""


@dataclass(frozen=True)
class StepShape:
    """The sizes that a recorded batch depends on. splits: splits of attention that the step's longest row reaches."""

    n_rows: int
    n_logits: int
    splits: int


@dataclass(frozen=True)
class TempSpec:
    """Memory by name; it gets its place when all lifetimes are known."""

    key: Hashable


@dataclass(frozen=True)
class ArgumentBlock:
    """A struct of arguments in memory. values: by field; those that are missing are 0."""

    struct: Any
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Room:
    """Memory of a temporary: bytes for each thing that it is counted by, with room for whole blocks of them."""

    counted: Counted
    row_bytes: int
    block: int = BLOCKS[-1]

    def size(self, shape: StepShape | Capacity) -> int:
        """Bytes for a step of this shape, with room for whole blocks of rows."""
        return padded_rows(int(getattr(shape, self.counted)), self.block) * self.row_bytes


@dataclass(frozen=True)
class TileRoom(Room):
    """Memory with so many bytes for each tile of a step; tiles: how many there are, by rows."""

    tiles: Callable[[int], int] = lambda n: n

    def size(self, shape: StepShape | Capacity) -> int:
        """Bytes for a step of this shape."""
        return self.tiles(int(getattr(shape, self.counted))) * self.row_bytes


@dataclass
class GpuOperation:
    """One dispatch.

    kernel: by shape; groups: workgroups by shape, none of them 0; arguments: numbers, `TempSpec`, `ArgumentBlock`, or
    functions of the shape. counted: the rows that it works on; it is left out if a step has none of them. work:
    products and sums by shape, for dispatches with many of them. when: whether a step of some shape has it.
    """

    name: str
    kernel: Callable[[StepShape], KernelEntry]
    groups: Callable[[StepShape], tuple[int, int, int]]
    arguments: tuple[Any, ...]
    counted: Counted
    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]
    phase: int = -1
    work: Callable[[StepShape], int] = lambda shape: 0
    when: Callable[[StepShape], bool] = lambda shape: True


def padded_rows(n: int, block: int = BLOCKS[-1]) -> int:
    """Rows that there must be room for, so that blocks of rows may be whole."""
    return n if n <= 1 else -(-n // block) * block


def block_of(n: int) -> int:
    """Rows that a product's dispatch takes at once, for a step of `n` rows."""
    return next((m for m in BLOCKS if m >= n), BLOCKS[-1])


def blocks_of(n: int) -> tuple[int, ...]:
    """What `block_of` is for steps of up to `n` rows."""
    return tuple(m for m in BLOCKS if m <= block_of(n))

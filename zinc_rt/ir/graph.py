"""Graphs: named, typed, shaped buffers and the nodes that read and write them, in execution order.

A `Graph` is immutable; `ir.builder.GraphBuilder` makes one and verifies it. The static graph is built once,
at load: whatever changes from step to step (token ids, positions, slots, the page table) is the data of its
INPUT buffers, and the sizes that change are symbols in the shapes.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self, SupportsIndex

from zinc_rt.ir.dtype import DType
from zinc_rt.ir.errors import GraphError, TooManyBindings
from zinc_rt.ir.op import Op

__all__ = [
    "MAX_BINDINGS", "SYMBOLS", "Attr", "BindingList", "Buffer", "BufferId", "BufferKind",
    "DType", "Dim", "Graph", "Node", "NodeId", "TooManyBindings",
]  # fmt: skip

MAX_BINDINGS = 8
"""The most inputs, and the most outputs, that one node may have."""

SYMBOLS = frozenset({"n_rows", "n_logits", "n_slots", "n_pages", "max_pages", "n_ctx"})
"""Sizes that a shape may name: `n_rows` and `n_logits` belong to a step, the others to an engine.

n_rows: (sequence, position) rows of the step. n_logits: rows whose logits are wanted. n_slots: sequences that
fit at once. n_pages: pages of a cache. max_pages: pages of the longest sequence. n_ctx: positions of a
sequence.
"""

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

BufferId = int
NodeId = int
Dim = int | str
Attr = int | float | str | bool


class BufferKind(enum.StrEnum):
    """The kind of a buffer: its writer and its lifetime."""

    WEIGHT = "weight"  # a tensor of the model's file, read only
    CONSTANT = "constant"  # computed once at load (RoPE table), read only
    INPUT = "input"  # filled by the engine before each step, read only
    STATE = "state"  # lives across steps (key and value caches)
    TEMP = "temp"  # lives within a step
    OUTPUT = "output"  # read by the engine after each step; later nodes may read it too


class BindingList(tuple[BufferId, ...]):
    """The buffers of one side of a node, at most `MAX_BINDINGS`; equals a plain tuple of the same ids."""

    __slots__ = ()

    def __new__(cls, ids: Iterable[SupportsIndex] = ()) -> Self:
        """Raises TooManyBindings."""
        values = tuple(operator.index(i) for i in ids)
        if len(values) > MAX_BINDINGS:
            raise TooManyBindings(f"{len(values)} bindings, a node takes at most {MAX_BINDINGS} on a side")
        return super().__new__(cls, values)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named array; `shape` has the outermost dimension first. A quantised row is whole blocks."""

    id: BufferId
    name: str
    kind: BufferKind
    dtype: DType
    shape: tuple[Dim, ...]

    def __post_init__(self) -> None:
        """Raises GraphError for a dimension beyond 64 bits, which no message could even print."""
        object.__setattr__(self, "shape", tuple(self.shape))
        for dim in self.shape:
            if not isinstance(dim, str) and not _INT_MIN <= dim <= _INT_MAX:
                raise GraphError(f"buffer {self.name!r}: a dimension is beyond 64 bits")

    @property
    def type_text(self) -> str:
        """Element type and shape as messages print them: `f32[n_rows, 64]`."""
        return f"{self.dtype}[{', '.join(str(dim) for dim in self.shape)}]"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One operation. `attrs` is read only.

    Attributes compare by value and type: 1, 1.0 and True differ.
    """

    id: NodeId
    op: Op
    name: str
    inputs: tuple[BufferId, ...]
    outputs: tuple[BufferId, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises TooManyBindings, and GraphError for a value that is no finite plain scalar."""
        for side in ("inputs", "outputs"):
            try:
                object.__setattr__(self, side, BindingList(getattr(self, side)))
            except TooManyBindings as error:
                raise TooManyBindings(f"node {self.name!r}, {side}: {error}") from None
        object.__setattr__(
            self,
            "attrs",
            MappingProxyType(_scalars(self.attrs, f"node {self.name!r}: attribute")),
        )

    def _key(self) -> tuple[object, ...]:
        return (self.id, self.op, self.name, self.inputs, self.outputs, frozen_items(self.attrs))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Node) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, eq=False)
class Graph:
    """Buffers and nodes; `buffers[i].id == i`, `nodes[i].id == i`, and the nodes run in this order.

    `meta` carries what a reader of the graph may want to know (architecture, sizes); execution ignores it.
    """

    name: str
    buffers: tuple[Buffer, ...]
    nodes: tuple[Node, ...]
    meta: Mapping[str, Attr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises GraphError for an entry of `meta` that is no finite plain scalar."""
        object.__setattr__(self, "buffers", tuple(self.buffers))
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "meta", MappingProxyType(_scalars(self.meta, f"graph {self.name!r}: meta")))

    def _key(self) -> tuple[object, ...]:
        return (self.name, self.buffers, self.nodes, frozen_items(self.meta))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Graph) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def buffer(self, buffer_id: BufferId) -> Buffer:
        """The buffer with this id. Raises GraphError."""
        if 0 <= buffer_id < len(self.buffers):
            return self.buffers[buffer_id]
        raise GraphError(f"graph {self.name!r} has no buffer {buffer_id}; its ids are 0 to {len(self.buffers) - 1}")

    def of_kind(self, *kinds: BufferKind) -> tuple[Buffer, ...]:
        """The buffers of these kinds, in id order."""
        return tuple(buffer for buffer in self.buffers if buffer.kind in kinds)


def frozen_items(mapping: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Hashable items of a mapping of scalars; `repr` tells 1, 1.0 and True apart, which `==` does not."""
    return tuple(sorted((key, repr(value)) for key, value in mapping.items()))


def _scalars(mapping: Mapping[str, Any], label: str) -> dict[str, Attr]:
    """A copy of `mapping` with NumPy scalars made plain. Raises GraphError for anything but finite scalars."""
    plain = {key: value.item() if getattr(value, "ndim", None) == 0 else value for key, value in mapping.items()}
    for key, value in plain.items():
        if not isinstance(value, (bool, int, float, str)):
            raise GraphError(f"{label} {key!r} is of {type(value).__name__}, expected int, float, str or bool")
        if isinstance(value, float) and not math.isfinite(value):
            raise GraphError(f"{label} {key!r} is {value}, expected a finite number")
        if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
            raise GraphError(f"{label} {key!r} is an integer beyond 64 bits")
    return plain

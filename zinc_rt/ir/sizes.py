"""Sizes of a step, for cost formulas: a graph leaves them open as symbols."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from zinc_rt.errors import UsageError
from zinc_rt.ir.graph import Attr, Buffer, Dim
from zinc_rt.numerics import pages_for


@dataclass(frozen=True)
class CostSizes:
    """The sizes that a graph leaves open. Raises UsageError for a size below its least value.

    n_rows: rows of the step. n_logits: rows whose logits are wanted. context: cached positions that each row
    attends to, its own included. The rest is the engine's: None takes the least that `context` needs.
    """

    n_rows: int = 1
    n_logits: int = 1
    context: int = 512
    n_ctx: int | None = None
    n_slots: int = 1
    n_pages: int | None = None
    max_pages: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("n_rows", 1), ("n_logits", 0), ("context", 1), ("n_slots", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}, expected at least {least}")
        for name in ("n_ctx", "max_pages", "n_pages"):
            if self.symbols[name] < 1:
                raise UsageError(f"{name} is {self.symbols[name]}, expected at least 1")

    @cached_property
    def symbols(self) -> Mapping[str, int]:
        """A value for every symbol of a shape."""
        n_ctx = self.context if self.n_ctx is None else self.n_ctx
        max_pages = pages_for(n_ctx) if self.max_pages is None else self.max_pages
        n_pages = self.n_slots * max_pages if self.n_pages is None else self.n_pages
        return {
            "n_rows": self.n_rows,
            "n_logits": self.n_logits,
            "n_slots": self.n_slots,
            "n_pages": n_pages,
            "max_pages": max_pages,
            "n_ctx": n_ctx,
        }

    def dim(self, dim: Dim) -> int:
        """A dimension as a number."""
        return self.symbols[dim] if isinstance(dim, str) else dim

    def elements(self, buffer: Buffer) -> int:
        """Elements of the whole buffer."""
        return math.prod(self.dim(dim) for dim in buffer.shape)

    def nbytes(self, buffer: Buffer) -> int:
        """Bytes of the whole buffer."""
        *outer, row = (self.dim(dim) for dim in buffer.shape)
        return math.prod(outer) * buffer.dtype.row_bytes(row)


@dataclass(frozen=True, slots=True)
class CostView:
    """A node's buffers and the sizes of a step: what the cost formulas of operations are given.

    attrs: of the node, defaults included.
    """

    attrs: Mapping[str, Attr]
    inputs: list[Buffer]
    outputs: list[Buffer]
    sizes: CostSizes

    def attr(self, name: str) -> int:
        """A count among the node's attributes."""
        return int(self.attrs[name])

    def dim(self, port: int, axis: int) -> int:
        """A dimension of an input."""
        return self.sizes.dim(self.inputs[port].shape[axis])

    def bytes_in(self, *ports: int) -> int:
        """Bytes of whole inputs."""
        return sum(self.sizes.nbytes(self.inputs[port]) for port in ports)

    def bytes_out(self) -> int:
        """Bytes of all outputs."""
        return sum(self.sizes.nbytes(buffer) for buffer in self.outputs)

    def elements(self, port: int) -> int:
        """Elements of a whole input."""
        return self.sizes.elements(self.inputs[port])

    def row_bytes(self, port: int) -> int:
        """Bytes of one innermost row of an input."""
        buffer = self.inputs[port]
        return buffer.dtype.row_bytes(self.sizes.dim(buffer.shape[-1]))

    def whole(self) -> tuple[int, int]:
        """Bytes read and written where an operation touches all of its buffers."""
        return self.bytes_in(*range(len(self.inputs))), self.bytes_out()

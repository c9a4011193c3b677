"""What a graph's nodes become: the work of one kernel each, with its operands by buffer id.

`node` is the graph's node that names the work in messages and profiles. `ops` are the operations that a kind may stand
for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zinc_rt.backends.fusion.heads import Heads
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op


@dataclass(frozen=True, slots=True)
class FusedNode:
    """The root of all kinds."""

    node: Node
    ops: ClassVar[tuple[Op, ...]] = ()


@dataclass(frozen=True, slots=True)
class Single(FusedNode):
    """One operation by itself; backends lower it by its opcode."""


@dataclass(frozen=True, slots=True)
class NormRows(FusedNode):
    """total = x + residual; y = norm(total) * weight. Without a residual: y = norm(x) * weight.

    total_read: whether any other node or the caller reads the sum. logit_rows: the buffer of wanted rows where
    nothing but products of logits reads y, so that only those rows matter; else None.
    """

    x: int
    residual: int | None
    weight: int
    total: int | None
    y: int
    eps: float
    total_read: bool
    logit_rows: int | None
    ops: ClassVar[tuple[Op, ...]] = (Op.RMS_NORM, Op.RESIDUAL_RMS_NORM)

    @property
    def sources(self) -> tuple[int, ...]:
        """x, and the residual where there is one."""
        return (self.x,) if self.residual is None else (self.x, self.residual)


@dataclass(frozen=True, slots=True)
class Product(FusedNode):
    """y = x W^T + bias, for every row, or for the rows that `logit_rows` names."""

    x: int
    weight: int
    bias: int | None
    y: int
    logit_rows: int | None
    ops: ClassVar[tuple[Op, ...]] = (Op.MATMUL, Op.LM_HEAD)

    @property
    def by_logit(self) -> bool:
        """Whether it has a row for each wanted one."""
        return self.logit_rows is not None


@dataclass(frozen=True, slots=True)
class Gate(FusedNode):
    """y = silu(gate) * up."""

    gate: int
    up: int
    y: int
    ops: ClassVar[tuple[Op, ...]] = (Op.SWIGLU,)


@dataclass(frozen=True, slots=True)
class HeadsWrite(FusedNode):
    """Heads, normed and rotated as they say, written to a buffer or to a cache.

    cache: "k_cache" or "v_cache" where the target is one, else empty. where: the buffers of positions, slots and pages
    of a cache; empty for a buffer.
    """

    heads: Heads
    target: int
    cache: str = ""
    where: tuple[int, ...] = ()
    ops: ClassVar[tuple[Op, ...]] = (Op.RMS_NORM, Op.ROPE, Op.KV_WRITE)


@dataclass(frozen=True, slots=True)
class Attend(FusedNode):
    """Attention of each row's queries over the cached positions up to its own."""

    q: int
    k_cache: int
    v_cache: int
    positions: int
    slots: int
    page_table: int
    y: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    scale: float
    ops: ClassVar[tuple[Op, ...]] = (Op.FLASH_ATTN,)

    @property
    def group(self) -> int:
        """Query heads that share a key-value head."""
        return self.n_heads // self.n_kv_heads

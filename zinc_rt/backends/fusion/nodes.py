"""The fused nodes of a graph: each is the work of one kernel, with its operands by buffer id.

`node` is the graph's node that names the work in messages and profiles. The kinds are named tuples: a model has
hundreds of them, and starting up pays for each class, too.
"""

from __future__ import annotations

from typing import NamedTuple

from zinc_rt.backends.fusion.heads import Heads
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op


class Single(NamedTuple):
    """One operation by itself; backends lower it by its opcode."""

    node: Node


class NormRows(NamedTuple):
    """total = x + residual; y = norm(total) * weight. Without a residual: y = norm(x) * weight; without a weight: y is
    the norm alone.

    residual_scale, total_scale: factors of the residual before it is added, and of the sum; None for none.
    total_read: whether any other node or the caller reads the sum. logit_rows: the buffer of wanted rows where
    nothing but products of logits reads y, so that only those rows matter; else None.
    """

    node: Node
    x: int
    residual: int | None
    weight: int | None
    total: int | None
    y: int
    eps: float
    total_read: bool
    logit_rows: int | None
    residual_scale: float | None = None
    total_scale: float | None = None

    @property
    def sources(self) -> tuple[int, ...]:
        """x, and the residual where there is one."""
        return (self.x,) if self.residual is None else (self.x, self.residual)


class Product(NamedTuple):
    """y = x W^T + bias, for every row, or for the rows that `logit_rows` names."""

    node: Node
    x: int
    weight: int
    bias: int | None
    y: int
    logit_rows: int | None

    @property
    def weights(self) -> tuple[int, ...]:
        """The matrices that it multiplies by."""
        return (self.weight,)

    @property
    def by_logit(self) -> bool:
        """Whether it has a row for each wanted one."""
        return self.logit_rows is not None


class Gate(NamedTuple):
    """y = activation(gate) * up, of up's elements from `up_start` on.

    alpha, limit: of the activation "clamped".
    """

    node: Node
    gate: int
    up: int
    y: int
    activation: str
    alpha: float
    limit: float
    up_start: int


class HeadsWrite(NamedTuple):
    """Heads, normed and rotated as they say, written to a buffer or to a cache.

    cache: "k_cache" or "v_cache" where the target is one, else empty. where: the buffers of positions, slots and pages
    of a cache; empty for a buffer. row: elements of a head in the cache, of which these are written from `start` on.
    block: only rows that end a block of so many positions are written.
    """

    node: Node
    heads: Heads
    target: int
    cache: str = ""
    where: tuple[int, ...] = ()
    row: int = 0
    start: int = 0
    block: int = 1


class Attend(NamedTuple):
    """Attention of each row's queries over the cached positions up to its own.

    q_rope: the buffer of the last elements of the queries where they come in two parts; then values are the first
    elements of keys, and both caches are one. window: positions that a row sees, its own the last, None for all.
    softcap: the bound of scores, None for none. sinks: a buffer, f32[n_heads], None for none. whole: `positions` are
    the last ones that rows see rather than their own. reach: how far a row then sees before and behind its own
    position, which is in `own`; None for all. chunk: rows see the positions of their chunk alone, of so many each.
    chosen: a choice of the positions that rows see, None for all. slopes: a buffer, f32[n_heads], by which scores fall
    with distance.
    """

    node: Node
    q: int
    q_rope: int | None
    k_cache: int
    v_cache: int
    positions: int
    slots: int
    page_table: int
    y: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    value_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: int | None = None
    whole: bool = False
    reach: int | None = None
    own: int | None = None
    chunk: int | None = None
    chosen: int | None = None
    slopes: int | None = None

    @property
    def windowed(self) -> bool:
        """Whether rows see a part of the positions only."""
        return self.window is not None or self.reach is not None

    @property
    def latent(self) -> bool:
        """Whether values are the first elements of keys."""
        return self.q_rope is not None

    @property
    def queries(self) -> tuple[int, ...]:
        """The buffers of queries."""
        return (self.q,) if self.q_rope is None else (self.q, self.q_rope)

    @property
    def group(self) -> int:
        """Query heads that share a key-value head."""
        return self.n_heads // self.n_kv_heads


class ExpertGate(NamedTuple):
    """y = silu(gate) * up of each row's chosen experts, f32[n_rows, k * width], the experts in the order of `ids`.

    gated, upped: buffers of the two products where something else reads them; y: None where no activation follows
    them. Biases are None where there are none.
    """

    node: Node
    x: int
    ids: int
    gate: int
    up: int
    gate_bias: int | None
    up_bias: int | None
    gated: int | None
    upped: int | None
    y: int | None

    @property
    def by_logit(self) -> bool:
        """It has every row of the step."""
        return False

    @property
    def weights(self) -> tuple[int, ...]:
        """The matrices that it multiplies by."""
        return self.gate, self.up


class ExpertDown(NamedTuple):
    """y = the sum over a row's chosen experts of weight * (the product with the expert's part of `act`, plus bias)."""

    node: Node
    act: int
    ids: int
    weights: int
    down: int
    bias: int | None
    y: int


FusedNode = Single | NormRows | Product | Gate | HeadsWrite | Attend | ExpertGate | ExpertDown
"""Any of them."""

STANDS_FOR: dict[type[FusedNode], tuple[Op, ...]] = {
    Single: (),
    NormRows: (Op.RMS_NORM, Op.RESIDUAL_RMS_NORM),
    Product: (Op.MATMUL, Op.LM_HEAD),
    Gate: (Op.SWIGLU, Op.MOE_SWIGLU),
    ExpertGate: (Op.MOE_GATE_UP, Op.MOE_SWIGLU),
    ExpertDown: (Op.MOE_DOWN_ACC,),
    HeadsWrite: (Op.RMS_NORM, Op.ROPE, Op.KV_WRITE),
    Attend: (Op.FLASH_ATTN,),
}
"""The operations that a backend with a lowering of the kind has kernels for."""

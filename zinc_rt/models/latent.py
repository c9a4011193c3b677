"""Latent attention as a record: keys and values of all heads are one vector, and heads differ in their projections.

The absorbed form of DeepSeek-V2 (2024): queries are projected into the latent space rather than keys out of it, so the
cache holds a position's latent vector and its rotated part alone, for all heads together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.config import HeadSizes, check_heads
from zinc_rt.models.errors import ModelError
from zinc_rt.models.indexer import IndexerSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts, Rotation


@dataclass(frozen=True)
class LatentAttentionSpec:
    """Latent attention: projections of queries, the latent vector, the cache, attention, values out of latent space.

    rank: elements of the latent vector. plain, turned: elements of a query head without and with rotation. value:
    elements of a head's output. q_rank: elements between the two projections of queries, None for one projection.
    rotation: of the turned elements; None leaves them as they are. scale: of the scores. q_factors: see
    `AttentionSpec`. gated: whether the sigmoid of an element of a product with h, `attn_gate`, multiplies each head's
    output. indexer: what chooses the positions that rows see, which needs q_rank; None where they see all.

    Raises `ModelError` for more heads, or wider ones, than kernels do.
    """

    n_heads: int
    rank: int
    plain: int
    turned: int
    value: int
    q_rank: int | None
    rotation: Rotation | None
    scale: float
    q_factors: BufferId | None = None
    gated: bool = False
    indexer: IndexerSpec | None = None

    def __post_init__(self) -> None:
        check_heads(
            self.n_heads,
            1,
            self.rank + self.turned,
            "attention.head_count",
            "one latent head",
            "attention.kv_lora_rank + rope.dimension_count",
        )

    @classmethod
    def from_keys(
        cls, keys: Keys, rotation: Rotation | None, *, scale: float | None = None, gated: bool = False
    ) -> LatentAttentionSpec:
        """Read `attention.*` and `rope.dimension_count`. scale: None for 1 / sqrt(elements of a query head).

        Raises `ModelError`.
        """
        head_dim, turned = keys.integer("attention.key_length_mla", maximum=4096), keys.integer("rope.dimension_count")
        if turned >= head_dim:
            raise ModelError(
                f"{keys.name('rope.dimension_count')} is {turned}, it must be less than"
                f" {keys.name('attention.key_length_mla')}, which is {head_dim}"
            )
        return cls(
            n_heads=keys.integer("attention.head_count"),
            rank=keys.integer("attention.kv_lora_rank"),
            plain=head_dim - turned,
            turned=turned,
            value=keys.integer("attention.value_length_mla", maximum=4096),
            q_rank=keys.integer("attention.q_lora_rank", 0, minimum=0) or None,
            rotation=rotation,
            scale=1 / math.sqrt(head_dim) if scale is None else scale,
            gated=gated,
        )

    @property
    def expanded(self) -> ExpandedLatentSpec:
        """The same attention by keys and values of each head, for files that have their matrices in one."""
        return ExpandedLatentSpec(
            heads=HeadSizes(self.n_heads, self.n_heads, self.plain + self.turned, self.value),
            rotation=None,
            scale=self.scale,
            q_rank=self.q_rank,
            rank=self.rank,
            turned=self.turned,
            turns=self.rotation,
        )

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p = f"blk.{layer}"
        _refuse_old_files(parts, p)
        q_latent = _q_latent(parts, h, p, self.q_rank)
        q, q_turned = self._queries(parts, q_latent, p)
        chosen = [] if self.indexer is None else [self.indexer.emit(parts, h, q_latent, layer)]
        latent, k_turned = parts.split_project(h, f"{p}.attn_kv_a_mqa", (self.rank, self.turned))
        latent = parts.head_norm(latent, f"{p}.attn_kv_a_norm", 1, self.rank)
        k_turned = self._turn(parts, k_turned, f"{p}.rope_k", 1)
        cache, sizes = parts.states.latent_cache(layer, self.rank + self.turned), self._sizes()
        parts.g.node(Op.KV_WRITE, [latent, k_turned, *parts.where()], [cache.keys], f"{p}.kv_write", **sizes)
        out = parts.temp(f"{p}.attn", self.n_heads * self.rank)
        more = {"chosen": True} if chosen else {}
        parts.g.node(
            Op.FLASH_ATTN,
            [q, q_turned, cache.keys, *parts.where(), *chosen],
            [out],
            f"{p}.flash_attn",
            scale=self.scale,
            n_heads=self.n_heads,
            **sizes,
            **more,
        )
        values = parts.group_project(out, f"{p}.attn_v_b", self.n_heads, self.value)
        if self.gated:
            values = parts.times_sigmoid(
                values, parts.project(h, f"{p}.attn_gate", self.n_heads), f"{p}.gated", node=f"{p}.attn_gate",
                n_heads=self.n_heads, head_dim=self.value,
            )  # fmt: skip
        return parts.project(values, f"{p}.attn_output", parts.info.n_embd)

    def _sizes(self) -> dict[str, int]:
        """Attributes of the operations on the cache."""
        return {"n_kv_heads": 1, "latent_dim": self.rank, "rope_dim": self.turned}

    def _queries(self, parts: GraphParts, q_latent: BufferId, p: str) -> tuple[BufferId, BufferId]:
        """Queries in latent space and their rotated parts."""
        name = _q_matrix(p, self.q_rank)
        plain, turned = parts.split_project(q_latent, name, (self.plain, self.turned), heads=self.n_heads)
        q = parts.group_project(plain, f"{p}.attn_k_b", self.n_heads, self.rank)
        turned = self._turn(parts, turned, f"{p}.rope_q", self.n_heads)
        if self.q_factors is not None:
            q = parts.position_scale(q, f"{p}.attn_q_scaled", self.q_factors)
            turned = parts.position_scale(turned, f"{p}.rope_q_scaled", self.q_factors)
        return q, turned

    def _turn(self, parts: GraphParts, x: BufferId, name: str, n_heads: int) -> BufferId:
        """The rotation, where there is one."""
        return x if self.rotation is None else parts.rope(x, name, self.rotation, n_heads, self.turned)


@dataclass(frozen=True, kw_only=True)
class ExpandedLatentSpec(AttentionSpec):
    """Attention whose keys and values are made for each head from a latent vector. The last elements of queries and
    keys are turned; those of keys are the same for all heads. q_rank: elements of the vector that queries come from,
    None where they come from h. rank: of that of keys and values. turned: elements that `turns` turns; None leaves them
    as they are.
    """

    q_rank: int | None
    rank: int
    turned: int
    turns: Rotation | None

    def _projections(self, parts: GraphParts, h: BufferId, p: str) -> list[BufferId]:
        """Queries, keys and values, turned."""
        n, plain = self.heads.n_heads, self.heads.head_dim - self.turned
        q_latent = _q_latent(parts, h, p, self.q_rank)
        q, q_turned = parts.split_project(q_latent, _q_matrix(p, self.q_rank), (plain, self.turned), heads=n)
        latent, k_turned = parts.split_project(h, f"{p}.attn_kv_a_mqa", (self.rank, self.turned))
        latent = parts.norm(latent, f"{p}.attn_kv_a_norm")
        k, v = parts.split_project(latent, f"{p}.attn_kv_b", (plain, self.heads.value_dim), heads=n)
        if self.turns is not None:
            q_turned = parts.rope(q_turned, f"{p}.rope_q", self.turns, n, self.turned)
            k_turned = parts.rope(k_turned, f"{p}.rope_k", self.turns, 1, self.turned)
        q = parts.join_heads(q, q_turned, f"{p}.attn_q_whole", n, n)
        return [q, parts.join_heads(k, k_turned, f"{p}.attn_k_whole", n), v]


def _q_latent(parts: GraphParts, h: BufferId, p: str, rank: int | None) -> BufferId:
    """What queries are projected from: h, or where there are two projections the normed result of the first."""
    return h if rank is None else parts.norm(parts.project(h, f"{p}.attn_q_a", rank), f"{p}.attn_q_a_norm")


def _q_matrix(p: str, rank: int | None) -> str:
    """The matrix of the projection of queries, or of the second one."""
    return f"{p}.attn_q" if rank is None else f"{p}.attn_q_b"


def _refuse_old_files(parts: GraphParts, p: str) -> None:
    """Raise `ModelError` for a file that has keys and values in one matrix."""
    old = f"{p}.attn_kv_b.weight"
    if parts.has(old) and not parts.has(f"{p}.attn_k_b.weight"):
        raise ModelError(
            f"tensor {old} holds keys and values in one matrix, as converters before April 2025 wrote it;"
            " a newer file of the model, which has attn_k_b and attn_v_b instead, runs"
        )

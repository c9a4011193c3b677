"""Grouped-query attention as a record, and the nodes that it emits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.config import HeadSizes
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.states import KVCache


@dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention: projections, norms of heads, a rotation, the cache, attention, the output's projection.

    rotation: None for none (NoPE). qk_norm: RMS norm of each query and key head before the rotation.
    Biases: True needs them, False has none, None takes those that the file has. scale: of the scores, None for
    1 / sqrt(head_dim). window: a row sees that many positions, its own the last; None for all. shared_kv: the layer
    whose keys and values are read; this one has none of its own then. qkv: a tensor that holds the rows of q, k and v
    one after another (without biases), where the file has no three tensors. sinks: True needs `attn_sinks.weight`, one
    number a head, which only adds to the softmax's sum. softcap: scores become softcap * tanh(score / softcap).
    """

    heads: HeadSizes
    rotation: Rotation | None
    qk_norm: bool = False
    q_bias: bool | None = False
    k_bias: bool | None = False
    v_bias: bool | None = False
    out_bias: bool | None = False
    scale: float | None = None
    window: int | None = None
    shared_kv: int | None = None
    qkv: str | None = None
    sinks: bool = False
    softcap: float | None = None

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `Part.emit`."""
        p, sizes = f"blk.{layer}", self.heads
        q, *kv = self._projections(parts, h, p)
        if self.qk_norm:
            q = parts.head_norm(q, f"{p}.attn_q_norm", sizes.n_heads, sizes.head_dim)
            kv[:1] = [parts.head_norm(k, f"{p}.attn_k_norm", sizes.n_kv_heads, sizes.head_dim) for k in kv[:1]]
        if self.rotation is not None:
            q = parts.rope(q, f"{p}.rope_q", self.rotation, sizes.n_heads, sizes.head_dim)
            kv[:1] = [parts.rope(k, f"{p}.rope_k", self.rotation, sizes.n_kv_heads, sizes.head_dim) for k in kv[:1]]
        out = self._attend(parts, q, self._cache(parts, kv, layer), p)
        return parts.project(out, f"{p}.attn_output", parts.info.n_embd, bias=self.out_bias)

    def _projections(self, parts: GraphParts, h: BufferId, p: str) -> list[BufferId]:
        """Queries, keys and values; queries alone where keys and values are another layer's."""
        q_width, k_width, v_width = self.heads.q_width, self.heads.k_width, self.heads.v_width
        if self.qkv is not None:
            return parts.split_project(h, f"{p}.{self.qkv}", (q_width, k_width, v_width))
        q = parts.project(h, f"{p}.attn_q", q_width, bias=self.q_bias)
        if self.shared_kv is not None:
            return [q]
        k = parts.project(h, f"{p}.attn_k", k_width, bias=self.k_bias)
        return [q, k, parts.project(h, f"{p}.attn_v", v_width, bias=self.v_bias)]

    def _cache(self, parts: GraphParts, kv: Sequence[BufferId], layer: int) -> KVCache:
        """The layer's caches with its keys and values written, or those of the layer that it shares."""
        sizes = self.heads
        if self.shared_kv is not None:
            return parts.states.shared_cache(self.shared_kv, sizes)
        cache = parts.states.kv_cache(layer, sizes, window=self.window)
        parts.g.node(
            Op.KV_WRITE, [*kv, *parts.where()], [cache.keys, cache.values], f"blk.{layer}.kv_write",
            n_kv_heads=sizes.n_kv_heads, head_dim=sizes.head_dim, **_value_dim(sizes),
        )  # fmt: skip
        return cache

    def _attend(self, parts: GraphParts, q: BufferId, cache: KVCache, p: str) -> BufferId:
        sizes, more = self.heads, {"window": self.window, "softcap": self.softcap}
        sinks = [parts.weight(f"{p}.attn_sinks.weight", sizes.n_heads)] if self.sinks else []
        out = parts.temp(f"{p}.attn", sizes.out_width)
        parts.g.node(
            Op.FLASH_ATTN, [q, cache.keys, cache.values, *parts.where(), *sinks], [out], f"{p}.flash_attn",
            scale=1.0 / math.sqrt(sizes.head_dim) if self.scale is None else self.scale,
            n_heads=sizes.n_heads, n_kv_heads=sizes.n_kv_heads, head_dim=sizes.head_dim, **_value_dim(sizes),
            **{name: value for name, value in more.items() if value is not None},
        )  # fmt: skip
        return out


def _value_dim(sizes: HeadSizes) -> dict[str, int]:
    """The attribute, where values are not as wide as keys."""
    return {} if sizes.value_dim == sizes.head_dim else {"value_dim": sizes.value_dim}

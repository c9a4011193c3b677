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
    one after another (without biases), where the file has no three tensors. out_gate: the rows of q hold each head's
    query and then its gate, by whose sigmoid the head's output is multiplied.
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
    out_gate: bool = False

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `Part.emit`."""
        p, sizes = f"blk.{layer}", self.heads
        gate = None
        if self.out_gate:
            q, gate, *kv = self._gated_projections(parts, h, p)
        else:
            q, *kv = self._projections(parts, h, p)
        if self.qk_norm:
            q = parts.head_norm(q, f"{p}.attn_q_norm", sizes.n_heads, sizes.head_dim)
            kv[:1] = [parts.head_norm(k, f"{p}.attn_k_norm", sizes.n_kv_heads, sizes.head_dim) for k in kv[:1]]
        if self.rotation is not None:
            q = parts.rope(q, f"{p}.rope_q", self.rotation, sizes.n_heads, sizes.head_dim)
            kv[:1] = [parts.rope(k, f"{p}.rope_k", self.rotation, sizes.n_kv_heads, sizes.head_dim) for k in kv[:1]]
        out = self._attend(parts, q, self._cache(parts, kv, layer), p)
        if gate is not None:
            opened = parts.temp(f"{p}.attn_gated", parts.width(out))
            parts.g.node(Op.SIGMOID_MUL, [out, gate], [opened], f"{p}.attn_gate.sigmoid_mul")
            out = opened
        return parts.project(out, f"{p}.attn_output", parts.info.n_embd, bias=self.out_bias)

    def _projections(self, parts: GraphParts, h: BufferId, p: str) -> list[BufferId]:
        """Queries, keys and values; queries alone where keys and values are another layer's."""
        q_width, kv_width = self.heads.q_width, self.heads.kv_width
        if self.qkv is not None:
            return parts.split_project(h, f"{p}.{self.qkv}", (q_width, kv_width, kv_width))
        q = parts.project(h, f"{p}.attn_q", q_width, bias=self.q_bias)
        if self.shared_kv is not None:
            return [q]
        k = parts.project(h, f"{p}.attn_k", kv_width, bias=self.k_bias)
        return [q, k, parts.project(h, f"{p}.attn_v", kv_width, bias=self.v_bias)]

    def _gated_projections(self, parts: GraphParts, h: BufferId, p: str) -> list[BufferId]:
        """Queries, gates, keys and values, without biases."""
        q_rows, d, n_in = 2 * self.heads.q_width, self.heads.head_dim, parts.width(h)
        kv_rows = self.heads.kv_width
        name = f"{p}.attn_q" if self.qkv is None else f"{p}.{self.qkv}"
        n_out = q_rows if self.qkv is None else q_rows + 2 * kv_rows
        out = []
        for i, part in enumerate(("attn_q", "attn_q_gate")):
            rows = parts.weight_rows(
                f"{name}.weight", (n_out, n_in), i * d, (i + 1) * d, period=2 * d,
                end=None if self.qkv is None else q_rows,
            )  # fmt: skip
            out.append(parts.product(h, rows, f"{p}.{part}"))
        if self.qkv is None:
            return [*out, *(parts.project(h, f"{p}.attn_{kv}", kv_rows) for kv in "kv")]
        for i, part in enumerate(("attn_k", "attn_v")):
            start = q_rows + i * kv_rows
            rows = parts.weight_rows(f"{name}.weight", (n_out, n_in), start, start + kv_rows)
            out.append(parts.product(h, rows, f"{p}.{part}"))
        return out

    def _cache(self, parts: GraphParts, kv: Sequence[BufferId], layer: int) -> KVCache:
        """The layer's caches with its keys and values written, or those of the layer that it shares."""
        sizes = self.heads
        if self.shared_kv is not None:
            return parts.states.shared_cache(self.shared_kv, sizes.n_kv_heads, sizes.head_dim)
        cache = parts.states.kv_cache(layer, sizes.n_kv_heads, sizes.head_dim, window=self.window)
        parts.g.node(
            Op.KV_WRITE, [*kv, *parts.where()], [cache.keys, cache.values], f"blk.{layer}.kv_write",
            n_kv_heads=sizes.n_kv_heads, head_dim=sizes.head_dim,
        )  # fmt: skip
        return cache

    def _attend(self, parts: GraphParts, q: BufferId, cache: KVCache, p: str) -> BufferId:
        sizes = self.heads
        window = {} if self.window is None else {"window": self.window}
        out = parts.temp(f"{p}.attn", sizes.q_width)
        parts.g.node(
            Op.FLASH_ATTN, [q, cache.keys, cache.values, *parts.where()], [out], f"{p}.flash_attn",
            scale=1.0 / math.sqrt(sizes.head_dim) if self.scale is None else self.scale,
            n_heads=sizes.n_heads, n_kv_heads=sizes.n_kv_heads, head_dim=sizes.head_dim, **window,
        )  # fmt: skip
        return out

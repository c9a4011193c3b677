"""Grouped-query attention as a record, and the nodes that it emits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.config import HeadSizes
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.states import KVCache

_EVERYTHING = 1 << 30
"""How far a row of an encoder sees whose scores fall with distance: farther than any text goes."""


class Chooser(Protocol):
    """What chooses the positions that rows see."""

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """The choice for rows h, i32[n_rows, max_pages]."""


@dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention: projections, norms of heads, a rotation, the cache, attention, the output's projection.

    rotation: None for none (NoPE). qk_norm: RMS norm of each query and key head before the rotation; with whole_norm,
    of all heads of a row together; with norm_after_rope, behind the rotation; with plain_norm, without a weight; with
    own_norms, a layer norm of each head by its own weights. v_norm: each value head is normed, without a weight.
    k_as_v: if the file has no `attn_v`, values are the keys before norm and rotation. q_factors: a table f32[n_ctx];
    queries are multiplied by the factor of their position after the rotation.

    Biases: True needs them, False has none, None takes those that the file has. qkv: a tensor with the rows of q, k and
    v one after another, and with their biases; if the file has it, it is read instead of the three.

    scale: of the scores, None for 1 / sqrt(head_dim). softcap: scores become softcap * tanh(score / softcap). sinks:
    True needs `attn_sinks.weight`, one number a head, which only adds to the softmax's sum. window: a row sees that
    many positions, its own the last; in an encoder half as many before and behind its own; None for all. chunk: a row
    sees those of its chunk of so many. indexer: what chooses the positions that rows see; None where they see all, or
    all of the window. shared_kv: the layer whose keys and values this layer reads; it has none of its own then.

    out_gate: the rows of q hold each head's query and then its gate; the head's output is multiplied by the gate's
    sigmoid. gate_width: rows of `attn_gate`, whose product with h opens the output in the same way, each an element or
    each a head. out_scale: a factor of the output. slopes: of an encoder, a table
    f32[n_heads]; a score falls by its head's slope for each position between the two.
    """

    heads: HeadSizes
    rotation: Rotation | None
    qk_norm: bool = False
    q_bias: bool | None = None
    k_bias: bool | None = None
    v_bias: bool | None = None
    out_bias: bool | None = False
    scale: float | None = None
    window: int | None = None
    chunk: int | None = None
    shared_kv: int | None = None
    qkv: str = "attn_qkv"
    whole_norm: bool = False
    plain_norm: bool = False
    v_norm: bool = False
    k_as_v: bool = False
    q_factors: BufferId | None = None
    sinks: bool = False
    softcap: float | None = None
    out_gate: bool = False
    out_scale: float | None = None
    norm_after_rope: bool = False
    own_norms: bool = False
    gate_width: int | None = None
    indexer: Chooser | None = None
    slopes: BufferId | None = None

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, sizes = f"blk.{layer}", self.heads
        gate = None
        if self.out_gate:
            q, gate, *kv = self._gated_projections(parts, h, p)
        else:
            q, *kv = self._projections(parts, h, p)
        if self.gate_width is not None:
            gate = parts.project(h, f"{p}.attn_gate", self.gate_width)
        if not self.norm_after_rope:
            q, *kv = self._normed(parts, q, kv, p)
        if self.v_norm:
            kv[1:] = [
                parts.head_norm(v, f"{p}.attn_v_norm", sizes.n_kv_heads, sizes.value_dim, weight=False) for v in kv[1:]
            ]
        if self.rotation is not None:
            q = parts.rope(q, f"{p}.rope_q", self.rotation, sizes.n_heads, sizes.head_dim)
            kv[:1] = [parts.rope(k, f"{p}.rope_k", self.rotation, sizes.n_kv_heads, sizes.head_dim) for k in kv[:1]]
        if self.norm_after_rope:
            q, *kv = self._normed(parts, q, kv, p)
        if self.q_factors is not None:
            q = parts.position_scale(q, f"{p}.attn_q_scaled", self.q_factors)
        chosen = None if self.indexer is None else self.indexer.emit(parts, h, layer)
        out = self._attend(parts, q, self._cache(parts, kv, layer), p, chosen)
        if gate is not None:
            by_head = {} if parts.width(gate) == parts.width(out) else _heads_of(sizes)
            out = parts.times_sigmoid(out, gate, f"{p}.attn_gated", node=f"{p}.attn_gate", **by_head)
        if self.out_scale is not None:
            out = parts.scale(out, self.out_scale, f"{p}.attn_scaled")
        return parts.project(out, f"{p}.attn_output", parts.info.n_embd, bias=self.out_bias)

    def _projections(self, parts: GraphParts, h: BufferId, p: str) -> list[BufferId]:
        """Queries, keys and values; queries alone where keys and values are another layer's."""
        widths = self.heads.q_width, self.heads.k_width, self.heads.v_width
        if self.shared_kv is not None:
            return [parts.project(h, f"{p}.attn_q", widths[0], bias=self.q_bias)]
        names = [f"{p}.attn_{name}" for name in "qkv"]
        biases, fused = (self.q_bias, self.k_bias, self.v_bias), f"{p}.{self.qkv}"
        if parts.has(f"{fused}.weight"):
            out = parts.split_project(h, fused, widths, bias=None)
            if parts.has(f"{fused}.bias"):
                return out
            return [parts.biased(y, name, bias) for y, name, bias in zip(out, names, biases, strict=True)]
        if self.k_as_v and not parts.has(f"{names[2]}.weight"):
            q, k = (parts.project(h, *each[:2], bias=each[2]) for each in zip(names, widths, biases[:2], strict=False))
            return [q, k, k]
        return [parts.project(h, name, n, bias=bias) for name, n, bias in zip(names, widths, biases, strict=True)]

    def _normed(self, parts: GraphParts, q: BufferId, kv: Sequence[BufferId], p: str) -> list[BufferId]:
        """Queries, keys and values, of which the first two are normed where that is so."""
        if not self.qk_norm:
            return [q, *kv]
        keys = [self._norm(parts, k, f"{p}.attn_k_norm", self.heads.n_kv_heads) for k in kv[:1]]
        return [self._norm(parts, q, f"{p}.attn_q_norm", self.heads.n_heads), *keys, *kv[1:]]

    def _norm(self, parts: GraphParts, x: BufferId, name: str, n_heads: int) -> BufferId:
        """The norm of queries or keys: of each head, or of all together."""
        if self.whole_norm and parts.has(f"{name}.bias"):
            return parts.layer_norm(x, name)
        if self.whole_norm:
            return parts.norm(x, name, weight=not self.plain_norm)
        if self.own_norms:
            return parts.head_layer_norm(x, name, n_heads, self.heads.head_dim)
        return parts.head_norm(x, name, n_heads, self.heads.head_dim, weight=not self.plain_norm)

    def _gated_projections(self, parts: GraphParts, h: BufferId, p: str) -> list[BufferId]:
        """Queries, gates, keys and values, without biases."""
        q_rows, d, n_in = 2 * self.heads.q_width, self.heads.head_dim, parts.width(h)
        widths, fused = (self.heads.k_width, self.heads.v_width), f"{p}.{self.qkv}"
        is_fused = parts.has(f"{fused}.weight")
        name, n_out = (fused, q_rows + sum(widths)) if is_fused else (f"{p}.attn_q", q_rows)
        out = []
        for i, part in enumerate(("attn_q", "attn_q_gate")):
            rows = parts.weight_rows(
                f"{name}.weight", (n_out, n_in), i * d, (i + 1) * d, period=2 * d, end=q_rows if is_fused else None
            )
            out.append(parts.product(h, rows, f"{p}.{part}"))
        if not is_fused:
            return [*out, *(parts.project(h, f"{p}.attn_{kv}", n) for kv, n in zip("kv", widths, strict=True))]
        start = q_rows
        for part, n in zip(("attn_k", "attn_v"), widths, strict=True):
            rows = parts.weight_rows(f"{name}.weight", (n_out, n_in), start, start + n)
            out.append(parts.product(h, rows, f"{p}.{part}"))
            start += n
        return out

    def _cache(self, parts: GraphParts, kv: Sequence[BufferId], layer: int) -> KVCache:
        """The layer's caches with its keys and values written, or those of the layer that it shares."""
        sizes = self.heads
        if self.shared_kv is not None:
            return parts.states.shared_cache(self.shared_kv, sizes)
        cache = parts.states.kv_cache(layer, sizes, window=self.chunk or self.window)
        parts.g.node(
            Op.KV_WRITE,
            [*kv, *parts.where()],
            [cache.keys, cache.values],
            f"blk.{layer}.kv_write",
            n_kv_heads=sizes.n_kv_heads,
            head_dim=sizes.head_dim,
            **_value_dim(sizes),
        )
        return cache

    def _attend(self, parts: GraphParts, q: BufferId, cache: KVCache, p: str, chosen: BufferId | None) -> BufferId:
        sizes, more, own = self.heads, {"softcap": self.softcap, "window": self.window, "chunk": self.chunk}, []
        if not parts.causal:
            more = {"softcap": self.softcap, "reach": None if self.window is None else self.window // 2}
            more["whole"] = True if self.window is None else None
            own = [] if self.window is None else [parts.step["positions"]]
            if self.slopes is not None:
                more, own = {"reach": _EVERYTHING}, [parts.step["positions"], self.slopes]
        sinks = [parts.weight(f"{p}.attn_sinks.weight", sizes.n_heads)] if self.sinks else []
        more["chosen"] = None if chosen is None else True
        out = parts.temp(f"{p}.attn", sizes.out_width)
        parts.g.node(
            Op.FLASH_ATTN,
            [q, cache.keys, cache.values, *parts.seen(), *own, *sinks, *([] if chosen is None else [chosen])],
            [out],
            f"{p}.flash_attn",
            scale=1.0 / math.sqrt(sizes.head_dim) if self.scale is None else self.scale,
            n_heads=sizes.n_heads,
            n_kv_heads=sizes.n_kv_heads,
            head_dim=sizes.head_dim,
            **_value_dim(sizes),
            **{name: value for name, value in more.items() if value is not None},
        )
        return out


def _heads_of(sizes: HeadSizes) -> dict[str, int]:
    """The attributes of an operation on the output's heads."""
    return {"n_heads": sizes.n_heads, "head_dim": sizes.value_dim}


def _value_dim(sizes: HeadSizes) -> dict[str, int]:
    """The attribute, where values are not as wide as keys."""
    return {} if sizes.value_dim == sizes.head_dim else {"value_dim": sizes.value_dim}

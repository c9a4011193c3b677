"""A decoder as data: records of what a block does, and the one function that emits a list of them.

    block = pre_norm_block(AttentionSpec(heads, rotation), FeedForwardSpec(n_ff))
    definition = decoder(parts, [block] * n_layers)

What these records cannot say is a class in the architecture's file with the same `emit`: a `Part` (h in, a branch out),
or a whole `Block` over the residual stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.config import HeadSizes
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.states import KVCache


class Residual:
    """The stream that blocks read and add to. A sum is emitted with the norm that follows it, where one does."""

    def __init__(self, parts: GraphParts, x: BufferId) -> None:
        self._parts, self._x = parts, x
        self._branch: tuple[BufferId, str] | None = None

    def add(self, branch: BufferId, sum_name: str) -> None:
        """x = x + branch; the sum is called `sum_name`."""
        self._x, self._branch = self.value(), (branch, sum_name)

    def norm(self, name: str) -> BufferId:
        """The RMS norm of x by the tensor `name`.weight."""
        if self._branch is None:
            return self._parts.norm(self._x, name)
        branch, sum_name = self._branch
        self._x, y = self._parts.add_norm(self._x, branch, name, sum_name)
        self._branch = None
        return y

    def value(self) -> BufferId:
        """x as it is."""
        if self._branch is not None:
            self._x, self._branch = self._parts.add(self._x, *self._branch), None
        return self._x

    def replace(self, x: BufferId) -> None:
        """Go on with another x: a norm of the sum, or the sum scaled."""
        self._x, self._branch = x, None


class Part(Protocol):
    """What a branch computes."""

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """f32[n_rows, n_embd] from h, by the tensors blk.`layer`.*."""


class Block(Protocol):
    """One layer."""

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """Read the stream and add to it, by the tensors blk.`layer`.*."""


@dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention: projections, norms of heads, a rotation, the cache, attention, the output's projection.

    rotation: None for none (NoPE). qk_norm: RMS norm of each query and key head before the rotation.
    Biases: True needs them, False has none, None takes those that the file has. scale: of the scores, None for
    1 / sqrt(head_dim). window: a row sees that many positions, its own the last; None for all. shared_kv: the layer
    whose keys and values are read; this one has none of its own then. qkv: a tensor that holds the rows of q, k and v
    one after another (without biases), where the file has no three tensors.
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
        q_width, kv_width = self.heads.q_width, self.heads.kv_width
        if self.qkv is not None:
            return parts.split_project(h, f"{p}.{self.qkv}", (q_width, kv_width, kv_width))
        q = parts.project(h, f"{p}.attn_q", q_width, bias=self.q_bias)
        if self.shared_kv is not None:
            return [q]
        k = parts.project(h, f"{p}.attn_k", kv_width, bias=self.k_bias)
        return [q, k, parts.project(h, f"{p}.attn_v", kv_width, bias=self.v_bias)]

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


@dataclass(frozen=True)
class FeedForwardSpec:
    """A dense gated feed-forward: gate, up, the activation of both, down.

    n_ff: elements between. bias: of all three; True needs them, False has none, None takes those that the file has.
    activation: an operation of gate and up. gate_up: a tensor that holds the rows of the gate and then those of up
    (without biases), where the file has no two tensors.
    """

    n_ff: int
    bias: bool | None = False
    activation: Op = Op.SWIGLU
    gate_up: str | None = None

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `Part.emit`."""
        p = f"blk.{layer}"
        if self.gate_up is not None:
            gate, up = parts.split_project(h, f"{p}.{self.gate_up}", (self.n_ff, self.n_ff))
        else:
            gate = parts.project(h, f"{p}.ffn_gate", self.n_ff, bias=self.bias)
            up = parts.project(h, f"{p}.ffn_up", self.n_ff, bias=self.bias)
        act = parts.temp(f"{p}.ffn_act", self.n_ff)
        parts.g.node(self.activation, [gate, up], [act], f"{p}.{self.activation.name.lower()}")
        return parts.project(act, f"{p}.ffn_down", parts.info.n_embd, bias=self.bias)


@dataclass(frozen=True)
class Branch:
    """x = x + post_norm(part(norm(x))).

    name: of the sum, `blk.N.<name>_sum`. norm, post_norm: tensors without `blk.N.` and `.weight`; None for no norm.
    """

    name: str
    part: Part
    norm: str | None
    post_norm: str | None = None

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """The branch of block `layer`, added to the stream."""
        p = f"blk.{layer}"
        h = x.value() if self.norm is None else x.norm(f"{p}.{self.norm}")
        y = self.part.emit(parts, h, layer)
        if self.post_norm is not None:
            y = parts.norm(y, f"{p}.{self.post_norm}")
        x.add(y, f"{p}.{self.name}_sum")


@dataclass(frozen=True)
class BlockSpec:
    """A layer as branches, one after another."""

    branches: tuple[Branch, ...]

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """See `Block.emit`."""
        for branch in self.branches:
            branch.emit(parts, x, layer)


def pre_norm_block(attention: Part, feed_forward: Part) -> BlockSpec:
    """The usual block: a norm before each of the two branches, none behind."""
    return BlockSpec((Branch("attn", attention, "attn_norm"), Branch("ffn", feed_forward, "ffn_norm")))


def decoder(
    parts: GraphParts, blocks: Sequence[Block], *, output_norm: str = "output_norm", tied: bool | None = None
) -> ModelDefinition:
    """The whole decode step: embedding, blocks, a last norm, head. An architecture with more writes these lines itself.

    Args:
        parts: with the architecture's constants declared.
        blocks: one for each layer; several may be one object.
        output_norm: the last norm's tensor without `.weight`.
        tied: see `GraphParts.head`.

    Raises:
        ModelError, UnsupportedTensorType: a tensor is missing, or is not as the metadata has it.
    """
    x = Residual(parts, parts.embed())
    for layer, block in enumerate(blocks):
        block.emit(parts, x, layer)
    parts.head(parts.norm(x.value(), output_norm), tied=tied)
    return parts.finish()

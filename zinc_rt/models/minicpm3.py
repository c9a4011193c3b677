"""`minicpm3`: MiniCPM3 4B. Latent attention whose keys and values are made for each head, and MiniCPM's factors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts, Rotation

NAMES = ("minicpm3",)


@dataclass(frozen=True, kw_only=True)
class ExpandedLatentSpec(AttentionSpec):
    """Attention whose queries, keys and values come from two latent vectors. The last elements of queries and keys
    rotate; those of keys are the same for all heads. q_rank, rank: elements of the latent vectors. turned: elements
    that rotate, by `turns`.
    """

    q_rank: int
    rank: int
    turned: int
    turns: Rotation

    def _projections(self, parts: GraphParts, h: BufferId, p: str) -> list[BufferId]:
        """Queries, keys and values, rotated."""
        n, plain = self.heads.n_heads, self.heads.head_dim - self.turned
        inner = parts.norm(parts.project(h, f"{p}.attn_q_a", self.q_rank), f"{p}.attn_q_a_norm")
        q, q_turned = parts.split_project(inner, f"{p}.attn_q_b", (plain, self.turned), heads=n)
        latent, k_turned = parts.split_project(h, f"{p}.attn_kv_a_mqa", (self.rank, self.turned))
        latent = parts.norm(latent, f"{p}.attn_kv_a_norm")
        k, v = parts.split_project(latent, f"{p}.attn_kv_b", (plain, self.heads.value_dim), heads=n)
        q_turned = parts.rope(q_turned, f"{p}.rope_q", self.turns, n, self.turned)
        k_turned = parts.rope(k_turned, f"{p}.rope_k", self.turns, 1, self.turned)
        q = parts.join_heads(q, q_turned, f"{p}.attn_q_whole", n, n)
        return [q, parts.join_heads(k, k_turned, f"{p}.attn_k_whole", n), v]


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=False, longrope=True)
    parts = GraphParts(file, info, info.eps)
    heads, turned = info.heads, info.rope.dim
    if turned == heads.head_dim:
        limit = keys.name("attention.key_length")
        raise ModelError(
            f"{keys.name('rope.dimension_count')} is {turned}, it must be less than {limit}, as large as it"
        )
    if not keys.has("attention.value_length"):
        heads = replace(heads, value_dim=info.n_embd // heads.n_heads)
    attention = ExpandedLatentSpec(
        heads=heads,
        rotation=None,
        q_rank=keys.integer("attention.q_lora_rank"),
        rank=keys.integer("attention.kv_lora_rank"),
        turned=turned,
        turns=parts.long_rotation(info.rope),
    )
    block = pre_norm_block(attention, FeedForwardSpec(info.n_ff), scale=1.4 / math.sqrt(info.n_layers))
    return decoder(parts, [block] * info.n_layers, embedding_scale=12.0, logit_scale=256 / info.n_embd)

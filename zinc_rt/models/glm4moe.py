"""`glm4moe`: GLM-4.5-Air, 4.5, 4.6 and 4.7. Dense layers first, then experts and one that all rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, BranchBody, decoder
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.drafts import count_drafts, draft_head, leave_drafts
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedSpec, Routing, expert_width

NAMES = ("glm4moe",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    parts, n_drafts, block = _read(file, name)
    leave_drafts(parts, n_drafts)
    return decoder(parts, [block(layer) for layer in range(parts.info.n_layers)])


def define_draft_head(file: GGUFFile, name: str) -> ModelDefinition | None:
    """See `models.define_draft_head`."""
    parts, n_drafts, block = _read(file, name)
    return draft_head(parts, block(parts.info.n_layers)) if n_drafts else None


def _read(file: GGUFFile, name: str) -> tuple[GraphParts, int, Callable[[int], BlockSpec]]:
    """An empty graph, how many blocks draft, and what a block is by its number."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=False, experts=True)
    n_drafts = count_drafts(keys, info.n_layers)
    info = replace(info, n_layers=info.n_layers - n_drafts)
    n_dense = keys.integer("leading_dense_block_count", 0, minimum=0, maximum=info.n_layers)
    parts = GraphParts(file, info, info.eps)
    rotation = parts.rotation(info.rope)
    routing = Routing.from_keys(keys, default="sigmoid")
    width = expert_width(keys, routing.n_used)
    n_shared = keys.integer("expert_shared_count", 0, minimum=0, maximum=1024)
    shared = FeedForwardSpec(width * n_shared, suffix="_shexp") if n_shared else None
    routed, dense = RoutedSpec(routing, width, selection_bias=None, shared=shared), FeedForwardSpec(info.n_ff)

    def block(layer: int) -> BlockSpec:
        normed = parts.has(f"blk.{layer}.attn_q_norm.weight")
        feed_forward: BranchBody = dense if layer < n_dense else routed
        attention = Branch("attn", AttentionSpec(info.heads, rotation, qk_norm=normed), "attn_norm")
        return BlockSpec((attention, Branch("ffn", feed_forward, "post_attention_norm")))

    return parts, n_drafts, block

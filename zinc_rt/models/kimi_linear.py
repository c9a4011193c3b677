"""`kimi-linear`, `bailingmoe3`: Kimi Linear and Ling 3: Kimi delta attention, latent attention between, experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.blocks import BranchBody, Layer, decoder, pre_norm_block
from zinc_rt.models.config import read_info
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.delta_net import DeltaNetSizes, KimiDeltaSpec
from zinc_rt.models.drafts import DRAFT_LATENT, count_drafts, draft_head, leave_drafts
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.latent import LatentAttentionSpec
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing, clamp_limits, clamped

NAMES = ("kimi-linear", "bailingmoe3")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    parts, n_drafts, block = _read(file, name)
    leave_drafts(parts, n_drafts, others=DRAFT_LATENT, biases=("exp_probs_b",))
    return decoder(parts, [block(layer) for layer in range(parts.info.n_layers)])


def define_draft_head(file: GGUFFile, name: str) -> ModelDefinition | None:
    """See `models.define_draft_head`."""
    parts, n_drafts, block = _read(file, name)
    return draft_head(parts, block(parts.info.n_layers)) if n_drafts else None


def _read(file: GGUFFile, name: str) -> tuple[GraphParts, int, Callable[[int], Layer]]:
    """An empty graph, how many blocks draft, and what a block is by its number."""
    keys = Keys(file.metadata, name)
    info, ling = read_info(file, keys), name == "bailingmoe3"
    n_blocks, n_drafts = info.n_layers, count_drafts(keys, info.n_layers)
    info = replace(info, n_layers=n_blocks - n_drafts)
    parts = GraphParts(file, info, keys.number("attention.layer_norm_rms_epsilon"))
    kv_heads = keys.integers("attention.head_count_kv", n_blocks, minimum=0)
    n_heads = keys.integer("attention.head_count")
    sizes = DeltaNetSizes(n_heads, n_heads, keys.integer("kda.head_dim"), keys.integer("ssm.conv_kernel"))
    rotation, bound = None, None
    if ling:
        head_dim = keys.integer("attention.key_length_mla", maximum=4096)
        rotation = parts.rotation(RopeConfig.from_keys(keys, head_dim, info.n_ctx_train, interleaved=True))
        bound = _lower_bound(keys)
    delta, latent = KimiDeltaSpec(sizes, bound), LatentAttentionSpec.from_keys(keys, rotation, gated=ling)
    feed_forward = _feed_forward(keys, info.n_layers, n_blocks, normalise=None if ling else True)

    def attends(layer: int) -> BranchBody:  # files from before the matrices were split hold both in one
        return latent.expanded if not ling and parts.has(f"blk.{layer}.attn_kv_b.weight") else latent

    def block(layer: int) -> Layer:
        return pre_norm_block(attends(layer) if kv_heads[layer] else delta, feed_forward[layer])

    return parts, n_drafts, block


def _lower_bound(keys: Keys) -> float:
    """Of the logarithm of decays."""
    if not keys.flag("kda.safe_gate", True):
        raise ModelError(f"{keys.name('kda.safe_gate')} is false; only decays with a lower bound are supported")
    bound = keys.number("kda.gate_lower_bound", -5.0, minimum=-1e4)
    if bound > 0:
        raise ModelError(f"{keys.name('kda.gate_lower_bound')} is {bound}, it must be at most 0")
    return bound


def _feed_forward(keys: Keys, n_layers: int, n_blocks: int, *, normalise: bool | None) -> list[BranchBody]:
    """Of each layer: dense in the first ones, then experts, and one that all rows share."""
    routing, n_ff = (
        Routing.from_keys(keys, normalise=normalise, default="sigmoid"),
        keys.integer("expert_feed_forward_length"),
    )
    n_dense = keys.integer("leading_dense_block_count", 0, minimum=0, maximum=n_layers)
    n_shared = keys.integer("expert_shared_feed_forward_length", 0, minimum=0)
    n_shared = n_shared or n_ff * keys.integer("expert_shared_count", 0, minimum=0)
    dense, shared = (
        FeedForwardSpec(keys.integer("feed_forward_length")),
        FeedForwardSpec(n_shared or 1, suffix="_shexp"),
    )
    routed = RoutedSpec(routing, n_ff, selection_bias=None)
    limits, shared_limits = (
        clamp_limits(keys, f"swiglu_clamp_{part}", n_layers, n_blocks) for part in ("exp", "shexp")
    )

    def layer(i: int) -> BranchBody:
        if i < n_dense:
            return clamped(dense, shared_limits[i])
        experts = clamped(routed, limits[i])
        return replace(experts, shared=clamped(shared, shared_limits[i])) if n_shared else experts

    return [layer(i) for i in range(n_blocks)]

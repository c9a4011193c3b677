"""`kimi-linear`, `bailingmoe3`: Kimi Linear and Ling 3: Kimi delta attention, latent attention between, experts."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.blocks import BranchBody, decoder, pre_norm_block
from zinc_rt.models.config import read_info
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.delta_net import DeltaNetSizes, KimiDeltaSpec
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.latent import LatentAttentionSpec
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing

NAMES = ("kimi-linear",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = read_info(file, keys)
    parts = GraphParts(file, info, keys.number("attention.layer_norm_rms_epsilon"))
    kv_heads = keys.integers("attention.head_count_kv", info.n_layers, minimum=0)
    n_heads = keys.integer("attention.head_count")
    sizes = DeltaNetSizes(n_heads, n_heads, keys.integer("kda.head_dim"), keys.integer("ssm.conv_kernel"))
    rotation, bound, normalise = None, None, True
    if name == "bailingmoe3":
        head_dim = keys.integer("attention.key_length_mla", maximum=4096)
        rotation = parts.rotation(RopeConfig.from_keys(keys, head_dim, info.n_ctx_train, interleaved=True))
        bound, normalise = _lower_bound(keys), None
    delta, latent = KimiDeltaSpec(sizes, bound), LatentAttentionSpec.from_keys(keys, rotation)
    dense, routed = FeedForwardSpec(keys.integer("feed_forward_length")), _experts(keys, normalise)
    n_dense = keys.integer("leading_dense_block_count", 0, minimum=0, maximum=info.n_layers)

    def mixer(layer: int) -> BranchBody:
        return latent if kv_heads[layer] else delta

    return decoder(
        parts,
        [pre_norm_block(mixer(layer), dense if layer < n_dense else routed) for layer in range(info.n_layers)],
    )


def _lower_bound(keys: Keys) -> float:
    if not keys.flag("kda.safe_gate", True):
        raise ModelError(f"{keys.name('kda.safe_gate')} is false; decays with a lower bound alone are supported")
    return keys.number("kda.gate_lower_bound", -5.0, minimum=-1000.0)


def _experts(keys: Keys, normalise: bool | None) -> RoutedSpec:
    """Experts, and those that all rows share."""
    routing, n_ff = (
        Routing.from_keys(keys, normalise=normalise, default="sigmoid"),
        keys.integer("expert_feed_forward_length"),
    )
    n_shared = keys.integer("expert_shared_feed_forward_length", 0, minimum=0)
    n_shared = n_shared or n_ff * keys.integer("expert_shared_count", 0, minimum=0)
    shared = FeedForwardSpec(n_shared, suffix="_shexp") if n_shared else None
    return RoutedSpec(routing, n_ff, selection_bias=None, shared=shared)

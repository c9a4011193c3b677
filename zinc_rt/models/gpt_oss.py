"""`gpt-oss` (20b, 120b): routed feed-forwards with biases and clamped gates, attention sinks, a window on every second
layer.
"""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, decoder
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing, expert_width
from zinc_rt.models.windows import windowed_layers

NAMES = ("gpt-oss",)

PERIOD = 2


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info, routing = read_info(file, keys), Routing.from_keys(keys, gating="softmax_chosen", normalise=False)
    heads = HeadSizes.from_keys(keys, info.n_embd)
    parts = GraphParts(file, info, keys.number("attention.layer_norm_rms_epsilon"))
    rope = RopeConfig.from_keys(keys, heads.head_dim, info.n_ctx_train, interleaved=False)
    full = AttentionSpec(heads, parts.rotation(rope), q_bias=True, k_bias=True, v_bias=True, out_bias=True, sinks=True)
    local = replace(full, window=keys.integer("attention.sliding_window"))
    experts = RoutedSpec(routing, expert_width(keys, routing.n_used), bias=True, router_bias=True, activation="clamped")
    blocks = {
        windowed: BlockSpec(
            (Branch("attn", local if windowed else full, "attn_norm"), Branch("ffn", experts, "post_attention_norm"))
        )
        for windowed in (False, True)
    }
    windowed = windowed_layers(keys, info.n_layers, PERIOD)
    return decoder(parts, [blocks[here] for here in windowed], tied=False)

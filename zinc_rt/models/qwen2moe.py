"""`qwen2moe`: Qwen 1.5 and 2 with routed feed-forwards. Biases on q, k and v; a shared expert with a gate."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedInfo, RoutedSpec

NAMES = ("qwen2moe",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info = RoutedInfo.from_file(file, name, interleaved_rope=False, normalise=False)
    parts = GraphParts(file, info, info.rms_eps)
    rotation = parts.rotation(info.rope, factors="rope_freqs.weight")
    attention = AttentionSpec(info.heads, rotation, q_bias=True, k_bias=True, v_bias=True)
    shared = FeedForwardSpec(info.n_ff_shared, suffix="_shexp")
    block = pre_norm_block(attention, RoutedSpec(info.routing, info.n_ff, shared=shared, shared_gate=True))
    return decoder(parts, [block] * info.n_layers)

"""`granitehybrid`: Granite 4.0 H: state space layers with some of attention between, and Granite's factors."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.granite import experts, factored
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.state_space import Mamba2Spec, ScanSizes

NAMES = ("granitehybrid",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = read_info(file, keys)
    heads = HeadSizes.of_hybrid(keys, info.n_embd, info.n_layers)
    attending = [sizes for sizes in heads if sizes is not None]
    parts = GraphParts(file, info, keys.number("attention.layer_norm_rms_epsilon"), paged=bool(attending))
    rotation = None
    if attending and keys.flag("rope.scaling.finetuned", True):
        rope = RopeConfig.from_keys(keys, attending[0].head_dim, info.n_ctx_train, interleaved=True)
        rotation = parts.rotation(rope, factors="rope_freqs.weight")
    mamba, scale = Mamba2Spec(ScanSizes.from_keys(keys)), keys.number("attention.scale", 0.0) or None
    n_ff, routed = keys.integer("feed_forward_length"), keys.integer("expert_count", 0, minimum=0)
    feed_forward = experts(keys, n_ff) if routed else FeedForwardSpec(n_ff)
    mixers = [mamba if sizes is None else AttentionSpec(sizes, rotation, scale=scale) for sizes in heads]
    return factored(parts, keys, mixers, feed_forward)

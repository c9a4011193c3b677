"""`smollm3`: SmolLM 3. The block of `llama`; no rotation in every fourth layer."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.parts import GraphParts

NAMES = ("smollm3",)


EVERY = 4
"""Layers from one without a rotation to the next."""


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info = DenseInfo.from_file(file, name, interleaved_rope=True)
    parts = GraphParts(file, info, info.rms_eps)
    turning = AttentionSpec(info.heads, parts.rotation(info.rope), scale=info.attention_scale)
    still = AttentionSpec(info.heads, None, scale=info.attention_scale)
    feed_forward = FeedForwardSpec(info.n_ff)
    blocks = [
        pre_norm_block(still if (layer + 1) % EVERY == 0 else turning, feed_forward) for layer in range(info.n_layers)
    ]
    return decoder(parts, blocks)

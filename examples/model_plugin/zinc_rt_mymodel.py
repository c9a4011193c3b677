"""`my-model`, an architecture for zinc-rt: as Llama, with biases on q, k and v, RoPE over halves, and the norm before
the feed-forward called `post_attention_norm`. It is Seed-OSS by another name.
"""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models import ModelDefinition
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, decoder
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

NAMES = ("my-model",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """The model's figures, constants and graph. Raises `ModelError` for a file that is not as it should be."""
    info = DenseInfo.from_file(file, name, interleaved_rope=False)
    parts = GraphParts(file, info, Keys(file.metadata, name).number("attention.layer_norm_rms_epsilon"))
    attention = AttentionSpec(info.heads, parts.rotation(info.rope), q_bias=True, k_bias=True, v_bias=True)
    block = BlockSpec(
        (
            Branch("attn", attention, norm="attn_norm"),
            Branch("ffn", FeedForwardSpec(info.n_ff), norm="post_attention_norm"),
        )
    )
    return decoder(parts, [block] * info.n_layers)

"""`qwen2`, `qwen2vl`: Qwen 1.5, 2, 2.5 and the text part of Qwen2-VL. RoPE over halves, biases on q, k and v."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition, PictureStyle, Sections
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.parts import GraphParts

NAMES = ("qwen2", "qwen2vl")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info = DenseInfo.from_file(file, name, interleaved_rope=False)
    parts = GraphParts(file, info, info.rms_eps)
    if name == "qwen2vl":
        parts.picture_style = PictureStyle(Sections.BLOCKS)
    rotation = parts.rotation(info.rope, factors="rope_freqs.weight")
    attention = AttentionSpec(info.heads, rotation, q_bias=True, k_bias=True, v_bias=True)
    block = pre_norm_block(attention, FeedForwardSpec(info.n_ff))
    return decoder(parts, [block] * info.n_layers)

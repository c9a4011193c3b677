"""`granite`: Granite 3 and 4 dense. The block of `llama` with four multipliers."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

NAMES = ("granite",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=True)
    parts = GraphParts(file, info, info.rms_eps)
    turns = keys.flag("rope.scaling.finetuned", True)
    attention = AttentionSpec(
        info.heads, parts.rotation(info.rope, factors="rope_freqs.weight") if turns else None,
        scale=info.attention_scale,
    )  # fmt: skip
    block = pre_norm_block(attention, FeedForwardSpec(info.n_ff), scale=keys.number("residual_scale", 0.0) or None)
    return decoder(
        parts, [block] * info.n_layers, embedding_scale=keys.number("embedding_scale", 0.0) or None,
        logit_scale=1.0 / keys.number("logit_scale", above=True),
    )  # fmt: skip

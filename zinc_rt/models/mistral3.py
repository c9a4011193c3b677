"""`mistral3`: Ministral 3 and newer conversions of Mistral Small 3. Queries are scaled by their position.

The block is that of `llama`.
"""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.temperature import Temperature

NAMES = ("mistral3",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=True)
    parts = GraphParts(file, info, info.eps)
    rotation = parts.rotation(info.rope, factors="rope_freqs.weight")
    factors = Temperature.from_keys(keys, info.rope.original_context).declare(parts)
    window = keys.integer("attention.sliding_window", 0, minimum=0) or None
    attention = AttentionSpec(info.heads, rotation, scale=info.attention_scale, q_factors=factors, window=window)
    return decoder(parts, [pre_norm_block(attention, FeedForwardSpec(info.n_ff))] * info.n_layers)

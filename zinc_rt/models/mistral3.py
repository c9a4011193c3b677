"""`mistral3`: Ministral 3 and newer conversions of Mistral Small 3. Queries are scaled by their position.

The block is that of `llama`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

NAMES = ("mistral3",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=True)
    parts = GraphParts(file, info, info.eps)
    rotation = parts.rotation(info.rope, factors="rope_freqs.weight")
    slope = keys.number("attention.temperature_scale", 0.0)
    factors = None
    if slope > 0:
        original = info.rope.original_context
        factors = parts.constant("q_factors", ("n_ctx",), lambda n_ctx: temperatures(n_ctx, slope, original))
    window = keys.integer("attention.sliding_window", 0, minimum=0) or None
    attention = AttentionSpec(info.heads, rotation, scale=info.attention_scale, q_factors=factors, window=window)
    return decoder(parts, [pre_norm_block(attention, FeedForwardSpec(info.n_ff))] * info.n_layers)


def temperatures(n_ctx: int, slope: float, original: int) -> npt.NDArray[np.float32]:
    """1 + slope * ln(floor(position / original) + 1) of every position, in float64 and rounded once: f32[n_ctx]."""
    return np.asarray(1.0 + slope * np.log(np.arange(n_ctx) // original + 1), np.float32)

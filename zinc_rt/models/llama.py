"""`llama`: Llama 1-3, Mistral and kin. Neighbouring RoPE pairs, biases only where the file has them, a window on all
layers where the file has one.
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

NAMES = ("llama",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info = DenseInfo.from_file(file, name, interleaved_rope=True)
    parts = GraphParts(file, info, info.rms_eps)
    rotation = parts.rotation(info.rope, factors="rope_freqs.weight")
    window = Keys(file.metadata, name).integer("attention.sliding_window", 0, minimum=0) or None
    attention = AttentionSpec(info.heads, rotation, window=window, q_bias=None, k_bias=None, v_bias=None, out_bias=None)
    block = pre_norm_block(attention, FeedForwardSpec(info.n_ff, bias=None))
    return decoder(parts, [block] * info.n_layers)

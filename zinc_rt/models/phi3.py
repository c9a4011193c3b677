"""`phi3`: Phi-3, Phi-3.5, Phi-4 and Phi-4-mini. RoPE over halves of a part of the head.

One tensor holds q, k and v, another gate and up.

Models of long contexts have two lists of frequency factors. The long ones hold where n_ctx is above
`rope.scaling.original_context_length`, at every position: the choice is made once, when the model is loaded, so that a
text's logits do not depend on how long it got. `attention.sliding_window` is not applied, as in llama.cpp.
"""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.parts import GraphParts

NAMES = ("phi3",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info = DenseInfo.from_file(file, name, interleaved_rope=False, longrope=True)
    parts = GraphParts(file, info, info.eps)
    attention = AttentionSpec(info.heads, parts.long_rotation(info.rope))
    block = pre_norm_block(attention, FeedForwardSpec(info.n_ff))
    return decoder(parts, [block] * info.n_layers)

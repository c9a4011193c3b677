"""`qwen3`: Qwen 3 dense models and the model in this package. RoPE over halves, RMS norm on each q and k head.

`qwen3vl` is the text part of Qwen3-VL, the same block. Its rotation has sections for images,
`rope.dimension_sections`. A text has the same positions in all of them, which makes it the plain rotation.

A file that ranks (Qwen3-Reranker) has in place of the head the two rows of it for "yes" and "no".
"""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, encoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition, PictureStyle, Ranking, Sections
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.ranking import ranks, score_head

NAMES = ("qwen3", "qwen3vl")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info = DenseInfo.from_file(file, name, interleaved_rope=False)
    parts = GraphParts(file, info, info.rms_eps, decodes=not ranks(file.metadata))
    if name == "qwen3vl":
        parts.picture_style = PictureStyle(Sections.ALTERNATING)
    attention = AttentionSpec(info.heads, parts.rotation(info.rope, factors="rope_freqs.weight"), qk_norm=True)
    block = pre_norm_block(attention, FeedForwardSpec(info.n_ff))
    if not ranks(file.metadata):
        return decoder(parts, [block] * info.n_layers)
    score_head(parts, Ranking("last", softmax=True))
    parts.leave(["output.weight"])
    return encoder(parts, [block] * info.n_layers)

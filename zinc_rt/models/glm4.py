"""`glm4`: GLM-4-0414 and GLM-Z1. Norms before and behind both branches; RoPE over a part of the head."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, sandwich_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.parts import GraphParts

NAMES = ("glm4",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    # Files with sections of positions for images have their pairs in halves.
    sections = f"{name}.rope.dimension_sections" in file.metadata
    info = DenseInfo.from_file(file, name, interleaved_rope=not sections)
    parts = GraphParts(file, info, info.eps)
    block = sandwich_block(AttentionSpec(info.heads, parts.rotation(info.rope)), FeedForwardSpec(info.n_ff))
    return decoder(parts, [block] * info.n_layers)

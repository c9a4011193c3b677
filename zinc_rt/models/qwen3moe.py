"""`qwen3moe`: Qwen 3 with routed feed-forwards (30B-A3B, 235B-A22B, Coder), and the text model of its vision kin."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.definition import ModelDefinition, PictureStyle, Sections
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedInfo, RoutedSpec

NAMES = ("qwen3moe", "qwen3vlmoe")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info = RoutedInfo.from_file(file, name, interleaved_rope=False, normalise=True)
    parts = GraphParts(file, info, info.rms_eps)
    if name == "qwen3vlmoe":
        parts.picture_style = PictureStyle(Sections.ALTERNATING)
    attention = AttentionSpec(info.heads, parts.rotation(info.rope, factors="rope_freqs.weight"), qk_norm=True)
    block = pre_norm_block(attention, RoutedSpec(info.routing, info.n_ff))
    return decoder(parts, [block] * info.n_layers)

"""`minicpm3`: MiniCPM3 4B. Latent attention whose keys and values are made for each head, and MiniCPM's factors."""

from __future__ import annotations

import math
from dataclasses import replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.latent import ExpandedLatentSpec
from zinc_rt.models.parts import GraphParts

NAMES = ("minicpm3",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=False, longrope=True)
    parts = GraphParts(file, info, info.eps)
    heads, turned = info.heads, info.rope.dim
    if turned == heads.head_dim:
        limit = keys.name("attention.key_length")
        raise ModelError(
            f"{keys.name('rope.dimension_count')} is {turned}, it must be less than {limit}, as large as it"
        )
    if not keys.has("attention.value_length"):
        heads = replace(heads, value_dim=info.n_embd // heads.n_heads)
    attention = ExpandedLatentSpec(
        heads=heads,
        rotation=None,
        q_rank=keys.integer("attention.q_lora_rank"),
        rank=keys.integer("attention.kv_lora_rank"),
        turned=turned,
        turns=parts.long_rotation(info.rope),
    )
    block = pre_norm_block(attention, FeedForwardSpec(info.n_ff), scale=1.4 / math.sqrt(info.n_layers))
    return decoder(parts, [block] * info.n_layers, embedding_scale=12.0, logit_scale=256 / info.n_embd)

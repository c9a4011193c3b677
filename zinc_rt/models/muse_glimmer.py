"""`muse-glimmer`: Muse Glimmer. Norms around both branches and of the embedding, windows, a gate on attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, sandwich_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.windows import windowed_layers

NAMES = ("muse-glimmer",)

PERIOD: Final = 4
POST_EPS: Final = 1e-8
"""Of the norms behind branches, whatever the file says of the others."""


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=True)
    parts = GraphParts(file, info, info.eps)
    full = AttentionSpec(info.heads, None, qk_norm=True, gate_width=info.heads.out_width)
    base = keys.number("rope.freq_base_swa", info.rope.base, minimum=1.0, above=True)
    rotation = parts.rotation(replace(info.rope, base=base))
    local = replace(full, rotation=rotation, window=keys.integer("attention.sliding_window"))
    feed_forward = FeedForwardSpec(info.n_ff)
    blocks = {
        windowed: sandwich_block(local if windowed else full, feed_forward, post_eps=POST_EPS)
        for windowed in (False, True)
    }
    return decoder(
        parts,
        [blocks[windowed] for windowed in windowed_layers(keys, info.n_layers, PERIOD)],
        tied=False,
        embedding_norm=True,
        logit_scale=keys.number("logit_scale"),
        logit_softcap=keys.number("final_logit_softcapping", 0.0) or None,
    )

"""`gemma2`, `gemma3`, `gemma-embedding`: norms before and behind both branches, GELU, windows on most layers.

Layers with a window have a rotation of their own in Gemma 3: another base, and no context extension. Gemma 2 has one
rotation, no norms of heads, and holds scores under a bound.
"""

from __future__ import annotations

import math
from dataclasses import replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, encoder, sandwich_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import BothWays, ModelDefinition, PictureStyle
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.windows import windowed_layers

NAMES = ("gemma2", "gemma3", "gemma-embedding")

LARGEST = {"gemma2": 46, "gemma3": 62, "gemma-embedding": 0}
"""Layers of the 27B models, whose scores are scaled by the width of the stream for a head, not by the head's."""
PERIOD = {"gemma2": 2, "gemma3": 6, "gemma-embedding": 6}


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys, second = Keys(file.metadata, name), name == "gemma2"
    info = DenseInfo.from_file(file, name, interleaved_rope=False)
    parts = GraphParts(file, info, info.eps, causal=name != "gemma-embedding")
    parts.picture_style = PictureStyle(both_ways=BothWays.ALL)
    score_scale = None
    if info.n_layers == LARGEST[name]:
        score_scale = 1.0 / math.sqrt(info.n_embd / info.heads.n_heads)
    rotation = parts.rotation(info.rope)
    full = AttentionSpec(
        info.heads,
        rotation,
        qk_norm=not second,
        scale=score_scale,
        softcap=keys.number("attn_logit_softcapping", 50.0, above=True) if second else None,
    )
    base = keys.number("rope.freq_base_swa", 10000.0, minimum=1.0, above=True)
    local = replace(
        full,
        window=keys.integer("attention.sliding_window", 4096 if second else None),
        rotation=rotation if second else parts.rotation(info.rope.unscaled(base), name="rope_local"),
    )
    feed_forward = FeedForwardSpec(info.n_ff, activation="gelu")
    blocks = {windowed: sandwich_block(local if windowed else full, feed_forward) for windowed in (False, True)}
    stack = [blocks[windowed] for windowed in windowed_layers(keys, info.n_layers, PERIOD[name])]
    scale = math.sqrt(info.n_embd)
    if not parts.causal:
        _project_pooled(parts, keys)
        return encoder(parts, stack, embedding_scale=scale)
    cap = keys.number("final_logit_softcapping", 30.0 if second else 0.0) or None
    return decoder(parts, stack, embedding_scale=scale, logit_softcap=cap)


def _project_pooled(parts: GraphParts, keys: Keys) -> None:
    """Matrices of whole texts' vectors, where the file has them."""
    for name in ("dense_2", "dense_3"):
        if parts.has(f"{name}.weight"):
            parts.project_pooled(name, keys.integer(f"{name}_feat_out"), keys.integer(f"{name}_feat_in"))

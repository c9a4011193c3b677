"""`granite`, `granitemoe`: Granite 3 and 4, dense or with routed feed-forwards; `minicpm`: MiniCPM 1, 2 and 4.

The block is that of `llama`, with factors of the embedding, of what both branches add, of the scores and of the logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BranchBody, decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedSpec, Routing

NAMES = ("granite", "granitemoe", "minicpm")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys, routed = Keys(file.metadata, name), name == "granitemoe"
    minicpm = name == "minicpm"
    info = DenseInfo.from_file(file, name, interleaved_rope=True, experts=routed, longrope=minicpm)
    parts = GraphParts(file, info, info.eps)
    # Old files of MiniCPM have no factors: these are the models'.
    usual = (12.0, 1.4 / math.sqrt(info.n_layers), info.n_embd / 256) if minicpm else (0.0, 0.0, None)
    rotation = None
    if minicpm:
        rotation = parts.long_rotation(info.rope)
    elif keys.flag("rope.scaling.finetuned", True):
        rotation = parts.rotation(info.rope, factors="rope_freqs.weight")
    attention = AttentionSpec(info.heads, rotation, scale=info.attention_scale)
    feed_forward = experts(keys, info.n_ff) if routed else FeedForwardSpec(info.n_ff)
    return factored(parts, keys, [attention] * info.n_layers, feed_forward, usual)


def factored(
    parts: GraphParts,
    keys: Keys,
    mixers: Sequence[BranchBody],
    feed_forward: BranchBody,
    usual: tuple[float, float, float | None] = (0.0, 0.0, None),
) -> ModelDefinition:
    """The decoder of layers of a mixer and a feed-forward each, with the factors of embedding, branches and logits.

    usual: these three of a file without their keys; 0 is no factor, None that the key is needed. Raises `ModelError`.
    """
    scale = keys.number("residual_scale", usual[1]) or None
    return decoder(
        parts,
        [pre_norm_block(mixer, feed_forward, scale=scale) for mixer in mixers],
        embedding_scale=keys.number("embedding_scale", usual[0]) or None,
        logit_scale=1.0 / keys.number("logit_scale", usual[2], minimum=2.0**-100),
    )


def experts(keys: Keys, n_ff: int) -> BranchBody:
    """The routed feed-forward, with a shared expert where the file says how wide it is."""
    width = keys.integer("expert_shared_feed_forward_length", 0, minimum=0)
    shared = FeedForwardSpec(width, suffix="_shexp") if width else None
    return RoutedSpec(Routing.from_keys(keys, gating="softmax", normalise=True), n_ff, shared=shared)

"""`granite`, `granitemoe`: Granite 3 and 4, dense or with routed feed-forwards.

The block is that of `llama`, with factors of the embedding, of what both branches add, of the scores and of the logits.
"""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BranchBody, decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedSpec, Routing

NAMES = ("granite", "granitemoe")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys, routed = Keys(file.metadata, name), name == "granitemoe"
    info = DenseInfo.from_file(file, name, interleaved_rope=True, experts=routed)
    parts = GraphParts(file, info, info.rms_eps)
    turns = keys.flag("rope.scaling.finetuned", True)
    rotation = parts.rotation(info.rope, factors="rope_freqs.weight") if turns else None
    attention = AttentionSpec(info.heads, rotation, scale=info.attention_scale)
    feed_forward = experts(keys, info.n_ff) if routed else FeedForwardSpec(info.n_ff)
    block = pre_norm_block(attention, feed_forward, scale=keys.number("residual_scale", 0.0) or None)
    return decoder(
        parts,
        [block] * info.n_layers,
        embedding_scale=keys.number("embedding_scale", 0.0) or None,
        logit_scale=1.0 / keys.number("logit_scale", minimum=2.0**-100),
    )


def experts(keys: Keys, n_ff: int) -> BranchBody:
    """The routed feed-forward, with a shared expert where the file says how wide it is."""
    width = keys.integer("expert_shared_feed_forward_length", 0, minimum=0)
    shared = FeedForwardSpec(width, suffix="_shexp") if width else None
    return RoutedSpec(Routing.from_keys(keys, gating="softmax", normalise=True), n_ff, shared=shared)

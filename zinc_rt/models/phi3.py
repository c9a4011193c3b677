"""`phi3`: Phi-3, Phi-3.5, Phi-4 and Phi-4-mini; `phimoe`: Phi-3.5-MoE. RoPE over halves of a part of the head.

Of `phi3` one tensor holds q, k and v, another gate and up. `phimoe` has layer norms, biases of attention and of the
head, and a sparse mixer for a router, as published; llama.cpp norms and weighs otherwise.

Models of long contexts have two lists of frequency factors. The long ones hold where n_ctx is above
`rope.scaling.original_context_length`, at every position: the choice is made once, when the model is loaded, so that a
text's logits do not depend on how long it got. `attention.sliding_window` is not applied, as in llama.cpp.
"""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BranchBody, decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo, NormKind
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedSpec, Routing

NAMES = ("phi3", "phimoe")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    experts = name == "phimoe"
    info = DenseInfo.from_file(file, name, interleaved_rope=False, longrope=True, experts=experts)
    parts = GraphParts(file, info, info.eps, norms=NormKind.LAYER if experts else NormKind.RMS)
    attention = AttentionSpec(info.heads, parts.long_rotation(info.rope))
    feed_forward: BranchBody = FeedForwardSpec(info.n_ff)
    if experts:
        attention = replace(attention, q_bias=True, k_bias=True, v_bias=True, out_bias=True)
        routing = Routing.from_keys(Keys(file.metadata, name), gating="sparse_mixer", normalise=False)
        feed_forward = RoutedSpec(routing, info.n_ff)
    return decoder(parts, [pre_norm_block(attention, feed_forward)] * info.n_layers, head_bias=experts)

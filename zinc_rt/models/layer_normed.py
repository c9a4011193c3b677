"""Dense decoders with layer norms, as rows of one table: what each differs in.

All have a norm before each branch, or one before both, whose results are then added at once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import Layer, ParallelBlock, decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo, NormKind
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.windows import ALL, windowed_layers

NAMES = ("cohere2", "starcoder2", "stablelm", "nemotron", "gptneox", "falcon")


class Parallel(enum.StrEnum):
    """Whether attention and feed-forward read the same stream, and both are added to it."""

    NEVER = "never"
    ALWAYS = "always"
    WITHOUT_NORM = "in files without a second norm"
    KEY = "where the key use_parallel_residual says so"


@dataclass(frozen=True)
class LayerNormedSpec:
    """What an architecture differs in. bias: of q, k, v and the attention's output, ffn_bias: of the feed-forward (see
    `FeedForwardSpec.bias`). activation, gated: of the feed-forward. neighbours: a pair of the rotation is two
    neighbours. windows: all layers but one of every so many have a window, and they alone a rotation; ALL: all layers,
    where the file has one. logit_scale: whether logits are multiplied by the key of that name.
    """

    norms: NormKind = NormKind.LAYER
    parallel: Parallel = Parallel.NEVER
    bias: bool | None = None
    ffn_bias: bool | None = None
    activation: str = "gelu"
    gated: bool = False
    neighbours: bool = False
    windows: int = 0
    logit_scale: bool = False
    tied: bool | None = None


SPECS: Final[Mapping[str, LayerNormedSpec]] = {
    "cohere2": LayerNormedSpec(
        NormKind.LAYER_WITHOUT_BIAS, Parallel.ALWAYS, ffn_bias=False, activation="silu", gated=True, neighbours=True,
        windows=4, logit_scale=True, tied=True,
    ),
    "starcoder2": LayerNormedSpec(bias=True, ffn_bias=True, windows=ALL),
    "stablelm": LayerNormedSpec(parallel=Parallel.WITHOUT_NORM, ffn_bias=False, activation="silu", gated=True),
    "nemotron": LayerNormedSpec(activation="relu2", tied=False),
    "gptneox": LayerNormedSpec(parallel=Parallel.KEY, bias=True, ffn_bias=True, tied=False),
    "falcon": LayerNormedSpec(parallel=Parallel.ALWAYS, bias=False, ffn_bias=False),
}  # fmt: skip


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    spec, keys = SPECS[name], Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=spec.neighbours, norms=spec.norms)
    parts = GraphParts(file, info, info.eps, norms=spec.norms)
    normed = parts.has("blk.0.attn_q_norm.weight")
    full = AttentionSpec(
        info.heads,
        None if spec.windows > 0 else parts.rotation(info.rope),
        qk_norm=normed,
        own_norms=normed,
        q_bias=spec.bias,
        k_bias=spec.bias,
        v_bias=spec.bias,
        out_bias=spec.bias,
        window=keys.integer("attention.sliding_window", 0, minimum=0) or None if spec.windows == ALL else None,
    )
    feed_forward = FeedForwardSpec(info.n_ff, spec.ffn_bias, activation=spec.activation, gated=spec.gated)
    blocks = [_block(parts, keys, spec.parallel, full, feed_forward)] * info.n_layers
    if spec.windows > 0:
        local = replace(full, rotation=parts.rotation(info.rope), window=keys.integer("attention.sliding_window"))
        windowed = _block(parts, keys, spec.parallel, local, feed_forward)
        layers = zip(windowed_layers(keys, info.n_layers, spec.windows), blocks, strict=True)
        blocks = [windowed if here else block for here, block in layers]
    scale = keys.number("logit_scale") if spec.logit_scale else None
    return decoder(parts, blocks, tied=spec.tied, logit_scale=scale)


def _block(
    parts: GraphParts, keys: Keys, parallel: Parallel, attention: AttentionSpec, feed_forward: FeedForwardSpec
) -> Layer:
    """One after the other, or side by side. Falcon 40B has a norm for attention, which comes second by its name."""
    second = parts.has("blk.0.ffn_norm.weight")
    if parallel is Parallel.NEVER or (parallel is Parallel.WITHOUT_NORM and second):
        return pre_norm_block(attention, feed_forward)
    if parallel is Parallel.KEY and not keys.flag("use_parallel_residual"):
        return pre_norm_block(attention, feed_forward)
    first = "attn_norm_2" if parts.has("blk.0.attn_norm_2.weight") else "attn_norm"
    return ParallelBlock(attention, feed_forward, first, "ffn_norm" if parallel is Parallel.KEY else "attn_norm")

"""Dense decoders with RMS norms, as rows of one table: what each differs in from a plain one.

A plain one rotates halves of heads, has a norm before each of two branches, biases of q, k and v only where the file
has them, and a gated feed-forward (SiLU) without biases.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.reference import nearest
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, encoder, pre_norm_block, sandwich_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition, PictureStyle, Ranking, Sections
from zinc_rt.models.drafts import count_drafts, leave_drafts
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.ranking import ranks, score_head
from zinc_rt.models.windows import ALL, windowed_layers

NAMES = (
    "llama", "qwen2", "qwen2vl", "qwen3", "qwen3vl", "smollm3", "seed_oss", "ernie4_5", "internlm2", "arcee",
    "hunyuan-dense", "exaone4", "gemma", "apertus",
)  # fmt: skip


class HeadNorm(enum.StrEnum):
    """Where query and key heads are normed."""

    BEFORE = "before the rotation"
    AFTER = "after the rotation"


class Unrotated(enum.StrEnum):
    """Layers without a rotation."""

    FOURTH = "every fourth"
    FULL = "those without a window, in models with windows"


@dataclass(frozen=True)
class PlainSpec:
    """What an architecture differs in. neighbours: a pair of the rotation is two neighbours. bias, out_bias, ffn_bias:
    of q, k and v, of the attention's output, of the feed-forward (see `FeedForwardSpec.bias`). ffn_norm: the tensor
    of the second norm; None for norms behind the branches in place of those before them. activation, gated: of the
    feed-forward. windows: where the file has a window, it is on ALL layers or on all but one of every so many. tied:
    see `GraphParts.head`. embedding_root: rows of the embedding are multiplied by the root of their width.
    """

    neighbours: bool = False
    bias: bool | None = None
    out_bias: bool | None = False
    ffn_bias: bool | None = False
    head_norm: HeadNorm | None = None
    ffn_norm: str | None = "ffn_norm"
    activation: str = "silu"
    gated: bool = True
    windows: int = 0
    unrotated: Unrotated | None = None
    tied: bool | None = None
    embedding_root: bool = False
    sections: Sections | None = None


SPECS: Final[Mapping[str, PlainSpec]] = {
    "llama": PlainSpec(neighbours=True, out_bias=None, ffn_bias=None, windows=ALL),
    "qwen2": PlainSpec(bias=True),
    "qwen2vl": PlainSpec(bias=True, sections=Sections.BLOCKS),
    "qwen3": PlainSpec(head_norm=HeadNorm.BEFORE),
    "qwen3vl": PlainSpec(head_norm=HeadNorm.BEFORE, sections=Sections.ALTERNATING),
    "smollm3": PlainSpec(neighbours=True, unrotated=Unrotated.FOURTH),
    "seed_oss": PlainSpec(bias=True, ffn_norm="post_attention_norm"),
    "ernie4_5": PlainSpec(neighbours=True),
    "internlm2": PlainSpec(neighbours=True, tied=False),
    "arcee": PlainSpec(neighbours=True, activation="relu2", gated=False),
    "hunyuan-dense": PlainSpec(head_norm=HeadNorm.AFTER),
    "exaone4": PlainSpec(head_norm=HeadNorm.BEFORE, ffn_norm=None, windows=4, unrotated=Unrotated.FULL),
    "gemma": PlainSpec(activation="gelu", tied=True, embedding_root=True),
    "apertus": PlainSpec(head_norm=HeadNorm.BEFORE, activation="xielu", gated=False),
}


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    spec, keys = SPECS[name], Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=spec.neighbours)
    ranking = name == "qwen3" and ranks(file.metadata)
    n_drafts = count_drafts(keys, info.n_layers)
    info = replace(info, n_layers=info.n_layers - n_drafts)
    parts = GraphParts(file, info, info.eps, decodes=not ranking)
    leave_drafts(parts, n_drafts)
    if spec.sections is not None:
        parts.picture_style = PictureStyle(spec.sections)
    full = AttentionSpec(
        info.heads,
        parts.rotation(info.rope, factors="rope_freqs.weight"),
        qk_norm=spec.head_norm is not None,
        norm_after_rope=spec.head_norm is HeadNorm.AFTER,
        q_bias=spec.bias,
        k_bias=spec.bias,
        v_bias=spec.bias,
        out_bias=spec.out_bias,
        scale=info.attention_scale,
    )
    width = keys.integer("attention.sliding_window", 0, minimum=0) if spec.windows else 0
    windowed = (False,) * info.n_layers
    if width:
        windowed = (
            (True,) * info.n_layers if spec.windows == ALL else windowed_layers(keys, info.n_layers, spec.windows)
        )
    blocks = []
    for layer, here in enumerate(windowed):
        still = (layer + 1) % 4 == 0 if spec.unrotated is Unrotated.FOURTH else bool(width) and not here
        attention = replace(
            full,
            window=width if here else None,
            rotation=None if spec.unrotated is not None and still else full.rotation,
        )
        numbers = _xielu(file, layer, info.n_layers) if spec.activation == "xielu" else {}
        feed_forward = FeedForwardSpec(
            info.n_ff, spec.ffn_bias, activation=spec.activation, gated=spec.gated, numbers=numbers
        )
        if spec.ffn_norm is None:
            blocks.append(sandwich_block(attention, feed_forward, before=False))
        else:
            blocks.append(pre_norm_block(attention, feed_forward, ffn_norm=spec.ffn_norm))
    if ranking:  # in place of the head there are its rows for "yes" and "no"
        score_head(parts, Ranking("last", softmax=True))
        parts.leave(["output.weight"])
        return encoder(parts, blocks)
    scale = math.sqrt(info.n_embd) if spec.embedding_root else None
    return decoder(parts, blocks, tied=spec.tied, embedding_scale=scale)


def _xielu(file: GGUFFile, layer: int, n_layers: int) -> dict[str, float]:
    """The numbers of a layer's activation, from keys without the architecture's prefix. Raises `ModelError`."""
    keys = Keys(file.metadata, "xielu")
    p, n, beta, eps = (keys.numbers(key, n_layers)[layer] for key in ("alpha_p", "alpha_n", "beta", "eps"))
    positive, negative = map(nearest.log1p_exp, (p, n))
    return {"alpha_p": positive, "alpha_n": beta + negative, "beta": beta, "eps": eps}

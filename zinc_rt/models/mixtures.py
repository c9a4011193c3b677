"""Decoders with experts whose layers are the usual ones: a row of `ROWS` for each architecture says what differs.

Norms stand before the two branches, heads are normed before the rotation, layers in front may be dense, all rows may
share an expert, and most layers may have a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, BranchBody, decoder
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition, PictureStyle, Sections
from zinc_rt.models.drafts import count_drafts, draft_head, leave_drafts
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing, expert_width
from zinc_rt.models.windows import windowed_layers


@dataclass(frozen=True)
class Mixture:
    """What a decoder with experts has its own way; the defaults are the usual.

    interleaved: pairs of the rotation are neighbours. head_norm: each query and key head is normed, None where the file
    has the tensors; whole_norm: all heads of a row together instead; norm_after_rope: behind the rotation. all_kv:
    there are as many key heads as query heads, whatever the file says. out_gate: see `AttentionSpec.gate`.

    windows: layers have a window by `attention.sliding_window`, all but one of so many; window: how many positions,
    None for what the key says; full_first: that one is the first of its period. unturned: which layers have no
    rotation: "" for none, "full" for those without a window in models with one, "period" for one of every period.

    gating, normalise: see `Routing.from_keys`; default_gating: of files that do not say it. scaled: whether
    `expert_weights_scale` counts. selection_bias: see `RoutedSpec`. shared: how wide the shared expert is: "" for none,
    "length" for what `expert_shared_feed_forward_length` says, "count" for `expert_shared_count` experts, "both" for
    so many of that length. shared_gate: a gate multiplies it. whole_width: `feed_forward_length` is an expert's width.
    activation: of experts. early_router: the router reads the layer's input instead of the normed sum. step: whether
    `interleave_moe_layer_step` says which layers have experts.

    ffn_norm: the tensor of the second norm. post_norms: a norm stands behind each branch, too. embedding: the stream
    begins with embeddings times the root of their width. tied: see `GraphParts.head`. drafts: whether blocks that draft
    are known; else they are left out.
    """

    interleaved: bool = False
    head_norm: bool | None = False
    whole_norm: bool = False
    norm_after_rope: bool = False
    all_kv: bool = False
    out_gate: bool = False
    windows: int | None = None
    window: int | None = None
    full_first: bool = False
    unturned: str = ""
    gating: str | None = None
    normalise: bool | None = None
    default_gating: str = "sigmoid"
    scaled: bool = True
    selection_bias: bool | None = None
    shared: str = ""
    shared_gate: bool = False
    whole_width: bool = False
    activation: str = "silu"
    early_router: bool = False
    step: bool = False
    ffn_norm: str = "ffn_norm"
    post_norms: bool = False
    embedding: bool = False
    tied: bool | None = None
    drafts: bool = False


_SOFTMAX: Final = Mixture(gating="softmax", normalise=True, scaled=False)
_QWEN3: Final = replace(_SOFTMAX, head_norm=True, scaled=True, selection_bias=False)
_DENSE_FIRST: Final = Mixture(head_norm=True, shared="count")

ROWS: Final = MappingProxyType({
    "qwen2moe": Mixture(gating="softmax", normalise=False, selection_bias=False, shared="length", shared_gate=True),
    "qwen3moe": _QWEN3,
    "qwen3vlmoe": _QWEN3,
    "glm4moe": replace(_DENSE_FIRST, head_norm=None, ffn_norm="post_attention_norm", drafts=True),
    "minimax-m2": Mixture(whole_norm=True, normalise=True, scaled=False, selection_bias=True, tied=False),
    "dots1": replace(_DENSE_FIRST, all_kv=True),
    "bailingmoe2": replace(_DENSE_FIRST, shared="both"),
    "olmoe": replace(_SOFTMAX, whole_norm=True, normalise=False, selection_bias=False, whole_width=True),
    "ernie4_5-moe": replace(_SOFTMAX, interleaved=True, shared="length", step=True),
    "hunyuan-moe": replace(
        _SOFTMAX, head_norm=True, norm_after_rope=True, selection_bias=False, shared="length", whole_width=True
    ),
    "exaone-moe": replace(_DENSE_FIRST, windows=4, unturned="full"),
    "afmoe": replace(
        _DENSE_FIRST, out_gate=True, windows=4, unturned="period", post_norms=True, embedding=True
    ),
})  # fmt: skip

NAMES = tuple(ROWS)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    parts, n_drafts, block = _read(file, name)
    leave_drafts(parts, n_drafts)
    row, info = ROWS[name], parts.info
    scale = math.sqrt(info.n_embd) if row.embedding else None
    return decoder(parts, [block(layer) for layer in range(info.n_layers)], tied=row.tied, embedding_scale=scale)


def define_draft_head(file: GGUFFile, name: str) -> ModelDefinition | None:
    """See `models.define_draft_head`."""
    if not ROWS[name].drafts:
        return None
    parts, n_drafts, block = _read(file, name)
    return draft_head(parts, block(parts.info.n_layers)) if n_drafts else None


def _read(file: GGUFFile, name: str) -> tuple[GraphParts, int, Callable[[int], BlockSpec]]:
    """An empty graph, how many blocks draft, and what a block is by its number."""
    keys, row = Keys(file.metadata, name), ROWS[name]
    info = read_info(file, keys)
    n_drafts = count_drafts(keys, info.n_layers)
    info = replace(info, n_layers=info.n_layers - n_drafts)
    parts = GraphParts(file, info, keys.number("attention.layer_norm_rms_epsilon"))
    if name == "qwen3vlmoe":
        parts.picture_style = PictureStyle(Sections.ALTERNATING)
    attention = _attention(parts, keys, row)
    routed, has_experts = _experts(keys, row), _layers_with_experts(keys, row, info.n_layers)
    dense: BranchBody | None = None
    if not all(has_experts):
        dense = FeedForwardSpec(keys.integer("feed_forward_length"))
    behind = ("post_attention_norm", "post_ffw_norm") if row.post_norms else (None, None)

    def block(layer: int) -> BlockSpec:
        drafts = layer >= info.n_layers
        feed_forward = routed if dense is None or drafts or has_experts[layer] else dense
        return BlockSpec(
            (
                Branch("attn", attention(layer), "attn_norm", behind[0]),
                Branch("ffn", feed_forward, row.ffn_norm, behind[1]),
            )
        )

    return parts, n_drafts, block


def _attention(parts: GraphParts, keys: Keys, row: Mixture) -> Callable[[int], AttentionSpec]:
    """A layer's attention by its number."""
    info = parts.info
    heads = HeadSizes.from_keys(keys, info.n_embd)
    if row.all_kv:
        heads = replace(heads, n_kv_heads=heads.n_heads)
    rope = RopeConfig.from_keys(keys, heads.head_dim, info.n_ctx_train, interleaved=row.interleaved)
    rotation = parts.rotation(rope, factors="rope_freqs.weight")
    every = AttentionSpec(
        heads,
        rotation,
        qk_norm=row.whole_norm or bool(row.head_norm),
        whole_norm=row.whole_norm,
        norm_after_rope=row.norm_after_rope,
        gate_width=heads.out_width if row.out_gate else None,
    )
    window = keys.integer("attention.sliding_window", 0, minimum=0) if row.windows else 0
    local = windowed_layers(keys, info.n_layers, row.windows, first=row.full_first) if row.windows else ()

    def attention(layer: int) -> AttentionSpec:
        one = every
        if row.head_norm is None:
            one = replace(one, qk_norm=parts.has(f"blk.{layer}.attn_q_norm.weight"))
        if layer >= len(local):  # without windows, or a block that drafts
            return one
        if window and local[layer]:
            return replace(one, window=row.window or window)
        still = row.unturned and not local[layer] and (window or row.unturned == "period")
        return replace(one, rotation=None) if still else one

    return attention


def _experts(keys: Keys, row: Mixture) -> RoutedSpec:
    routing = Routing.from_keys(keys, gating=row.gating, normalise=row.normalise, default=row.default_gating)
    if not row.scaled:
        routing = replace(routing, scale=1.0)
    width = keys.integer("feed_forward_length") if row.whole_width else expert_width(keys, routing.n_used)
    n_shared = _shared_width(keys, row, width)
    return RoutedSpec(
        routing,
        width,
        selection_bias=row.selection_bias,
        shared=FeedForwardSpec(n_shared, suffix="_shexp") if n_shared else None,
        shared_gate=row.shared_gate,
        activation=row.activation,
    )


def _shared_width(keys: Keys, row: Mixture, width: int) -> int:
    """Elements between of the shared expert; 0 for none."""
    if not row.shared:
        return 0
    length = keys.integer("expert_shared_feed_forward_length", 0, minimum=0)
    if row.shared == "length":
        return length or (keys.integer("feed_forward_length") if row.shared_gate else 0)
    count = keys.integer("expert_shared_count", 0, minimum=0, maximum=1024)
    return count * (length or width if row.shared == "both" else width)


def _layers_with_experts(keys: Keys, row: Mixture, n_layers: int) -> tuple[bool, ...]:
    n_dense = keys.integer("leading_dense_block_count", 0, minimum=0, maximum=n_layers)
    step = keys.integer("interleave_moe_layer_step") if row.step else 1
    return tuple(layer >= n_dense and (layer + 1) % step == 0 for layer in range(n_layers))

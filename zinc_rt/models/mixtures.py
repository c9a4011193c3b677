"""Decoders with experts whose layers are the usual ones: a row of `ROWS` for each architecture says what differs.

Norms stand before the two branches, heads are normed before the rotation, layers in front may be dense, all rows may
share an expert, and most layers may have a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, BranchBody, Layer, Residual, decoder
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import F32, ModelDefinition, PictureStyle, Sections
from zinc_rt.models.drafts import count_drafts, draft_head, leave_drafts
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing, clamp_limits, clamped, expert_width
from zinc_rt.models.windows import windowed_layers


@dataclass(frozen=True)
class Mixture:
    """What a decoder with experts has its own way; the defaults are the usual.

    interleaved: pairs of the rotation are neighbours. head_norm: each query and key head is normed, None where the file
    has the tensors; whole_norm: all heads of a row together instead; norm_after_rope: behind the rotation. all_kv:
    there are as many key heads as query heads, whatever the file says. gate: what `attn_gate` opens: "elements" or
    "heads" of the output, "" for nothing. sinks: layers that have the tensor have sinks. value_scale:
    `attention.value_scale` is a factor of the output.

    windows: all layers but one of so many have a window, where the file does not say which; 1 where it must. window:
    of how many positions, None for `attention.sliding_window`. full_first: the one comes first in its period. unturned:
    layers without a rotation: "full" for those without a window in models with one, "period" for one of every period,
    "" for none. local_base: layers with a window rotate by `rope.freq_base_swa`; local_dim: and by
    `rope.dimension_count_swa` elements, the others by half of `rope.dimension_count`.

    gating, normalise: see `Routing.from_keys`; default_gating: of files that do not say it. scaled: whether
    `expert_weights_scale` counts. selection_bias: see `RoutedSpec`. shared: how wide the shared expert is: "" for none,
    "length" for what `expert_shared_feed_forward_length` says, "count" for `expert_shared_count` experts, "both" for
    so many of that length. shared_gate: a gate multiplies it. whole_width: `feed_forward_length` is an expert's width.
    activation: of experts. clamped: `swiglu_clamp_exp` and `swiglu_clamp_shexp` bound it. early_router: the router
    reads what the layer reads. step: `interleave_moe_layer_step` says which layers have experts; found: the tensors do.

    ffn_norm: the tensor of the second norm. post_norms: a norm stands behind each branch, too. embedding: the stream
    begins with embeddings times the root of their width. tied: see `GraphParts.head`. drafts: whether blocks that draft
    are known; else they are left out.
    """

    interleaved: bool = False
    head_norm: bool | None = False
    whole_norm: bool = False
    norm_after_rope: bool = False
    all_kv: bool = False
    gate: str = ""
    sinks: bool = False
    value_scale: bool = False
    local_base: bool = False
    local_dim: bool = False
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
    found: bool = False
    clamped: bool = False
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
    "bailingmoe2": replace(_DENSE_FIRST, shared="both", drafts=True),
    "olmoe": replace(_SOFTMAX, whole_norm=True, normalise=False, selection_bias=False, whole_width=True),
    "ernie4_5-moe": replace(_SOFTMAX, interleaved=True, shared="length", step=True),
    "hunyuan-moe": replace(
        _SOFTMAX, head_norm=True, norm_after_rope=True, selection_bias=False, shared="length", whole_width=True
    ),
    "exaone-moe": replace(_DENSE_FIRST, windows=4, unturned="full"),
    "afmoe": replace(
        _DENSE_FIRST, gate="elements", windows=4, unturned="period", post_norms=True, embedding=True
    ),
    "smallthinker": replace(
        _SOFTMAX, gating=None, windows=4, window=4096, full_first=True, unturned="full", selection_bias=False,
        activation="relu", early_router=True,
    ),
    "mimo2": Mixture(
        gating="sigmoid", normalise=True, scaled=False, sinks=True, value_scale=True, local_base=True, windows=1,
        found=True, tied=False, drafts=True,
    ),
    "step35": Mixture(
        head_norm=None, gate="heads", local_base=True, local_dim=True, windows=1, shared="length", clamped=True,
        found=True, tied=False, drafts=True,
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


def _read(file: GGUFFile, name: str) -> tuple[GraphParts, int, Callable[[int], Layer]]:
    """An empty graph, how many blocks draft, and what a block is by its number."""
    keys, row = Keys(file.metadata, name), ROWS[name]
    info = read_info(file, keys)
    n_drafts = count_drafts(keys, info.n_layers)
    info = replace(info, n_layers=info.n_layers - n_drafts)
    parts = GraphParts(file, info, keys.number("attention.layer_norm_rms_epsilon"))
    if name == "qwen3vlmoe":
        parts.picture_style = PictureStyle(Sections.ALTERNATING)
    attention = _attention(parts, keys, row, info.n_layers + n_drafts)
    feed_forward = _feed_forward(parts, keys, row, info.n_layers + n_drafts)
    behind = ("post_attention_norm", "post_ffw_norm") if row.post_norms else (None, None)

    def block(layer: int) -> Layer:
        attend, part = Branch("attn", attention(layer), "attn_norm", behind[0]), feed_forward(layer)
        if row.early_router and isinstance(part, RoutedSpec):
            return _EarlyRouter(attend, part)
        return BlockSpec((attend, Branch("ffn", part, row.ffn_norm, behind[1])))

    return parts, n_drafts, block


@dataclass(frozen=True)
class _EarlyRouter:
    """A layer whose router reads what the layer reads."""

    attend: Branch
    experts: RoutedSpec

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """See `Layer.emit`."""
        logits = self.experts.logits(parts, x.value(), layer)
        self.attend.emit(parts, x, layer)
        h = x.norm(f"blk.{layer}.ffn_norm")
        x.add(self.experts.emit_routed(parts, h, logits, layer), f"blk.{layer}.ffn_sum")


def _attention(parts: GraphParts, keys: Keys, row: Mixture, n_blocks: int) -> Callable[[int], AttentionSpec]:
    """A layer's attention by its number."""
    n_layers = parts.info.n_layers
    heads = HeadSizes.of_layers(keys, parts.info.n_embd, n_blocks)
    if row.all_kv:
        heads = tuple(replace(each, n_kv_heads=each.n_heads) for each in heads)
    rotation = _rotations(parts, keys, row, heads[0].head_dim)
    window = keys.integer("attention.sliding_window", 0, minimum=0) if row.windows else 0
    if row.windows == 1 and not window:
        keys.integer("attention.sliding_window")  # is needed
    period = None if row.windows == 1 else row.windows
    # Files may say it of the blocks that draft, too.
    n_said = n_blocks if keys.length("attention.sliding_window_pattern") == n_blocks else n_layers
    local = windowed_layers(keys, n_said, period, first=row.full_first) if row.windows else (False,) * n_layers
    out_scale = keys.number("attention.value_scale", 1.0) if row.value_scale else 1.0

    def attention(layer: int) -> AttentionSpec:
        sizes, near = heads[layer], layer < len(local) and local[layer]
        still = row.unturned and layer < n_layers and not near and (window or row.unturned == "period")
        normed = parts.has(f"blk.{layer}.attn_q_norm.weight") if row.head_norm is None else row.head_norm
        return AttentionSpec(
            sizes,
            None if still else rotation(near),
            qk_norm=row.whole_norm or normed,
            whole_norm=row.whole_norm,
            norm_after_rope=row.norm_after_rope,
            window=(row.window or window) if near and window else None,
            sinks=row.sinks and parts.has(f"blk.{layer}.attn_sinks.weight"),
            gate_width={"": None, "elements": sizes.out_width, "heads": sizes.n_heads}[row.gate],
            out_scale=None if out_scale == 1.0 else out_scale,
        )

    return attention


def _rotations(parts: GraphParts, keys: Keys, row: Mixture, head_dim: int) -> Callable[[bool], Rotation]:
    """The rotation of layers with a window, or without one. Its table is declared when it is first asked for: a graph
    has no table that nothing uses.
    """
    factors = "rope_freqs.weight"
    rope = RopeConfig.from_keys(keys, head_dim, parts.info.n_ctx_train, interleaved=row.interleaved)
    if not row.local_base:
        one = cache(lambda: parts.rotation(rope, factors=factors))
        return lambda near: one()
    local = replace(rope, base=keys.number("rope.freq_base_swa", 10000.0, minimum=1.0, above=True))
    own: F32 | None = None
    if row.local_dim:
        local = replace(local, dim=keys.integer("rope.dimension_count_swa", rope.dim, maximum=head_dim))
        rope = replace(rope, dim=rope.dim // 2)
        if rope.dim % 2 or local.dim % 2:
            raise ModelError(f"{local.dim} and {rope.dim} elements of a head rotate, an even number is needed")
        values = parts.rope_factors(factors, local if local.dim > rope.dim else rope)
        own = None if values is None else values[: rope.dim // 2]

    @cache
    def rotation(near: bool) -> Rotation:
        if near:
            return parts.rotation(local, name="rope_local")
        return parts.rotation(rope, factors=lambda n_ctx: own)

    return rotation


def _feed_forward(parts: GraphParts, keys: Keys, row: Mixture, n_blocks: int) -> Callable[[int], BranchBody]:
    """A layer's feed-forward by its number."""
    n_layers = parts.info.n_layers
    has_experts = _layers_with_experts(parts, keys, row, n_blocks)
    dense = None if all(has_experts) else FeedForwardSpec(keys.integer("feed_forward_length"))
    routed = _experts(keys, row) if any(has_experts) else None
    limits, shared_limits = (
        clamp_limits(keys, key, n_layers, n_blocks) if row.clamped else (0.0,) * n_blocks
        for key in ("swiglu_clamp_exp", "swiglu_clamp_shexp")
    )

    def feed_forward(layer: int) -> BranchBody:
        if routed is None or (dense is not None and not has_experts[layer]):
            assert dense is not None  # one of the two is there
            return clamped(dense, shared_limits[layer])
        experts = clamped(routed, limits[layer])
        if not isinstance(experts.shared, FeedForwardSpec):
            return experts
        return replace(experts, shared=clamped(experts.shared, shared_limits[layer]))

    return feed_forward


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


def _layers_with_experts(parts: GraphParts, keys: Keys, row: Mixture, n_blocks: int) -> tuple[bool, ...]:
    """Whether each block has experts; those that draft have."""
    if row.found:
        return tuple(parts.has(f"blk.{layer}.ffn_gate_inp.weight") for layer in range(n_blocks))
    n_layers = parts.info.n_layers
    n_dense = keys.integer("leading_dense_block_count", 0, minimum=0, maximum=n_layers)
    step = keys.integer("interleave_moe_layer_step") if row.step else 1
    return tuple(layer >= n_dense and (layer + 1) % step == 0 for layer in range(n_layers)) + (True,) * (
        n_blocks - n_layers
    )

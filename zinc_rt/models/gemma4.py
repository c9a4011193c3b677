"""`gemma4`: Gemma 4 of any size. Two kinds of layer, whose heads differ in size.

Some models have embeddings for each layer, caches that several layers read, or experts beside the dense feed-forward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import Branch, Residual
from zinc_rt.models.definition import BothWays, ModelDefinition, PictureStyle
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.gemma4_config import Gemma4Info
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing

NAMES = ("gemma4",)
ONE_WAY = (1536, 2560)
"""Widths of the models (E2B, E4B) whose rows of pictures see what is before them alone."""


@dataclass(frozen=True)
class LayerInputs:
    """Inputs of layers besides the stream: f32[n_rows, n_layers * width], and the width of one layer's part."""

    rows: BufferId
    width: int

    @classmethod
    def emit(cls, parts: GraphParts, x: BufferId, width: int) -> LayerInputs:
        """From the embedding x: the token's row of a table of its own, and a projection of x, normed by layer."""
        n_layers, n_embd = parts.info.n_layers, parts.info.n_embd
        total = width * n_layers
        own = parts.embed("per_layer_token_embd", total)
        own = parts.scale(own, math.sqrt(width), "per_layer_embd")
        made = parts.project(x, "per_layer_model_proj", total)
        made = parts.scale(made, 1.0 / math.sqrt(n_embd), "per_layer_made")
        made = parts.head_norm(made, "per_layer_proj_norm", n_layers, width)
        both = parts.add(made, own, "per_layer_sum")
        return cls(parts.scale(both, 1.0 / math.sqrt(2.0), "per_layer_inputs"), width)


@dataclass(frozen=True)
class Gemma4Block:
    """A layer: attention, the feed-forward, and where there are some, experts beside it and the layer's own input."""

    attention: AttentionSpec
    feed_forward: FeedForwardSpec
    experts: RoutedSpec | None
    inputs: LayerInputs | None

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """See `Layer.emit`."""
        p = f"blk.{layer}"
        Branch("attn", self.attention, "attn_norm", "post_attention_norm").emit(parts, x, layer)
        h = x.norm(f"{p}.ffn_norm")
        f = self.feed_forward.emit(parts, h, layer)
        if self.experts is not None:
            f = parts.add(
                parts.norm(f, f"{p}.post_ffw_norm_1"), self._routed(parts, self.experts, x.value(), layer), f"{p}.ffn"
            )
        x.add(parts.norm(f, f"{p}.post_ffw_norm"), f"{p}.ffn_sum")
        if self.inputs is not None:
            x.add(self._input(parts, self.inputs, x.value(), layer), f"{p}.input_sum")
        factor = parts.number(f"{p}.layer_output_scale.weight")
        if factor is not None:
            x.replace(parts.scale(x.value(), factor, f"{p}.scaled"))

    @staticmethod
    def _routed(parts: GraphParts, experts: RoutedSpec, x: BufferId, layer: int) -> BufferId:
        """The experts' sum, normed. The router reads a norm of its own, and its logits are scaled."""
        p = f"blk.{layer}"
        seen = parts.norm(x, f"{p}.ffn_gate_inp.seen", tensor=f"{p}.ffn_gate_inp.scale")
        logits = experts.logits(parts, seen, layer)
        logits = parts.scale(logits, 1.0 / math.sqrt(parts.info.n_embd), f"{p}.ffn_gate_inp.scaled")
        y = experts.emit_routed(parts, parts.norm(x, f"{p}.pre_ffw_norm_2"), logits, layer)
        return parts.norm(y, f"{p}.post_ffw_norm_2")

    @staticmethod
    def _input(parts: GraphParts, inputs: LayerInputs, x: BufferId, layer: int) -> BufferId:
        """The layer's own input, gated by the stream and projected to it, normed."""
        p = f"blk.{layer}"
        gate = parts.project(x, f"{p}.inp_gate", inputs.width)
        part = parts.gate(gate, inputs.rows, f"{p}.inp", activation="gelu", up_start=layer * inputs.width)
        return parts.norm(parts.project(part, f"{p}.proj", parts.info.n_embd), f"{p}.post_norm")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = Gemma4Info.from_file(file, keys)
    parts = GraphParts(file, info, info.rms_eps)
    if info.n_embd not in ONE_WAY:
        parts.picture_style = PictureStyle(both_ways=BothWays.WINDOWED)
    local = parts.rotation(info.local_rope, name="rope_local") if any(info.windowed) else None
    full = full_rotations(parts, info.windowed, info.rope)
    x = parts.scale(parts.embed(), math.sqrt(info.n_embd), "embd_scaled")
    inputs = LayerInputs.emit(parts, x, info.input_width) if info.input_width else None
    experts = None
    if keys.has("expert_count") and keys.integer("expert_count", minimum=0):
        routing = Routing.from_keys(keys, gating="softmax", normalise=True)
        width = keys.integer("expert_feed_forward_length")
        experts = RoutedSpec(routing, width, expert_scale=None, activation="gelu")
    stream = Residual(parts, x)
    for layer in range(info.n_layers):
        windowed = info.windowed[layer]
        attention = AttentionSpec(
            info.heads[layer],
            local if windowed else full[layer],
            qk_norm=True,
            v_norm=True,
            k_as_v=True,
            scale=1.0,
            window=info.window if windowed else None,
            shared_kv=info.reads(layer),
        )
        routed = experts if parts.has(f"blk.{layer}.ffn_gate_inp.weight") else None
        feed_forward = FeedForwardSpec(info.n_ff[layer], activation="gelu")
        Gemma4Block(attention, feed_forward, routed, inputs).emit(parts, stream, layer)
    softcap = keys.number("final_logit_softcapping", 0.0) or None
    parts.head(parts.norm(stream.value(), "output_norm"), softcap=softcap)
    return parts.finish()


def full_rotations(parts: GraphParts, windowed: Sequence[bool], rope: RopeConfig) -> dict[int, Rotation]:
    """The rotation of each layer without a window: one for all, or one each where the file has factors by layer.

    Raises `ModelError` without them: they say which pairs turn.
    """
    layers = [layer for layer, near in enumerate(windowed) if not near]
    by_layer = [f"blk.{layer}.rope_freqs.weight" for layer in layers]
    one_for_all = not any(map(parts.has, by_layer))
    for factors in ["rope_freqs.weight"] * bool(layers) if one_for_all else by_layer:
        if not parts.has(factors):
            raise ModelError(f"tensor {factors} is missing, which architecture {parts.info.architecture!r} needs")
    if one_for_all:
        one = parts.rotation(rope, name="rope_full", factors="rope_freqs.weight") if layers else None
        return {layer: one for layer in layers if one is not None}
    return {
        layer: parts.rotation(rope, name=f"blk.{layer}.rope_full", factors=factors)
        for layer, factors in zip(layers, by_layer, strict=True)
    }

"""`lfm2`, `lfm2moe`: short gated convolutions between layers of attention; experts after some dense layers (LFM2)."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, BranchBody, decoder, pre_norm_block
from zinc_rt.models.config import MAX_TAPS, HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing, expert_width

NAMES = ("lfm2", "lfm2moe")


@dataclass(frozen=True)
class ShortConvSpec:
    """b, c, u = thirds of a projection; the output is a projection of c * conv(b * u), each channel by itself.

    taps: of the convolution, the present included.
    """

    taps: int

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, n = f"blk.{layer}.shortconv", parts.info.n_embd
        b, c, u = parts.split_project(h, f"{p}.in_proj", (n, n, n))
        kept = parts.states.of_sequence("short convolution", layer, "conv_state", (self.taps - 1, n))
        taps = parts.weight(f"{p}.conv.weight", n, self.taps, plain=True)
        entered, mixed = parts.temp(f"{p}.entered", n), parts.temp(f"{p}.mixed", n)
        parts.g.node(Op.MUL, [b, u], [entered], f"{p}.entered.mul")
        parts.g.node(
            Op.SSM_CONV1D, [entered, taps, kept, *parts.in_order()], [mixed, kept], f"{p}.conv", activation="none"
        )
        out = parts.temp(f"{p}.gated", n)
        parts.g.node(Op.MUL, [c, mixed], [out], f"{p}.gated.mul")
        return parts.project(out, f"{p}.out_proj", n)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = read_info(file, keys)
    kv_heads = keys.integers("attention.head_count_kv", info.n_layers, minimum=0)
    parts = GraphParts(file, info, keys.number("attention.layer_norm_rms_epsilon"))
    attention, feed_forward = _attentions(parts, keys, set(kv_heads) - {0}), _feed_forward(keys, info.n_layers)
    taps = keys.integer("shortconv.l_cache")
    if not 2 <= taps <= MAX_TAPS:
        raise ModelError(f"{keys.name('shortconv.l_cache')} is {taps}; 2 to {MAX_TAPS} are supported")

    def block(layer: int) -> BlockSpec:
        mixer: BranchBody = attention[kv_heads[layer]] if kv_heads[layer] else ShortConvSpec(taps)
        return pre_norm_block(mixer, feed_forward[layer])

    return decoder(parts, [block(layer) for layer in range(info.n_layers)], output_norm="token_embd_norm")


def _attentions(parts: GraphParts, keys: Keys, kv_heads: set[int]) -> dict[int, AttentionSpec]:
    """The attention of layers by their number of key-value heads."""
    n_heads, n_embd = keys.integer("attention.head_count"), parts.info.n_embd
    if n_embd % n_heads:
        raise ModelError(f"{keys.name('embedding_length')} {n_embd} is not a multiple of the {n_heads} heads")
    dim = keys.integer("attention.key_length", n_embd // n_heads)
    rotation = parts.rotation(RopeConfig.from_keys(keys, dim, parts.info.n_ctx_train, interleaved=False))
    window = keys.integer("attention.sliding_window", 0, minimum=0) or None
    return {
        n: AttentionSpec(HeadSizes(n_heads, n, dim), rotation, qk_norm=True, window=window) for n in sorted(kv_heads)
    }


def _feed_forward(keys: Keys, n_layers: int) -> list[BranchBody]:
    """Of each layer: dense, or experts from `leading_dense_block_count` on."""
    dense = FeedForwardSpec(keys.integer("feed_forward_length"))
    if not keys.integer("expert_count", 0, minimum=0):
        return [dense] * n_layers
    n_dense = keys.integer("leading_dense_block_count", 0, minimum=0, maximum=n_layers)
    routing = Routing.from_keys(keys, normalise=True, default="sigmoid")
    routed = RoutedSpec(routing, expert_width(keys, routing.n_used), selection_bias=None)
    return [dense if layer < n_dense else routed for layer in range(n_layers)]

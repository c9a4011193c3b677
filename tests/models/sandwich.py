"""`sandwich`: an architecture that no model has, in one file outside the package. Its layers differ in every way that
the records of `zinc_rt.models.blocks` can say, and one is a class of its own.

Layers by `sandwich.layer_kinds`: 0 turns by base `rope.freq_base_swa`, 1 by `rope.freq_base` slowed by
`rope.scaling.factor`, 2 does not turn. `sandwich.attention.head_count_kv` and `sandwich.head_widths` are by layer.
Layers by number:

    0    norms before and behind both branches; biases on q and v; scores scaled by 1 / 8
    1    the usual block; a bias on the attention's output
    2    QK-norm; norms before and behind
    3    norms behind alone; the rows of q, k and v are one tensor
    4    attention and feed-forward side by side, of one norm
    5    the usual block over layer 4's keys and values

The rows of gate and up are one tensor; the embedding is the head's matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.models import ModelDefinition, ModelInfo
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, Layer, Residual, decoder, pre_norm_block
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig

NAMES = ("sandwich",)


@dataclass(frozen=True)
class SandwichInfo(ModelInfo):
    """The family's own record."""

    n_ff: int
    heads: tuple[HeadSizes, ...]
    kinds: tuple[int, ...]
    rms_eps: float


@dataclass(frozen=True)
class SideBySide:
    """x = x + (attention(norm(x)) + feed_forward(norm(x))), a block that the package's records cannot say."""

    attention: AttentionSpec
    feed_forward: FeedForwardSpec

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        h: BufferId = x.norm(f"blk.{layer}.attn_norm")
        both = self.attention.emit(parts, h, layer), self.feed_forward.emit(parts, h, layer)
        x.add(parts.add(*both, f"blk.{layer}.side_by_side"), f"blk.{layer}.both_sum")


def read(file: GGUFFile, keys: Keys) -> SandwichInfo:
    info = read_info(file, keys)
    widths = keys.integers("head_widths", info.n_layers)
    kv_heads = keys.integers("attention.head_count_kv", info.n_layers)
    n_heads = keys.integer("attention.head_count")
    return SandwichInfo(
        **vars(info),
        n_ff=keys.integer("feed_forward_length"),
        heads=tuple(HeadSizes(n_heads, kv, width) for kv, width in zip(kv_heads, widths, strict=True)),
        kinds=keys.integers("layer_kinds", info.n_layers, minimum=0, maximum=2),
        rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
    )


def define(file: GGUFFile, name: str) -> ModelDefinition:
    keys = Keys(file.metadata, name)
    info = read(file, keys)
    parts = GraphParts(file, info, info.rms_eps)
    local, wide = info.heads[0].head_dim, info.heads[2].head_dim
    rotations = (
        parts.rotation(RopeConfig(local, keys.number("rope.freq_base_swa"), interleaved=False), name="rope_local"),
        parts.rotation(
            RopeConfig.from_keys(keys, wide, info.n_ctx_train, interleaved=True),
            name="rope_global",
            factors="rope_freqs.weight",
        ),
        None,
    )
    plain = [AttentionSpec(heads, rotations[kind]) for heads, kind in zip(info.heads, info.kinds, strict=True)]
    return decoder(parts, blocks(plain, FeedForwardSpec(info.n_ff, gate_up="ffn_up")), tied=True)


def blocks(plain: Sequence[AttentionSpec], ffn: FeedForwardSpec) -> list[Layer]:
    def with_norms(attention: AttentionSpec, *, before: bool) -> BlockSpec:
        return BlockSpec(
            (
                Branch("attn", attention, "attn_norm" if before else None, "post_attention_norm"),
                Branch("ffn", ffn, "ffn_norm" if before else None, "post_ffw_norm"),
            )
        )

    return [
        with_norms(replace(plain[0], q_bias=True, v_bias=True, scale=0.125), before=True),
        pre_norm_block(replace(plain[1], out_bias=True), ffn),
        with_norms(replace(plain[2], qk_norm=True), before=True),
        with_norms(replace(plain[3], qkv="attn_qkv"), before=False),
        SideBySide(plain[4], ffn),
        pre_norm_block(replace(plain[5], shared_kv=4), ffn),
    ]

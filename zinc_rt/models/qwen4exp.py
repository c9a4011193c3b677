"""`qwen4exp`: Qwen3.8-Flash-Next. Qwen 3.5's layers between several streams, some of which see chosen blocks of
positions, and an embedding of n-grams.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.config import MAX_TAPS
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.delta_net import DeltaNetSpec
from zinc_rt.models.drafts import leave_drafts
from zinc_rt.models.hyper import LowRankStreams, StreamBranch
from zinc_rt.models.indexer import choose
from zinc_rt.models.keys import Keys
from zinc_rt.models.ngrams import NgramEmbedding
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.qwen35 import HybridInfo, feed_forward

NAMES = ("qwen4exp",)

_DRAFT_WEIGHTS = (
    "attn_k", "attn_v", "attn_q_norm", "attn_k_norm", "ffn_gate_inp_shexp", "indexer.q_proj", "indexer.k_proj",
    "indexer.q_norm", "indexer.k_norm", "nextn.hc_head_norm", "nextn.hc_head_down", "nextn.hc_head_up",
    *(f"hc_{part}_{name}" for part in ("attn", "ffn") for name in ("norm", "down", "up", "inject")),
)  # fmt: skip


@dataclass(frozen=True)
class BlockIndexerSpec:
    """Chooses whole blocks of positions by the mean of their keys, for a layer.

    block: positions of a block. rotation: of queries. block_rotation: of keys, by the first position of their block.
    """

    n_heads: int
    head_dim: int
    top_k: int
    block: int
    rotation: Rotation
    block_rotation: Rotation

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """The choice for rows h, i32[n_rows, max_pages]."""
        p, d = f"blk.{layer}.indexer", self.head_dim
        q = parts.head_norm(parts.project(h, f"{p}.q_proj", self.n_heads * d), f"{p}.q_norm", self.n_heads, d)
        q = parts.rope(q, f"{p}.rope_q", self.rotation, self.n_heads, d)
        k = parts.project(h, f"{p}.k_proj", d)
        if self.block > 1:
            k = self._mean(parts, k, layer, p)
        k = parts.rope(parts.head_norm(k, f"{p}.k_norm", 1, d), f"{p}.rope_k", self.block_rotation, 1, d)
        return choose(parts, p, layer, (q, k), d, self.top_k, block=self.block)

    def _mean(self, parts: GraphParts, k: BufferId, layer: int, p: str) -> BufferId:
        """The mean of the last keys, as many as a block has: at a block's last position, that of the block."""
        shape = (self.head_dim, self.block)
        shares = parts.constant(
            f"{p}.shares", shape, lambda n_ctx: np.full(shape, np.float32(1.0 / self.block), np.float32)
        )
        kept = parts.states.of_sequence("indexer", layer, "index_state", (self.block - 1, self.head_dim))
        mean = parts.temp(f"{p}.k_mean", self.head_dim)
        parts.g.node(
            Op.SSM_CONV1D, [k, shares, kept, *parts.in_order()], [mean, kept], f"{p}.k_mean.conv", activation="none"
        )
        return mean


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = HybridInfo.from_file(file, keys)
    parts = GraphParts(file, info, info.rms_eps)
    leave_drafts(parts, info.n_drafts, others=_DRAFT_WEIGHTS, biases=())
    streams = LowRankStreams(
        keys.integer("hyper_connection.count", maximum=16), keys.integer("hyper_connection.low_rank")
    )
    ngrams = NgramEmbedding.from_keys(keys, streams, info.n_embd)
    rotation = parts.rotation(info.rope)
    attention = AttentionSpec(info.heads, rotation, qk_norm=True, out_gate=True)
    delta = StreamBranch(streams, "hc_attn", DeltaNetSpec(info.delta, "modulo", gate="sigmoid"))
    ffn = StreamBranch(streams, "hc_ffn", feed_forward(keys))
    blocks = _blocks(keys, info)
    turned = {
        block: parts.rotation(info.rope, name=f"rope_table_of_blocks_of_{block}", block=block)
        for block in sorted({*blocks} - {0})
    }
    x = streams.start(parts, parts.embed())
    for layer, recurrent in enumerate(info.recurrent):
        if ngrams is not None and ngrams.layer == layer:
            x = ngrams.emit(parts, x)
        mixer = delta
        if not recurrent:
            indexer = None
            if blocks[layer]:
                indexer = BlockIndexerSpec(
                    keys.integer("attention.indexer.head_count"),
                    keys.integer("attention.indexer.key_length", maximum=4096),
                    keys.integer("attention.indexer.top_k", minimum=blocks[layer]),
                    blocks[layer],
                    rotation,
                    turned[blocks[layer]],
                )
            mixer = StreamBranch(streams, "hc_attn", replace(attention, indexer=indexer))
        x = ffn.emit(parts, mixer.emit(parts, x, layer), layer)
    h, _ = streams.read(parts, x, "output_hc")
    parts.head(h)
    return parts.finish()


def _blocks(keys: Keys, info: HybridInfo) -> tuple[int, ...]:
    """Positions of a layer's blocks, 0 where it sees all positions. Raises `ModelError`."""
    if not keys.has("attention.compress_ratios"):
        return (0,) * info.n_layers
    blocks = keys.integers("attention.compress_ratios", info.n_layers + info.n_drafts, minimum=0, maximum=MAX_TAPS)
    return tuple(0 if recurrent else block for block, recurrent in zip(blocks, info.recurrent, strict=False))

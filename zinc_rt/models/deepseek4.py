"""`deepseek4`: DeepSeek-V4 Flash and Pro. Attention over a window of positions and over keys of whole blocks, between
several streams; in the first layers experts by token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.config import check_heads, read_info
from zinc_rt.models.definition import ModelDefinition, ModelInfo
from zinc_rt.models.drafts import count_drafts, leave_drafts
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.hyper import MixedStreams, StreamBranch
from zinc_rt.models.indexer import choose
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing, clamp_limits, clamped
from zinc_rt.numerics import PAGE_TOKENS

NAMES = ("deepseek4",)

CHOSEN_BLOCK = 4
"""Positions of the blocks that an indexer chooses among. Each of these begins with what the block before has for it."""

_DRAFT_WEIGHTS = (
    "attn_sinks", "attn_q_a", "attn_q_a_norm", "attn_q_b", "attn_kv", "attn_kv_a_norm", "attn_output_a",
    "attn_output_b", "ffn_norm", "nextn.hc_head_fn", "nextn.hc_head_base", "nextn.hc_head_scale",
    *(f"hc_{part}_{name}" for part in ("attn", "ffn") for name in ("fn", "base", "scale")),
)  # fmt: skip
"""What a block that drafts has beside the usual."""


@dataclass(frozen=True)
class DeepSeek4Info(ModelInfo):
    """Sizes of the family. blocks: positions of the blocks of each layer, 0 for none. n_hashed: layers whose experts
    come from a table by token.
    """

    n_drafts: int
    head_dim: int
    rms_eps: float
    rope: RopeConfig
    block_rope: RopeConfig
    blocks: tuple[int, ...]
    n_hashed: int
    routing: Routing

    @classmethod
    def from_file(cls, file: GGUFFile, keys: Keys) -> DeepSeek4Info:
        """Raises `ModelError`."""
        info = read_info(file, keys)
        n_drafts = count_drafts(keys, info.n_layers)
        head_dim = keys.integer("attention.key_length", maximum=4096)
        rope = RopeConfig.from_keys(keys, head_dim, info.n_ctx_train, interleaved=True)
        # YaRN has no magnitude here.
        extended = replace(
            rope, base=keys.number("attention.compress_rope_freq_base", minimum=1.0, above=True), attn_factor=1.0,
            log_multiplier=1.0,
        )  # fmt: skip
        return cls(
            **{**vars(info), "n_layers": info.n_layers - n_drafts},
            n_drafts=n_drafts,
            head_dim=head_dim,
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
            rope=rope.unscaled(),
            block_rope=extended,
            blocks=_blocks(keys, info.n_layers)[: info.n_layers - n_drafts],
            n_hashed=keys.integer("hash_layer_count", 0, minimum=0),
            routing=Routing.from_keys(keys, default="sqrt_softplus"),
        )


def _blocks(keys: Keys, n_layers: int) -> tuple[int, ...]:
    """Positions of the blocks of each layer. Raises `ModelError`."""
    name = "attention.compress_ratios"
    found = keys.integers(name, max(n_layers, keys.length(name)), minimum=0, maximum=4096)
    for layer, block in enumerate(found):
        if block == 1 or (block and PAGE_TOKENS % block and block % PAGE_TOKENS):
            raise ModelError(
                f"{keys.name(name)} is {block} in layer {layer}; 0, a divisor of {PAGE_TOKENS} above 1 and multiples of"
                f" it are supported"
            )
    return found


@dataclass(frozen=True)
class _Turns:
    """The rotations of a layer: of queries and keys, of a block's key by its first position, and back."""

    forth: Rotation
    of_block: Rotation | None
    back: Rotation


@dataclass(frozen=True)
class BlockAttentionSpec:
    """Attention of DeepSeek-V4: queries of two projections, one head of keys that are their own values, a window.

    block: positions of a block with a key of its own, 0 for none. indexer: heads, elements of a head, and blocks that
    a row keeps, where it does not see all. n_groups, rank: of the output's first projection, which is one for each
    group of heads.

    Raises `ModelError` for more heads, or wider ones, than kernels do.
    """

    n_heads: int
    head_dim: int
    q_rank: int
    window: int
    n_groups: int
    rank: int
    turns: _Turns
    block: int
    indexer: tuple[int, int, int] | None

    def __post_init__(self) -> None:
        check_heads(self.n_heads, 1, self.head_dim, "attention.head_count", "one head", "attention.key_length")
        if self.n_heads % self.n_groups:
            raise ModelError(
                f"attention.output_group_count is {self.n_groups}, it must divide attention.head_count, which is"
                f" {self.n_heads}"
            )

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, n_heads, d, turns = f"blk.{layer}", self.n_heads, self.head_dim, self.turns
        q_latent = parts.norm(parts.project(h, f"{p}.attn_q_a", self.q_rank), f"{p}.attn_q_a_norm")
        q = parts.project(q_latent, f"{p}.attn_q_b", n_heads * d)
        q = parts.head_norm(q, f"{p}.attn_q_normed", n_heads, d, weight=False)
        q = parts.rope(q, f"{p}.rope_q", turns.forth, n_heads, d)
        kv = parts.head_norm(parts.project(h, f"{p}.attn_kv", d), f"{p}.attn_kv_a_norm", 1, d)
        inputs = [q, self._write(parts, parts.rope(kv, f"{p}.rope_kv", turns.forth, 1, d), layer), *parts.where()]
        inputs.append(parts.weight(f"{p}.attn_sinks.weight", n_heads))
        more = {}
        if self.block:
            key = self._key_of_block(parts, h, layer, "attn_compressor", d)
            inputs.append(self._write(parts, key, layer, self.block))
            more["block"] = self.block
            if self.indexer is not None:
                inputs.append(self._choose(parts, h, q_latent, layer))
        out = parts.temp(f"{p}.attn", n_heads * d)
        parts.g.node(
            Op.BLOCK_ATTN, inputs, [out], f"{p}.block_attn", window=self.window, scale=1.0 / math.sqrt(d),
            n_heads=n_heads, head_dim=d, **more,
        )  # fmt: skip
        out = parts.rope(out, f"{p}.rope_back", turns.back, n_heads, d)
        out = parts.group_project(out, f"{p}.attn_output_a", self.n_groups, self.rank, joined=True)
        return parts.project(out, f"{p}.attn_output_b", parts.info.n_embd)

    def _write(self, parts: GraphParts, key: BufferId, layer: int, block: int = 1) -> BufferId:
        """The cache with the keys of the rows, or of the blocks that end there."""
        d = parts.width(key)
        cache = parts.states.entry_cache(layer, d, block=block, window=self.window if block == 1 else None)
        name = f"blk.{layer}.{'kv' if block == 1 else 'block'}_write"
        parts.g.node(Op.KV_WRITE, [key, *parts.where()], [cache], name, n_kv_heads=1, entry_dim=d, block=block)
        return cache

    def _key_of_block(self, parts: GraphParts, h: BufferId, layer: int, name: str, width: int) -> BufferId:
        """The key of the block so far: at a block's last position, that of the block."""
        assert self.turns.of_block is not None
        p, overlap = f"blk.{layer}.{name}", self.block == CHOSEN_BLOCK
        wide = 2 * width if overlap else width
        values, scores = (parts.project(h, f"{p}_{what}", wide) for what in ("kv", "gate"))
        offsets = parts.table_constant(f"{p}_ape", self.block, wide)
        state = parts.states.of_sequence("compressor", layer, f"{name}_state", (6 if overlap else 3, width))
        y = parts.temp(f"{p}_pooled", width)
        parts.g.node(
            Op.POOL_BLOCKS, [values, scores, offsets, state, *parts.in_order()], [y, state], f"{p}.pool_blocks",
            block=self.block,
        )  # fmt: skip
        y = parts.head_norm(y, f"{p}_norm", 1, width)
        return parts.rope(y, f"{p}_rope", self.turns.of_block, 1, width)

    def _choose(self, parts: GraphParts, h: BufferId, q_latent: BufferId, layer: int) -> BufferId:
        """The blocks that rows see, i32[n_rows, max_pages]."""
        assert self.indexer is not None
        p, (n_heads, d, top_k) = f"blk.{layer}.indexer", self.indexer
        q = parts.project(q_latent, f"{p}.attn_q_b", n_heads * d)
        q = parts.rope(q, f"{p}.rope_q", self.turns.forth, n_heads, d)
        key = self._key_of_block(parts, h, layer, "indexer_compressor", d)
        operands = q, key, parts.project(h, f"{p}.proj", n_heads)
        scale = 1.0 / math.sqrt(n_heads * d)
        return choose(parts, p, layer, operands, d, top_k * self.block, scale=scale, block=self.block)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DeepSeek4Info.from_file(file, keys)
    parts = GraphParts(file, info, info.rms_eps)
    leave_drafts(parts, info.n_drafts, others=_DRAFT_WEIGHTS, biases=("exp_probs_b",))
    attentions = {block: _attention(keys, info, block, turns) for block, turns in _turns(parts, info).items()}
    streams = MixedStreams(
        keys.integer("hyper_connection.count", maximum=16),
        keys.number("hyper_connection.epsilon"),
        keys.integer("hyper_connection.sinkhorn_iterations", maximum=1000),
    )
    x = streams.start(parts, parts.embed())
    for layer, (block, feed_forward) in enumerate(zip(info.blocks, _feed_forwards(keys, info), strict=True)):
        x = StreamBranch(streams, "hc_attn", attentions[block], "attn_norm").emit(parts, x, layer)
        x = StreamBranch(streams, "hc_ffn", feed_forward, "ffn_norm").emit(parts, x, layer)
    h, _ = streams.read(parts, x, "output_hc", end=True)
    parts.head(parts.norm(h, "output_norm"), tied=False)
    return parts.finish()


def _attention(keys: Keys, info: DeepSeek4Info, block: int, turns: _Turns) -> BlockAttentionSpec:
    """The attention of the layers with blocks of so many positions. Raises `ModelError`."""
    indexer = None
    if block == CHOSEN_BLOCK:
        indexer = (
            keys.integer("attention.indexer.head_count"),
            keys.integer("attention.indexer.key_length", minimum=info.rope.dim, maximum=4096),
            keys.integer("attention.indexer.top_k"),
        )
    return BlockAttentionSpec(
        n_heads=keys.integer("attention.head_count"),
        head_dim=info.head_dim,
        q_rank=keys.integer("attention.q_lora_rank"),
        window=keys.integer("attention.sliding_window"),
        n_groups=keys.integer("attention.output_group_count"),
        rank=keys.integer("attention.output_lora_rank"),
        turns=turns,
        block=block,
        indexer=indexer,
    )


def _turns(parts: GraphParts, info: DeepSeek4Info) -> dict[int, _Turns]:
    """The rotations of layers by the positions of their blocks: of the last elements of heads."""

    @cache
    def turn(rope: RopeConfig, name: str, block: int = 1, sign: int = 1) -> Rotation:
        table = parts.constant(
            name,
            ("n_ctx", rope.dim // 2, 2),
            lambda n_ctx: rope.table(n_ctx, block=block) * np.array([1, sign], np.float32),
        )
        return Rotation(table, interleaved=True, last=rope.dim)

    found = {}
    for block in sorted(set(info.blocks)):
        rope, name = (info.block_rope, "rope_table_of_blocks") if block else (info.rope, "rope_table")
        of_block = turn(rope, f"{name}_of_{block}", block) if block else None
        found[block] = _Turns(turn(rope, name), of_block, turn(rope, f"{name}_back", sign=-1))
    return found


def _feed_forwards(keys: Keys, info: DeepSeek4Info) -> list[RoutedSpec]:
    """The experts of each layer. Raises `ModelError`."""
    n_ff = keys.integer("expert_feed_forward_length")
    n_blocks = info.n_layers + info.n_drafts
    limits = clamp_limits(keys, "swiglu_clamp_exp", info.n_layers, n_blocks)
    shared_limits = limits
    if keys.has("swiglu_clamp_shexp"):
        shared_limits = clamp_limits(keys, "swiglu_clamp_shexp", info.n_layers, n_blocks)
    shared = FeedForwardSpec(n_ff * keys.integer("expert_shared_count"), suffix="_shexp")
    out = []
    for layer in range(info.n_layers):
        hashed = layer < info.n_hashed
        part = RoutedSpec(
            info.routing, n_ff, selection_bias=not hashed, by_token=hashed,
            shared=clamped(shared, shared_limits[layer], "clamped_silu"),
        )  # fmt: skip
        out.append(clamped(part, limits[layer], "clamped_silu"))
    return out

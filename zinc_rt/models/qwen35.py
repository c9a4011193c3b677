"""`qwen35`, `qwen35moe`, `qwen3next`: Qwen 3.5, 3.6, 3.8 and Qwen3-Next: delta nets with gated attention between."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, BranchBody, Layer, decoder
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition, ModelInfo, PictureStyle, Sections
from zinc_rt.models.delta_net import DeltaNetSizes, DeltaNetSpec
from zinc_rt.models.drafts import count_drafts, draft_head, leave_drafts
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing, expert_width

NAMES = ("qwen35", "qwen35moe", "qwen3next")


@dataclass(frozen=True)
class HybridInfo(ModelInfo):
    """Sizes of a decoder of two kinds of layer. recurrent: whether a layer is a delta net.

    n_drafts: blocks behind the others that draft further tokens, which no step needs.
    """

    heads: HeadSizes
    delta: DeltaNetSizes
    recurrent: tuple[bool, ...]
    n_drafts: int
    rms_eps: float
    rope: RopeConfig

    @classmethod
    def from_file(cls, file: GGUFFile, keys: Keys) -> HybridInfo:
        """Raises `ModelError`."""
        info = read_info(file, keys)
        n_blocks = info.n_layers
        n_drafts = count_drafts(keys, n_blocks)
        heads = HeadSizes.from_keys(keys, info.n_embd)
        return cls(
            **{**vars(info), "n_layers": n_blocks - n_drafts},
            heads=heads,
            delta=DeltaNetSizes.from_keys(keys),
            recurrent=_recurrent(keys, n_blocks, n_blocks - n_drafts),
            n_drafts=n_drafts,
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
            rope=RopeConfig.from_keys(keys, heads.head_dim, info.n_ctx_train, interleaved=False),
        )


def _recurrent(keys: Keys, n_blocks: int, n_layers: int) -> tuple[bool, ...]:
    if keys.has("attention.recurrent_layers"):
        return keys.flags("attention.recurrent_layers", n_blocks)[:n_layers]
    interval = keys.integer("full_attention_interval", 4)
    return tuple((layer + 1) % interval != 0 for layer in range(n_layers))


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info, parts, full, linear = _read(file, name)
    leave_drafts(parts, info.n_drafts)
    return decoder(parts, [linear if recurrent else full for recurrent in info.recurrent])


def define_draft_head(file: GGUFFile, name: str) -> ModelDefinition | None:
    """See `models.define_draft_head`."""
    info, parts, full, _ = _read(file, name)
    return draft_head(parts, full) if info.n_drafts else None


def _read(file: GGUFFile, name: str) -> tuple[HybridInfo, GraphParts, Layer, Layer]:
    """The figures, an empty graph, and the two kinds of block: of attention, and of a delta net."""
    keys = Keys(file.metadata, name)
    info = HybridInfo.from_file(file, keys)
    parts = GraphParts(file, info, info.rms_eps)
    if name != "qwen3next":
        parts.picture_style = PictureStyle(Sections.ALTERNATING)
    attention = AttentionSpec(info.heads, parts.rotation(info.rope), qk_norm=True, out_gate=True)
    # Files of qwen3next keep the value heads of a key head together; the others have them one of each key head in turn.
    delta = DeltaNetSpec(info.delta, "block" if name == "qwen3next" else "modulo")
    ffn = Branch("ffn", feed_forward(keys), "post_attention_norm")
    full, linear = (BlockSpec((Branch("attn", mixer, "attn_norm"), ffn)) for mixer in (attention, delta))
    return info, parts, full, linear


def feed_forward(keys: Keys) -> BranchBody:
    """Dense, or experts with a gated one that all rows share."""
    if not keys.integer("expert_count", 0, minimum=0):
        return FeedForwardSpec(keys.integer("feed_forward_length"))
    routing = Routing.from_keys(keys, gating="softmax", normalise=True)
    n_shared = keys.integer("expert_shared_feed_forward_length", 0, minimum=0)
    shared = FeedForwardSpec(n_shared or keys.integer("feed_forward_length"), suffix="_shexp")
    return RoutedSpec(routing, expert_width(keys, routing.n_used), shared=shared, shared_gate=True)
